"""Parsing the address of a broker."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.errors import FjordError
from protocols.mqtt.link import DEFAULT_PORT, BrokerAddress

HIGHEST_PORT = 65535


class BrokerAddressError(FjordError):
    """A text that is not a broker address."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!r} is not the address of a broker", hint="write HOST or HOST:PORT, for instance 127.0.0.1:1883"
        )


def parse_broker(text: str, environment: Mapping[str, str]) -> BrokerAddress:
    """Return the address in ``HOST`` or ``HOST:PORT``.

    User name and password come from ``FJORD_BROKER_USERNAME`` and ``FJORD_BROKER_PASSWORD`` in `environment`: all users
    of a machine can read its command lines.

    Raises
    ------
    BrokerAddressError
        If it is none.

    Examples
    --------
    >>> parse_broker("gateway.local", {})
    BrokerAddress(host='gateway.local', port=1883, username=None)
    >>> parse_broker("[::1]:2883", {}).port
    2883
    """
    host, port_text = text.strip(), str(DEFAULT_PORT)
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
    return BrokerAddress(
        host,
        int(port_text),
        environment.get("FJORD_BROKER_USERNAME") or None,
        environment.get("FJORD_BROKER_PASSWORD") or None,
    )
