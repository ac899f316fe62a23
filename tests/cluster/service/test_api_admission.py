"""Which names the API answers to: hosts and origins of requests."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ClusterError
from cluster.service.access.admission import Admission, NotAdmittedError, Refusal, RequestHead
from cluster.service.access.hosts import HostNames, Origins

OWN = HostNames(["127.0.0.1", "fjord.example", "10.0.0.7", "FD00::7"])


@pytest.mark.parametrize(
    "authority",
    [
        *("localhost", "localhost:1", "LOCALHOST", "localhost.", "127.0.0.1:8642", "127.1.2.3", "[::1]", "[::1]:8642"),
        *("fjord.example", "Fjord.Example:443", "10.0.0.7", "[fd00:0::7]:80", "[FD00::7]"),
    ],
)
def test_own_names(authority: str) -> None:
    assert OWN.has(authority)


@pytest.mark.parametrize(
    "authority",
    [
        *("", "evil.example", "localhost.evil.example", "fjord.example.evil", "10.0.0.8", "[::2]", "0.0.0.0", "[::]"),
        *("localhost:x", "localhost:", "localhost:123456", "localhost@evil.example", "evil.example#localhost"),
        *(
            "localhost evil",
            "[::1",
            "::1]",
            "2130706433",
            "0x7f.1",
            "127.1",
            "localhost\n",
            "localhost/..",
            "ĺocalhost",
        ),
    ],
)
def test_other_names(authority: str) -> None:
    assert not OWN.has(authority)


def test_the_address_of_the_connection_is_own_but_not_a_name() -> None:
    assert HostNames().has("192.0.2.1:8642", "192.0.2.1")
    assert HostNames().has("[fe80::1]", "FE80::1")
    assert not HostNames().has("192.0.2.2", "192.0.2.1")
    assert not HostNames().has("evil.example", "evil.example")
    assert not HostNames().has("192.0.2.1", None)


@given(
    st.one_of(
        st.text(max_size=30), st.from_regex(r"[a-z0-9.\-:\[\]@/]{1,30}", fullmatch=True), st.ip_addresses().map(str)
    )
)
def test_only_own_names_are_answered(authority: str) -> None:
    if OWN.has(authority):
        host = (
            authority.removeprefix("[").partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
        )
        try:
            address = ip_address(host)
        except ValueError:
            assert host.casefold().removesuffix(".") in {"localhost", "fjord.example"}
        else:
            assert address.is_loopback or str(address) in {"10.0.0.7", "fd00::7"}


@pytest.mark.parametrize(
    ("hosts", "origins", "refusal"),
    [
        (("localhost",), (), None),
        (("localhost:8642",), ("http://localhost:8642",), None),
        (("localhost:8642",), ("http://LOCALHOST:8642",), None),
        (("localhost:80",), ("http://localhost",), None),
        (("[::1]:8642",), ("http://[0:0::1]:8642",), None),
        # Pages of other programs of this machine
        (("localhost:8642",), ("http://localhost:3000",), Refusal.ORIGIN),
        (("localhost:8642",), ("http://localhost",), Refusal.ORIGIN),
        (("localhost:8642",), ("https://localhost:8642",), Refusal.ORIGIN),
        (("localhost:8642",), ("http://127.0.0.1:8642",), Refusal.ORIGIN),
        (("127.0.0.1:8642",), ("http://127.0.0.2:8642",), Refusal.ORIGIN),
        (("localhost:8642",), ("file://localhost:8642",), Refusal.ORIGIN),
        (("localhost:8642",), ("http://localhost:8642/",), Refusal.ORIGIN),
        (("localhost:8642",), ("http://user@localhost:8642",), Refusal.ORIGIN),
        (("localhost:8642",), ("http://localhost:8642", "http://localhost:3000"), Refusal.ORIGIN),
        ((), (), Refusal.HOST),
        (("localhost", "localhost"), (), Refusal.HOST),
        (("localhost", "evil.example"), (), Refusal.HOST),
        (("localhost",), ("http://evil.example",), Refusal.ORIGIN),
        (("localhost",), ("http://localhost", "http://evil.example"), Refusal.ORIGIN),
        (("localhost",), ("localhost",), Refusal.ORIGIN),
        (("localhost",), ("null",), Refusal.ORIGIN),
        (("localhost",), ("http://localhost, http://evil.example",), Refusal.ORIGIN),
    ],
)
def test_hosts_and_origins_are_looked_at_first(
    hosts: tuple[str, ...], origins: tuple[str, ...], refusal: Refusal | None
) -> None:
    head = RequestHead("GET", "/docs", hosts, origins)
    if refusal is None:
        Admission().admit(head)
    else:
        with pytest.raises(NotAdmittedError) as caught:
            Admission().admit(head)
        assert caught.value.refusal is refusal
        assert len(str(caught.value)) < 300


def test_the_scheme_of_a_page_is_that_of_the_request() -> None:
    head = RequestHead("GET", "/docs", ("localhost",), ("https://localhost:443",), scheme="https")
    Admission().admit(head)
    with pytest.raises(NotAdmittedError):
        Admission().admit(replace(head, origins=("http://localhost",)))


def test_an_operator_names_other_sites() -> None:
    admission = Admission(origins=Origins(["https://Wall.example", "http://10.0.0.7:3000"]))
    for origin in ("https://wall.example", "https://wall.example:443", "http://10.0.0.7:3000"):
        admission.admit(RequestHead("GET", "/docs", ("localhost:8642",), (origin,)))
    for origin in ("http://wall.example", "https://wall.example:8443", "http://10.0.0.7", "https://localhost:8642"):
        with pytest.raises(NotAdmittedError) as caught:
            admission.admit(RequestHead("GET", "/docs", ("localhost:8642",), (origin,)))
        assert "--api-allowed-origin" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["wall.example", "https://", "*", "null", "https://wall.example/path", "ftp://a"])
def test_what_is_no_origin_cannot_be_named(text: str) -> None:
    with pytest.raises(ClusterError, match="is no origin"):
        Origins([text])


@given(
    st.sampled_from(["http", "https", "HTTP", "file"]),
    st.text(max_size=20),
    st.sampled_from(["", ":80", ":8642", ":1"]),
)
def test_only_the_page_of_the_request_itself_is_let_in(scheme: str, host: str, port: str) -> None:
    if Origins().have(f"{scheme}://{host}{port}", scheme="http", authority="localhost:8642"):
        assert (scheme.lower(), host.lower().removesuffix("."), port) == ("http", "localhost", ":8642")


@pytest.mark.parametrize(
    ("sites", "origins", "admitted"),
    [
        ((), (), True),
        (("none",), (), True),
        (("same-origin",), (), True),
        (("Same-Origin",), (), True),
        (("cross-site",), (), False),
        (("same-site",), (), False),  # another port of this machine
        (("anything",), (), False),
        (("same-origin", "cross-site"), (), False),
        (("cross-site",), ("https://wall.example",), True),
        (("cross-site",), ("https://evil.example",), False),
    ],
)
def test_requests_without_an_origin_are_of_no_other_site(
    sites: tuple[str, ...], origins: tuple[str, ...], admitted: bool
) -> None:
    admission = Admission(origins=Origins(["https://wall.example"]))
    head = RequestHead("GET", "/v1/sensors", ("localhost:8642",), origins, fetch_sites=sites)
    if admitted:
        admission.admit(head)
    else:
        with pytest.raises(NotAdmittedError) as caught:
            admission.admit(head)
        assert caught.value.refusal is Refusal.ORIGIN
