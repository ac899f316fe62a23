"""Which windows share panes: all running windows over the same tuples and keys are looked at together. Pure.

    a family of panes of width p, in a second:

    tuples           rows of each query group                                x row_in
    partial rows     of each key, pane and group, once in a batch            x row_out
    kept             partial rows for as long as the longest window of       x kept, in each batch
                     their group
    merged           partial rows of each position of each window            x compared
    batch            whatever comes                                          x batch

The narrower the panes, the more partial rows are kept and merged, for each of the windows; a family more costs a batch
more, and its tuples are gone through once more. All windows of a family that have the same panes of their own move
together, and so do all that make the panes of the others narrow: one of them alone would leave these as they are.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster.costs.choice import LEAST_SHARE, LEAST_US, MOST_AT_A_TIME
from cluster.costs.prices import Price
from cluster.costs.work import BATCHES_PER_SECOND, SECOND_US
from cluster.operators.characteristics import KEYS_ASSUMED

MOST_TOGETHER = 100
"""Queries that move to another family at once, at most: each of them migrates."""
NEARLY = 0.9
"""Of moves that save nearly as much as the best one, by this share, that of the fewest queries is made."""
MOST_KEYS = 1_000_000
Family = int
"""The width that names a family, in microseconds; 0 or less for a common one, in which windows are without a reason."""
_Numbers = NDArray[np.float64]


class Pane(NamedTuple):
    """What a windowed aggregate needs of its panes.

    Parameters
    ----------
    group
        Its query group: those of one share their partial rows.
    per_second
        The tuples of the group in a second.
    own_us
        The width of the widest panes that its window consists of.
    size_us, slide_us
        Its window.
    """

    group: int
    per_second: float
    own_us: int
    size_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class PaneUser:
    """A windowed aggregate that runs.

    Parameters
    ----------
    name
        Its name.
    family
        The family in which its window is.
    pane
        What it needs.
    families
        Families that it may join, its common one first; none if it has to stay.
    """

    name: str
    family: Family
    pane: Pane
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Queries that go on with panes of other families, together.

    Parameters
    ----------
    families
        By query: its next family.
    before_us, after_us
        What all families that change cost before and after, in microseconds of a processor in a second.
    """

    families: Mapping[str, Family]
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        """What it saves."""
        return self.before_us - self.after_us


def partial_rows(per_second: float, keys: float, seconds: float) -> float:
    """Return how many partial rows tuples make in a second, in panes of a width; keys are equally frequent."""
    return keys / seconds * -math.expm1(-per_second * seconds / keys)


def keys_seen(partials: float, per_second: Collection[float], seconds: float) -> float | None:
    """Return how many keys there are, given the partial rows that tuples of some groups make in panes of a width.

    None where that cannot be seen: if there are hardly fewer partial rows than tuples.
    """
    if not partials or partials > 0.8 * sum(per_second):
        return None
    low, high = 1.0, float(MOST_KEYS)
    for _ in range(40):
        middle = math.sqrt(low * high)
        made = sum(partial_rows(each, middle, seconds) for each in per_second)
        low, high = (middle, high) if made < partials else (low, middle)
    return high


class _Atom(NamedTuple):
    """By query group: the longest window and slide together, and positions of windows in a second times their size."""

    own_us: int
    longest_s: _Numbers
    covered: _Numbers


