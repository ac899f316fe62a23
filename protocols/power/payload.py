"""How many bits a mote puts on the air for what it reports.

A real mote packs its values as its firmware knows them; the MessagePack frames of the simulator name every field and
are several times longer, so energy is counted from here.
"""

from __future__ import annotations

from protocols.packets import Health, Partial, Record, Sample, VehicleEvent, VehicleTally
from protocols.power.profile import DeviceProfile
from protocols.programs import Measure, Panes, SamplingProgram, VehicleCount, VehicleEvents

VALUE_BITS = 16
"""One converted value (papers/fjords.md section 6: two bytes)."""
STAMP_BITS = 16
"""When a sample was taken, where the packet's first instant and the period do not say it."""
VEHICLE_BITS = 32
"""Two 16-bit times."""
TALLY_BITS = 16
_MEASURE_BITS = {
    Measure.COUNT: 16,
    Measure.SUM: 32,
    Measure.SUM_OF_SQUARES: 32,
    Measure.MIN: VALUE_BITS,
    Measure.MAX: VALUE_BITS,
}


def record_bits(program: SamplingProgram) -> int:
    """Return the bits of one record of a program's report."""
    match program.report:
        case VehicleEvents():
            return VEHICLE_BITS
        case VehicleCount():
            return TALLY_BITS
        case Panes(measures=measures):
            return len(program.fields) * sum(_MEASURE_BITS[each] for each in measures)
        case None if not program.bands:
            return len(program.fields) * VALUE_BITS
        case _:
            return len(program.fields) * VALUE_BITS + STAMP_BITS


def packet_bits(program: SamplingProgram, records: int) -> int:
    """Return the payload bits of a packet with so many records."""
    return records * record_bits(program)


def payload_bits(profile: DeviceProfile, program: SamplingProgram, records: tuple[Record, ...]) -> float:
    """Return the payload bits of a packet with these records."""
    reported = sum(isinstance(each, Sample | Partial | VehicleEvent | VehicleTally) for each in records)
    healthy = sum(isinstance(each, Health) for each in records)
    return packet_bits(program, reported) + healthy * profile.radio.health_bits
