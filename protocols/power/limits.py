"""Programs that a mote rejects because of its hardware, with the limit in the message."""

from __future__ import annotations

import math

from protocols.errors import ProgramError
from protocols.power.costs import packet_cost
from protocols.power.payload import record_bits
from protocols.power.profile import DeviceProfile
from protocols.text.durations import format_duration
from protocols.wire.programs import Panes, SamplingProgram, VehicleCount, reports_of


def check_program(profile: DeviceProfile, program: SamplingProgram) -> None:
    """Reject a program that this device cannot run.

    Raises
    ------
    ProgramError
        If its rate is above what converter or processor can do, a packet above what the radio takes, or packets come
        faster than the radio can send them.
    """
    if program.sleeping:
        return
    fields, period_us = len(program.fields), program.period_us
    latch_us = profile.adc.latch_us * fields
    if period_us < latch_us:
        what = f"{_hertz(period_us)} of {fields} {'field' if fields == 1 else 'fields'}"
        raise ProgramError(
            f"{what} is above what the converter of {profile.name} can do: {_hertz(latch_us)}",
            hint=f"sample every {_period(latch_us)} at the fastest",
        )
    active_us = _active_us(profile)
    if period_us < active_us:
        raise ProgramError(
            f"{_hertz(period_us)} is above what the processor of {profile.name} can do: {_hertz(active_us)}",
            hint=f"sample every {_period(active_us)} at the fastest",
        )
    each, limit_bytes = record_bits(program), profile.radio.max_payload_bytes
    bits = each * program.samples_per_packet
    if bits > limit_bytes * 8:
        raise ProgramError(
            f"a packet of {program.samples_per_packet} records has {bits / 8:g} bytes, "
            f"the radio of {profile.name} takes {limit_bytes:g}",
            hint=f"put at most {int(limit_bytes * 8 // each)} records in a packet",
        )
    _check_air(profile, program)


def _check_air(profile: DeviceProfile, program: SamplingProgram) -> None:
    """Reject a program whose packets take longer than the time between them."""
    rate = sum(map(_known_records_per_second, reports_of(program)))
    if rate == 0:
        return  # its rate depends on the values
    apart_us = program.samples_per_packet / rate * 1e6
    bits = record_bits(program) * program.samples_per_packet
    busy_us = packet_cost(profile, bits).busy_us
    if busy_us > apart_us:
        raise ProgramError(
            f"a packet every {apart_us / 1e3:g} ms is above what the radio of {profile.name} can do: "
            f"each takes {busy_us / 1e3:.4g} ms",
            hint="put more samples in a packet, or report more rarely",
        )


def _known_records_per_second(alone: SamplingProgram) -> float:
    if alone.report is None and not alone.bands:
        return 1e6 / alone.period_us
    if isinstance(alone.report, Panes | VehicleCount):
        return 1e6 / (alone.interval_us or alone.period_us)
    return 0.0


def most_records(profile: DeviceProfile, program: SamplingProgram) -> int:
    """Return how many records of this program fit into one packet."""
    return int(profile.radio.max_payload_bytes * 8 // record_bits(program))


def _active_us(profile: DeviceProfile) -> float:
    return profile.processor.cycles_per_sample / profile.processor.clock_hz * 1e6


def _period(least_us: float) -> str:
    """Return the shortest period that is at least so long."""
    return format_duration(math.ceil(least_us))


def _hertz(period_us: float) -> str:
    return f"{1e6 / period_us:.4g} Hz"
