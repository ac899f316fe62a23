"""Errors of certificates and keys. None quotes what is in a file."""

from __future__ import annotations

from protocols.errors import FjordError


class SecurityError(FjordError):
    """Something about certificates, keys or access rules is not as it has to be."""


class CertificateFileError(SecurityError):
    """A file of a certificate or key that cannot be used.

    Parameters
    ----------
    file
        Its path.
    message, hint
        As in :class:`FjordError`.
    """

    def __init__(self, file: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.file = file


class ExpiredCertificateError(CertificateFileError):
    """A certificate whose time is over."""
