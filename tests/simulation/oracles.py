"""What must hold of a cluster at the end of a simulation, whatever went wrong before: pure functions, of what was found.

    sent by proxies  --stored-->  the stream's table  --answers-->  the results table  --published-->  the broker

Each returns what is violated, as sentences; none if all holds.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SECOND_US = 1_000_000


class Stored(NamedTuple):
    """A row of a stream's table."""

    start_us: int
    mote: str
    values: tuple[object, ...]


class Result(NamedTuple):
    """A row of the results table, or as published."""

    sequence: int
    start_us: int
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
    back = [b.sequence for a, b in pairwise(results) if b.start_us < a.start_us]
    return shown("results with a wrong number", wrong) + shown("results that start before the one before", back)


def complete(found: Iterable[Result], expected: Iterable[tuple[int, int | None, str]]) -> list[str]:
    """Answers are those that the stored rows give, each as often."""
    have, want = Counter(each[1:] for each in found), Counter(expected)
    return shown("answers missing", (want - have).elements()) + shown(
        "answers that should not be, or not so often", (have - want).elements()
    )


def contiguous(
    found: Sequence[Result],
    expected: Sequence[tuple[int, int | None, str]],
    *,
    begun_us: int | None,
    ended_us: int | None,
) -> list[str]:
    """A query that began late, or was dropped, has all answers between two instants.

    Parameters
    ----------
    found
        Its answers.
    expected
        Those it would have had from the beginning to the end.
    begun_us
        All answers that start from here on must be there; None if it need not have any.
    ended_us
        Answers that start after this may be missing; None if none may.
    """
    starts = [each.start_us for each in found]
    if not starts:
        due = begun_us is not None and any(
            start >= begun_us and (ended_us is None or start < ended_us) for start, *_ in expected
        )
        return ["it has no answers"] if due else []
    first, last = min(starts), max(starts)
    wrong = []
    if begun_us is not None and first > begun_us:
        wrong += shown("answers missing at the beginning", [e for e in expected if begun_us <= e[0] < first])
    if ended_us is None or last < ended_us:
        until = ended_us or 2**62
        wrong += shown("answers missing at the end", [each for each in expected if last < each[0] < until])
    inner = [each for each in expected if first < each[0] < last]
    return wrong + complete([each for each in found if first < each.start_us < last], inner)


def published(stored: Sequence[Result], accepted: Sequence[Result]) -> list[str]:
    """The broker has accepted every result at least once, in order, and each number only with one content."""
    by_number: dict[int, Result] = {}
    order: list[int] = []
    changed = []
    for each in accepted:
        known = by_number.setdefault(each.sequence, each)
        if known is each:
            order.append(each.sequence)
        elif known != each:
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
    """Everything has come to its end a while after the last fault: each entry says how much is left, and should be 0."""
    return [f"{name}: {left}" for name, left in states.items() if left]
