"""The address of a broker, and TLS of a connection to it: how it is opened, and why it was refused."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocols.errors import FjordError
from protocols.mqtt.messages import DEFAULT_PORT, DEFAULT_TLS_PORT, BrokerAddress
from protocols.security.refusals import refusal_text
from protocols.security.tls import TlsNames, check_at_start, check_files, client_context

TLS_VARIABLES = TlsNames("FJORD_BROKER_CA", "FJORD_BROKER_CERTIFICATE", "FJORD_BROKER_KEY")
PASSWORD_VARIABLE, PASSWORD_FILE_VARIABLE = "FJORD_BROKER_PASSWORD", "FJORD_BROKER_PASSWORD_FILE"
LONGEST_PASSWORD_BYTES = 65_535
"""As MQTT can carry it."""
HIGHEST_PORT = 65535
SECRETS_HINT = "set FJORD_BROKER_USERNAME and FJORD_BROKER_PASSWORD; all users of a machine can read command lines"
"""Where users and passwords of a broker belong."""


class BrokerAddressError(FjordError):
    """A text that is not a broker address."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not the address of a broker", hint="write HOST or HOST:PORT, for instance 127.0.0.1:1883"
        )


class CredentialsError(FjordError):
    """Credentials for the broker that are set twice or in part, or cannot be read."""


def broker_password(environment: Mapping[str, str]) -> str | None:
    """Return the password from ``FJORD_BROKER_PASSWORD``, or from the file that ``FJORD_BROKER_PASSWORD_FILE`` names.

    The end of a line in the file is not part of it.

    Raises
    ------
    CredentialsError
        If both are set, or the file cannot be read.
    """
    password, file = environment.get(PASSWORD_VARIABLE) or None, environment.get(PASSWORD_FILE_VARIABLE)
    if not file:
        return password
    if password is not None:
        raise CredentialsError(f"{PASSWORD_VARIABLE} and {PASSWORD_FILE_VARIABLE} are both set", hint="set one of them")
    try:
        with Path(file).open("rb") as opened:
            octets = opened.read(LONGEST_PASSWORD_BYTES + 2)
        return octets.rstrip(b"\r\n").decode() or None
    except OSError as error:
        raise CredentialsError(f"cannot read the broker's password from {file}: {error.strerror}") from error
    except ValueError:  # which quotes the bytes
        raise CredentialsError(f"the broker's password in {file} is no text in UTF-8") from None


def parse_broker(text: str, environment: Mapping[str, str]) -> BrokerAddress:
    """Return the address in ``HOST`` or ``HOST:PORT``.

    User name and password come from ``FJORD_BROKER_USERNAME`` and ``FJORD_BROKER_PASSWORD`` in `environment`: all users
    of a machine can read its command lines. With ``FJORD_BROKER_CA`` there, the link has TLS; with
    ``FJORD_BROKER_CERTIFICATE`` and ``FJORD_BROKER_KEY`` it shows a certificate.

    Raises
    ------
    BrokerAddressError
        If it is none.
    CredentialsError
        If the password cannot be read, or a certificate is set without an authority.
    SecurityError
        If a file for TLS cannot be used, or a certificate has expired.

    Examples
    --------
    >>> parse_broker("gateway.local", {})
    BrokerAddress(host='gateway.local', port=1883, username=None, tls=None)
    >>> parse_broker("[::1]:2883", {}).port
    2883
    """
    if "@" in text:
        raise CredentialsError("the broker's address has a user or a password in it", hint=SECRETS_HINT)
    tls = TLS_VARIABLES.read(environment)
    if tls is not None and tls.authority is None:
        raise CredentialsError(
            f"{TLS_VARIABLES.certificate} is set without {TLS_VARIABLES.authority}",
            hint="name the authority that the broker's certificate comes from",
        )
    host, port_text = text.strip(), str(DEFAULT_PORT if tls is None else DEFAULT_TLS_PORT)
    if host.startswith("["):
        host, closing, rest = host[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise BrokerAddressError(text)
        port_text = rest[1:] or port_text
    elif host.count(":") == 1:
        host, port_text = host.split(":")
    if not host or any(letter.isspace() or letter == "/" for letter in host):
        raise BrokerAddressError(text)
    if not port_text.isdecimal() or len(port_text) > len(str(HIGHEST_PORT)) or not 0 < int(port_text) <= HIGHEST_PORT:
        raise BrokerAddressError(text)
    if tls is not None:
        check_at_start(tls, time.time())
    file = environment.get(PASSWORD_FILE_VARIABLE)
    return BrokerAddress(
        host,
        int(port_text),
        environment.get("FJORD_BROKER_USERNAME") or None,
        broker_password(environment),
        tls,
        Path(file) if file else None,
    )


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
