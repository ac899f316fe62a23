"""The automaton of a pattern of rows: the runs of one search, in the order in which their matches are preferred.

**How much work the searches of a partition may do, so that all of it together is in proportion to its rows.**

    rows              s . . . . . . t                  a search from s took 9,000 steps, and the next begins at t
    that are free     7 rows x STEPS_OF_ROW            2,000 steps are taken out of the reserve, which is full at first
    that come back    7 rows x STEPS_OF_ROW            and they are back when the next search begins

What is taken out depends on rows alone, so that where searches are given up depends on neither batches nor restarts.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from cluster.expressions.walks import columns_read
from cluster.operators.pattern_match import PatternElement, Reach, RowPattern

MOST_STEPS = 100_000
"""Most work of a search, and the whole reserve: runs it goes on with, and rows that aggregates in DEFINE read."""
STEPS_OF_ROW = 1_000
"""For each row by which the beginning of searches advances, steps that are free, and as many that come back."""
EAGER_STEPS = 300
"""Most steps on rows that an earlier search has read, while it is unknown if the pattern can be complete in time."""


@dataclass(slots=True)
class Reserve:
    """What is left of the steps that searches may take besides those that are free.

    Parameters
    ----------
    spent
        How many are missing; 0 is a full reserve.
    before_us
        The stamp of the last row that it has come to; None if none.
    """

    spent: int = 0
    before_us: int | None = None

    def most_steps(self, rows: int) -> int:
        """Return how many steps a search may take after which the next one begins so many rows later at least."""
        return min(MOST_STEPS, MOST_STEPS - self.spent + free_steps(rows))

    def take(self, steps: int, rows: int) -> None:
        """Take out what a search needed that is followed by one that begins so many rows later."""
        self.spent = min(MOST_STEPS, self.spent + max(0, steps - free_steps(rows)))

    def advance(self, stamps: Sequence[int], within_us: int | None) -> None:
        """Put back steps for rows with which no search begins any more.

        Parameters
        ----------
        stamps
            Theirs.
        within_us
            The time of the pattern. Searches before and behind a gap of that length have no row in common.
        """
        for stamp in stamps if self.spent else stamps[-1:]:
            self.begin(stamp, within_us)
        self.spent = max(0, self.spent - free_steps(len(stamps)))

    def begin(self, stamp: int, within_us: int | None) -> None:
        """Come to the next row, which fills the reserve if it is so late that the rows before may be forgotten."""
        if within_us is not None and self.before_us is not None and stamp - self.before_us >= within_us:
            self.spent = 0
        self.before_us = stamp

    def matters(self, watermark_us: int, within_us: int | None) -> bool:
        """Return whether a row that is still to come may find less than a full reserve."""
        late = within_us is not None and self.before_us is not None and watermark_us - self.before_us >= within_us
        return self.spent > 0 and not late


def free_steps(rows: int) -> int:
    """Return how many steps are free for so many rows."""
    return rows * STEPS_OF_ROW


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
