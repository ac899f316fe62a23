"""The queries of a whole deployment, each by its definition: brute force over the rows that were committed.

    rows of the stream  --definition-->  rows of the answer, from when until when each is valid

A query without state sees what is stamped behind the watermark at the position where it was added, one with state what
was stored after that position. Nothing here is shared with the product but the names of columns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from protocols.wire.batches import (
    DEFAULT_RATE_COLUMN,
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    NEXT_COLUMN,
    PREVIOUS_COLUMN,
    SAMPLES_COLUMN,
    START_COLUMN,
)
from tests.simulation.cluster_oracles import SECOND_US, Result, Timed
from tests.simulation.schedules import COMPLETENESS_SQL, SAMPLES_SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DIGITS = 6
"""Means are compared to so many digits after the point: how they are summed up is not promised."""
NEVER_US = 2**62
Row = dict[str, Any]


class Definition(NamedTuple):
    """What a query means.

    Parameters
    ----------
    has_state
        Whether it sees what was stored since it was added; else what is stamped since the watermark then.
    answers
        Returns its answers from the rows that it sees: from when until when each is valid, and the row.
    """

    has_state: bool
    answers: Callable[[Iterable[Row]], Iterator[tuple[int, int, Row]]]


def expected(definition: Definition, rows: Iterable[Row]) -> Iterator[Timed]:
    """Yield the answers of a query from the rows that it sees."""
    for start_us, end_us, row in definition.answers(rows):
        yield start_us, end_us, _text(row)


def given_out_until(answers: Iterable[Timed], watermark_us: int, handover: tuple[int, int] | None) -> int:
    """Return up to which instant a query that was dropped has given out its answers.

    While it hands over to another plan, answers wait that reach the instant of the handover, and all behind it
    (docs/explanation/migration.md): those of a query that is dropped then are gone with it.

    Parameters
    ----------
    answers
        All that it has by its definition.
    watermark_us
        Up to which instant it has read its streams.
    handover
        As in :class:`~tests.simulation.committed_versions.Span`.
    """
    if handover is None or watermark_us >= handover[1]:
        return watermark_us
    waiting = (start_us for start_us, end_us, _ in answers if end_us >= handover[0])
    return min(watermark_us, min(waiting, default=watermark_us))


def answered(results: Sequence[Result]) -> Iterator[Timed]:
    """Yield the answers that results consist of: an open one is valid until a later result closes it."""
    closed = {each.row: each.end_us for each in results if each.start_us is None}
    for each in results:
        if each.start_us is not None:
            end_us = closed.get(f"closes {each.sequence}") if each.end_us is None else each.end_us
            yield each.start_us, NEVER_US if end_us is None else end_us, _text(msgspec.json.decode(each.row))


def _text(row: object) -> str:
    if isinstance(row, dict):
        row = {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in row.items()}
    return msgspec.json.encode(row, order="sorted").decode()


def _samples(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield samples of the default rate: not what proxies and motes counted and summed up."""
    return (row for row in rows if row.get(FINGERPRINT_COLUMN) is None and row[DEFAULT_RATE_COLUMN])


def _selected(
    rows: Iterable[Row], *, names: tuple[str, ...], condition: Callable[[Row], bool] = lambda _: True
) -> Iterator[tuple[int, int, Row]]:
    for row in _samples(rows):
        if condition(row):
            yield row[START_COLUMN], row[START_COLUMN] + 1, {name: row[name] for name in names}


def _sampled(rows: Iterable[Row], *, names: tuple[str, ...], period_us: int) -> Iterator[tuple[int, int, Row]]:
    for row in rows:
        if row.get(FINGERPRINT_COLUMN) is None and row[START_COLUMN] % period_us == 0:
            yield row[START_COLUMN], row[START_COLUMN] + 1, {name: row[name] for name in names}


