"""Ways to divide needs among the reports of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from protocols.acquisition.needs import Need

MOST_ATOMS = 8
"""Groups of needs that are merged and split."""
Division = tuple[tuple[int, ...], ...]
"""Groups of the needs' numbers."""


def partitions(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield all ways to divide a number of things into groups.

    Examples
    --------
    >>> [len(list(partitions(count))) for count in range(1, 6)]
    [1, 2, 5, 15, 52]
    """
    if count == 0:
        yield ()
        return
    last = count - 1
    for smaller in partitions(last):
        yield (*smaller, (last,))
        for place, group in enumerate(smaller):
            yield (*smaller[:place], (*group, last), *smaller[place + 1 :])


def neighbours_of(division: Division, atoms: Sequence[tuple[int, ...]]) -> Iterator[Division]:
    """Yield divisions that differ in one step: two groups merged, or one atom split from its group."""
    for one in range(len(division)):
        for other in range(one):
            rest = tuple(group for place, group in enumerate(division) if place not in (one, other))
            yield (*rest, (*division[other], *division[one]))
    for place, group in enumerate(division):
        for atom in atoms:
            left = tuple(number for number in group if number not in atom)
            if left and len(left) < len(group):
                yield (*division[:place], left, *division[place + 1 :], atom)


def atoms_of(needs: Sequence[Need]) -> list[tuple[int, ...]]:
    """Return groups of similar needs that stay together, so that there are few enough groups."""
    found: list[tuple[int, ...]] = []
    for key in _ALIKE:
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, need in enumerate(needs):
            groups.setdefault(key(need), []).append(number)
        found = [tuple(group) for group in groups.values()]
        if len(found) <= MOST_ATOMS:
            break
    return found


_ALIKE: tuple[Callable[[Need], tuple[object, ...]], ...] = (
    lambda need: (need,),
    lambda need: (need.kind, need.period_us, need.bands, need.threshold),
    lambda need: (need.kind, need.period_us, bool(need.bands), need.threshold),
    lambda need: (need.kind, bool(need.bands), need.threshold),
)
"""What makes needs similar, from the finest to the coarsest."""