class _Table:
    """Windows by the width of their own panes, as arrays over query groups."""

    def __init__(self, panes: Collection[Pane], keys: float, price: Price) -> None:
        places = {group: place for place, group in enumerate(dict.fromkeys(each.group for each in panes))}
        self._price, self._keys = price, keys
        self._per_second = np.zeros(len(places))
        self.atoms: dict[int, _Atom] = {}
        for each in set(panes):
            place = places[each.group]
            self._per_second[place] = each.per_second
            atom = self.atoms.get(each.own_us)
            if atom is None:
                atom = self.atoms[each.own_us] = _Atom(each.own_us, np.zeros(len(places)), np.zeros(len(places)))
            length_s = (each.size_us + each.slide_us) / SECOND_US
            atom.longest_s[place] = max(atom.longest_s[place], length_s)
            atom.covered[place] += each.size_us / each.slide_us
        self._known: dict[frozenset[int], float] = {}

    def cost_us(self, own: frozenset[int]) -> float:
        """Return what a family costs that has the windows with these panes of their own."""
        if own not in self._known:
            self._known[own] = self._computed(own) if own else 0.0
        return self._known[own]

    def _computed(self, own: frozenset[int]) -> float:
        atoms = [self.atoms[each] for each in own]
        longest = np.max([each.longest_s for each in atoms], axis=0)
        covered = np.sum([each.covered for each in atoms], axis=0)
        rates = np.where(longest > 0, self._per_second, 0.0)
        pane_s = math.gcd(*own) / SECOND_US
        partials = self._partials(rates, pane_s)
        made = self._partials(rates, min(pane_s, 1 / BATCHES_PER_SECOND))
        price = self._price
        return (
            price.batch * BATCHES_PER_SECOND
            + float(rates.sum()) * price.row_in
            + float(made.sum()) * price.row_out
            + float(partials @ longest) * price.kept * BATCHES_PER_SECOND
            + float(partials @ covered) * price.compared
        )

    def _partials(self, rates: _Numbers, pane_s: float) -> _Numbers:
        made: _Numbers = -np.expm1(-rates * pane_s / self._keys) * (self._keys / pane_s)
        return made


def moves(
    users: Sequence[PaneUser], price: Price, *, keys: float = KEYS_ASSUMED, most: int = MOST_AT_A_TIME
) -> list[Move]:
    """Return the moves that pay, the best one first; each is reckoned as if those before had been made.

    A move saves at least a share of what the families cost that it changes. So none is undone before one way has become
    dearer, beside the other, by a quarter and more, whatever figures do.

    Parameters
    ----------
    users
        All windows over the same tuples and keys.
    price
        What steps cost.
    keys
        How many keys they have.
    most
        Queries that may move; the first move may have more, up to :data:`MOST_TOGETHER`.
    """
    state = _State(users, _Table([each.pane for each in users], keys, price))
    found: list[Move] = []
    left = most
    while left > 0 and (best := state.best(left if found else MOST_TOGETHER)) is not None:
        parts, move = best
        state.make(parts)
        found.append(move)
        left -= len(move.families)
    return found


def placed(pane: Pane, families: Sequence[Family], users: Sequence[PaneUser], price: Price, *, keys: float) -> Family:
    """Return the family in which a new window costs least; the first one, unless another saves enough.

    Parameters
    ----------
    pane
        What the window needs.
    families
        Those that it may join, the one first that it joins without a reason.
    users
        All windows over the same tuples and keys.
    price, keys
        As for :func:`moves`.
    """
    table = _Table([pane, *(each.pane for each in users)], keys, price)
    state = _State(users, table)

    def cost_us(among: Iterable[Family], chosen: Family) -> float:
        new = frozenset({pane.own_us})
        return sum(table.cost_us(state.own[each] | new if each == chosen else state.own[each]) for each in among)

    first = families[0]
    saved = {each: cost_us({first, each}, first) - cost_us({first, each}, each) for each in families}
    best = max(families, key=lambda each: saved[each])
    return best if saved[best] >= max(LEAST_US, LEAST_SHARE * cost_us({first, best}, first)) else first


def by_family(users: Sequence[PaneUser], price: Price, *, keys: float = KEYS_ASSUMED) -> dict[Family, float]:
    """Return what each family costs, in microseconds of a processor in a second; see the head of this module.

    Parameters
    ----------
    users
        All windows over the same tuples and keys.
    price, keys
        As for :func:`moves`.
    """
    table = _Table([each.pane for each in users], keys, price)
    return {family: table.cost_us(own) for family, own in _State(users, table).own.items()}


