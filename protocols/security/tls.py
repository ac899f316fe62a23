"""TLS of one part: the files it has, whether they can be used, and the contexts that are made of them.

Files are read again for each context, so that a part that connects again uses renewed ones. The library that reads
certificates takes a twentieth of a second to import: only parts with TLS do.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from protocols.event_log import get_logger
from protocols.security.errors import CertificateFileError, SecurityError

DAY_SECONDS = 86_400.0
WARNED_SECONDS = 30 * DAY_SECONDS
"""Certificates with less time left are warned of."""
LOWEST_VERSION = ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the files with which a part identifies itself, and recognises others.

    Parameters
    ----------
    authority
        Certificates of the authorities that the other side's certificate must come from. None: a client takes those of
        the system, a server asks for no certificate.
    certificate, key
        What this side shows, both in PEM; a server has both, a client both or neither.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TlsNames:
    """What the three files are called where they are set: for instance names of environment variables."""

    authority: str
    certificate: str
    key: str

    def read(self, values: Mapping[str, str]) -> TlsFiles | None:
        """Return the files that are set; an empty value, as compose files set it, is none.

        Raises
        ------
        SecurityError
            If one of certificate and key is set without the other.

        Examples
        --------
        >>> TlsNames("CA", "CRT", "KEY").read({"CA": "ca.crt", "KEY": ""})
        TlsFiles(authority='ca.crt', certificate=None, key=None)
        """
        authority, certificate, key = (
            values.get(name, "").strip() or None for name in (self.authority, self.certificate, self.key)
        )
        if (certificate is None) != (key is None):
            given, missing = (self.certificate, self.key) if key is None else (self.key, self.certificate)
            raise SecurityError(f"{given} is set without {missing}", hint="set both, or neither")
        if authority is None and certificate is None:
            return None
        return TlsFiles(authority, certificate, key)


def check_at_start(files: TlsFiles, now: float) -> None:
    """Check files as :func:`check_files` does, and log a key that other users of this machine can read."""
    check_files(files, now)
    if files.key is not None and Path(files.key).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        get_logger(__name__).warning(
            "other users of this machine may read a key", file=files.key, hint="make it readable by its user only"
        )


def check_files(files: TlsFiles, now: float) -> None:
    """Check that all files can be used at a time, in seconds since 1970.

    Raises
    ------
    ExpiredCertificateError
        If a certificate has expired; of several authorities, if all have.
    CertificateFileError
        If a file is missing, unreadable, something else, or not valid yet, or the key belongs to another certificate.
    """
    from protocols.security import pem_files  # noqa: PLC0415 - see above

    if files.authority is not None:
        pem_files.check_times(pem_files.read_authorities(files.authority), files.authority, now)
    if files.certificate is not None and files.key is not None:
        certificate = pem_files.read_certificate(files.certificate)
        pem_files.check_times([certificate], files.certificate, now)
        pem_files.check_key(certificate, files.certificate, files.key)


def days_to_warn_of(expires: float, now: float) -> int | None:
    """Return the whole days that are left if a certificate is to be warned of, else None; below 0 it has expired.

    Examples
    --------
    >>> days_to_warn_of(40 * 86_400.0, now=0.0), days_to_warn_of(8.5 * 86_400.0, now=0.0)
    (None, 8)
    """
    return int((expires - now) // DAY_SECONDS) if expires - now < WARNED_SECONDS else None


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a client, which checks the name of the server's certificate.

    Raises
    ------
    CertificateFileError
        If a file cannot be used; :func:`check_files` says more exactly why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    if files.authority is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return _loaded(context, files)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a server; with an authority, clients must show a certificate that comes from it.

    Raises
    ------
    CertificateFileError
        As :func:`client_context` does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return _loaded(context, files)


def _loaded(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = LOWEST_VERSION
    file = files.authority or ""
    try:
        if files.authority is not None:
            context.load_verify_locations(files.authority)
        if files.certificate is not None:
            file = files.certificate
            # Without a password of ours, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(files.certificate, files.key, password="")
    except ssl.SSLError as error:
        raise CertificateFileError(file, f"{file} and its key cannot be used: {error.strerror}") from error
    except OSError as error:
        raise CertificateFileError(file, f"cannot read {file}, or its key: {error.strerror}") from error
    return context
