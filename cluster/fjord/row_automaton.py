"""The automaton of a pattern of rows: the runs of one search, in the order in which their matches are preferred.

A search looks for the match that begins with one row. It reads row after row, and keeps a *run* for each way in which
the rows so far can be distributed over the elements of the pattern:

    A B* C, at rows a b c      runs behind b, preferred first:   A=a B=b     (greedy: B takes another row, or C)
                               behind c:                         A=a B=b,c   if c can be a B
                                                                 A=a B=b C=c if c can be a C: a match, unless the
                                                                             run before it finds one later

A run that is complete beats all runs behind it. Once no run is before the best one, the match is certain. As an
element takes rows one directly after the other, a run is where each element begins. Two runs that nothing later can
tell apart have the same future, and the less preferred one ends: so runs are at most as many as there are states,
if conditions depend on the row alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from cluster.expressions.walks import columns_read
from cluster.fjord.pattern_reserve import Reserve, free_steps
from cluster.operators.pattern_match import PatternElement, Reach, RowPattern

MOST_RUNS = 1_000
"""Most runs of a search at once."""

Bounds = tuple[int, ...]
"""The places at which the elements up to the current one begin, among the rows of the partition."""


class Match(NamedTuple):
    """A match.

    Parameters
    ----------
    begins
        Where each element begins; those without a row begin where the next one does.
    end
        The place behind its last row.
    """

    begins: Bounds
    end: int


class Run(NamedTuple):
    """One way to distribute rows.

    Parameters
    ----------
    next
        The elements that may take the next row, preferred first.
    element, rows
        The element that took the last row, and how many rows it has.
    begins
        Where each element up to this one begins.
    """

    next: tuple[int, ...]
    element: int
    rows: int
    begins: Bounds


@dataclass(slots=True)
class Search:
    """A search for the match that begins at a place.

    Parameters
    ----------
    start
        The place.
    runs
        The runs that are still to be preferred to the best match, preferred first.
    reserve
        What is left for it.
    """

    start: int
    runs: list[Run]
    reserve: Reserve
    place: int = field(init=False)
    best: Match | None = None
    steps: int = 0
    alone: int = 0
    """How many of the rows that it has read come before the next one with which a match may begin."""
    exceeded: bool = False
    """True if it would need more than it may: it goes no further."""
    gave_up: bool = False

    def __post_init__(self) -> None:
        """Begin with the first row."""
        self.place = self.start
        """The place of the next row to read."""

    @property
    def certain(self) -> bool:
        """True if no later row can change the outcome."""
        return not self.runs

    @property
    def free(self) -> bool:
        """True if it needed so little that nothing is taken out of the reserve, whichever search follows."""
        return self.steps <= free_steps(self.alone)

    def end(self) -> None:
        """End all runs: no later row can be part of a match."""
        self.runs = []

    def give_up(self) -> None:
        """Leave unknown which match begins here."""
        self.gave_up, self.best, self.runs = True, None, []


class Automaton:
    """What does not depend on rows.

    Parameters
    ----------
    pattern
        The pattern.
    """

    def __init__(self, pattern: RowPattern) -> None:
        self._elements = pattern.elements
        variables = list(dict.fromkeys(element.variable for element in pattern.elements))
        reaching = {each.variable for each in pattern.definitions if each.reaching is not None}
        self._bits = [1 << variables.index(element.variable) for element in pattern.elements]
        self._reaching = [element.variable in reaching for element in pattern.elements]
        self._caps = [_cap(element) for element in pattern.elements]
        self._actions = [self._after(place) for place in range(len(pattern.elements))]
        self._first = tuple(each for each in self._leaving(-1) if each is not None)
        self._differences = _Differences(pattern)
        self.variables = tuple(variables)
        """The variables, in the order of their bits."""
        self.first = sum({self._bits[each] for each in self._first})
        """The bits of the variables that can take the first row of a match."""

    def search(self, start: int, reserve: Reserve) -> Search:
        """Return a search that has read nothing."""
        return Search(start, [Run(self._first, -1, 0, ())], reserve)

    def count(self, search: Search, fits: int, rows_read: int) -> None:
        """Count the steps for the next row, before it is read; if they are too many, pass over it.

        Parameters
        ----------
        search, fits
            As of :meth:`asked`.
        rows_read
            How many rows the aggregates read that are asked for.
        """
        if search.alone == search.place - search.start and not (search.alone and fits & self.first):
            search.alone += 1
        search.steps += len(search.runs) + rows_read
        if search.steps > search.reserve.most_steps(search.alone):
            search.exceeded = True
            search.place += 1

    def asked(self, search: Search, fits: int) -> list[tuple[int, Bounds]]:
        """Return what has to be known, besides, before a search can read the next row, in the order of :meth:`step`.

        Parameters
        ----------
        search
            The search.
        fits
            A bit for each variable whose condition on the row alone is true.

        Returns
        -------
        list
            Elements whose conditions read other rows, and where elements begin if this one takes the row.
        """
        return [
            (element, _taken(run, element, search.place).begins)
            for run in search.runs
            for element in run.next
            if fits & self._bits[element] and self._reaching[element]
        ]

    def step(self, search: Search, fits: int, verdicts: Iterator[bool]) -> None:
        """Read the next row.

        Parameters
        ----------
        search, fits
            As of :meth:`asked`.
        verdicts
            Whether what was asked is true.
        """
        place = search.place
        search.place = place + 1
        runs: list[Run] = []
        seen: set[tuple[int, ...]] = set()
        complete = False
        for run in search.runs:
            for element in run.next:
                if not fits & self._bits[element] or (self._reaching[element] and not next(verdicts)) or complete:
                    continue
                taken = _taken(run, element, place)
                mark = self._differences.mark(taken, place)
                if mark in seen:
                    continue
                seen.add(mark)
                before, complete = self._actions[element][min(taken.rows, self._caps[element])]
                if complete:
                    empty = len(self._actions) - len(taken.begins)
                    search.best = Match((*taken.begins, *(place + 1,) * empty), place + 1)
                if before:
                    runs.append(Run(before, element, taken.rows, taken.begins))
        search.runs = runs
        search.exceeded = len(runs) > MOST_RUNS

    def _after(self, place: int) -> list[tuple[tuple[int, ...], bool]]:
        """Return, by the number of its rows, what may follow an element before the match is complete, and if it is."""
        element = self._elements[place]
        found = []
        for count in range(_cap(element) + 1):
            stays: list[int | None] = [place] if element.most is None or count < element.most else []
            goes = self._leaving(place) if count >= element.least else []
            actions = goes + stays if element.reluctant else stays + goes
            before = tuple(takewhile(lambda each: each is not None, actions))
            found.append((tuple(each for each in before if each is not None), None in actions))
        return found

    def _leaving(self, place: int) -> list[int | None]:
        """Return the elements behind one that may take the next row, preferred first; None is the end."""
        following = place + 1
        if following == len(self._elements):
            return [None]
        element = self._elements[following]
        if element.least:
            return [following]
        further = self._leaving(following)
        return [*further, following] if element.reluctant else [following, *further]


def _taken(run: Run, element: int, place: int) -> Run:
    """Return a run after an element has taken the row at a place."""
    if element == run.element:
        return Run((), element, run.rows + 1, run.begins)
    return Run((), element, 1, (*run.begins, *(place,) * (element - run.element)))


class _Differences:
    """What makes the future of one run differ from that of another one at the same row."""

    def __init__(self, pattern: RowPattern) -> None:
        elements = pattern.elements
        self._caps = [_cap(element) for element in elements]
        self._read = [
            tuple(
                (other, reach)
                for reach in _read_by(pattern, {element.variable for element in elements[place:]})
                for other, element in enumerate(elements[: place + 1])
                if reach.variable == element.variable
            )
            for place in range(len(elements))
        ]
        """By element: those before it, and how what may follow it reads their rows."""
        several = Counter(element.variable for element in elements)
        self._several = {variable for variable, count in several.items() if count > 1}

    def mark(self, run: Run, place: int) -> tuple[int, ...]:
        """Return what is the same for two runs, behind the row at a place, only if their futures are."""
        element, begins = run.element, run.begins
        found = [element, min(run.rows, self._caps[element])]
        for other, reach in self._read[element]:
            begin = begins[other]
            end = begins[other + 1] if other < element else place + 1
            rows = end - begin
            if reach.variable in self._several or reach.kind == "aggregate":
                found += (begin, end)
            elif reach.kind == "first":
                found += (begin if rows else -1, min(rows, reach.offset + 1))
            else:
                found += (end if rows else -1, min(rows, reach.offset + 1))
        return tuple(found)


def _cap(element: PatternElement) -> int:
    """Return the number of rows from which on further ones make no difference."""
    return max(element.least, element.most or 0)


def _read_by(pattern: RowPattern, variables: set[str]) -> list[Reach]:
    """Return what the conditions of some variables read of the rows before."""
    conditions = [each.reaching for each in pattern.definitions if each.variable in variables and each.reaching]
    names = {name for condition in conditions for name in columns_read(condition.expression)}
    return [reach for reach in pattern.reaches if reach.name in names]
