"""Addresses of brokers as people write them, and what the environment adds: credentials and files for TLS."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from protocols.mqtt.broker_address import BrokerAddressError, CredentialsError, broker_password, parse_broker
from protocols.mqtt.link import BrokerAddress
from protocols.security.certificates import Purpose, issue, make_authority
from protocols.security.errors import CertificateFileError, ExpiredCertificateError, SecurityError
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles

DAY = 86_400.0


@pytest.mark.parametrize(
    "text", ["", ":1", "h:", "h:0", "h:65536", "h:x", "h:-1", "a b", "a/b", "[::1", "h:" + "9" * 5000]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BrokerAddressError):
        parse_broker(text, {})


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    now = time.time()
    authority = make_authority("Test", now=now, days=3)
    pair = issue(authority, "wall", Purpose.CLIENT, now=now, days=3)
    old = issue(authority, "wall", Purpose.CLIENT, now=now - 10 * DAY, days=3)
    for name, found in (("ca", authority), ("wall", pair), ("old", old)):
        write_file(tmp_path / f"{name}.crt", found.certificate, mode=PUBLIC)
        write_file(tmp_path / f"{name}.key", found.key, mode=SECRET)
    return {
        "FJORD_BROKER_CA": str(tmp_path / "ca.crt"),
        "FJORD_BROKER_CERTIFICATE": str(tmp_path / "wall.crt"),
        "FJORD_BROKER_KEY": str(tmp_path / "wall.key"),
    }


def test_files_for_tls_come_from_the_environment(environment: dict[str, str], tmp_path: Path) -> None:
    files = TlsFiles(*(str(tmp_path / name) for name in ("ca.crt", "wall.crt", "wall.key")))
    assert parse_broker("gateway", environment) == BrokerAddress("gateway", 8883, tls=files)
    assert parse_broker("gateway:1883", environment).port == 1883
    assert parse_broker("[::1]", environment).port == 8883
    only = {"FJORD_BROKER_CA": environment["FJORD_BROKER_CA"], "FJORD_BROKER_KEY": ""}
    assert parse_broker("gateway", only).tls == TlsFiles(files.authority)
    assert parse_broker("gateway", {"FJORD_BROKER_CA": ""}) == BrokerAddress("gateway", 1883)


def test_files_that_are_named_in_part_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(SecurityError, match="FJORD_BROKER_CERTIFICATE is set without FJORD_BROKER_KEY"):
        parse_broker("gateway", {**environment, "FJORD_BROKER_KEY": ""})
    with pytest.raises(CredentialsError, match="FJORD_BROKER_CERTIFICATE is set without FJORD_BROKER_CA"):
        parse_broker("gateway", {**environment, "FJORD_BROKER_CA": ""})


def test_files_are_checked_before_anything_is_connected(environment: dict[str, str], tmp_path: Path) -> None:
    old = {"FJORD_BROKER_CERTIFICATE": str(tmp_path / "old.crt"), "FJORD_BROKER_KEY": str(tmp_path / "old.key")}
    with pytest.raises(ExpiredCertificateError, match=r"old\.crt expired on "):
        parse_broker("gateway", {**environment, **old})
    with pytest.raises(CertificateFileError, match=r"there is no file .*none\.crt"):
        parse_broker("gateway", {**environment, "FJORD_BROKER_CA": str(tmp_path / "none.crt")})


@pytest.mark.parametrize("content", [b"hunter2", b"hunter2\n", b"hunter2\r\n"])
def test_a_password_may_come_from_a_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    address = parse_broker("gateway", {"FJORD_BROKER_USERNAME": "ann", "FJORD_BROKER_PASSWORD_FILE": str(file)})
    assert (address.username, address.password) == ("ann", "hunter2")
    assert "hunter2" not in f"{address} {address!r}"


def test_a_password_is_set_once_and_its_file_is_named_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "password"
    named = {"FJORD_BROKER_PASSWORD_FILE": str(file)}
    with pytest.raises(CredentialsError, match="are both set"):
        broker_password({**named, "FJORD_BROKER_PASSWORD": "hunter2"})
    with pytest.raises(CredentialsError, match="cannot read the broker's password"):
        broker_password(named)
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(CredentialsError) as caught:
        broker_password(named)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    file.write_bytes(b"\n")
    assert broker_password(named) is None
    assert broker_password({"FJORD_BROKER_PASSWORD": ""}) is None
