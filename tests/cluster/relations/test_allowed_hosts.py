"""Relations connect to allowed servers only, and no server gets a credential of the process."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.relations.allowed_hosts import SETTINGS, AllowedHosts
from cluster.relations.opening import Reach
from cluster.relations.source import SourceAwayError, SourceRefusedError, SourceSchemaError
from tests.cluster.relations.source_cases import opened

NO_VARIABLES: dict[str, str] = {}


class Eavesdropper:
    """A server that asks for a password in clear text, and keeps all that it receives."""

    def __init__(self) -> None:
        self.received = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    while True:
                        (length,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
                        body = connection.recv(length - 4, socket.MSG_WAITALL)
                        self.received += body
                        if body[:4] == struct.pack("!I", 80877103):
                            connection.sendall(b"N")  # no TLS
                            continue
                        break
                    connection.sendall(b"R" + struct.pack("!II", 8, 3))
                    self.received += connection.recv(1000)
                except (OSError, struct.error):
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def eavesdropper() -> Iterator[Eavesdropper]:
    found = Eavesdropper()
    yield found
    found.close()


def read(address: str, reach: Reach) -> None:
    opened(address, reach=reach).columns()


def test_no_server_gets_the_passwords_of_the_process(
    eavesdropper: Eavesdropper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / ".pgpass"
    passwords.write_text("*:*:*:*:from-a-file\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGPASSWORD", "from-a-variable")
    for name, value in {"PGPASSFILE": str(passwords), "PGSSLCERT": str(passwords), "PGHOSTADDR": "192.0.2.1"}.items():
        monkeypatch.setenv(name, value)
    address = f"postgresql://reader@127.0.0.1:{eavesdropper.port}/roads"
    with pytest.raises(SourceAwayError, match="no password supplied"):
        read(address, Reach())
    assert b"reader" in eavesdropper.received
    assert b"from-a" not in eavesdropper.received


def test_a_password_of_the_file_of_credentials_goes_to_its_host_only(
    eavesdropper: Eavesdropper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "from-a-variable")
    file = tmp_path / "credentials"
    file.write_text("# of the road office\ndb.example:*:*:*:for-another\n127.0.0.1:*:*:reader:for-this\n")
    file.chmod(0o600)
    reach = Reach(hosts=AllowedHosts(credentials=file))
    for user in ("writer", "reader"):
        with pytest.raises(SourceAwayError):
            read(f"postgresql://{user}@127.0.0.1:{eavesdropper.port}/roads", reach)
        assert (b"for-this" in eavesdropper.received) == (user == "reader")
    assert b"for-another" not in eavesdropper.received
    assert b"from-a" not in eavesdropper.received


def test_a_service_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICE", "roads")
    with pytest.raises(SourceRefusedError, match="PGSERVICE is set"):
        read("postgresql://127.0.0.1:1/roads", Reach())


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://db.example/roads",
        "postgresql://localhost,db.example/roads",
        "postgresql://db.example,localhost/roads",
        "postgresql:///roads?host=db.example",
        "postgresql://localhost/roads?host=db.example",
        "postgresql://10.0.0.1/roads",
        "postgresql://0.0.0.0/roads",
        "postgresql://127.1/roads",
        "postgresql://2130706433/roads",
        "postgresql://localhost.db.example/roads",
        "postgresql://[fe80::1]/roads",
        "postgresql:///roads?host=/tmp",
        "postgresql:///roads?host=@socket",
        "postgres://db.example/roads",
    ],
)
def test_other_hosts_are_refused(address: str) -> None:
    with pytest.raises(SourceRefusedError, match="is not one that relations may connect to") as caught:
        read(address, Reach())
    assert "--relation-host" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("postgresql://127.0.0.1/roads", "127.0.0.1"),
        ("postgresql://127.8.8.8/roads", "127.8.8.8"),
        ("postgresql://LOCALHOST/roads", "LOCALHOST"),
        ("postgresql://[::1]:5433/roads", "::1"),
        ("postgresql://DB.example/roads", "DB.example"),
        ("postgresql://db.example,localhost/roads", "db.example,localhost"),
        ("postgresql://10.0.0.1/roads", "10.0.0.1"),
        ("postgresql:///roads?host=/run/postgresql", "/run/postgresql"),
        ("postgresql:///roads", None),
    ],
)
def test_hosts_of_this_machine_and_named_ones_are_allowed(address: str, host: str | None) -> None:
    hosts = AllowedHosts(["db.Example", "10.0.0.1", "/run/postgresql/"], environment=NO_VARIABLES)
    assert hosts.settings(address).get("host") == host


def test_the_environment_may_name_a_host_but_not_one_that_is_not_allowed() -> None:
    assert AllowedHosts(environment={"PGHOST": "127.0.0.1"}).settings("postgresql:///roads")["host"] == "127.0.0.1"
    with pytest.raises(SourceRefusedError, match=r"'db\.example' is not one"):
        AllowedHosts(environment={"PGHOST": "db.example"}).settings("postgresql:///roads")


@pytest.mark.parametrize(
    "setting",
    [
        *("hostaddr=10.0.0.1", "service=roads", "passfile=/etc/passwd", "sslkey=/k", "sslcert=/c", "sslcrl=/c"),
        *("sslrootcert=/etc/passwd", "sslcrldir=/x", "krbsrvname=x", "gssencmode=require", "replication=database"),
        *("requirepeer=root", "require_auth=gss", "sslpassword=x", "sslcertmode=require", "gsslib=gssapi"),
    ],
)
def test_settings_that_name_files_or_credentials_are_refused(setting: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(SourceRefusedError, match=f"an address cannot set {name}") as caught:
        read(f"postgresql://localhost/roads?{setting}", Reach())
    assert value not in str(caught.value)


def test_the_certificates_of_the_system_may_be_asked_for() -> None:
    found = AllowedHosts(environment=NO_VARIABLES).settings(
        "postgresql://localhost/r?sslmode=verify-full&sslrootcert=system"
    )
    assert (found["sslrootcert"], found["sslmode"]) == ("system", "verify-full")


def test_a_faulty_address_is_not_quoted() -> None:
    with pytest.raises(SourceSchemaError) as caught:
        read("postgresql://u:hunter%zz2@localhost/roads", Reach())
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("*:*:*:*:hunter2", 0o600, "line 1 .* does not name a host"),
        ("\n:5432:*:*:hunter2", 0o600, "line 2 .* does not name a host"),
        ("hunter2", 0o600, "line 1 .* does not name a host"),
        ("h:*:*:*:hunter2", 0o640, "can be read by others"),
        ("h:*:*:*:hunter2", 0o604, "can be read by others"),
    ],
)
def test_faulty_credentials_are_refused_at_once_and_not_quoted(
    tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(SourceRefusedError, match=reason) as caught:
        AllowedHosts(credentials=file)
    assert "hunter2" not in str(caught.value)


def test_credentials_that_became_open_to_others_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(r"db\:1.example:*:*:*:x\:y" + "\n")
    file.chmod(0o600)
    hosts = AllowedHosts(["h"], credentials=file, environment=NO_VARIABLES)
    assert hosts.settings("postgresql://h/r")["passfile"] == str(file)
    file.chmod(0o644)
    with pytest.raises(SourceRefusedError, match="can be read by others"):
        hosts.settings("postgresql://h/r")
    file.unlink()
    with pytest.raises(SourceRefusedError, match="cannot be read: No such file"):
        hosts.settings("postgresql://h/r")


HOSTS = st.one_of(
    st.sampled_from(["localhost", "127.0.0.1", "::1", "db.example", "evil.example", "/tmp", "@x", "0", "0x7f.1", ""]),
    st.ip_addresses().map(str),
    st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True),
)


@given(st.lists(HOSTS, min_size=1, max_size=4))
def test_an_address_is_allowed_only_if_all_its_hosts_are(hosts: list[str]) -> None:
    def is_allowed(host: str) -> bool:
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host in ("", "localhost", "db.example")

    ports = ",".join("5432" for _ in hosts)
    address = f"postgresql:///roads?host={','.join(hosts).replace('@', '%40')}&port={ports}"
    try:
        found = AllowedHosts(["db.example"], environment=NO_VARIABLES).settings(address)
    except SourceRefusedError:
        assert not all(map(is_allowed, hosts))
    else:
        assert all(map(is_allowed, hosts))
        assert set(found) >= {"password", "passfile", "sslkey", "sslcert", "hostaddr"}


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)))
def test_no_setting_of_an_address_takes_the_place_of_what_is_closed(settings: dict[str, str]) -> None:
    settings |= {"host": "localhost"}
    settings.pop("sslrootcert", None)
    address = "postgresql:///?" + "&".join(f"{name}={value}" for name, value in settings.items())
    found = AllowedHosts(environment=NO_VARIABLES).settings(address)
    assert (found["passfile"], found["sslkey"], found["hostaddr"]) == ("/dev/null/none", "/dev/null/none", "")
