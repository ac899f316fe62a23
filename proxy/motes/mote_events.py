"""Events that happen to a mote and instructions that follow: those of :mod:`proxy.motes.mote_tracking`.

``radio_us`` is a clock of the proxy that never goes back, ``received_us`` real time, both in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.program_reports import SensorTraits
from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Announcement, Control, Packet
from protocols.wire.programs import SECOND_US, SamplingProgram
from proxy.records.waiting_tuples import PacketTuples


@dataclass(frozen=True, slots=True)
class AnnouncementReceived:
    """The mote announced itself, and its schema is that of the stream.

    Parameters
    ----------
    announcement
        Of the mote.
    radio_us, received_us
        When.
    bounded
        Whether its clock is held to the bounds; not if a driver checks its stamps.
    """

    announcement: Announcement
    radio_us: int
    received_us: int
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class AnnouncementRejected:
    """The mote announced itself, and the announcement was rejected."""

    boot: int
    radio_us: int


class PacketReceived(msgspec.Struct, frozen=True, gc=False):
    """A packet of the mote arrived. One is made for each, so it has to be quick to make.

    Parameters
    ----------
    packet
        The packet.
    radio_us, received_us
        When.
    watermark_us
        The stream's low watermark, None before the first.
    """

    packet: Packet
    radio_us: int
    received_us: int
    watermark_us: int | None = None


@dataclass(frozen=True, slots=True)
class DemandChanged:
    """The mote should run this program.

    Parameters
    ----------
    program
        The program.
    radio_us
        When it was chosen.
    merged
        The demands it answers, and its cost; None if no query demands anything.
    traits
        Of the mote, by which it was chosen.
    watermark_us
        Of the mote's stream; None before the first.
    stored_us
        Of a driven device: see :class:`proxy.counting.published_account.PublishedTuples`.
    """

    program: SamplingProgram
    radio_us: int
    merged: MergedProgram | None = None
    traits: SensorTraits | None = None
    watermark_us: int | None = None
    stored_us: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, and nothing else has happened."""

    radio_us: int


MoteEvent = AnnouncementReceived | AnnouncementRejected | PacketReceived | DemandChanged | TimePassed


class Rejection(StrEnum):
    """Why a packet, or samples of it, are rejected; a metric label."""

    REPLAYED = "replayed"
    """Its sequence number was seen before."""
    BOOT = "boot"
    """It claims more boots than the mote can have made."""
    CLOCK_AHEAD = "clock_ahead"
    CLOCK_BEHIND = "clock_behind"
    """The mote's clock is too far from the time of day."""
    UNANNOUNCED = "unannounced"
    """The mote has not announced itself."""
    UNKNOWN_PROGRAM = "unknown_program"
    """The fields of its samples are not known."""
    SHAPE = "shape"
    """Wrong number or type of values."""
    LATE = "late"
    """Stamped before the stream's watermark."""


@dataclass(frozen=True, slots=True)
class SendControl:
    """Send this now; the mote listens for `window_us` after its packet."""

    control: Control
    window_us: int

    def expiry_seconds(self, since_us: int, radio_us: int) -> int | None:
        """Return in how many whole seconds it expires if it is sent now; None if the mote does not listen any more.

        A control that arrives after its window must not arrive at all: the mote's radio is off.

        Parameters
        ----------
        since_us, radio_us
            Since when the mote has listened, and the present.
        """
        left_us = self.window_us - (radio_us - since_us)
        return None if left_us <= 0 else -(-left_us // SECOND_US)


class TuplesAccepted(msgspec.Struct, frozen=True, gc=False):
    """Forward these, and publish the mote's catalog entry when convenient: its counters have changed.

    Most packets lead to nothing else.
    """

    tuples: PacketTuples


class NotDemanded(msgspec.Struct, frozen=True, gc=False):
    """Count samples of a device that publishes as it likes: no query reads their stream."""

    samples: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """Put the packet in the quarantine: it, or `samples` of its samples, were rejected."""

    reason: Rejection
    detail: str
    samples: int = 0


@dataclass(frozen=True, slots=True)
class PacketsLost:
    """`count` packets are missing before this one."""

    count: int


@dataclass(frozen=True, slots=True)
class Rebooted:
    """The mote has rebooted."""

    boot: int


@dataclass(frozen=True, slots=True)
class WentSilent:
    """The mote has sent nothing for `after_us` and no longer holds back the watermark."""

    after_us: int


@dataclass(frozen=True, slots=True)
class SilenceEnded:
    """A silent mote is back."""


@dataclass(frozen=True, slots=True)
class ClockWrong:
    """The mote's clock turned out to be wrong by `by_us`: it no longer holds the watermark."""

    fault: ClockFault
    by_us: int


@dataclass(frozen=True, slots=True)
class ClockRight:
    """The clock of a mote is right again."""


@dataclass(frozen=True, slots=True)
class ProgramNotTakenUp:
    """The mote was sent its program `attempts` times and still runs another one."""

    attempts: int


@dataclass(frozen=True, slots=True)
class PublishEntry:
    """Publish the mote's catalog entry; soon if more than its counters has changed, else when convenient."""

    changed: bool


MoteInstruction = (
    SendControl
    | TuplesAccepted
    | NotDemanded
    | Rejected
    | PacketsLost
    | Rebooted
    | WentSilent
    | SilenceEnded
    | ClockWrong
    | ClockRight
    | ProgramNotTakenUp
    | PublishEntry
)
