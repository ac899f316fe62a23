"""Whether a request is let in, by what stands before its body: its size, its host, its origin, its token, its role."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cluster.errors import ClusterError
from cluster.service.access.hosts import HostNames, Origins
from cluster.service.access.roles import role_needed
from cluster.service.access.tokens import Caller, Tokens

MOST_HEAD_BYTES: Final = 64 * 1024
"""The longest request line with headers; a query string of the catalog of sensors has at most some 40,000 bytes."""
OWN_SITES: Final = frozenset({"same-origin", "none"})
"""What `Sec-Fetch-Site` is of requests of the API's own pages, and of an address that a person has entered."""
MOST_SHOWN: Final = 100
"""Characters of a header that a message quotes."""


class Refusal(StrEnum):
    """Why a request is refused before anything else looks at it."""

    HOST = "host"
    """It is for a host that this cluster is not."""
    ORIGIN = "origin"
    """It comes from a page of another site."""
    TOKEN = "token"  # noqa: S105 - a reason
    """It has no token, or one that is not known."""
    ROLE = "role"
    """Its token does not allow it."""
    FORM = "form"
    """It is no HTTP, or the rest of a head that is too large is not waited for."""
    SIZE = "size"
    """Its head or its body is too large."""
    SLOW = "slow"
    """Its handshake, its head or its body did not arrive in time, or its answer was not read in time."""
    CONNECTIONS = "connections"
    """There are too many connections, and its client has shown no token."""
    SHARE = "share"
    """There are too many connections with tokens, and its token has most of them."""


class NotAdmittedError(ClusterError):
    """A request that is refused.

    Parameters
    ----------
    refusal
        Why.
    status
        The HTTP status.
    message, hint
        The reason in words, and what to do.
    """

    def __init__(self, refusal: Refusal, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.refusal = refusal
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What is known of a request before its body is read.

    Parameters
    ----------
    method, path
        What it asks for.
    hosts, origins, authorizations
        The headers of these names, each time that it stands there.
    fetch_sites
        The headers `Sec-Fetch-Site`, by which a browser says how the page that sends a request is related to this API.
    address
        The address of this machine to which it came; None if it is not known.
    scheme
        `http`, or `https`.
    size
        Bytes of the request line and the headers, about.
    two_lengths
        Whether it gives the length of its body in two ways, `Content-Length` and `Transfer-Encoding`: a server before
        this one may read another one of them, and so take the end of a body for a request of its own.
    """

    method: str
    path: str
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    authorizations: tuple[str, ...] = ()
    fetch_sites: tuple[str, ...] = ()
    address: str | None = None
    scheme: str = "http"
    size: int = 0
    two_lengths: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """Lets requests in, and counts those that are refused.

    Parameters
    ----------
    tokens
        The tokens that are accepted.
    hosts
        The names that the API answers to.
    origins
        From which pages requests may come.
    refused
        How many requests were refused, by reason.
    """

    tokens: Tokens = field(default_factory=Tokens)
    hosts: HostNames = field(default_factory=HostNames)
    origins: Origins = field(default_factory=Origins)
    refused: Counter[Refusal] = field(default_factory=Counter)

    def admit(self, head: RequestHead) -> Caller | None:
        """Return whose a request is; None if it is open to all and has no token.

        Raises
        ------
        NotAdmittedError
            If it is refused. It is not counted yet.
        UnknownRequestError
            If the caller may read, and there is no such request.
        """
        # The web server refuses a head that is longer while it waits for the rest, but not one that comes at once.
        if head.size > MOST_HEAD_BYTES:
            raise NotAdmittedError(
                Refusal.SIZE,
                400,
                f"the request line and the headers are longer than {MOST_HEAD_BYTES:,} bytes",
                hint="send what is long in the body",
            )
        if head.two_lengths:
            raise NotAdmittedError(
                Refusal.SIZE,
                400,
                "the request has both Content-Length and Transfer-Encoding",
                hint="send one of the two",
            )
        host = head.hosts[0] if len(head.hosts) == 1 else ""
        if not self.hosts.has(host, head.address):
            raise NotAdmittedError(
                Refusal.HOST,
                421,
                f"this cluster is not called {host[:MOST_SHOWN]!r}",
                hint="use its address, or name it with `fjord cluster --api-allowed-host`",
            )
        if not all(self.origins.have(each, scheme=head.scheme, authority=host) for each in head.origins):
            raise NotAdmittedError(
                Refusal.ORIGIN,
                403,
                "this request comes from a page of another site",
                hint="send it without Origin, or name the site with `fjord cluster --api-allowed-origin`",
            )
        # A page may send some requests without Origin, as for an image; that it is of another site stands here.
        if not head.origins and not OWN_SITES.issuperset(map(str.lower, head.fetch_sites)):
            raise NotAdmittedError(
                Refusal.ORIGIN,
                403,
                "this request comes from a page of another site",
                hint="open the address itself, or name the site with `fjord cluster --api-allowed-origin`",
            )
        authorization = head.authorizations[0] if len(head.authorizations) == 1 else None
        caller = self.tokens.caller(authorization)
        try:
            needed = role_needed(head.method, head.path)
        except LookupError:
            if caller is None:
                raise self._unknown(authorization) from None
            raise
        if needed is None:
            return caller
        if caller is None:
            raise self._unknown(authorization)
        if not caller.role.includes(needed):
            raise NotAdmittedError(
                Refusal.ROLE,
                403,
                f"this needs a token of the role {needed}, and {caller.name!r} has the role {caller.role}",
                hint="ask the operator of the cluster for a token of this role",
            )
        return caller

    def count(self, refusal: Refusal) -> None:
        """Count a request that was refused."""
        self.refused[refusal] += 1

    def as_json(self) -> dict[str, object]:
        """Return the state of tokens, and what was refused, for the status."""
        return {"tokens": self.tokens.as_json(), "refused": {str(each): count for each, count in self.refused.items()}}

    @staticmethod
    def _unknown(authorization: str | None) -> NotAdmittedError:
        message = "this cluster needs a token" if not authorization else "this cluster does not know this token"
        return NotAdmittedError(Refusal.TOKEN, 401, message, hint="set FJORD_API_TOKEN")
