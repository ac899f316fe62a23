"""Certificates: what is in them, how long they last, which list revokes them; OpenSSL, too, believes them."""

from __future__ import annotations

import shutil
import stat
import subprocess
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.security.certificates import Purpose, check_host, issue, make_authority, revocation_list
from protocols.security.errors import SecurityError
from protocols.security.private_files import PUBLIC, SECRET, write_file

NOW = 1_767_225_600.0
DAY = 86_400.0


@pytest.fixture(scope="module")
def authority():
    return make_authority("Fjord test", now=NOW, days=100)


def loaded(pair):
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_client_has_its_name_and_may_be_a_client_only(authority):
    found = loaded(issue(authority, "roadside", Purpose.CLIENT, now=NOW, days=10))
    assert [each.value for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["roadside"]
    assert list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert isinstance(found.public_key().curve, ec.SECP256R1)
    found.verify_directly_issued_by(loaded(authority))


def test_a_server_has_its_hosts(authority):
    found = loaded(
        issue(authority, "broker", Purpose.SERVER, hosts=["gateway.local", "10.0.0.7", "::1"], now=NOW, days=10)
    )
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gateway.local"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]


def test_certificates_last_as_long_as_asked_and_not_longer_than_their_authority(authority):
    assert issue(authority, "a", Purpose.CLIENT, now=NOW, days=10).expires == NOW + 10 * DAY
    assert issue(authority, "a", Purpose.CLIENT, now=NOW, days=1_000).expires == NOW + 100 * DAY
    assert loaded(
        issue(authority, "a", Purpose.CLIENT, now=NOW, days=10)
    ).not_valid_before_utc < datetime.fromtimestamp(NOW, UTC)


def test_a_renewed_authority_keeps_what_it_has_signed(authority):
    renewed = make_authority("Fjord test", now=NOW + DAY, days=200, key=authority.key)
    loaded(issue(authority, "a", Purpose.CLIENT, now=NOW, days=10)).verify_directly_issued_by(loaded(renewed))
    assert renewed.serial != authority.serial
    assert renewed.expires > authority.expires


def test_a_list_names_what_is_revoked_and_lasts_as_long_as_its_authority(authority):
    gone = issue(authority, "a", Purpose.CLIENT, now=NOW, days=10)
    found = x509.load_pem_x509_crl(revocation_list(authority, {gone.serial: NOW}, now=NOW))
    assert [each.serial_number for each in found] == [gone.serial]
    assert found.is_signature_valid(loaded(authority).public_key())
    assert found.next_update_utc == loaded(authority).not_valid_after_utc
    assert not list(x509.load_pem_x509_crl(revocation_list(authority, {}, now=NOW)))


@pytest.mark.parametrize(
    "host", ["", "*", "*.local", "a b", "a/b", "gateway:8883", "-a", "a..b", "ä.local", "a\nb", "a" * 254, "[::1]"]
)
def test_what_is_no_host_is_refused(host):
    with pytest.raises(SecurityError, match="is not the name or the address"):
        check_host(host)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no OpenSSL")
def test_openssl_believes_what_we_sign(tmp_path, authority):
    client = issue(authority, "roadside", Purpose.CLIENT, now=NOW, days=10)
    for name, content in (
        ("ca", authority.certificate),
        ("client", client.certificate),
        ("crl", revocation_list(authority, {client.serial: NOW}, now=NOW)),
        ("none", revocation_list(authority, {}, now=NOW)),
    ):
        write_file(tmp_path / name, content, mode=PUBLIC)

    def verify(*arguments):
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-attime",
            str(int(NOW + DAY)),
            "-CAfile",
            "ca",
            *arguments,
            "client",
        ]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert verify("-purpose", "sslclient").returncode == 0
    assert verify("-purpose", "sslserver").returncode != 0
    assert verify("-crl_check", "-CRLfile", "none").returncode == 0
    assert "revoked" in verify("-crl_check", "-CRLfile", "crl").stderr


def test_keys_are_for_their_owner_and_files_are_not_overwritten(tmp_path):
    file = tmp_path / "new" / "a.key"
    write_file(file, b"first", mode=SECRET)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with pytest.raises(SecurityError, match=r"a\.key is there already"):
        write_file(file, b"second", mode=SECRET)
    assert file.read_bytes() == b"first"
    write_file(file, b"third", mode=SECRET, overwrite=True)
    assert file.read_bytes() == b"third"
    assert [each.name for each in file.parent.iterdir()] == ["a.key"]


def test_a_file_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SecurityError, match="cannot write"):
        write_file(tmp_path / "file" / "a.key", b"secret", mode=SECRET)
