"""The closed form: device profile x program x rates -> milliwatts by component (papers/fjords.md section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.errors import OverloadError
from protocols.power.costs import (
    Power,
    always_mw,
    listen_cost,
    packet_cost,
    reporting_cost,
    resting_mw,
    sample_cost,
    synchronisation_cost,
)
from protocols.power.listening import (
    LONGEST_CYCLE,
    Listening,
    due_together,
    impatient_packets,
    instants_per_second,
    listening_of_reports,
    when_irregular,
    when_regular,
)
from protocols.power.payload import record_bits, report_record_bits, sample_of_reports_bits
from protocols.power.profiles import DeviceProfile
from protocols.wire.programs import SamplingProgram, SendOnChange, Several, VehicleEvents, reports_of

NEVER_US = 3650 * 86_400_000_000
"""A listen schedule with windows this far apart means that the mote does not listen."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Share of samples in a report's bands; of those the shares outside its dead band, and followed by another."""

    kept: float = 1.0
    changed: float = 1.0
    following: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload of a mote.

    Parameters
    ----------
    vehicles_per_second
        Mean number of vehicles.
    kept_share
        Share of samples that lie in the program's bands.
    changed_share
        Share of those that are outside the dead band of the last sample sent.
    loss
        Probability that a transmission is not acknowledged.
    following_share
        Probability that a sample in the bands is followed by another.
    reports
        The shares of each report of a program that has several, in order; if empty, those above hold for all.
    """

    vehicles_per_second: float = 1.0
    kept_share: float = 1.0
    changed_share: float = 1.0
    loss: float = 0.0
    following_share: float = 0.0
    reports: tuple[Shares, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """Activities of a mote per second.

    Parameters
    ----------
    samples, records, packets
        Samples taken, records reported, packets that carry them.
    polls
        Polling packets: sent only to listen after them.
    listens
        Listen windows.
    records_per_packet, records_per_poll
        Mean number of records in packets with records, and in polling packets.
    record_bits
        Mean length of a record.
    """

    samples: float
    records: float
    packets: float
    polls: float
    listens: float
    records_per_packet: float
    records_per_poll: float = 0.0
    record_bits: float = 0.0


def rates_of(program: SamplingProgram, workload: Workload) -> Rates:
    """Return the rates of a program with a workload."""
    every_s = program.listen.every_us / 1e6
    if program.sleeping:
        return Rates(0.0, 0.0, 0.0, 1 / every_s, 1 / every_s, 0.0)
    samples = 1e6 / program.period_us
    records, bits = records_of(program, workload)
    per_packet = program.samples_per_packet
    if isinstance(program.report, Several) and is_regular(program):
        found = listening_of_reports(program)
    elif is_regular(program):
        found = when_regular(records / per_packet, every_s)
    elif (even := _evenly(program, workload, records)) is not None:
        found = even
    elif program.patience_us:
        # Regular records share a packet if they are due together, as many as it holds.
        found = when_irregular(max(_impatient_packets(program, workload), records / per_packet), 1, every_s)
        filled = records / found.packets if found.packets > 0 else 0.0
        return Rates(samples, records, found.packets, found.polls, found.listens, filled, 0.0, bits)
    else:
        found = when_irregular(records, per_packet, every_s)
    return Rates(
        samples, records, found.packets, found.polls, found.listens, float(per_packet), found.records_per_poll, bits
    )


def _evenly(program: SamplingProgram, workload: Workload, records: float) -> Listening | None:
    """Return the rates of a mote that sends changes only, if every sample has changed: even, though not known before.

    None if not every sample has changed, or if packets are so rare, or sent early, that knowing makes a difference.
    """
    for alone, shares in zip(reports_of(program), _shares_of(program, workload), strict=True):
        if not sends_all(alone, shares) and not is_regular(alone):
            return None
    per_packet = program.samples_per_packet
    if program.patience_us and (per_packet - 1) / records * 1e6 > program.patience_us:
        return None
    if isinstance(program.report, Several):
        found = listening_of_reports(program)
    else:
        found = when_regular(records / per_packet, program.listen.every_us / 1e6)
    return None if found.polls else found


def _impatient_packets(program: SamplingProgram, workload: Workload) -> float:
    """Return the number of packets a second, full ones and those whose records have waited long enough.

    Patience is short compared with the pauses between runs of samples in a band, and between regular records: each run
    fills packets of its own, and regular records share one only if they are due together.
    """
    reports, per_packet = reports_of(program), program.samples_per_packet
    regular: set[int] = set()
    packets = 0.0
    for alone, shares in zip(reports, _shares_of(program, workload), strict=True):
        rate = _records(alone, shares, workload.vehicles_per_second)
        if is_regular(alone):
            regular.add(alone.interval_us or alone.period_us)
        elif alone.report is None:
            packets += rate * (1 - shares.following) / (1 - shares.following**per_packet)
        else:
            packets += impatient_packets(rate, per_packet, program.patience_us / 1e6)
    return packets + instants_per_second(tuple(sorted(regular)))


def _shares_of(program: SamplingProgram, workload: Workload) -> tuple[Shares, ...]:
    alone = Shares(workload.kept_share, workload.changed_share, workload.following_share)
    return workload.reports or (alone,) * len(reports_of(program))


def records_of(program: SamplingProgram, workload: Workload) -> tuple[float, float]:
    """Return the records that a program sends per second, and their mean length in bits."""
    if not isinstance(program.report, Several):
        shares = Shares(workload.kept_share, workload.changed_share)
        return _records(program, shares, workload.vehicles_per_second), float(record_bits(program))
    reports = reports_of(program)
    total, bits = 0.0, 0.0
    senders: list[tuple[SamplingProgram, float]] = []
    for alone, shares in zip(reports, _shares_of(program, workload), strict=True):
        if alone.report is None:
            senders.append((alone, shares.kept if alone.bands else 1.0))
            continue
        rate = _records(alone, shares, workload.vehicles_per_second)
        total += rate
        bits += rate * report_record_bits(alone)
    rate, fields = _merged_samples(senders)
    total += rate
    bits += rate * sample_of_reports_bits(1) + (fields - rate) * (sample_of_reports_bits(2) - sample_of_reports_bits(1))
    return total, bits / total if total else 0.0


def _merged_samples(senders: list[tuple[SamplingProgram, float]]) -> tuple[float, float]:
    """Return the samples, and the fields of samples, that reports send per second.

    A sample that several reports send is sent once.
    """
    if not senders:
        return 0.0, 0.0
    together_us = math.lcm(*(alone.period_us for alone, _ in senders))
    tick_us = math.gcd(*(alone.period_us for alone, _ in senders))
    if together_us // tick_us > LONGEST_CYCLE:
        rate = min(sum(share * 1e6 / alone.period_us for alone, share in senders), 1e6 / tick_us)
        return rate, rate * max(len(alone.fields) for alone, _ in senders)
    rate = fields = 0.0
    for due, ticks in due_together(tuple(alone.period_us // tick_us for alone, _ in senders)).items():
        looking = [senders[place] for place in due]
        rate += ticks * min(1.0, sum(share for _, share in looking))
        names = {name for alone, _ in looking for name in alone.fields}
        fields += ticks * sum(
            min(1.0, sum(share for alone, share in looking if name in alone.fields)) for name in names
        )
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
    """Return the mean number of samples per sample sent on change, if changes are independent of each other.

    The next one sent is the first change, or the last sample within the longest silence, whichever is first.
    """
    most = max(1, math.floor(round(allowed, 9)))
    if changed_share <= 0:
        return float(most)
    if changed_share >= 1:
        return 1.0
    return -math.expm1(most * math.log1p(-changed_share)) / changed_share


def is_regular(program: SamplingProgram) -> bool:
    """Return whether the time of the mote's next record is known in advance."""
    return all(
        alone.interval_us is not None if alone.report is not None else not alone.bands for alone in reports_of(program)
    )


