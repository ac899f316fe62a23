"""What must hold of a cluster at the end of a simulation, whatever went wrong: pure functions of what was found.

    sent by proxies  --stored-->  the stream's table  --answers-->  the results table  --published-->  the broker

Each returns what is violated, as sentences; none if all holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SECOND_US = 1_000_000
Timed = tuple[int, int, str]
"""From when until when a row is valid, in microseconds, and the row."""


class Stored(NamedTuple):
    """A row of a stream's table."""

    start_us: int
    mote: str
    values: tuple[object, ...]


class Result(NamedTuple):
    """A row of the results table, or as published: the end of an open row has no start, and an open row no end."""

    sequence: int
    start_us: int | None
    end_us: int | None
    row: str


def stored_once(sent: Iterable[Stored], stored: Iterable[Stored], *, late: int = 0) -> list[str]:
    """Every row that was sent and acknowledged is stored once, but for those that were counted as too late.

    Parameters
    ----------
    sent
        All rows of batches that proxies may forget, because they were acknowledged.
    stored
        The rows of the table.
    late
        How many were counted as late.
    """
    want, have = Counter(sent), Counter(stored)
    lost, more = list((want - have).elements()), list((have - want).elements())
    wrong = shown("rows stored that were never sent, or more often than sent", more)
    if len(lost) > late:
        wrong += shown(f"rows acknowledged and not stored, {late} of them counted as late", lost)
    return wrong


def numbered(results: Sequence[Result]) -> list[str]:
    """A query's results are numbered from 1 without gaps, and come in the order of their starts."""
    wrong = [b.sequence for a, b in pairwise([Result(0, 0, 0, ""), *results]) if b.sequence != a.sequence + 1]
    starts = [(each.start_us, each.sequence) for each in results if each.start_us is not None]
    back = [number for (a_us, _), (b_us, number) in pairwise(starts) if b_us < a_us]
    return shown("results with a wrong number", wrong) + shown("results that start before the one before", back)


def complete(found: Iterable[Result], expected: Iterable[tuple[int, int | None, str]]) -> list[str]:
    """Answers are those that the stored rows give, each as often."""
    have, want = Counter(each[1:] for each in found), Counter(expected)
    return shown("answers missing", (want - have).elements()) + shown(
        "answers that should not be, or not so often", (have - want).elements()
    )


def same_snapshots(found: Iterable[Timed], expected: Iterable[Timed], until_us: int) -> list[str]:
    """At each instant before `until_us` the answers that are valid are those expected, each as often.

    How an answer is split in time makes no difference: what counts is when the number of a row's answers changes.
    """
    change: dict[str, Counter[int]] = defaultdict(Counter)
    for sign, timed in ((1, found), (-1, expected)):
        for start_us, end_us, row in timed:
            change[row][min(start_us, until_us)] += sign
            change[row][min(end_us, until_us)] -= sign
    missing, more = [], []
    for row, steps in change.items():
        too_many = 0
        for instant_us, step in sorted(steps.items()):
            too_many += step
            if step and too_many:
                (more if too_many > 0 else missing).append((instant_us, row))
    return shown("answers missing", sorted(missing)) + shown(
        "answers that should not be, or not so often", sorted(more)
    )


def published(stored: Sequence[Result], accepted: Sequence[Result]) -> list[str]:
    """The broker has accepted every result at least once, in order, and each number only with one content."""
    by_number: dict[int, Result] = {}
    order: list[int] = []
    changed = []
    for each in accepted:
        if each.sequence not in by_number:
            by_number[each.sequence] = each
            order.append(each.sequence)
        elif by_number[each.sequence] != each:
            changed.append(each.sequence)
    wrong = shown("numbers published with two contents", changed)
    wrong += shown("results published before earlier ones", [b for a, b in pairwise(order) if b < a])
    kept = {each.sequence: each for each in stored}
    wrong += shown("results never published", [number for number in kept if number not in by_number])
    other = [number for number, each in by_number.items() if number in kept and kept[number] != each]
    wrong += shown("results published otherwise than stored", other)
    return wrong + shown("results published that are not stored", [each for each in by_number if each not in kept])


def windows(
    rows: Iterable[Stored],
    *,
    range_us: int,
    slide_us: int,
    until_us: int,
    answer: Callable[[Sequence[Stored]], str],
) -> list[tuple[int, int | None, str]]:
    """Return the answers of an aggregate over sliding windows, by its definition.

    Parameters
    ----------
    rows
        Of the stream.
    range_us, slide_us
        Of the windows.
    until_us
        Windows up to here.
    answer
        Returns the row of a window with rows.
    """
    members: dict[int, list[Stored]] = {}
    for row in rows:
        tick = row.start_us // slide_us * slide_us + slide_us
        while tick <= row.start_us + range_us:
            members.setdefault(tick, []).append(row)
            tick += slide_us
    return [
        (tick - 1, tick - 1 + slide_us, answer(found)) for tick, found in sorted(members.items()) if tick <= until_us
    ]


def settled(states: Mapping[str, Any]) -> list[str]:
    """A while after the last fault everything has come to its end: what is left of each is 0."""
    return [f"{name}: {left}" for name, left in states.items() if left]
