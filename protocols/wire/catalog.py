"""The catalog that proxies publish as retained messages: their presence, streams and motes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from protocols.wire.frames import KIBIBYTE, Counter, DurationMicroseconds, Frame, FrameDecoder, Microseconds, Name
from protocols.wire.packets import Health, ProgramNumber, SampleValue
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import FieldName, StreamSchema

MAX_CATALOG_BYTES = 64 * KIBIBYTE


class Presence(StrEnum):
    """Whether a machine is connected."""

    ONLINE = "online"
    OFFLINE = "offline"


class Status(Frame, frozen=True):
    """Birth (retained) and death (left with the broker as a will) of a proxy or a cluster.

    Parameters
    ----------
    name
        Of the proxy or cluster.
    presence
        Whether it is connected.
    epoch
        Drawn anew when it has lost its state; see :class:`protocols.wire.batches.Batch`.
    since_us
        Real time at which this state began.
    """

    name: Name
    presence: Presence
    epoch: Annotated[str, Meta(max_length=64)]
    since_us: Microseconds


class ProxyClock(Frame, frozen=True):
    """What a proxy's clock shows at the time of sending: every few seconds, so that a cluster notices a wrong clock."""

    proxy: Name
    clock_us: Microseconds


class ProxySpool(Frame, frozen=True):
    """The size of the backlog in a proxy's spool; every few seconds.

    Parameters
    ----------
    proxy
        Name of the proxy.
    batches, bytes
        Size of the backlog.
    waits_us
        How long the oldest batch has waited; None for no batch or unknown.
    file_bytes
        Size of the files that hold it; None if an earlier version reports.
    """

    proxy: Name
    batches: Counter
    bytes: Counter
    waits_us: DurationMicroseconds | None = None
    file_bytes: Counter | None = None


MOST_WAITS = 256
"""Streams of one proxy of which it reports what they wait for."""


