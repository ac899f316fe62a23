"""Which sampling programs a mote takes: its fields, its own fastest rate, and what its hardware can do."""

from __future__ import annotations

from firmware_sim.mote_events import MoteDescription
from protocols.errors import ProgramError
from protocols.power.limits import check_program
from protocols.power.profile import DeviceProfile
from protocols.programs import Panes, SamplingProgram, parts_of
from protocols.streams import FieldType


def check_acceptable(mote: MoteDescription, profile: DeviceProfile, program: SamplingProgram) -> None:
    """Refuse a program that a mote cannot run.

    Raises
    ------
    ProgramError
        Names what is wrong, and the limit.
    """
    known = {each.name: each.type for each in mote.stream.sampled}
    for name in program.fields:
        if name not in known:
            raise ProgramError(f"mote {mote.name} does not sample {name!r}")
    for part in parts_of(program):
        texts = [name for name in part.fields if known[name] is FieldType.TEXT]
        if isinstance(part.report, Panes) and part.report.measures and texts:
            raise ProgramError(f"mote {mote.name} cannot add up {texts[0]!r}, which is text")
    if not program.sleeping and program.period_us < mote.minimum_period_us:
        raise ProgramError(
            f"mote {mote.name} cannot sample every {program.period_us} us, only every {mote.minimum_period_us} us"
        )
    check_program(profile, program)
