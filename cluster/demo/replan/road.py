"""The road of the scene: three streams, how many readings they bring, and what the query must answer.

    brakings   1/s ----------> 300/s      hard brakings: few, then many
    speeds     300/s -------> 300/s
    rain       300/s ---------> 1/s       wet sensors report often while it rains

An answer holds while a reading of each stream is in its window, all of the same segment.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import product

from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
WINDOW_US = 5 * SECOND_US
SEGMENTS = 200
VALUES = {"brakings": "force", "speeds": "mph", "rain": "mm"}
"""By stream: what it measures."""
RAIN = {"brakings": 1, "speeds": 300, "rain": 300}
"""Readings a second while it rains."""
RUSH_HOUR = {"brakings": 300, "speeds": 300, "rain": 1}
"""Readings a second once it has stopped, and everyone drives home."""
SCHEMAS = {
    stream: StreamSchema(stream, (Field("segment", FieldType.INTEGER), Field(value, FieldType.INTEGER)))
    for stream, value in VALUES.items()
}
QUERY = (
    "SELECT brakings.segment, force, mph, mm FROM brakings WINDOW(RANGE 5 SECONDS), speeds WINDOW(RANGE 5 SECONDS), "
    "rain WINDOW(RANGE 5 SECONDS) WHERE brakings.segment = speeds.segment AND speeds.segment = rain.segment"
)

Reading = tuple[int, int, int]
"""Its stamp, in microseconds since 1970, the segment, and what was measured."""
Answer = tuple[int, int, int, int, int, int]
"""Start and end, the segment, and what was measured of each stream."""


def readings(dice: random.Random, rate: int, begin_us: int, end_us: int) -> list[Reading]:
    """Return readings of a stream from an instant to another, as many in each second, evenly spread."""
    first, last = (-(-at_us * rate // SECOND_US) for at_us in (begin_us, end_us))
    return [(place * SECOND_US // rate, dice.randrange(SEGMENTS), dice.randrange(100)) for place in range(first, last)]


def answers(sent: Mapping[str, Iterable[Reading]]) -> Counter[Answer]:
    """Return what the query answers, by brute force: each combination of readings that hold together.

    Parameters
    ----------
    sent
        By stream: all its readings, in the order of time.
    """
    by_segment: defaultdict[int, dict[str, list[Reading]]] = defaultdict(lambda: {stream: [] for stream in VALUES})
    for stream, found in sent.items():
        for reading in found:
            by_segment[reading[1]][stream].append(reading)
    return Counter(answer for streams in by_segment.values() for answer in _of_segment(streams))


def _of_segment(streams: Mapping[str, list[Reading]]) -> Iterable[Answer]:
    # From the stream with the fewest, so that most of the others are never looked at.
    few = min(VALUES, key=lambda stream: len(streams[stream]))
    for reading in streams[few]:
        near = [[reading] if stream == few else _near(streams[stream], reading[0]) for stream in VALUES]
        for held in product(*near):
            start_us, end_us = max(each[0] for each in held), min(each[0] for each in held) + WINDOW_US
            if start_us < end_us:
                yield (start_us, end_us, reading[1], held[0][2], held[1][2], held[2][2])


def _near(found: list[Reading], at_us: int) -> list[Reading]:
    """Return the readings whose windows meet that of a reading at an instant."""
    return found[bisect_left(found, (at_us - WINDOW_US + 1,)) : bisect_left(found, (at_us + WINDOW_US,))]
