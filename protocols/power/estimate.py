"""The closed form: device profile x program x rates -> milliwatts by component (papers/fjords.md section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.errors import OverloadError
from protocols.power.component import Power
from protocols.power.costs import (
    always_mw,
    listen_cost,
    packet_cost,
    reporting_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.listening import Listening, impatient_packets, when_irregular, when_regular
from protocols.power.payload import part_record_bits, record_bits, sample_of_parts_bits
from protocols.power.profile import DeviceProfile
from protocols.power.record_instants import LONGEST_CYCLE, due_together, instants_per_second, listening_of_parts
from protocols.wire.programs import SamplingProgram, SendOnChange, Several, VehicleEvents, parts_of

NEVER_US = 3650 * 86_400_000_000
"""A listen schedule with windows this far apart stands for a mote that does not listen."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of samples those in a part's bands; of those the ones that left its dead band, and that another one follows."""

    kept: float = 1.0
    changed: float = 1.0
    following: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """What the world does to a mote.

    Parameters
    ----------
    vehicles_per_second
        How many pass, on average.
    kept_share
        Share of samples that lie in the program's bands.
    changed_share
        Share of those that are outside the dead band of what was sent before.
    loss
        Probability that a transmission is not acknowledged.
    following_share
        Probability that a sample in the bands is followed by another.
    parts
        The shares of each part of a program that has several, in their order; those above hold for all if it is empty.
    """

    vehicles_per_second: float = 1.0
    kept_share: float = 1.0
    changed_share: float = 1.0
    loss: float = 0.0
    following_share: float = 0.0
    parts: tuple[Shares, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a mote does what it does, per second.

    Parameters
    ----------
    samples, records, packets
        Samples taken, records reported, packets that carry them.
    asks
        Packets sent only to listen after them.
    listens
        Listen windows.
    records_per_packet, records_per_ask
        Mean size of packets with records, and of those only sent to listen after them.
    record_bits
        Mean length of a record.
    """

    samples: float
    records: float
    packets: float
    asks: float
    listens: float
    records_per_packet: float
    records_per_ask: float = 0.0
    record_bits: float = 0.0


def rates_of(program: SamplingProgram, workload: Workload) -> Rates:
    """Return how often a program does what, in a world."""
    every_s = program.listen.every_us / 1e6
    if program.sleeping:
        return Rates(0.0, 0.0, 0.0, 1 / every_s, 1 / every_s, 0.0)
    samples = 1e6 / program.period_us
    records, bits = records_of(program, workload)
    per_packet = program.samples_per_packet
    if isinstance(program.report, Several) and is_regular(program):
        found = listening_of_parts(program)
    elif is_regular(program):
        found = when_regular(records / per_packet, every_s)
    elif (even := _evenly(program, workload, records)) is not None:
        found = even
    elif program.patience_us:
        # Regular records share a packet if they are due together, but for no more of them than one holds.
        found = when_irregular(max(_impatient_packets(program, workload), records / per_packet), 1, every_s)
        filled = records / found.packets if found.packets > 0 else 0.0
        return Rates(samples, records, found.packets, found.asks, found.listens, filled, 0.0, bits)
    else:
        found = when_irregular(records, per_packet, every_s)
    return Rates(
        samples, records, found.packets, found.asks, found.listens, float(per_packet), found.records_per_ask, bits
    )


def _evenly(program: SamplingProgram, workload: Workload, records: float) -> Listening | None:
    """Return how packets come of a mote that sends only what has changed, if all has: evenly, though it cannot know.

    None if that is not so; or if packets are so rare, or have to leave before they are full, that it matters to know.
    """
    for part, shares in zip(parts_of(program), _shares_of(program, workload), strict=True):
        if not sends_all(part, shares) and not is_regular(part):
            return None
    per_packet = program.samples_per_packet
    if program.patience_us and (per_packet - 1) / records * 1e6 > program.patience_us:
        return None
    if isinstance(program.report, Several):
        found = listening_of_parts(program)
    else:
        found = when_regular(records / per_packet, program.listen.every_us / 1e6)
    return None if found.asks else found


def _impatient_packets(program: SamplingProgram, workload: Workload) -> float:
    """Return how many packets a second leave, full or because a record has waited long enough.

    Patience is short against the pauses between runs of samples in a band, and between regular records: each run fills
    packets of its own, and regular records share one only if they are due together.
    """
    parts, per_packet = parts_of(program), program.samples_per_packet
    regular: set[int] = set()
    packets = 0.0
    for part, shares in zip(parts, _shares_of(program, workload), strict=True):
        rate = _records(part, shares, workload.vehicles_per_second)
        if is_regular(part):
            regular.add(part.interval_us or part.period_us)
        elif part.report is None:
            packets += rate * (1 - shares.following) / (1 - shares.following**per_packet)
        else:
            packets += impatient_packets(rate, per_packet, program.patience_us / 1e6)
    return packets + instants_per_second(tuple(sorted(regular)))


def _shares_of(program: SamplingProgram, workload: Workload) -> tuple[Shares, ...]:
    alone = Shares(workload.kept_share, workload.changed_share, workload.following_share)
    return workload.parts or (alone,) * len(parts_of(program))


def records_of(program: SamplingProgram, workload: Workload) -> tuple[float, float]:
    """Return how many records a program has to send per second, and their mean length in bits."""
    if not isinstance(program.report, Several):
        shares = Shares(workload.kept_share, workload.changed_share)
        return _records(program, shares, workload.vehicles_per_second), float(record_bits(program))
    parts = parts_of(program)
    total, bits = 0.0, 0.0
    senders: list[tuple[SamplingProgram, float]] = []
    for part, shares in zip(parts, _shares_of(program, workload), strict=True):
        if part.report is None:
            senders.append((part, shares.kept if part.bands else 1.0))
            continue
        rate = _records(part, shares, workload.vehicles_per_second)
        total += rate
        bits += rate * part_record_bits(part)
    rate, fields = _merged_samples(senders)
    total += rate
    bits += rate * sample_of_parts_bits(1) + (fields - rate) * (sample_of_parts_bits(2) - sample_of_parts_bits(1))
    return total, bits / total if total else 0.0


def _merged_samples(senders: list[tuple[SamplingProgram, float]]) -> tuple[float, float]:
    """Return how many samples, and how many fields of them, parts send per second that send samples.

    Where several parts look at one sample it goes out once, if any of them wants it.
    """
    if not senders:
        return 0.0, 0.0
    together_us = math.lcm(*(part.period_us for part, _ in senders))
    tick_us = math.gcd(*(part.period_us for part, _ in senders))
    if together_us // tick_us > LONGEST_CYCLE:
        rate = min(sum(share * 1e6 / part.period_us for part, share in senders), 1e6 / tick_us)
        return rate, rate * max(len(part.fields) for part, _ in senders)
    rate = fields = 0.0
    for due, ticks in due_together(tuple(part.period_us // tick_us for part, _ in senders)).items():
        looking = [senders[place] for place in due]
        rate += ticks * min(1.0, sum(share for _, share in looking))
        names = {name for part, _ in looking for name in part.fields}
        fields += ticks * sum(min(1.0, sum(share for part, share in looking if name in part.fields)) for name in names)
    seconds = together_us / 1e6
    return rate / seconds, fields / seconds


def _records(program: SamplingProgram, shares: Shares, vehicles_per_second: float) -> float:
    kept = 1e6 / program.period_us * (shares.kept if program.bands else 1.0)
    match program.report:
        case VehicleEvents(at_most_per_second=most):
            return min(vehicles_per_second, float(most))
        case SendOnChange(maximum_silence_us=silence_us):
            return kept / _samples_until_sent(shares.changed, kept * silence_us / 1e6)
        case None:
            return kept
        case _:
            return 1e6 / (program.interval_us or program.period_us)


def _samples_until_sent(changed_share: float, allowed: float) -> float:
    """Return after how many samples send-on-change sends one, if changes come independently of each other.

    The next is the first change, or the last sample within the silence that is allowed, whichever is first.
    """
    most = max(1, math.floor(round(allowed, 9)))
    if changed_share <= 0:
        return float(most)
    if changed_share >= 1:
        return 1.0
    return -math.expm1(most * math.log1p(-changed_share)) / changed_share


def is_regular(program: SamplingProgram) -> bool:
    """Return whether the mote knows when its next record is due."""
    return all(
        part.interval_us is not None if part.report is not None else not part.bands for part in parts_of(program)
    )


def sends_all(part: SamplingProgram, shares: Shares) -> bool:
    """Return whether a part that sends only what has changed sends every sample: it comes evenly, unforeseen."""
    return isinstance(part.report, SendOnChange) and not part.bands and shares.changed >= 1


def mean_attempts(profile: DeviceProfile, loss: float) -> float:
    """Return how often a packet is sent on average, if each attempt fails with probability `loss`."""
    most = round(profile.radio.maximum_attempts)
    return float(sum(loss**attempt for attempt in range(most)))


def draw_mw(profile: DeviceProfile, program: SamplingProgram, workload: Workload | None = None) -> Power:
    """Return the mean draw by component.

    Parameters
    ----------
    profile
        Of the mote.
    program
        What it runs.
    workload
        What it meets; one vehicle a second and no loss if None.

    Raises
    ------
    OverloadError
        If all that takes more time than there is.
    """
    workload = workload or Workload()
    rates = rates_of(program, workload)
    attempts = mean_attempts(profile, workload.loss)
    bits = rates.record_bits * rates.records_per_packet
    sync_rate = 1 / profile.clock.synchronise_every_seconds if profile.clock.synchronise_every_seconds else 0.0
    parts = [
        (rates.packets, reporting_cost(profile, bits, attempts)),
        (rates.asks, packet_cost(profile, asking_bits(profile, rates), attempts)),
        (rates.listens, listen_cost(profile, program.listen.for_us)),
        (sync_rate, synchronisation_cost(profile)),
    ]
    if not program.sleeping:
        parts.append((rates.samples, sample_cost(profile, len(program.fields), program.period_us)))
    busy = sum(rate * cost.busy_us for rate, cost in parts) / 1e6
    if busy > 1.0 + 1e-9:
        raise OverloadError(
            f"{rates.packets + rates.asks:.4g} packets and {rates.samples:.4g} samples a second would keep "
            f"{profile.name} busy for {busy:.0%} of the time",
            hint="report more rarely, or put more records in a packet",
        )
    active = sum((rate * cost.joules * 1e3 for rate, cost in parts), start=always_mw(profile))
    return active + resting_mw(profile, pause_us(program)) * max(0.0, 1.0 - busy)


def asking_bits(profile: DeviceProfile, rates: Rates) -> float:
    """Return the mean payload of packets that are sent to listen after them."""
    return profile.radio.health_bits + rates.records_per_ask * rates.record_bits


def pause_us(program: SamplingProgram) -> float:
    """Return how long the processor can rest between two things to do."""
    return program.listen.every_us if program.sleeping else program.period_us
