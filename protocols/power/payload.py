"""The number of bits that a mote sends for its records.

A real mote packs its values compactly; the MessagePack frames of the simulator name every field and
are several times longer, so energy is counted from here.
"""

from __future__ import annotations

from protocols.power.profile import DeviceProfile
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
