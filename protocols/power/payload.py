"""How many bits a mote puts on the air for what it reports.

A real mote packs its values as its firmware knows them; the MessagePack frames of the simulator name every field and
are several times longer, so energy is counted from here.
"""

from __future__ import annotations

from protocols.power.profile import DeviceProfile
from protocols.wire.packets import Health, Partial, Record, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Measure, Panes, SamplingProgram, Several, VehicleCount, VehicleEvents, parts_of

VALUE_BITS = 16
"""One converted value (papers/fjords.md section 6: two bytes)."""
STAMP_BITS = 16
"""When a sample was taken, where the packet's first instant and the period do not say it."""
VEHICLE_BITS = 32
"""Two 16-bit times."""
TALLY_BITS = 16
SAMPLES_BITS = 16
"""How many samples a pane has."""
PART_BITS = 8
"""Which parts of a program a record is of, where it has several."""
_MEASURE_BITS = {
    Measure.COUNT: 16,
    Measure.SUM: 32,
    Measure.SUM_OF_SQUARES: 32,
    Measure.MIN: VALUE_BITS,
    Measure.MAX: VALUE_BITS,
}


def record_bits(program: SamplingProgram) -> int:
    """Return the bits of one record of a program's report; of the longest kind of record if it has several parts."""
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
                sample_of_parts_bits(len(program.fields)), *(part_record_bits(each) for each in parts_of(program))
            )
        case _:
            return len(program.fields) * VALUE_BITS + STAMP_BITS


def part_record_bits(part: SamplingProgram) -> int:
    """Return the bits of one record of a part."""
    if part.report is None:
        return sample_of_parts_bits(len(part.fields))
    return record_bits(part) + PART_BITS


def sample_of_parts_bits(fields: int) -> int:
    """Return the bits of a sample that parts of a program send: when it was taken is not known from its place."""
    return fields * VALUE_BITS + STAMP_BITS + PART_BITS


def payload_bits(profile: DeviceProfile, program: SamplingProgram, records: tuple[Record, ...]) -> float:
    """Return the payload bits of a packet with these records."""
    parts = parts_of(program)
    several = len(parts) > 1
    bits = 0.0
    for each in records:
        match each:
            case Health():
                bits += profile.radio.health_bits
            case Sample() if several:
                bits += sample_of_parts_bits(len(each.values))
            case Partial() | VehicleEvent() | VehicleTally() if several:
                bits += part_record_bits(parts[each.part])
            case _:
                bits += record_bits(program)
    return bits
