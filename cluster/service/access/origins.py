"""From which pages requests may come. Pure.

A browser names the page in the header `Origin`: its scheme, its host and its port. Another program of this machine may
show pages under the name of the API, on another port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from cluster.errors import ClusterError
from cluster.service.access.hosts import AUTHORITY, folded

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
