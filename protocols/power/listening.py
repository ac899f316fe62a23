"""How often a mote listens and polls, and when records of several regular reports are due, and so its packets.

**How often a mote listens, and how often it has to poll for that.**

The mote's rule (:mod:`firmware_sim.mote.mote`): a listen window follows the first packet that is sent at least `every`
after the window before. If the mote knows when its next packet is due, it sends a polling packet unless that is soon
enough; if it does not know, because the times of records depend on values, it polls after twice `every` without a
packet, and sends the waiting records with it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from protocols.wire.programs import SamplingProgram, first_sample_at_or_after, reports_of

Floats = npt.NDArray[np.float64]

_MOST_EXPECTED = 20_000.0
"""With more records than this between two windows, the number waiting at any moment is nearly uniform."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Rates per second.

    Parameters
    ----------
    packets
        Full packets of records.
    polls
        Polling packets.
    listens
        Listen windows.
    records_per_poll
        Mean number of records in a polling packet.
    """

    packets: float
    polls: float
    listens: float
    records_per_poll: float = 0.0


def when_regular(packets: float, every_s: float) -> Listening:
    """Return the rates of a mote that sends a packet at fixed times, or none."""
    if packets <= 0:
        return Listening(0.0, 1 / every_s, 1 / every_s)
    apart_s = 1 / packets
    if apart_s <= every_s:
        return Listening(packets, 0.0, 1 / (math.ceil(round(every_s / apart_s, 9)) * apart_s))
    polls = max(0, math.ceil(round(apart_s / every_s, 9)) - 2)
    return Listening(packets, polls * packets, (polls + 1) * packets)


@lru_cache(maxsize=1024)
def when_irregular(records: float, per_packet: int, every_s: float) -> Listening:
    """Return the rates of a mote whose records are independent of each other.

    Each window begins with no record waiting, so the time until the next does not depend on what was before.
    In its first half, of length `every_s`, n records come and leave j = n mod `per_packet` waiting; in the second half
    the window begins with the record that fills the packet, or with a polling packet at its end.
    """
    if records <= 0:
        return Listening(0.0, 0.5 / every_s, 0.5 / every_s)
    expected = records * every_s
    counts = _counts(expected, per_packet)
    chances = _waiting(expected, counts, per_packet)
    waiting = np.arange(per_packet)
    last = per_packet - waiting - 1  # the most further records that leave the packet unfilled
    unfilled = np.cumsum(counts)
    silent = float(chances @ unfilled[last])
    # Mean time until the packet is full, limited to every_s: a sum over the missing records.
    waits = float(chances @ np.cumsum(1.0 - unfilled)[last]) / records
    came = np.cumsum(np.arange(len(counts)) * counts)
    flushed = float(chances @ (waiting * unfilled[last] + came[last]))
    window_s = every_s + waits
    polls = silent / window_s
    records_per_poll = flushed / silent if silent > 0 else 0.0
    return Listening((records - polls * records_per_poll) / per_packet, polls, 1 / window_s, records_per_poll)


@lru_cache(maxsize=4096)
def impatient_packets(records: float, per_packet: int, patience_s: float) -> float:
    """Return the packets a second if records are independent and wait for a full packet within their patience.

    A packet begins to fill with a record and is sent with the one that fills it, or when the first has waited long
    enough.
    """
    if records <= 0:
        return 0.0
    missing = per_packet - 1
    waits = 0.0
    if missing and patience_s > 0:
        counts = _counts(records * patience_s, missing)
        # Mean time until the packet is full, limited by patience: a sum over the missing records.
        unfilled = np.cumsum(counts)[:missing]
        waits = float((1.0 - unfilled).sum()) / records if records * patience_s < _MOST_EXPECTED else missing / records
        waits = min(waits, patience_s)
    return 1 / (1 / records + waits)


def _waiting(expected: float, counts: Floats, per_packet: int) -> Floats:
    """Return the probabilities that 0, 1, 2, ... records wait for a full packet at any moment."""
    if expected > _MOST_EXPECTED:
        return np.full(per_packet, 1 / per_packet)
    waiting = np.bincount(np.arange(len(counts)) % per_packet, weights=counts, minlength=per_packet)
    return waiting.astype(np.float64)


def _counts(expected: float, at_least: int) -> Floats:
    """Return the probabilities of 0, 1, 2, ... records in an interval in which `expected` come on average."""
    if expected > _MOST_EXPECTED:
        return np.zeros(at_least)  # fewer than fill a packet are practically impossible
    most = max(at_least, int(expected + 12 * math.sqrt(expected) + 30))
    logarithms = [number * math.log(expected) - expected - math.lgamma(number + 1) for number in range(most)]
    counts: Floats = np.exp(np.array(logarithms, dtype=np.float64))
    return counts


Timing = tuple[tuple[int, int], ...]
"""Of each report the interval that one record covers, 0 if it sends samples, and its period; ascending."""
Instants = npt.NDArray[np.int64] | npt.NDArray[np.object_]

LONGEST_CYCLE = 10_000
"""Reports whose common cycle is longer count as reading different samples."""
MOST_INSTANTS = 4_096
"""The records, from the first on, that are simulated to estimate how often a mote listens."""
_MOST_US = 2**62
"""Instants beyond this do not fit into an array of 64-bit numbers."""
_MANY_PACKETS = 100.0
"""With more packets than this between two windows, their exact instants make no difference."""


def record_instants(program: SamplingProgram, from_us: int) -> Iterator[int]:
    """Yield the instants, from one on, of the samples that complete records of a regular program."""
    return _instants(_timing(program), from_us)


def listening_of_reports(program: SamplingProgram) -> Listening:
    """Return how often a mote with several regular reports sends packets and listens, by simulating a period.

    The work is bounded by the number of records simulated, however far apart they are.
    """
    return _listening(_timing(program), program.samples_per_packet, program.listen.every_us)


@lru_cache(maxsize=4096)
def instants_per_second(periods_us: tuple[int, ...]) -> float:
    """Return the instants a second that are multiples of at least one of several periods."""
    if not periods_us:
        return 0.0
    cycle_us, tick_us = math.lcm(*periods_us), math.gcd(*periods_us)
    if cycle_us // tick_us > LONGEST_CYCLE:
        return min(sum(1e6 / period_us for period_us in periods_us), 1e6 / tick_us)
    due = due_together(tuple(period_us // tick_us for period_us in periods_us))
    return sum(due.values()) / (cycle_us / 1e6)


@lru_cache(maxsize=4096)
def due_together(periods: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """Return, by set of reports, how many ticks of a cycle of at most :data:`LONGEST_CYCLE` exactly these read."""
    looking = np.zeros(math.lcm(*periods), dtype=np.int64)
    for place, period in enumerate(periods):
        looking[::period] |= 1 << place
    found, first, ticks = np.unique(looking, return_index=True, return_counts=True)
    # In the order in which they come: sums of reals depend on it.
    ways = sorted(zip(first.tolist(), found.tolist(), ticks.tolist(), strict=True))
    return {
        tuple(place for place in range(len(periods)) if bits >> place & 1): count for _, bits, count in ways if bits
    }


def _timing(program: SamplingProgram) -> Timing:
    return tuple(sorted((alone.interval_us or 0, alone.period_us) for alone in reports_of(program)))


def _instants(timing: Timing, from_us: int) -> Iterator[int]:
    streams = [_ends(interval_us, period_us, from_us) for interval_us, period_us in timing if interval_us]
    sample_periods_us = [period_us for interval_us, period_us in timing if not interval_us]
    if sample_periods_us:
        # A sample that several reports send is one record.
        streams.append(_distinct(heapq.merge(*(_multiples(each, from_us) for each in sample_periods_us))))
    return heapq.merge(*streams)


@lru_cache(maxsize=512)
def _first_instants(timing: Timing) -> Instants:
    """Return the first instants from 0 on, as :func:`_instants` would yield them."""
    until_us = MOST_INSTANTS * min(interval_us or period_us for interval_us, period_us in timing)
    if until_us > _MOST_US:
        return np.array(list(islice(_instants(timing, 0), MOST_INSTANTS)), dtype=object)
    found = np.sort(np.concatenate(_instants_until(timing, until_us)))
    return found[:MOST_INSTANTS]


def _instants_until(timing: Timing, until_us: int) -> list[Instants]:
    def multiples(every_us: int) -> Instants:
        return np.arange(0, until_us, every_us, dtype=np.int64)

    samples = [multiples(period_us) for interval_us, period_us in timing if not interval_us]
    ends = [-(-multiples(interval_us) // period_us) * period_us for interval_us, period_us in timing if interval_us]
    return [*ends, np.unique(np.concatenate(samples))] if samples else ends


@lru_cache(maxsize=4096)
def _listening(timing: Timing, per_packet: int, every_us: int) -> Listening:
    packets = _first_instants(timing)[per_packet - 1 :: per_packet].tolist()
    until_us = packets[-1]
    rate = len(packets) * 1e6 / until_us
    if rate * every_us / 1e6 > _MANY_PACKETS:
        return when_regular(rate, every_us / 1e6)
    polls = listens = place = 0
    begins_us = 0
    while True:
        place = bisect_left(packets, begins_us + every_us, place)
        if place == len(packets):
            break
        # Until a packet comes soon enough it polls, each time after `every_us`.
        alone = max(0, -(-(packets[place] - begins_us) // every_us) - 2)
        polls += alone
        listens += alone + 1
        begins_us = packets[place]
    seconds = max(begins_us, 1) / 1e6
    if listens == 0:
        return when_regular(rate, every_us / 1e6)
    return Listening(rate, polls / seconds, listens / seconds)


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