def _means(rows: Iterable[Row], *, keys: tuple[str, ...], range_us: int) -> Iterator[tuple[int, int, Row]]:
    """Yield the mean speed of each group, which changes with each sample that comes or leaves the window."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in _samples(rows):
        groups[tuple(row[key] for key in keys)].append(row)
    for group, members in groups.items():
        members.sort(key=lambda row: int(row[START_COLUMN]))
        stamps = [row[START_COLUMN] for row in members]
        first = last = 0
        for start_us, end_us in pairwise(sorted({*stamps, *(stamp_us + range_us for stamp_us in stamps)})):
            while last < len(stamps) and stamps[last] <= start_us:
                last += 1
            while first < last and stamps[first] + range_us <= start_us:
                first += 1
            if first < last:
                mean = _mean([row["speed"] for row in members[first:last] if row["speed"] is not None])
                yield start_us, end_us, dict(zip(keys, group, strict=True)) | {"mean": mean}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _slid(
    rows: Iterable[Row],
    *,
    keys: tuple[str, ...],
    range_us: int,
    slide_us: int,
    answer: Callable[[Sequence[Row]], Mapping[str, Any] | None],
) -> Iterator[tuple[int, int, Row]]:
    """Yield the answer of each group of each window that slides; None stands for no answer."""
    windows: dict[tuple[int, tuple[Any, ...]], list[Row]] = defaultdict(list)
    for row in rows:
        group, stamp_us = tuple(row[key] for key in keys), row[START_COLUMN]
        for ended_us in range(stamp_us // slide_us * slide_us + slide_us, stamp_us + range_us + 1, slide_us):
            windows[ended_us, group].append(row)
    for (ended_us, group), members in windows.items():
        found = answer(members)
        if found is not None:
            yield ended_us - 1, ended_us - 1 + slide_us, {**dict(zip(keys, group, strict=True)), **found}


def _fastest(rows: Iterable[Row]) -> Iterator[tuple[int, int, Row]]:
    def answer(members: Sequence[Row]) -> Mapping[str, Any]:
        return {"fastest": max((row["speed"] for row in members if row["speed"] is not None), default=None)}

    return _slid(_samples(rows), keys=("segment",), range_us=16 * SECOND_US, slide_us=8 * SECOND_US, answer=answer)


def _seen(rows: Iterable[Row]) -> Iterator[tuple[int, int, Row]]:
    """Count samples, and what proxies say of how many were due and are missing; without samples there is no answer."""

    def answer(members: Sequence[Row]) -> Mapping[str, Any] | None:
        counts = [row for row in members if row.get(EXPECTED_COLUMN) is not None]
        cars = sum(1 if row.get(FINGERPRINT_COLUMN) is None else row[SAMPLES_COLUMN] for row in members)
        due = sum(row[EXPECTED_COLUMN] for row in counts)
        seen = due - sum(row[MISSING_COLUMN] for row in counts)
        return {"cars": cars, "seen": seen / due if due else None} if cars else None

    counted = (row for row in rows if row.get(EXPECTED_COLUMN) is not None or row[DEFAULT_RATE_COLUMN])
    return _slid(counted, keys=("sensor",), range_us=20 * SECOND_US, slide_us=20 * SECOND_US, answer=answer)


def _slow(row: Row) -> bool:
    return row["speed"] is not None and bool(row["speed"] < 55)


DEFINITIONS: Mapping[str, Definition] = {
    SAMPLES_SQL: Definition(has_state=False, answers=partial(_selected, names=("sensor", "segment", "speed"))),
    COMPLETENESS_SQL: Definition(has_state=True, answers=_seen),
    "SELECT sensor, speed, flow FROM traffic WHERE speed < 55": Definition(
        has_state=False, answers=partial(_selected, names=("sensor", "speed", "flow"), condition=_slow)
    ),
    "SELECT sensor, segment, AVG(speed) AS mean FROM traffic WINDOW(RANGE 12 SECONDS) GROUP BY sensor, segment": (
        Definition(has_state=True, answers=partial(_means, keys=("sensor", "segment"), range_us=12 * SECOND_US))
    ),
    "SELECT segment, MAX(speed) AS fastest FROM traffic WINDOW(RANGE 16 SECONDS SLIDE 8 SECONDS) GROUP BY segment": (
        Definition(has_state=True, answers=_fastest)
    ),
    "SELECT sensor, flow FROM traffic WHERE lane = 1": Definition(
        has_state=False,
        answers=partial(_selected, names=("sensor", "flow"), condition=lambda row: bool(row["lane"] == 1)),
    ),
    "SELECT sensor, flow FROM traffic SAMPLE EVERY 4 SECONDS": Definition(
        has_state=False, answers=partial(_sampled, names=("sensor", "flow"), period_us=4 * SECOND_US)
    ),
}
"""By text: every query that a schedule draws."""


def definition_of(sql: str) -> Definition:
    """Return what a query means that a schedule draws: one of the above, or one that reads a stream of devices."""
    found = DEFINITIONS.get(sql)
    if found is not None:
        return found
    parts = _OF_DEVICES.fullmatch(sql)
    assert parts is not None
    names = tuple(parts["names"].split(", "))
    if parts["seconds"] is None:
        return Definition(has_state=False, answers=partial(_selected, names=names))
    return Definition(
        has_state=False, answers=partial(_first_of_each, names=names, period_us=int(parts["seconds"]) * SECOND_US)
    )


_OF_DEVICES = re.compile(r"SELECT (?P<names>[\w, ]+) FROM \w+( SAMPLE EVERY (?P<seconds>\d+) SECONDS)?")


def _first_of_each(rows: Iterable[Row], *, names: tuple[str, ...], period_us: int) -> Iterator[tuple[int, int, Row]]:
    """Yield samples at whole multiples of a period; of tuples that devices published each one's first in a period.

    No tuple of its device that was stored before it lies in its period: of those the nearest ones are in its columns.
    """
    for row in rows:
        start_us = row[START_COLUMN]
        before_us, after_us = row.get(PREVIOUS_COLUMN), row.get(NEXT_COLUMN)
        period = start_us // period_us
        if before_us is None:
            is_read = start_us % period_us == 0
        else:
            is_read = before_us // period_us < period and (after_us is None or after_us // period_us > period)
        if is_read and row.get(FINGERPRINT_COLUMN) is None:
            yield start_us, start_us + 1, {name: row.get(name) for name in names}
