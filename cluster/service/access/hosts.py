"""The names that the API answers to. Pure.

A page of any site can make a browser send requests to this machine: under a name of its own that it lets point here
(DNS rebinding), or across sites. Its name then stands in the header `Host`, or in `Origin` (`origins.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
"""A host, perhaps with a port."""


class HostNames:
    """The names and addresses by which a cluster may be called, besides those of the loopback device.

    Parameters
    ----------
    names
        Host names and IP addresses, without a port.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(folded(each) for each in names)

    def has(self, authority: str, address: str | None = None) -> bool:
        """Return whether a request may be for this host.

        Parameters
        ----------
        authority
            The content of the header `Host`: name or address, perhaps with a port.
        address
            The address of this machine to which the request came; None if it is not known.

        Examples
        --------
        >>> names = HostNames(["fjord.example"])
        >>> [names.has(each) for each in ("localhost:8642", "[::1]", "Fjord.example:443", "rebound.example")]
        [True, True, True, False]
        """
        found = AUTHORITY.fullmatch(authority)
        if found is None:
            return False
        host = folded(found["host"])
        return host in self._names or _is_loopback(host) or (_is_address(host) and host == folded(address or ""))


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def folded(host: str) -> str:
    """Return a host as it is compared: in small letters, an address in its shortest form."""
    bare = host.removeprefix("[").removesuffix("]")
    return str(ip_address(bare)) if _is_address(bare) else bare.casefold().removesuffix(".")
