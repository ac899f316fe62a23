"""The client of the API: odd addresses and names, and responses of servers that are not a cluster."""

from __future__ import annotations

import httpx
import pytest

from cluster.service.client.api_client import ApiClient, ApiUnreachableError, RefusedError


@pytest.mark.parametrize("address", ["http://[::1", "http://\0", "http://127.0.0.1:99999", "", "nonsense", "ftp://x"])
def test_a_malformed_address_is_an_error(address: str) -> None:
    with pytest.raises(ApiUnreachableError), ApiClient(address) as client:
        client.queries()


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("localhost:8642", "write http://localhost:8642"),
        ("cluster.example", "write http://cluster.example"),
        ("ftp://cluster.example", "write http://HOST:PORT"),
        ("http://", "write http://HOST:PORT"),
        ("", "write http://HOST:PORT"),
    ],
)
def test_an_error_shows_how_to_write_an_address(address: str, hint: str) -> None:
    with pytest.raises(ApiUnreachableError, match="is not an address") as caught:
        ApiClient(address)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("address", "checked"), [("https://cluster", True), ("HTTPS://cluster", True), ("http://cluster", False)]
)
def test_certificates_are_checked_where_there_are_any(monkeypatch, address: str, checked: bool) -> None:
    settings = {}
    monkeypatch.setattr(httpx, "Client", settings.update)
    ApiClient(address)
    assert settings["verify"] is checked


@pytest.mark.parametrize(("status", "hint"), [(401, "FJORD_API_TOKEN"), (403, "FJORD_API_TOKEN"), (421, "address")])
def test_what_refuses_without_a_hint_gets_one(status: int, hint: str) -> None:
    for answer in (httpx.Response(status, text="no"), httpx.Response(status, json={"message": "no"})):
        with answering(answer, []) as client, pytest.raises(RefusedError) as caught:
            client.queries()
        assert hint in (caught.value.hint or "")
    own = httpx.Response(status, json={"message": "no", "hint": "use another"})
    with answering(own, []) as client, pytest.raises(RefusedError) as caught:
        client.queries()
    assert caught.value.hint == "use another"


def answering(answer: httpx.Response, requests: list[str]) -> ApiClient:
    def handle(request: httpx.Request) -> httpx.Response:
        requests.append(f"{request.method} {request.url.raw_path.decode()}")
        return answer

    client = ApiClient("http://cluster")
    client._http = httpx.Client(base_url="http://cluster", transport=httpx.MockTransport(handle))
    return client


def test_a_page_of_another_server_is_an_error() -> None:
    page = httpx.Response(200, html="<html>Welcome</html>")
    with answering(page, []) as client, pytest.raises(ApiUnreachableError, match="is not a cluster"):
        client.queries()


def test_a_name_is_one_part_of_a_path_whatever_it_contains() -> None:
    requests: list[str] = []
    with answering(httpx.Response(204), requests) as client:
        client.drop("../streams/traffic")
        client.drop_stream("a?b#c")
        client.drop_relation("a%2Fb")
    assert requests == [
        "DELETE /v1/queries/..%2Fstreams%2Ftraffic",
        "DELETE /v1/streams/a%3Fb%23c",
        "DELETE /v1/relations/a%252Fb",
    ]
