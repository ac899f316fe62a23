"""TLS of a connection to the broker: how it is opened, why it was refused, when the broker's certificate expires."""

from __future__ import annotations

import ssl
import time
from typing import Any

from protocols.mqtt.messages import BrokerAddress
from protocols.security.refusals import refusal_text
from protocols.security.tls import check_files, client_context


def opening_arguments(address: BrokerAddress) -> dict[str, Any]:
    """Return what asyncio's ``create_connection`` needs besides host and port: nothing without TLS.

    Files are read now: renewed ones are used from the next connection on.

    Raises
    ------
    CertificateFileError
        If a file cannot be used, or a certificate of our own has expired.
    """
    if address.tls is None:
        return {}
    check_files(address.tls, time.time())
    return {"ssl": client_context(address.tls), "server_hostname": address.host}


def refusal_of(error: BaseException | None) -> str | None:
    """Return why TLS ended a connection; None if something else did."""
    return refusal_text(error) if isinstance(error, ssl.SSLError) else None


def failure_text(error: Exception, address: BrokerAddress) -> str:
    """Return why a connection could not be opened."""
    if isinstance(error, ConnectionRefusedError):
        return f"{error}; nothing listens there"
    reason = refusal_of(error)
    if reason is None and address.tls is not None and isinstance(error, ConnectionError):
        return f"{error}; does it speak TLS on this port, and accept our certificate?"
    return reason or str(error)


def peer_expiry(session: ssl.SSLObject | None) -> float | None:
    """Return when the other side's certificate expires, in seconds since 1970; None without TLS."""
    certificate = None if session is None else session.getpeercert()
    ends = certificate.get("notAfter") if certificate else None
    return float(ssl.cert_time_to_seconds(ends)) if isinstance(ends, str) else None
