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
from protocols.power.listening import when_irregular, when_regular
from protocols.power.payload import packet_bits
from protocols.power.profile import DeviceProfile
from protocols.programs import SamplingProgram, SendOnChange, VehicleEvents

NEVER_US = 3650 * 86_400_000_000
"""A listen schedule with windows this far apart stands for a mote that does not listen."""


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
    """

    vehicles_per_second: float = 1.0
    kept_share: float = 1.0
    changed_share: float = 1.0
    loss: float = 0.0


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
    """

    samples: float
    records: float
    packets: float
    asks: float
    listens: float
    records_per_packet: float
    records_per_ask: float = 0.0


def rates_of(program: SamplingProgram, workload: Workload) -> Rates:
    """Return how often a program does what, in a world."""
    every_s = program.listen.every_us / 1e6
    if program.sleeping:
        return Rates(0.0, 0.0, 0.0, 1 / every_s, 1 / every_s, 0.0)
    samples = 1e6 / program.period_us
    records = _records(program, workload, samples)
    per_packet = program.samples_per_packet
    if is_regular(program):
        found = when_regular(records / per_packet, every_s)
    else:
        found = when_irregular(records, per_packet, every_s)
    return Rates(samples, records, found.packets, found.asks, found.listens, float(per_packet), found.records_per_ask)


def _records(program: SamplingProgram, workload: Workload, samples: float) -> float:
    kept = samples * (workload.kept_share if program.bands else 1.0)
    match program.report:
        case VehicleEvents(at_most_per_second=most):
            return min(workload.vehicles_per_second, float(most))
        case SendOnChange(maximum_silence_us=silence_us):
            return kept / _samples_until_sent(workload.changed_share, kept * silence_us / 1e6)
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
    return program.interval_us is not None or (program.report is None and not program.bands)


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
    bits = packet_bits(program, 1) * rates.records_per_packet
    sync_rate = 1 / profile.clock.synchronise_every_seconds if profile.clock.synchronise_every_seconds else 0.0
    parts = [
        (rates.packets, reporting_cost(profile, bits, attempts)),
        (rates.asks, packet_cost(profile, asking_bits(profile, program, rates), attempts)),
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


def asking_bits(profile: DeviceProfile, program: SamplingProgram, rates: Rates) -> float:
    """Return the mean payload of packets that are sent to listen after them."""
    along = rates.records_per_ask * packet_bits(program, 1) if rates.records_per_ask else 0.0
    return profile.radio.health_bits + along


def pause_us(program: SamplingProgram) -> float:
    """Return how long the processor can rest between two things to do."""
    return program.listen.every_us if program.sleeping else program.period_us
