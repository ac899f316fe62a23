"""Which connection with a token gives way where there are too many of them. Pure.

A token takes places from itself: one of its connections gives way before any other token loses one. Idle connections
cost their client nothing. Of those that are at work, the youngest gives way: if it were the oldest, a client that sends
more than is answered would get no answer at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Doing(IntEnum):
    """What a connection is busy with; the less, the sooner it gives way."""

    NOTHING = 0
    """No request is under way."""
    CLIENT = 1
    """Its client has not sent all of a body, or does not take the answer as fast as it is made."""
    WORK = 2
    """The cluster works for it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A connection whose client has shown a token.

    Parameters
    ----------
    token
        The name of the token that it has shown last.
    is_admin
        Whether that has the role `admin`.
    doing
        What it is busy with.
    """

    token: str
    is_admin: bool
    doing: Doing


def place_that_yields(held: Sequence[Held]) -> int:
    """Return the place, in a list of connections, of the one that gives way.

    It is of the token that holds most: of several, of one that is not of the role `admin`, and then of the one that
    stands first.

    Parameters
    ----------
    held
        All connections with tokens, the one first whose last request began first; at least one.

    Examples
    --------
    >>> idle, busy = Held("many", False, Doing.NOTHING), Held("many", False, Doing.WORK)
    >>> place_that_yields([Held("one", True, Doing.NOTHING), busy, idle, idle])
    2
    """
    counts = Counter(each.token for each in held)
    admins = {each.token for each in held if each.is_admin}
    token = max(counts, key=lambda name: (counts[name], name not in admins))  # of equal ones, the first
    own = [(each.doing, place) for place, each in enumerate(held) if each.token == token]
    least = min(doing for doing, _ in own)
    places = [place for doing, place in own if doing is least]
    return places[-1] if least is Doing.WORK else places[0]
