"""Messages between motes and proxies over the radio: packets, announcements, control."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocols.errors import FrameError, TopicError
from protocols.wire.frames import (
    KIBIBYTE,
    VERSION,
    Counter,
    DurationMicroseconds,
    Frame,
    FrameDecoder,
    FrameT,
    Microseconds,
    Name,
    PeriodMicroseconds,
    PositiveMicroseconds,
    Value,
)
from protocols.wire.programs import MOST_REPORTS, SamplingProgram
from protocols.wire.streams import FieldName, StreamSchema
from protocols.wire.topics import check_name

_SHORT_ARRAY = 0x90
"""The first byte of a MessagePack array of at most 15 elements, without their number."""
AS_RECORDED: Final = "recorded"
"""What motes announce that replay a recording as it is; older proxies refuse it."""
SEAL_BYTES = 5
"""What the seal of a mote with keys adds to each of its frames: :mod:`protocols.sealing.seals`."""
MAX_PACKET_BYTES = 64 * KIBIBYTE
MAX_ANNOUNCEMENT_BYTES = 16 * KIBIBYTE
MAX_CONTROL_BYTES = 16 * KIBIBYTE
MAX_PROGRAM_BYTES = 15 * KIBIBYTE
"""Of a program, so that it fits into a control frame with other instructions."""

ReportNumber = Annotated[int, Meta(ge=0, lt=MOST_REPORTS)]
ProgramNumber = Annotated[int, Meta(ge=0, lt=2**32)]
SampleValue = int | float | Annotated[str, Meta(max_length=1024)] | bool | None


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0, gc=False):
    """One sample.

    Parameters
    ----------
    age_us
        The packet's ``clock_us`` minus the instant of the sample; smaller numbers are fewer bytes on the air.
    values
        The sampled fields, in the order of the program that the packet names: those of the reports that send it.
    reports
        The reports of the program that send it: one bit each, the first report has the lowest.
    """

    age_us: DurationMicroseconds
    values: Annotated[tuple[SampleValue, ...], Meta(max_length=256)]
    reports: Annotated[int, Meta(ge=1, lt=2**MOST_REPORTS)] = 1


class Health(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """What the mote has spent since it booted, and what is left. All counters include this packet itself.

    Parameters
    ----------
    battery
        Share of the battery that is left, 0 to 1; None if the mote does not know.
    samples, packets
        Samples taken and packets sent.
    transmit_us, listen_us
        Time the radio spent sending and listening.
    """

    battery: Annotated[float, Meta(ge=0, le=1)] | None
    samples: Counter
    packets: Counter
    transmit_us: Counter
    listen_us: Counter


class Partial(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Partial aggregates of one pane.

    Parameters
    ----------
    age_us
        The packet's ``clock_us`` minus the pane's stamp: its last instant, or that of the change of program that
        ended it. So an open pane does not hold back the low watermark.
    pane_us
        Width of the pane.
    measures
        For each field of the program, in order, the measures that the program names, in order; a minimum or maximum
        over no value is NULL. Panes without samples in the bands are not sent.
    samples
        How many samples of the pane are in the bands.
    report
        Number of the program's report that it belongs to.
    """

    age_us: DurationMicroseconds
    pane_us: PositiveMicroseconds
    measures: Annotated[tuple[tuple[int | float | None, ...], ...], Meta(max_length=256)]
    samples: Counter = 0
    report: ReportNumber = 0


class VehicleEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """A vehicle passed the sensor (papers/fjords.md section 6).

    Parameters
    ----------
    age_us
        The packet's ``clock_us`` minus the instant at which the vehicle's front arrived.
    passing_us
        Time from then until its rear left.
    report
        Number of the program's report that it belongs to.
    """

    age_us: DurationMicroseconds
    passing_us: DurationMicroseconds
    report: ReportNumber = 0


