"""What a pattern of rows means, from its words alone (docs/reference/sql/patterns.md): all ways, preferred first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Stamped = tuple[int, Row]
Taken = list[tuple[str, int]]
"""Variables and the numbers of the rows that they have, in order."""


@dataclass(frozen=True)
class Element:
    """A variable and its quantifier; no `most` is any number."""

    variable: str
    least: int = 1
    most: int | None = 1
    reluctant: bool = False


@dataclass(frozen=True)
class Sight:
    """What an expression sees: the rows of a partition, and those that variables have, with the current one.

    Parameters
    ----------
    rows
        All rows of the partition, in order.
    taken
        Those of the match so far.
    within
        The time of the pattern, if it has one.
    """

    rows: Sequence[Stamped]
    taken: Taken
    within: int | None

    def of(self, variable: str | None) -> list[int]:
        """Return the numbers of the rows of a variable; of all if there is no name."""
        return [row for name, row in self.taken if variable is None or name == variable]

    def nth(self, variable: str | None, offset: int, *, first: bool) -> int | None:
        """Return the number of a row counted from the first or the last one."""
        found = self.of(variable) if first else self.of(variable)[::-1]
        return found[offset] if offset < len(found) else None

    def before(self, row: int | None, offset: int) -> int | None:
        """Return the number of the row so many before another one, if the time of the pattern reaches it."""
        if row is None or row < offset:
            return None
        apart = self.rows[row][0] - self.rows[row - offset][0]
        return row - offset if self.within is None or apart < self.within else None


Fits = Callable[[str, Sight], bool]
"""Whether the last row that is taken can be of a variable."""


def ordered(rows: Sequence[Stamped], ties: Sequence[str]) -> list[Stamped]:
    """Return rows in the order of their stamps, and of columns where these are equal, NULLs last."""
    return sorted(rows, key=lambda each: (each[0], *((each[1][name] is None, each[1][name] or 0) if not isinstance(
        each[1][name], str) else (False, each[1][name]) for name in ties)))  # fmt: skip


def matches(
    rows: Sequence[Stamped], elements: Sequence[Element], fits: Fits, within: int | None, skip: tuple[str, str]
) -> Iterator[Taken]:
    """Yield the matches in the rows of one partition, which are in order."""
    start = 0
    while start < len(rows):
        found = next(_ways(rows, elements, fits, within, start, []), None)
        if found is None:
            start += 1
            continue
        yield found
        kind, variable = skip
        numbers = [row for name, row in found if name == variable]
        start = {
            "past last row": found[-1][1] + 1,
            "to next row": start + 1,
            "to first": numbers[0] if numbers else start + 1,
            "to last": numbers[-1] if numbers else start + 1,
        }[kind]


def _ways(
    rows: Sequence[Stamped], elements: Sequence[Element], fits: Fits, within: int | None, place: int, taken: Taken
) -> Iterator[Taken]:
    """Yield all ways to go on, preferred first: an element takes as many rows as possible, or as few."""
    if not elements:
        if taken:
            yield taken
        return
    element, *others = elements
    prefixes = [(place, taken)] if element.least == 0 else []
    count, at, mine = 0, place, taken
    while at < len(rows) and (element.most is None or count < element.most):
        if mine and within is not None and rows[at][0] - rows[mine[0][1]][0] >= within:
            break
        mine = [*mine, (element.variable, at)]
        if not fits(element.variable, Sight(rows, mine, within)):
            break
        count, at = count + 1, at + 1
        if count >= element.least:
            prefixes.append((at, mine))
    for at, mine in prefixes if element.reluctant else prefixes[::-1]:
        yield from _ways(rows, others, fits, within, at, mine)
