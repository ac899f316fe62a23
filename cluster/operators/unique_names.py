"""Names of columns that are not taken yet."""

from __future__ import annotations

from collections.abc import Iterable


def unique_name(wanted: str, taken: Iterable[str]) -> str:
    """Return `wanted`, or with a number behind it if it is among `taken` (compared without case).

    >>> unique_name("item", ["item", "Item_2"])
    'item_3'
    """
    return Names(taken).unique(wanted)


class Names:
    """Names that are taken, compared without case; each new one takes no more work than the one before.

    Parameters
    ----------
    taken
        Those that are, to begin with.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._taken

    def add(self, name: str) -> None:
        """Take a name."""
        self._taken.add(name.casefold())

    def unique(self, wanted: str) -> str:
        """Return `wanted`, or with the least number behind it that makes it one that is not taken; and take it."""
        name, number = wanted, self._numbers.get(wanted, 1)
        while name in self:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self.add(name)
        return name
