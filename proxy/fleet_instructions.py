"""What a fleet tells its shell to do: instructions of :mod:`proxy.fleet`."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocols.wire.demands import RefusedDemand
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import StreamSchema
from proxy.mote_events import MoteInstruction


class ForMote(msgspec.Struct, frozen=True, gc=False):
    """An instruction of one mote's state machine. One is made for each packet, so it has to be quick to make."""

    mote: str
    instruction: MoteInstruction


@dataclass(frozen=True, slots=True)
class RememberAnnouncement:
    """Keep what the mote is over restarts."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class RememberProgram:
    """Keep a program over restarts, so that its samples can be read."""

    program: SamplingProgram
    stream: str
    reason: str


@dataclass(frozen=True, slots=True)
class OfferStream:
    """Tell everybody that there is such a stream."""

    schema: StreamSchema


@dataclass(frozen=True, slots=True)
class RejectAnnouncement:
    """A mote said something about itself that cannot be taken; `reason` fits a metric label."""

    mote: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class RejectDemand:
    """A query's demand cannot be answered."""

    stream: str
    rejected: RefusedDemand


@dataclass(frozen=True, slots=True)
class TuplesDropped:
    """The oldest waiting tuples were given up: there was no room."""

    stream: str
    count: int


@dataclass(frozen=True, slots=True)
class RemoveEntry:
    """Take a mote's entry out of the catalog, unless it is ours again by then: another proxy has the mote."""

    mote: str


FleetInstruction = (
    ForMote
    | RememberAnnouncement
    | RememberProgram
    | OfferStream
    | RejectAnnouncement
    | RejectDemand
    | TuplesDropped
    | RemoveEntry
)
