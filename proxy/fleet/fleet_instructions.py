"""Instructions of :mod:`proxy.fleet.fleet` to its shell."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocols.wire.demands import RefusedDemand
from protocols.wire.packets import Announcement
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import StreamSchema
from proxy.motes.mote_events import MoteInstruction


class ForMote(msgspec.Struct, frozen=True, gc=False):
    """An instruction of one mote's state machine. One is made for each packet, so it has to be quick to make."""

    mote: str
    instruction: MoteInstruction


@dataclass(frozen=True, slots=True)
class RememberAnnouncement:
    """Keep an announcement across restarts."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class RememberProgram:
    """Keep a program across restarts, so that its samples can be read."""

    program: SamplingProgram
    stream: str
    reason: str


@dataclass(frozen=True, slots=True)
class OfferStream:
    """Publish the offer of a stream."""

    schema: StreamSchema


@dataclass(frozen=True, slots=True)
class RejectAnnouncement:
    """An announcement cannot be accepted; `reason` is a metric label."""

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
    """The oldest waiting tuples were dropped: there was no room."""

    stream: str
    count: int


@dataclass(frozen=True, slots=True)
class RemoveEntry:
    """Remove a mote's entry from the catalog, as another proxy has the mote; not if it is ours again by then."""

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
