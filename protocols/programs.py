"""Sampling programs: what a mote is asked to do, as data.

Today a program says which fields to sample, how often, how many samples make a packet and when the radio listens.
Filters, partial aggregates and event detectors join it as further fields with defaults.
"""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.errors import ProgramError
from protocols.frames import DurationMicroseconds, PositiveMicroseconds
from protocols.streams import FieldName

SECOND_US = 1_000_000


class ListenSchedule(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """When the mote's radio listens, on the radio's own clock (real time, even when sample time is replayed faster).

    Parameters
    ----------
    every_us
        At least this long between the starts of two listen windows. A window follows a packet; a mote that has nothing
        to send for this long sends an empty packet to ask.
    for_us
        Length of one window. The paper needs a few tens of milliseconds a second (papers/fjords.md section 3).
    """

    every_us: PositiveMicroseconds = 2 * SECOND_US
    for_us: PositiveMicroseconds = 100_000

    def __post_init__(self) -> None:
        if self.for_us > self.every_us:
            raise ProgramError(
                f"listen windows of {self.for_us} us every {self.every_us} us overlap",
                hint="make them shorter or rarer",
            )


class SamplingProgram(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a mote does until it is told otherwise.

    Parameters
    ----------
    fields
        Sampled fields, in the order in which samples carry them; empty only when the mote sleeps.
    period_us
        Sample time between two samples; 0 sleeps. Samples are taken at whole multiples of the period since
        1970-01-01T00:00:00Z, so that motes of one rate sample at the same instants and a proxy knows when it has
        heard them all.
    samples_per_packet
        How many samples make a packet. More of them save radio start-ups and cost delay.
    listen
        When the radio listens.

    Raises
    ------
    ProgramError
        If it samples no field, or twice the same.
    """

    fields: Annotated[tuple[FieldName, ...], Meta(max_length=256)] = ()
    period_us: DurationMicroseconds = 0
    samples_per_packet: Annotated[int, Meta(ge=1, le=1024)] = 1
    listen: ListenSchedule = ListenSchedule()

    def __post_init__(self) -> None:
        if self.period_us > 0 and not self.fields:
            raise ProgramError("a program with a sample period names no field to sample")
        if len(set(self.fields)) != len(self.fields):
            raise ProgramError(f"a program samples a field twice: {', '.join(self.fields)}")

    @property
    def sleeping(self) -> bool:
        """True if the program takes no samples."""
        return self.period_us == 0


SLEEP = SamplingProgram()
"""What a mote does after a reboot, and whenever nobody asks for its samples."""


def program_number(program: SamplingProgram) -> int:
    """Return the number by which mote and proxy name a program: the CRC-32 of its bytes, 0 for :data:`SLEEP`.

    A number derived from the content needs no counter that would have to survive reboots: a proxy compares the number
    in a packet with that of the program it wants.
    """
    return 0 if program == SLEEP else zlib.crc32(msgspec.msgpack.encode(program))


def first_sample_at_or_after(instant_us: int, period_us: int) -> int:
    """Return the first multiple of `period_us` that is at or after `instant_us`."""
    return -(-instant_us // period_us) * period_us
