"""Why a connection with TLS was refused, in words that say on whose side to look."""

from __future__ import annotations

import ssl

_ALERTS = {
    "CERTIFICATE_REQUIRED": "it wants a certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REVOKED": "our certificate is revoked",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "our certificate is not one for clients",
    "UNKNOWN_CA": "it does not know the authority of our certificate",
    "HANDSHAKE_FAILURE": "it accepts nothing that we offer; does it want a certificate?",
    "PROTOCOL_VERSION": "it speaks other versions of TLS",
}
_OTHERS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection; does it want a certificate?",
    "RECORD_LAYER_FAILURE": "it does not speak TLS on this port",
}


def refusal_text(error: ssl.SSLError) -> str:
    """Return why a handshake failed.

    Examples
    --------
    >>> refusal_text(ssl.SSLError(1, "[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] ssl/tls alert certificate expired"))
    'our certificate has expired'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    text = f"{_reason(error)} {' '.join(map(str, error.args))}".upper()
    if "ALERT" in text:
        return next((words for name, words in _ALERTS.items() if name in text), f"it refused: {_short(error)}")
    return next((words for name, words in _OTHERS.items() if name in text), f"TLS failed: {_short(error)}")


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's name of the reason; errors that Python itself makes have not even the attribute."""
    return getattr(error, "reason", None) or error.strerror or "no reason given"


def _short(error: ssl.SSLError) -> str:
    return _reason(error).replace("_", " ").lower()
