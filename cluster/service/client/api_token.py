"""The token of the HTTP API, from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.errors import ClusterError

VARIABLE = "FJORD_API_TOKEN"


def api_token(environment: Mapping[str, str]) -> str | None:
    """Return the token, or None: an empty variable, as compose files set it, is no token.

    Raises
    ------
    ClusterError
        If it has characters that the header of a request cannot carry.
    """
    token = environment.get(VARIABLE, "").strip()
    if not token:
        return None
    if not (token.isascii() and token.isprintable()):
        raise ClusterError(
            f"{VARIABLE} has characters that cannot be sent", hint="use letters, digits and punctuation of ASCII"
        )
    return token
