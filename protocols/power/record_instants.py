"""When the records of a program with several regular parts are due, and what follows for its packets and listening."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from protocols.power.listening import Listening, when_regular
from protocols.programs import SamplingProgram, first_sample_at_or_after, parts_of

_MOST_RECORDS = 4_096
_MANY_PACKETS = 100.0
"""With more packets than this between two windows, when exactly each is sent makes no difference."""


def record_instants(program: SamplingProgram, from_us: int) -> Iterator[int]:
    """Yield the instants, from one on, of the samples with which records of a regular program are complete."""
    streams: list[Iterator[int]] = []
    sample_periods_us: list[int] = []
    for part in parts_of(program):
        if part.interval_us is None:
            sample_periods_us.append(part.period_us)
        else:
            streams.append(_ends(part.interval_us, part.period_us, from_us))
    if sample_periods_us:
        # What several parts would send of one sample is one record.
        streams.append(_distinct(heapq.merge(*(_multiples(each, from_us) for each in sample_periods_us))))
    return heapq.merge(*streams)


@lru_cache(maxsize=4096)
def listening_of_parts(program: SamplingProgram) -> Listening:
    """Return how often a mote with several regular parts sends packets and listens, by going through a while of it."""
    every_us = program.listen.every_us
    instants = list(islice(record_instants(program, 0), _MOST_RECORDS))
    packets = instants[program.samples_per_packet - 1 :: program.samples_per_packet]
    until_us = packets[-1]
    rate = len(packets) * 1e6 / until_us
    if rate * every_us / 1e6 > _MANY_PACKETS:
        return when_regular(rate, every_us / 1e6)
    asks = listens = place = 0
    begins_us = 0
    while True:
        ask_us = begins_us + every_us
        while place < len(packets) and packets[place] < ask_us:
            place += 1
        if place == len(packets):
            break
        listens += 1
        if packets[place] <= ask_us + every_us:
            begins_us = packets[place]
        else:
            asks += 1
            begins_us = ask_us
    seconds = max(begins_us, 1) / 1e6
    if listens == 0:
        return when_regular(rate, every_us / 1e6)
    return Listening(rate, asks / seconds, listens / seconds)


def _multiples(every_us: int, from_us: int) -> Iterator[int]:
    instant_us = first_sample_at_or_after(from_us, every_us)
    while True:
        yield instant_us
        instant_us += every_us


def _ends(interval_us: int, period_us: int, from_us: int) -> Iterator[int]:
    """Yield the first sample at or after the end of each interval."""
    end_us = first_sample_at_or_after(from_us, interval_us)
    while True:
        yield first_sample_at_or_after(end_us, period_us)
        end_us += interval_us


def _distinct(instants: Iterator[int]) -> Iterator[int]:
    before: int | None = None
    for instant_us in instants:
        if instant_us != before:
            yield instant_us
        before = instant_us
