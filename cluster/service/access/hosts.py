"""The names that the API answers to, and from which pages requests may come. Pure.

A page of any site can make a browser send requests to this machine: under a name of its own that it lets point here
(DNS rebinding), or across sites. Its name then stands in the header `Host`, or in `Origin` (`origins.py`).

A browser names the page in the header `Origin`: its scheme, its host and its port. Another program of this machine may
show pages under the name of the API, on another port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

from cluster.errors import ClusterError

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


_PORTS: Final = {"http": 80, "https": 443}
"""What a port is where none is written."""
_ORIGIN: Final = re.compile(rf"(?P<scheme>[a-z]+)://{AUTHORITY.pattern}", re.IGNORECASE)


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Origins:
    """The pages whose requests are let in, besides those of the API itself.

    Parameters
    ----------
    named
        Origins, such as ``https://fjord.example``.

    Raises
    ------
    ClusterError
        If one is no origin.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        found = {each: _parsed(each) for each in named}
        for each, origin in found.items():
            if origin is None:
                raise ClusterError(f"{each[:100]!r} is no origin", hint="write it as https://fjord.example:8443")
        self._named = frozenset(found.values())

    def have(self, origin: str, *, scheme: str, authority: str) -> bool:
        """Return whether a request may come from a page of an origin.

        Parameters
        ----------
        origin
            The content of the header `Origin`.
        scheme
            By which the request came.
        authority
            The content of its header `Host`.

        Examples
        --------
        >>> origins = Origins(["https://fjord.example"])
        >>> def have(origin): return origins.have(origin, scheme="http", authority="localhost:8642")
        >>> have("http://localhost:8642"), have("https://fjord.example:443")
        (True, True)
        >>> have("http://localhost:3000"), have("https://localhost:8642"), have("null")
        (False, False, False)
        """
        found = _parsed(origin)
        return found is not None and (found in self._named or found == _parsed(f"{scheme}://{authority}"))


def _parsed(text: str) -> _Origin | None:
    found = _ORIGIN.fullmatch(text)
    if found is None or (scheme := found["scheme"].lower()) not in _PORTS:
        return None
    return _Origin(scheme, folded(found["host"]), int(found["port"] or _PORTS[scheme]))
