"""The bits that a mote sends for its records, and programs that it rejects because of its hardware.

A real mote packs its values compactly; the MessagePack frames of the simulator name every field and
are several times longer, so energy is counted from here.
"""

from __future__ import annotations

import math

from protocols.errors import ProgramError
from protocols.power.costs import packet_cost
from protocols.power.profiles import DeviceProfile
from protocols.text.quantities import format_duration
from protocols.wire.packets import Health, Partial, Record, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Measure, Panes, SamplingProgram, Several, VehicleCount, VehicleEvents, reports_of

VALUE_BITS = 16
"""One converted value (papers/fjords.md section 6: two bytes)."""
STAMP_BITS = 16
"""The instant of a sample, if it does not follow from the packet's first instant and the period."""
VEHICLE_BITS = 32
"""Two 16-bit times."""
TALLY_BITS = 16
SAMPLES_BITS = 16
"""The number of samples in a pane."""
PART_BITS = 8
"""The reports that a record belongs to, if the program has several."""
_MEASURE_BITS = {
    Measure.COUNT: 16,
    Measure.SUM: 32,
    Measure.SUM_OF_SQUARES: 32,
    Measure.MIN: VALUE_BITS,
    Measure.MAX: VALUE_BITS,
}


def record_bits(program: SamplingProgram) -> int:
    """Return the bits of one record of a program's report; of the longest kind of record if it has several reports."""
    match program.report:
        case VehicleEvents():
            return VEHICLE_BITS
        case VehicleCount():
            return TALLY_BITS
        case Panes(measures=measures):
            return SAMPLES_BITS + len(program.fields) * sum(_MEASURE_BITS[each] for each in measures)
        case None if not program.bands:
            return len(program.fields) * VALUE_BITS
        case Several():
            return max(
                sample_of_reports_bits(len(program.fields)), *(report_record_bits(each) for each in reports_of(program))
            )
        case _:
            return len(program.fields) * VALUE_BITS + STAMP_BITS


def report_record_bits(alone: SamplingProgram) -> int:
    """Return the bits of one record of a report."""
    if alone.report is None:
        return sample_of_reports_bits(len(alone.fields))
    return record_bits(alone) + PART_BITS


def sample_of_reports_bits(fields: int) -> int:
    """Return the bits of a sample that reports of a program send: its instant does not follow from its place."""
    return fields * VALUE_BITS + STAMP_BITS + PART_BITS


def payload_bits(profile: DeviceProfile, program: SamplingProgram, records: tuple[Record, ...]) -> float:
    """Return the payload bits of a packet with these records."""
    reports = reports_of(program)
    several = len(reports) > 1
    bits = 0.0
    for each in records:
        match each:
            case Health():
                bits += profile.radio.health_bits
            case Sample() if several:
                bits += sample_of_reports_bits(len(each.values))
            case Partial() | VehicleEvent() | VehicleTally() if several:
                bits += report_record_bits(reports[each.report])
            case _:
                bits += record_bits(program)
    return bits


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