class StreamWait(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The mote that a stream waits for at a proxy.

    Parameters
    ----------
    stream
        Name of the stream.
    mote
        Its name.
    waits_us
        How long ago its last packet was received, or the proxy began.
    silent
        Whether the proxy takes it for silent, and goes on in its place.
    """

    stream: Name
    mote: Name
    waits_us: DurationMicroseconds
    silent: bool


class ProxyWaits(Frame, frozen=True):
    """What the streams of a proxy wait for that queries read; every few seconds.

    Parameters
    ----------
    proxy
        Name of the proxy.
    streams
        Those that have waited longest.
    """

    proxy: Name
    streams: Annotated[tuple[StreamWait, ...], Meta(max_length=MOST_WAITS)]


class StreamOffer(Frame, frozen=True):
    """A stream that a proxy offers: it has motes that feed it."""

    proxy: Name
    stream: StreamSchema


class MoteState(StrEnum):
    """What a mote is doing, as its proxy sees it."""

    SLEEPING = "sleeping"
    SAMPLING = "sampling"
    CHANGING = "changing"
    """It has not acknowledged its new program yet."""
    SILENT = "silent"
    """Its proxy has received nothing from it for longer than its schedule allows."""


class ClockFault(StrEnum):
    """How a mote's clock is wrong: it differs from its proxy's clock by more than the proxy tolerates."""

    AHEAD = "ahead"
    BEHIND = "behind"


class MoteEntry(Frame, frozen=True):
    """One mote in a proxy's catalog.

    Parameters
    ----------
    mote, proxy
        The mote and its proxy.
    kind
        Type of sensor.
    stream
        The stream it feeds.
    properties
        Values of the stream's fixed fields.
    state
        What it is doing.
    period_us
        Sample period it has acknowledged; 0 while it sleeps.
    default_period_us, minimum_period_us
        As announced.
    program
        Number of the program it has acknowledged.
    packets_received, packets_lost, packets_rejected
        Since the proxy knows it: received, missing by sequence number, and rejected (garbled, replayed, ill-formed).
    samples_received, samples_late
        Samples forwarded in batches, and samples stamped before the proxy's low watermark.
    health
        The last health the mote reported, if any.
    heard_us
        Real time of its last packet.
    device, battery_joules, lifetime_us
        As announced.
    doing
        The program that it should run, in words, and the reason for it.
    milliwatts
        The mean draw of that program, by the energy model; 0 for unknown.
    lifetime_days
        How long a full battery lasts at that draw; None for no limit or unknown.
    stretched
        The factor by which sample periods are longer than demanded, to save the battery; 1 for unchanged.
    lifetime_kept
        False if the battery will not last as long as lifetime hints require.
    clock_offset_us
        How far its clock is behind real time, as estimated by the proxy; None for unknown.
    wanted
        The program that it should run; None for unknown.
    clock_fault
        How its clock is wrong: its samples are rejected and do not hold back the watermark; None if it may be right.
    samples_ahead, samples_behind
        Samples rejected because its clock was wrong.
    """

    mote: Name
    proxy: Name
    kind: Annotated[str, Meta(max_length=64)]
    stream: Name
    properties: dict[FieldName, SampleValue]
    state: MoteState
    period_us: DurationMicroseconds
    default_period_us: DurationMicroseconds
    minimum_period_us: DurationMicroseconds
    program: ProgramNumber
    packets_received: Counter
    packets_lost: Counter
    packets_rejected: Counter
    samples_received: Counter
    samples_late: Counter
    health: Health | None
    heard_us: Microseconds
    device: Annotated[str, Meta(max_length=64)] = ""
    battery_joules: float | None = None
    lifetime_us: DurationMicroseconds = 0
    doing: Annotated[str, Meta(max_length=2048)] = ""
    milliwatts: float = 0.0
    lifetime_days: float | None = None
    stretched: Annotated[int, Meta(ge=1, le=2**62)] = 1
    lifetime_kept: bool = True
    clock_offset_us: Microseconds | None = None
    wanted: SamplingProgram | None = None
    clock_fault: ClockFault | None = None
    samples_ahead: Counter = 0
    samples_behind: Counter = 0


class DeviceEntry(MoteEntry, frozen=True):
    """A device of another maker in a proxy's catalog: a mote that a driver drives; or one that replays a recording.

    Parameters
    ----------
    driver
        The driver's name; empty for a mote of Fjord.
    publishes
        Whether it publishes by its own rules: each message is a tuple with a stamp of its own, and no period that a
        query demands changes what it does. False for a device whose reporting its driver configures.
    mains
        Whether it has no battery.
    expected_every_us
        It publishes at least once in each period of this length; 0 for unknown.
    counts
        What became of its messages, by reason: those that were rejected or not demanded, and fields set aside.
    trouble
        What keeps its messages from their stream, and what to do about it; empty for nothing.
    """

    driver: Annotated[str, Meta(max_length=64)] = ""
    publishes: bool = False
    mains: bool = False
    expected_every_us: DurationMicroseconds = 0
    counts: dict[Annotated[str, Meta(max_length=64)], Counter] = {}  # noqa: RUF012 - each entry gets its own
    trouble: Annotated[str, Meta(max_length=512)] = ""


class _EntryDecoder(FrameDecoder[MoteEntry]):
    """Decodes entries of motes, and the longer ones of devices."""

    def __init__(self) -> None:
        super().__init__(MoteEntry, max_bytes=MAX_CATALOG_BYTES)
        self._devices = FrameDecoder(DeviceEntry, max_bytes=MAX_CATALOG_BYTES, name="moteentry")

    def __call__(self, payload: bytes | bytearray | memoryview) -> MoteEntry:
        """Return the entry in `payload`; raises as :class:`protocols.wire.frames.FrameDecoder` does."""
        is_longer = bytes(payload[:3]) == _DEVICE_ENTRY
        return self._devices(payload) if is_longer else super().__call__(payload)


_DEVICE_ENTRY = b"\xdc" + len(DeviceEntry.__struct_fields__).to_bytes(2, "big")
"""How the entry of a device begins: as an array of so many elements."""

decode_status = FrameDecoder(Status, max_bytes=MAX_CATALOG_BYTES)
decode_proxy_clock = FrameDecoder(ProxyClock, max_bytes=MAX_CATALOG_BYTES)
decode_proxy_spool = FrameDecoder(ProxySpool, max_bytes=MAX_CATALOG_BYTES)
decode_proxy_waits = FrameDecoder(ProxyWaits, max_bytes=MAX_CATALOG_BYTES)
decode_stream_offer = FrameDecoder(StreamOffer, max_bytes=MAX_CATALOG_BYTES)
decode_mote_entry = _EntryDecoder()
