"""Files for TLS: which are usable, what errors name of the others, and what they never name."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest
from cryptography.hazmat.primitives import serialization

from protocols.errors import FjordError
from protocols.security.certificates import Pair, Purpose, issue, make_authority
from protocols.security.errors import CertificateFileError, ExpiredCertificateError, SecurityError
from protocols.security.private_files import PUBLIC, SECRET, write_file
from protocols.security.tls import TlsFiles, TlsNames, check_at_start, check_files, client_context, server_context

NOW = time.time()
DAY = 86_400.0
NAMES = TlsNames("CA", "CRT", "KEY")


@pytest.fixture(scope="module")
def authority():
    return make_authority("Test", now=NOW, days=30)


@pytest.fixture(scope="module")
def pair(authority):
    return issue(authority, "wall", Purpose.CLIENT, now=NOW, days=10)


@pytest.fixture
def files(tmp_path, authority, pair):
    write_file(tmp_path / "ca.crt", authority.certificate, mode=PUBLIC)
    write_file(tmp_path / "wall.crt", pair.certificate, mode=PUBLIC)
    write_file(tmp_path / "wall.key", pair.key, mode=SECRET)
    return TlsFiles(*(str(tmp_path / name) for name in ("ca.crt", "wall.crt", "wall.key")))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, None),
        ({"CA": "", "CRT": " ", "KEY": ""}, None),
        ({"CA": "a"}, TlsFiles("a")),
        ({"CA": "a", "CRT": "b", "KEY": "c"}, TlsFiles("a", "b", "c")),
        ({"CRT": "b", "KEY": "c"}, TlsFiles(None, "b", "c")),
    ],
)
def test_files_are_those_that_are_named(values, found):
    assert NAMES.read(values) == found


@pytest.mark.parametrize(
    ("values", "words"), [({"CRT": "b"}, "CRT is set without KEY"), ({"KEY": "c"}, "KEY is set without CRT")]
)
def test_a_certificate_and_its_key_are_named_together(values, words):
    with pytest.raises(SecurityError, match=words):
        NAMES.read({"CA": "a", **values})


def test_good_files_pass(files):
    check_at_start(files, NOW)


@pytest.mark.parametrize("name", ["ca.crt", "wall.crt", "wall.key"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.unlink(), "there is no file {file}"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot read {file}: Is a directory"),
        (lambda file: file.write_bytes(b""), "{file} is no "),
        (lambda file: file.write_bytes(b"very secret words"), "{file} is no "),
        (lambda file: file.write_bytes(b"\xff" * 100), "{file} is no "),
        (lambda file: file.write_bytes(file.read_bytes()[:-60]), "{file} is no "),
        (lambda file: file.write_bytes(bytes(2 * 1024**2)), "{file} is too large"),
    ],
)
def test_a_damaged_file_is_named_and_not_quoted(files, tmp_path, name, damage, words):
    damage(tmp_path / name)
    with pytest.raises(CertificateFileError) as caught:
        check_files(files, NOW)
    assert words.format(file=tmp_path / name) in str(caught.value)
    assert caught.value.file == str(tmp_path / name)
    assert "secret" not in str(caught.value)
    with pytest.raises(CertificateFileError):
        client_context(files)


def test_a_key_of_another_certificate(files, tmp_path, authority):
    other = issue(authority, "other", Purpose.CLIENT, now=NOW, days=10)
    write_file(tmp_path / "wall.key", other.key, mode=SECRET, overwrite=True)
    with pytest.raises(
        CertificateFileError, match=r"the key in .*wall\.key is not that of the certificate in .*wall\.crt"
    ):
        check_files(files, NOW)
    with pytest.raises(CertificateFileError):
        client_context(files)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(files, tmp_path, pair):
    private = serialization.load_pem_private_key(pair.key, None)
    locked = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"hunter2")
    )
    write_file(tmp_path / "wall.key", locked, mode=SECRET, overwrite=True)
    with pytest.raises(CertificateFileError, match="is protected by a password"):
        check_files(files, NOW)
    with pytest.raises(CertificateFileError):
        client_context(files)


@pytest.mark.parametrize(("later", "name"), [(11 * DAY, "wall.crt"), (31 * DAY, "ca.crt")])
def test_an_expired_file_is_named_with_its_date(files, tmp_path, later, name):
    with pytest.raises(ExpiredCertificateError) as caught:
        check_files(files, NOW + later)
    expiry = (NOW + (30 if name == "ca.crt" else 10) * DAY) // DAY * DAY
    assert caught.value.file == str(tmp_path / name)
    assert time.strftime("expired on %Y-%m-%d", time.gmtime(expiry)) in str(caught.value)
    assert "fjord security renew" in str(caught.value)


def test_a_certificate_of_the_future_asks_for_the_clock(files):
    with pytest.raises(CertificateFileError, match=r"valid from .* on .*clock"):
        check_files(files, NOW - 2 * DAY)


def test_one_of_several_authorities_may_have_expired(files, tmp_path, authority):
    old = make_authority("Old", now=NOW - 10 * DAY, days=5)
    write_file(tmp_path / "ca.crt", old.certificate + authority.certificate, mode=PUBLIC, overwrite=True)
    check_files(files, NOW)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_key_that_others_may_read_is_warned_of(files, tmp_path, capsys, mode, warned):
    (tmp_path / "wall.key").chmod(mode)
    check_at_start(files, NOW)
    shown = capsys.readouterr()
    assert ("other users of this machine may read a key" in shown.out + shown.err) == warned
    assert "PRIVATE" not in shown.out + shown.err


def test_no_key_is_in_a_representation(pair):
    assert "PRIVATE" not in repr(pair)
    assert isinstance(pair, Pair)


async def shaken(server_files, client_files, host="127.0.0.1"):
    """What a client reads from a server, or why it gets nothing."""

    async def greet(_, writer):
        writer.write(b"hello\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_context(server_files))
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(client_files), server_hostname=host
        )
        try:
            return await reader.readline()
        finally:
            writer.close()


@pytest.fixture
def server_files(tmp_path, authority):
    found = issue(authority, "api", Purpose.SERVER, hosts=["127.0.0.1", "localhost", "::1"], now=NOW, days=10)
    write_file(tmp_path / "api.crt", found.certificate, mode=PUBLIC)
    write_file(tmp_path / "api.key", found.key, mode=SECRET)
    return TlsFiles(None, str(tmp_path / "api.crt"), str(tmp_path / "api.key"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_a_client_and_a_server_of_one_authority_talk(files, server_files, host):
    assert await shaken(server_files, TlsFiles(files.authority), host) == b"hello\n"


async def test_names_of_hosts_are_checked(files, server_files):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        await shaken(server_files, TlsFiles(files.authority), "gateway.local")


async def test_a_client_takes_no_authority_on_trust(server_files, tmp_path):
    other = make_authority("Other", now=NOW, days=3)
    write_file(tmp_path / "other.crt", other.certificate, mode=PUBLIC)
    with pytest.raises(ssl.SSLCertVerificationError):
        await shaken(server_files, TlsFiles(str(tmp_path / "other.crt")))
    with pytest.raises(ssl.SSLCertVerificationError):
        await shaken(server_files, TlsFiles())


async def test_a_server_with_an_authority_wants_a_certificate(files, server_files):
    strict = TlsFiles(files.authority, server_files.certificate, server_files.key)
    assert await shaken(strict, files) == b"hello\n"
    try:
        found = await shaken(strict, TlsFiles(files.authority))
    except (ssl.SSLError, ConnectionError):
        found = b""
    assert found == b""


def test_errors_are_in_the_tree():
    assert issubclass(ExpiredCertificateError, CertificateFileError)
    assert issubclass(CertificateFileError, SecurityError)
    assert issubclass(SecurityError, FjordError)