_Part = tuple[Family, int]
"""The windows of a family with the same panes of their own."""
_Parts = Mapping[_Part, Family]
"""Parts that move, with their next family."""


def _rank(move: Move) -> tuple[int, float, list[tuple[str, Family]]]:
    """Return what decides between moves that save nearly as much: fewer queries, then the wider family."""
    return (
        len(move.families),
        -round(move.saved_us, 1),
        sorted((name, -family) for name, family in move.families.items()),
    )


class _State:
    """Which windows are in which family, as moves are made."""

    def __init__(self, users: Sequence[PaneUser], table: _Table) -> None:
        self._table = table
        self._users: dict[_Part, list[PaneUser]] = {}
        for each in users:
            self._users.setdefault((each.family, each.pane.own_us), []).append(each)
        self.own: defaultdict[Family, frozenset[int]] = defaultdict(frozenset)
        """By family: the own panes of its windows."""
        for family, own_us in self._users:
            self.own[family] |= {own_us}

    def best(self, most: int) -> tuple[_Parts, Move] | None:
        """Return what saves most, or nearly so, with the fewest queries; None if nothing saves enough."""
        found: list[tuple[_Parts, Move]] = []
        for parts in (*self._single(), *self._leaving(), *self._dissolved()):
            names = {each.name: to for part, to in parts.items() for each in self._users[part]}
            move = self._move(parts, names) if len(names) <= most else None
            if move is not None:
                found.append((parts, move))
        enough_us = NEARLY * max((move.saved_us for _, move in found), default=0.0)
        return min(
            ((parts, move) for parts, move in found if move.saved_us >= enough_us),
            key=lambda each: _rank(each[1]),
            default=None,
        )

    def _single(self) -> Iterator[_Parts]:
        for part, users in self._users.items():
            for to in users[0].families:
                if self._may_join(part, to):
                    yield {part: to}

    def _leaving(self) -> Iterator[_Parts]:
        """Yield the parts of a family that make the panes of others narrow, each with the family of its own panes."""
        for family, widths in list(self.own.items()):
            for width_us in widths:
                leaving: _Parts = {(family, own): own for own in widths if own % width_us}
                if len(leaving) > 1 and all(itertools.starmap(self._may_join, leaving.items())):
                    yield leaving

    def _dissolved(self) -> Iterator[_Parts]:
        """Yield all parts of a family or two, each moving to its common one."""
        named = [family for family, own in self.own.items() if own and family > 0]
        for families in (*itertools.combinations(named, 1), *itertools.combinations(named, 2)):
            parts = {part: users[0].families for part, users in self._users.items() if part[0] in families}
            if all(parts.values()) and all(self._may_join(part, to[0]) for part, to in parts.items()):
                yield {part: to[0] for part, to in parts.items()}

    def _may_join(self, part: _Part, to: Family) -> bool:
        return to != part[0] and all(to in each.families for each in self._users[part])

    def _move(self, parts: _Parts, names: Mapping[str, Family]) -> Move | None:
        """Return a move, if it saves enough."""
        touched = {family: self.own[family] for part, to in parts.items() for family in (part[0], to)}
        before_us = sum(map(self._table.cost_us, touched.values()))
        for part, to in parts.items():
            touched[part[0]] -= {part[1]}
            touched[to] |= {part[1]}
        after_us = sum(map(self._table.cost_us, touched.values()))
        if before_us - after_us < max(LEAST_US, LEAST_SHARE * before_us):
            return None
        return Move(names, before_us, after_us)

    def make(self, parts: _Parts) -> None:
        """Move parts; they stay where they come to."""
        for part, to in parts.items():
            moved = [PaneUser(each.name, to, each.pane) for each in self._users.pop(part)]
            self._users.setdefault((to, part[1]), []).extend(moved)
            self.own[part[0]] -= {part[1]}
            self.own[to] |= {part[1]}
