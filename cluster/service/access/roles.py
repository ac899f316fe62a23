"""What each role may do: the role that each request needs. Pure.

This table is the only place where a role is given to a route. What is not in it is not reached over the network, so a
route that is forgotten here is closed; a test compares the table with the API's routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from starlette.routing import compile_path


class Role(StrEnum):
    """What a token allows; each role includes those before it."""

    READ = "read"
    QUERY = "query"
    ADMIN = "admin"

    def includes(self, needed: Role | None) -> bool:
        """Return whether this role is enough for what needs another; None is needed by what is open to all."""
        order = list(Role)
        return needed is None or order.index(self) >= order.index(needed)


NEEDED: Final[Mapping[tuple[str, str], Role | None]] = {
    # They describe the API, and hold nothing of the cluster.
    ("GET", "/docs"): None,
    ("GET", "/docs/oauth2-redirect"): None,
    ("GET", "/openapi.json"): None,
    # What is there
    ("GET", "/metrics"): Role.READ,
    ("GET", "/v1/bill"): Role.READ,
    ("GET", "/v1/functions"): Role.READ,
    ("GET", "/v1/functions/{name}"): Role.READ,
    ("GET", "/v1/migrations"): Role.READ,
    ("GET", "/v1/plan"): Role.READ,
    ("GET", "/v1/plan/difference"): Role.READ,
    ("GET", "/v1/plan/history"): Role.READ,
    ("GET", "/v1/plan/operators"): Role.READ,
    ("GET", "/v1/queries"): Role.READ,
    ("GET", "/v1/queries/{name}"): Role.READ,
    ("GET", "/v1/queries/{name}/plan"): Role.READ,
    ("GET", "/v1/queries/{name}/alternatives"): Role.READ,
    ("GET", "/v1/queries/{name}/results"): Role.READ,
    ("GET", "/v1/relations"): Role.READ,
    ("GET", "/v1/relations/{name}"): Role.READ,
    ("GET", "/v1/sensors"): Role.READ,
    ("GET", "/v1/status"): Role.READ,
    ("GET", "/v1/streams"): Role.READ,
    # What motes and workers have to do; an explanation is planned like the query
    ("POST", "/v1/explain"): Role.QUERY,
    ("POST", "/v1/explain/energy"): Role.QUERY,
    ("POST", "/v1/queries"): Role.QUERY,
    ("POST", "/v1/queries/together"): Role.QUERY,
    ("POST", "/v1/queries/{name}/migrate"): Role.QUERY,
    ("DELETE", "/v1/queries/{name}"): Role.QUERY,
    # What others use, what is deleted, what is read outside, and what may not be shown to all
    ("POST", "/v1/streams"): Role.ADMIN,
    ("DELETE", "/v1/streams/{name}"): Role.ADMIN,
    ("PUT", "/v1/streams/{name}/budget"): Role.ADMIN,
    ("DELETE", "/v1/streams/{name}/budget"): Role.ADMIN,
    ("PUT", "/v1/streams/{name}/gone-after"): Role.ADMIN,
    ("DELETE", "/v1/streams/{name}/gone-after"): Role.ADMIN,
    ("POST", "/v1/relations"): Role.ADMIN,
    ("DELETE", "/v1/relations/{name}"): Role.ADMIN,
    ("POST", "/v1/functions"): Role.ADMIN,
    ("DELETE", "/v1/functions/{name}"): Role.ADMIN,
    ("GET", "/v1/quarantine"): Role.ADMIN,
}
"""The role that a method needs at a path, as the API's routes write it."""

_PATTERNS: Final = {path: compile_path(path)[0] for path in dict.fromkeys(path for _, path in NEEDED)}
"""The same expressions by which the web framework finds a route."""


class UnknownRequestError(LookupError):
    """No role is given to a request.

    Parameters
    ----------
    methods
        The methods that the path has; none if there is no such path.
    """

    def __init__(self, methods: frozenset[str]) -> None:
        super().__init__("no role is given to this request")
        self.methods = methods


def role_needed(method: str, path: str) -> Role | None:
    """Return the role that a request needs; None if it is open to all.

    Raises
    ------
    UnknownRequestError
        If the table does not have it.

    Examples
    --------
    >>> role_needed("GET", "/v1/queries/slow")
    <Role.READ: 'read'>
    """
    found = [template for template, pattern in _PATTERNS.items() if pattern.match(path)]
    roles = [NEEDED[method, template] for template in found if (method, template) in NEEDED]
    if not roles:
        raise UnknownRequestError(frozenset(each for each, template in NEEDED if template in found))
    # A path may be that of two routes: the greater role is enough for both.
    return max(roles, key=lambda role: -1 if role is None else list(Role).index(role))
