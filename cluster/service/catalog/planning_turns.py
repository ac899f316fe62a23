"""Whose statement is planned next: callers take turns, and administrators wait for one statement of others at most.

Each caller has a line of its own, so one that sends many statements waits longer itself, and lets others wait
for one of its statements::

    a: 1 2 3 4   b: 5   administrator: 6 7        6 1 7 5 2 3 4
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_OF_ONE: Final = 16
"""Statements of one caller that are planned, or wait for it."""
MOST_WAITING: Final = 64
"""Those of all callers."""
KEPT_FOR_ADMINS: Final = 16
"""How many more administrators may have."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose statement it is; without a name those of the cluster itself, and of all where the API needs no token.

    Parameters
    ----------
    name
        Of the token.
    admin
        Whether the token has the role `admin`.
    """

    name: str = ""
    admin: bool = True


class Turns(Generic[T]):
    """What waits for its turn."""

    def __init__(self) -> None:
        self._lines: dict[Asker, deque[T]] = {}
        """By caller, the one that has waited longest for a turn first."""
        self._admin_last = False

    def add(self, asker: Asker, item: T) -> None:
        """Let something wait."""
        self._lines.setdefault(asker, deque()).append(item)

    def discard(self, asker: Asker, item: T) -> None:
        """Forget something that waits no more."""
        line = self._lines.get(asker, deque())
        if item in line:
            line.remove(item)
            if not line:
                del self._lines[asker]

    def next(self) -> T | None:
        """Take out what is next; None if nothing waits."""
        if not self._lines:
            return None
        wanted = not self._admin_last
        asker = next((each for each in self._lines if each.admin is wanted), next(iter(self._lines)))
        line = self._lines.pop(asker)
        item = line.popleft()
        if line:
            self._lines[asker] = line  # behind all others
        self._admin_last = asker.admin
        return item


def room_for(asker: Asker, own: int, total: int) -> bool:
    """Return whether a caller may have a further statement, given how many it has, and all have.

    Examples
    --------
    >>> full = room_for(Asker("wall", admin=False), 0, MOST_WAITING), room_for(Asker("ops"), 0, MOST_WAITING)
    >>> full, room_for(Asker("ops"), MOST_OF_ONE, MOST_OF_ONE)
    ((False, True), False)
    """
    return own < MOST_OF_ONE and total < MOST_WAITING + (KEPT_FOR_ADMINS if asker.admin else 0)
