"""Reading certificates and keys from files in PEM, with errors that name the file and never its content."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from protocols.security.errors import CertificateFileError, ExpiredCertificateError

LARGEST_FILE_BYTES = 1024 * 1024


def read_certificate(file: str) -> x509.Certificate:
    """Return the first certificate of a file, which is the part's own; raises CertificateFileError."""
    return read_authorities(file)[0]


def read_authorities(file: str) -> Sequence[x509.Certificate]:
    """Return all certificates of a file; raises CertificateFileError."""
    octets = _read(file)
    try:
        return x509.load_pem_x509_certificates(octets)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateFileError(file, f"{file} is no certificate in PEM form") from error


def expires(certificates: Sequence[x509.Certificate]) -> float:
    """Return when the last of these expires, in seconds since 1970: a file may hold an old authority and a new one."""
    return max(each.not_valid_after_utc.timestamp() for each in certificates)


def check_times(certificates: Sequence[x509.Certificate], file: str, now: float) -> None:
    """Check that one of the certificates of a file is valid at a time, in seconds since 1970.

    Raises
    ------
    ExpiredCertificateError
        If the time of all is over.
    CertificateFileError
        If it has not come.
    """
    if expires(certificates) < now:
        raise ExpiredCertificateError(
            file,
            f"the certificate in {file} expired on {date_text(expires(certificates))}",
            hint="renew it: `fjord security renew`",
        )
    begins = min(each.not_valid_before_utc.timestamp() for each in certificates)
    if begins > now:
        raise CertificateFileError(
            file,
            f"the certificate in {file} is valid from {date_text(begins)} on",
            hint="is the clock of this machine right?",
        )


def check_key(certificate: x509.Certificate, certificate_file: str, file: str) -> None:
    """Check that a key belongs to a certificate.

    Raises
    ------
    CertificateFileError
        If it does not, or cannot be read.
    """
    octets = _read(file)
    try:
        key = serialization.load_pem_private_key(octets, password=None)
    except TypeError as error:
        raise CertificateFileError(
            file,
            f"the key in {file} is protected by a password",
            hint="store it without one, readable by its user only",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateFileError(file, f"{file} is no private key in PEM form") from error
    if key.public_key() != certificate.public_key():
        raise CertificateFileError(
            file,
            f"the key in {file} is not that of the certificate in {certificate_file}",
            hint="both files come from one folder that `fjord security` made",
        )


def date_text(seconds: float) -> str:
    """Return a date in UTC.

    Examples
    --------
    >>> date_text(1_330_603_200)
    '2012-03-01'
    """
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            octets = opened.read(LARGEST_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise CertificateFileError(
            file, f"there is no file {file}", hint="`fjord security init` makes certificates and keys"
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise CertificateFileError(file, f"cannot read {file}: {reason}") from error
    if len(octets) > LARGEST_FILE_BYTES:
        raise CertificateFileError(file, f"{file} is too large for a certificate or key")
    return octets