class VehicleTally(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """How many vehicles arrived in an interval.

    Parameters
    ----------
    age_us
        The packet's ``clock_us`` minus the interval's stamp: its last instant, or that of the change of program that
        ended it.
    every_us
        Width of the interval.
    vehicles
        How many vehicles.
    report
        Number of the program's report that it belongs to.
    """

    age_us: DurationMicroseconds
    every_us: PositiveMicroseconds
    vehicles: Counter
    report: ReportNumber = 0


Record = Sample | Health | Partial | VehicleEvent | VehicleTally
"""What a packet may contain; the first element of each record is its kind."""


class Packet(Frame, frozen=True, gc=False):
    """Mote to proxy.

    Packets and their samples consist of plain values: the garbage collector need not track them.

    Parameters
    ----------
    mote
        The sender; must be the mote of the topic. :data:`decode_packet` checks that it is a name.
    boot
        How many times the mote has booted.
    sequence
        Counts the packets of this boot from 0; a gap is a loss.
    clock_us
        The mote's sample clock when it sent the packet.
    promise_us
        No sample in a later packet is stamped before this instant: the mote's own low watermark.
    listen_us
        The radio listens this long after the packet; 0 if it does not.
    program
        Number of the program the mote runs, which acknowledges it.
    records
        What the program reports, in stamp order, and from time to time the mote's health.
    """

    mote: Annotated[str, Meta(min_length=1, max_length=64)]
    boot: Counter
    sequence: Counter
    clock_us: Microseconds
    promise_us: Microseconds
    listen_us: Annotated[int, Meta(ge=0, le=60_000_000)]
    program: ProgramNumber
    records: Annotated[tuple[Record, ...], Meta(max_length=4096)]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples of the packet."""
        return tuple(record for record in self.records if isinstance(record, Sample))


class Announcement(Frame, frozen=True):
    """Mote to proxy, after a reboot and on request: a description of the mote.

    Parameters
    ----------
    mote
        The sender; must be the mote of the topic.
    boot
        How many times the mote has booted.
    kind
        Type of sensor (``loop``).
    stream
        The stream it feeds, with all its fields.
    properties
        Values of the stream's fixed fields.
    default_period_us
        Sample period for queries without ``SAMPLE``.
    minimum_period_us
        The fastest it can sample.
    device
        Its device profile, for the energy model: the name of a preset; empty for unknown.
    battery_joules
        Usable energy of a full battery; None for mains or unknown.
    lifetime_us
        How long a full battery should last by its owner's lifetime hint, whatever queries demand; 0 for no hint.
    replays
        Whether it replays what was recorded, on a clock that is not meant to be the time of day; :data:`AS_RECORDED` if
        its samples have the stamps of the recording, so that it publishes by rules of its own.
    """

    mote: Name
    boot: Counter
    kind: Annotated[str, Meta(max_length=64)]
    stream: StreamSchema
    properties: dict[FieldName, SampleValue]
    default_period_us: PeriodMicroseconds
    minimum_period_us: PeriodMicroseconds
    device: Annotated[str, Meta(max_length=64)] = ""
    battery_joules: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    lifetime_us: DurationMicroseconds = 0
    replays: bool | Literal["recorded"] = False

    @property
    def as_recorded(self) -> bool:
        """Whether its samples have the stamps and gaps of a recording: it has no period."""
        return self.replays == AS_RECORDED


class NumberedAnnouncement(Announcement, frozen=True):
    """An announcement of a mote with keys: by its number a replay is recognised.

    Parameters
    ----------
    sequence
        The sequence number of the mote's next packet of this boot.
    """

    sequence: Counter = 0

    def plain(self) -> Announcement:
        """Return the announcement without its number."""
        return Announcement(*(getattr(self, name) for name in Announcement.__struct_fields__))


class RunProgram(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Run this program from now on.

    Parameters
    ----------
    program
        What to run; replaces the program before it.
    not_before_us
        The first sample is not stamped before this instant, nor before the mote's low watermark.
    """

    program: SamplingProgram
    not_before_us: Microseconds


class SendAnnouncement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Send an announcement: this mote is unknown to the proxy."""


class AdjustClock(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Move the sample clock. Only the first of a listen window counts, so that repeating it does no harm.

    Parameters
    ----------
    by_us
        Forward, or, if negative, back: the mote then takes its next sample once its clock has reached that instant
        again, so that no instant is sampled twice and the low watermark holds.
    """

    by_us: Microseconds


Instruction = RunProgram | SendAnnouncement | AdjustClock


def is_too_long(program: SamplingProgram) -> bool:
    """Return whether a program does not fit into a control frame."""
    return len(msgspec.msgpack.encode(program)) > MAX_PROGRAM_BYTES


class Control(Frame, frozen=True):
    """Proxy to mote, only within a listen window. Repeating it does no harm."""

    mote: Name
    instructions: Annotated[tuple[Instruction, ...], Meta(min_length=1, max_length=16)]


class AnsweringControl(Control, frozen=True):
    """Control for a mote with keys. It is an answer to one packet, so that it does nothing in another listen window.

    Parameters
    ----------
    boot, sequence
        Of the packet with which the mote began to listen, or of a later one.
    """

    boot: Counter
    sequence: Counter


class LongerDecoder(FrameDecoder[FrameT]):
    """Decodes frames of which there is a longer kind for motes with keys.

    Parameters
    ----------
    kind, longer
        Both kinds.
    max_bytes
        As in :class:`protocols.wire.frames.FrameDecoder`.
    """

    def __init__(self, kind: type[FrameT], longer: type[FrameT], *, max_bytes: int) -> None:
        super().__init__(kind, max_bytes=max_bytes)
        self._longer = FrameDecoder(longer, max_bytes=max_bytes, name=kind.__name__.lower())
        self._first = bytes([_SHORT_ARRAY | len(longer.__struct_fields__)])

    def __call__(self, payload: bytes | bytearray | memoryview) -> FrameT:
        """Return the frame in `payload`; raises as :class:`protocols.wire.frames.FrameDecoder` does."""
        return self._longer(payload) if payload[:1] == self._first else super().__call__(payload)


class PacketDecoder(FrameDecoder[Packet]):
    """Decodes packets. It checks only new names of motes: a check takes as long as the rest of a packet."""

    def __init__(self) -> None:
        super().__init__(Packet, max_bytes=MAX_PACKET_BYTES)

    def __call__(self, payload: bytes | bytearray | memoryview) -> Packet:
        """Return the packet in `payload`; raises as :class:`protocols.wire.frames.FrameDecoder` does."""
        packet = super().__call__(payload)
        _check_mote(packet.mote)
        return packet


@lru_cache(maxsize=65_536)
def _check_mote(mote: str) -> None:
    try:
        check_name(mote)
    except TopicError as error:
        raise FrameError("shape", f"packet does not fit its format: {error.message} - at `$[1]`") from error


decode_packet = PacketDecoder()
decode_announcement = LongerDecoder(Announcement, NumberedAnnouncement, max_bytes=MAX_ANNOUNCEMENT_BYTES)
decode_control = LongerDecoder(Control, AnsweringControl, max_bytes=MAX_CONTROL_BYTES)

__all__ = [
    "VERSION",
    "AdjustClock",
    "Announcement",
    "AnsweringControl",
    "Control",
    "Health",
    "NumberedAnnouncement",
    "Packet",
    "Partial",
    "Record",
    "RunProgram",
    "Sample",
    "SendAnnouncement",
    "Value",
    "VehicleEvent",
    "VehicleTally",
    "decode_announcement",
    "decode_control",
    "decode_packet",
]
