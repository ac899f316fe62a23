"""What proxies tell everybody, retained: who is alive, which streams and motes there are."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from protocols.wire.frames import KIBIBYTE, Counter, DurationMicroseconds, Frame, FrameDecoder, Microseconds, Name
from protocols.wire.packets import Health, ProgramNumber, SampleValue
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import FieldName, StreamSchema

MAX_CATALOG_BYTES = 64 * KIBIBYTE


class Presence(StrEnum):
    """Whether a part is there."""

    ONLINE = "online"
    OFFLINE = "offline"


class Status(Frame, frozen=True):
    """Birth (retained) and death (left with the broker as a will) of a proxy or a cluster.

    Parameters
    ----------
    name
        Of the proxy or cluster.
    presence
        Whether it is there.
    epoch
        Drawn anew when the part lost its memory; see :class:`protocols.wire.batches.Batch`.
    since_us
        Real time at which this state began.
    """

    name: Name
    presence: Presence
    epoch: Annotated[str, Meta(max_length=64)]
    since_us: Microseconds


class ProxyClock(Frame, frozen=True):
    """What a proxy's clock shows as it says so: every few seconds, so that a cluster notices if that is wrong."""

    proxy: Name
    clock_us: Microseconds


class ProxySpool(Frame, frozen=True):
    """How much waits in a proxy's spool for the cluster; every few seconds.

    Parameters
    ----------
    proxy
        Whose.
    batches, bytes
        How much.
    waits_us
        For how long the batch has waited that has waited longest; None for none, or if nobody knows.
    """

    proxy: Name
    batches: Counter
    bytes: Counter
    waits_us: DurationMicroseconds | None = None


class StreamOffer(Frame, frozen=True):
    """A proxy has motes that feed this stream."""

    proxy: Name
    stream: StreamSchema


class MoteState(StrEnum):
    """What a mote is doing, as its proxy sees it."""

    SLEEPING = "sleeping"
    SAMPLING = "sampling"
    CHANGING = "changing"
    """It has not yet acknowledged the program it should run."""
    SILENT = "silent"
    """Not heard for longer than its schedule allows."""


class ClockFault(StrEnum):
    """How a mote's clock is wrong: further from the time of day at its proxy than that takes."""

    AHEAD = "ahead"
    BEHIND = "behind"


class MoteEntry(Frame, frozen=True):
    """One mote in a proxy's catalog.

    Parameters
    ----------
    mote, proxy
        Which mote, and whose.
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
        Since the proxy knows it: heard, missing by sequence number, and refused (garbled, replayed, of a wrong shape).
    samples_received, samples_late
        Samples taken over into batches, and samples stamped before what the proxy had already promised.
    health
        The last health the mote reported, if any.
    heard_us
        Real time of its last packet.
    device, battery_joules, lifetime_us
        As announced.
    doing
        The program it should run, in words, and why it is this one.
    milliwatts
        What that draws on average, by the energy model; 0 if nobody knows.
    lifetime_days
        How long a full battery lasts so; None for ever, or if nobody knows.
    stretched
        How many times as long its sample periods are as queries ask, to save the battery; 1 for not at all.
    lifetime_kept
        False if the battery will not last as long as queries or its owner want.
    clock_offset_us
        By how much its clock is behind real time, as far as the proxy can tell; None if it cannot.
    wanted
        The program it should run; None if the proxy does not know.
    clock_fault
        How its clock is wrong, so that nobody waits for it and its samples are refused; None if it may be right.
    samples_ahead, samples_behind
        Samples refused as its clock was wrong.
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


decode_status = FrameDecoder(Status, max_bytes=MAX_CATALOG_BYTES)
decode_proxy_clock = FrameDecoder(ProxyClock, max_bytes=MAX_CATALOG_BYTES)
decode_proxy_spool = FrameDecoder(ProxySpool, max_bytes=MAX_CATALOG_BYTES)
decode_stream_offer = FrameDecoder(StreamOffer, max_bytes=MAX_CATALOG_BYTES)
decode_mote_entry = FrameDecoder(MoteEntry, max_bytes=MAX_CATALOG_BYTES)
