"""The intake of frames: passes each frame of a mote or a driven device to the fleet, and logs what has happened.

The fleet's decisions are carried out, or noted for the next flush. Controls are returned to the caller, as only the
caller can reach the mote: over the broker or through a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from protocols.event_log import get_logger, is_logged
from protocols.mqtt.link import Message
from protocols.wire.packets import Announcement, Packet
from proxy.drivers.driver_registry import DrivenMote, DriverRegistry
from proxy.fleet.demand_assembly import StoredDemand
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import (
    FleetInstruction,
    ForMote,
    OfferStream,
    RejectAnnouncement,
    RejectDemand,
    RememberAnnouncement,
    RememberProgram,
    RemoveEntry,
    TuplesDropped,
)
from proxy.motes.mote_events import (
    ClockRight,
    ClockWrong,
    MoteInstruction,
    NotDemanded,
    PacketsLost,
    ProgramNotTakenUp,
    PublishEntry,
    Rebooted,
    Rejected,
    Rejection,
    SendControl,
    SilenceEnded,
    TuplesAccepted,
    WentSilent,
)
from proxy.records.waiting_tuples import PacketTuples
from proxy.running.link_interface import Clocks
from proxy.running.metrics import ProxyMetrics
from proxy.running.unpublished import Unpublished
from proxy.storage.flushing import CatalogChanges
from proxy.storage.quarantine import LONGEST_PAYLOAD_BYTES, Quarantine, RejectedFrame

log = get_logger(__name__)


def report(mote: str, instruction: MoteInstruction, metrics: ProxyMetrics) -> None:
    """Count and log an instruction, if it reports something unusual."""
    match instruction:
        case PacketsLost(count):
            metrics.count("packets_lost", by=count)
            log.debug("packets lost", mote=mote, packets=count)
        case Rebooted(boot):
            metrics.count("mote_reboots")
            log.info("mote rebooted", mote=mote, boot=boot)
        case WentSilent(after_us):
            metrics.count("motes_silent_times")
            log.warning("mote is silent", mote=mote, seconds=after_us / 1e6)
        case SilenceEnded():
            log.info("mote sends again", mote=mote)
        case ClockWrong(fault, by_us):
            metrics.count("motes_wrong_clock_times", fault)
            log.warning(
                "mote's clock is wrong: the watermark moves on",
                mote=mote,
                fault=fault,
                seconds=by_us / 1e6,
            )
        case ClockRight():
            log.info("mote's clock is right again", mote=mote)
        case ProgramNotTakenUp(attempts):
            metrics.count("motes_unresponsive")
            log.warning("mote does not start its program", mote=mote, attempts=attempts)


_CLOCK = frozenset({Rejection.CLOCK_AHEAD, Rejection.CLOCK_BEHIND})


class Outcome(StrEnum):
    """What a message of a device has led to."""

    USED = "used"
    """Tuples, at once."""
    REFUSED = "refused"
    NOT_DEMANDED = "not_demanded"
    WITHOUT_TUPLE = "without_tuple"
    """Nothing of these: it has no sample, or its driver counts why there is no tuple, or none yet."""


class Outcomes(msgspec.Struct, frozen=True, gc=False):
    """How many tuples were accepted, how much was rejected, and how many tuples no query needed."""

    tuples: int
    rejections: int
    not_demanded: int

    @property
    def outcome(self) -> Outcome:
        """What one message has led to."""
        if self.tuples:
            return Outcome.USED
        if self.rejections:
            return Outcome.REFUSED
        return Outcome.NOT_DEMANDED if self.not_demanded else Outcome.WITHOUT_TUPLE


class FrameIntake:
    """Frames of all motes of one proxy.

    Parameters
    ----------
    fleet
        Decides on them.
    quarantine, metrics, unpublished
        Where rejected frames go, counters, and what the broker lacks of the catalog.
    clocks
        Give the time.
    registry
        Which motes are devices of other makers; None for none.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        quarantine: Quarantine,
        metrics: ProxyMetrics,
        unpublished: Unpublished,
        clocks: Clocks,
        registry: DriverRegistry | None = None,
    ) -> None:
        self._rejections = 0
        self._not_demanded = 0
        self._registry = registry or DriverRegistry()
        self._fleet = fleet
        self._quarantine = quarantine
        self._metrics = metrics
        self._unpublished = unpublished
        self._clocks = clocks
        self._changes = CatalogChanges()
        self._packets = 0
        self._accepted: list[PacketTuples] = []
        self._tuples = 0
        self._counted = 0
        """How many tuples were accepted, and of these, are in the counters."""

    def receive(
        self, frame: Announcement | Packet, message: Message | None, *, radio_us: int, received_us: int
    ) -> Sequence[SendControl]:
        """Handle a frame; return the controls for its mote, to be sent in the listen window that the frame opens.

        Counters are updated by the next :meth:`count_accepted`.

        Parameters
        ----------
        frame
            Of a mote, or made by the driver of a device.
        message
            That contained it or led to it; None if time did.
        radio_us, received_us
            When it was received.
        """
        if isinstance(frame, Packet):
            self._packets += 1
            instructions = self._fleet.receive_packet(frame, radio_us=radio_us, received_us=received_us)
            only = instructions[0] if len(instructions) == 1 else None
            if type(only) is ForMote and type(only.instruction) is TuplesAccepted:  # as with nearly all
                self._accepted.append(only.instruction.tuples)
                self._tuples += len(only.instruction.tuples.starts_us)
                return ()
            return self._do(instructions, message)
        self._metrics.count("announcements")
        return self._do(self._fleet.receive_announcement(frame, radio_us=radio_us, received_us=received_us), message)

    def carry_out(self, instructions: Sequence[FleetInstruction], message: Message | None = None) -> None:
        """Carry out instructions of the fleet that no frame led to; `message` is their cause.

        They contain no controls: motes listen only when they have sent a packet.
        """
        self._do(instructions, message)
        self.count_accepted()

    def count_accepted(self) -> None:
        """Update the counters of packets and accepted samples, for many packets at a time."""
        if self._packets:
            self._metrics.count("packets", by=self._packets)
            self._packets = 0
        if self._accepted:
            self._metrics.count("samples", by=self._tuples - self._counted)
            self._counted = self._tuples
            self._unpublished.entries.counted([each.mote for each in self._accepted])
            self._accepted.clear()

    def mark(self) -> Outcomes:
        """Return what has happened so far, for :meth:`since`."""
        return Outcomes(self._tuples, self._rejections, self._not_demanded)

    def since(self, mark: Outcomes) -> Outcomes:
        """Return what has happened since a mark."""
        return Outcomes(
            self._tuples - mark.tuples,
            self._rejections - mark.rejections,
            self._not_demanded - mark.not_demanded,
        )

    def note_owner(self, owner: DrivenMote) -> None:
        """Keep the owner of a mote across restarts, in the transaction that stores its announcement."""
        self._changes.driven[owner.mote] = owner

    def note_counts(self, mote: str, *, changed: bool = False) -> None:
        """Publish the entry of a mote again: its counts are new, or with `changed` its trouble is."""
        self._unpublished.entries.note(mote, changed=changed)

    def note_demand(self, stream: str, stored: StoredDemand) -> None:
        """Keep the demand on a stream across restarts, given what has changed in it."""
        before = self._changes.demands.get(stream)
        self._changes.demands[stream] = stored if before is None else before.followed_by(stored)

    def take_changes(self) -> CatalogChanges:
        """Remove and return the changes that the catalog on disk does not have yet."""
        changes, self._changes = self._changes, CatalogChanges()
        return changes

    def put_back(self, changes: CatalogChanges) -> None:
        """Put back changes that could not be written; newer ones may have been noted since."""
        self._changes = changes.followed_by(self._changes)

    def reject(self, counter: str, reason: str, detail: str, message: Message | None, **where: str) -> None:
        """Count a rejection, and keep the message that led to it."""
        times = self._metrics.count(counter, reason)
        if is_logged(times):
            log.warning("rejected", what=counter, reason=reason, detail=detail, times=times, **where)
        self._rejections += 1
        mote = where.get("mote", "")
        if mote in self._registry:
            self._registry.rejected(mote, reason or counter)
            self.note_counts(mote)
        if message is not None:
            self._metrics.count("quarantined")
            payload = message.payload[:LONGEST_PAYLOAD_BYTES]
            self._quarantine.put(RejectedFrame(self._clocks.real(), message.topic, reason or counter, detail, payload))

    def _do(self, instructions: Sequence[FleetInstruction], message: Message | None) -> Sequence[SendControl]:
        """Carry out instructions, or note them for the next flush; return the controls to send."""
        controls: Sequence[SendControl] = ()
        for instruction in instructions:
            match instruction:
                case ForMote(mote, inner):
                    if type(inner) is TuplesAccepted:
                        self._accepted.append(inner.tuples)
                        self._tuples += len(inner.tuples.starts_us)
                    elif type(inner) is SendControl:
                        controls = [*controls, inner]
                    else:
                        self._for_mote(mote, inner, message)
                case RememberAnnouncement(announcement):
                    self._changes.announcements[announcement.mote] = announcement
                case RememberProgram(program, stream, reason):
                    self._changes.programs.append(program)
                    log.info("sampling program", stream=stream, program=reason)
                case OfferStream(schema):
                    self._unpublished.offered(schema)
                case RejectAnnouncement(mote, reason, detail):
                    self.reject("announcements_refused", reason, detail, message, mote=mote)
                case RejectDemand(stream, rejected):
                    self.reject("demands_refused", "", rejected.reason, message, stream=stream, query=rejected.query)
                case TuplesDropped(stream, count):
                    self._dropped(stream, count)
                case RemoveEntry(mote):
                    self._unpublished.removed(mote)
        return controls

    def _for_mote(self, mote: str, instruction: MoteInstruction, message: Message | None) -> None:
        match instruction:
            case PublishEntry(changed):
                self._unpublished.entries.note(mote, changed=changed)
            case NotDemanded(samples):
                self._not_demanded += samples
                self._metrics.count("samples_not_demanded", by=samples)
            case Rejected(reason, detail, samples):
                if reason is Rejection.LATE:
                    self._metrics.count("samples_late", by=samples)
                elif reason in _CLOCK:
                    self._metrics.count("samples_rejected", reason, by=samples)
                self.reject("packets_refused", reason.value, detail, message, mote=mote)
            case Rebooted() if mote in self._registry:
                pass  # its driver has begun anew, the device has not
            case _:
                report(mote, instruction, self._metrics)

    def _dropped(self, stream: str, count: int) -> None:
        total = self._metrics.count("samples_dropped", stream, by=count)
        if (total - count).bit_length() != total.bit_length():
            log.error("no room: the oldest samples are dropped", stream=stream, samples=total)