def sends_all(alone: SamplingProgram, shares: Shares) -> bool:
    """Return whether a report that sends changes only sends every sample: at even times that are not known before."""
    return isinstance(alone.report, SendOnChange) and not alone.bands and shares.changed >= 1


def mean_attempts(profile: DeviceProfile, loss: float) -> float:
    """Return the mean number of attempts per packet, if each fails with probability `loss`."""
    most = round(profile.radio.maximum_attempts)
    return float(sum(loss**attempt for attempt in range(most)))


def draw_mw(profile: DeviceProfile, program: SamplingProgram, workload: Workload | None = None) -> Power:
    """Return the mean draw by component.

    Parameters
    ----------
    profile
        Of the mote.
    program
        The program.
    workload
        Its workload; one vehicle a second and no loss if None.

    Raises
    ------
    OverloadError
        If the activities take more time than there is.
    """
    workload = workload or Workload()
    rates = rates_of(program, workload)
    attempts = mean_attempts(profile, workload.loss)
    bits = rates.record_bits * rates.records_per_packet
    sync_rate = 1 / profile.clock.synchronise_every_seconds if profile.clock.synchronise_every_seconds else 0.0
    reports = [
        (rates.packets, reporting_cost(profile, bits, attempts)),
        (rates.polls, packet_cost(profile, polling_bits(profile, rates), attempts)),
        (rates.listens, listen_cost(profile, program.listen.for_us)),
        (sync_rate, synchronisation_cost(profile)),
    ]
    if not program.sleeping:
        reports.append((rates.samples, sample_cost(profile, len(program.fields), program.period_us)))
    busy = sum(rate * cost.busy_us for rate, cost in reports) / 1e6
    if busy > 1.0 + 1e-9:
        raise OverloadError(
            f"{rates.packets + rates.polls:.4g} packets and {rates.samples:.4g} samples a second would keep "
            f"{profile.name} busy for {busy:.0%} of the time",
            hint="report more rarely, or put more records in a packet",
        )
    active = sum((rate * cost.joules * 1e3 for rate, cost in reports), start=always_mw(profile))
    return active + resting_mw(profile, pause_us(program)) * max(0.0, 1.0 - busy)


def polling_bits(profile: DeviceProfile, rates: Rates) -> float:
    """Return the mean payload of polling packets."""
    return profile.radio.health_bits + rates.records_per_poll * rates.record_bits


def pause_us(program: SamplingProgram) -> float:
    """Return how long the processor can rest between two activities."""
    return program.listen.every_us if program.sleeping else program.period_us
