"""Received messages: decoded, handed to the fleet, and what the fleet says carried out or noted for the next flush."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence
from functools import lru_cache

from protocols import topics
from protocols.batches import decode_ack
from protocols.catalog import Presence, decode_status
from protocols.demands import RefusedDemand, StreamDemand, read_demands
from protocols.errors import FrameError, TopicError
from protocols.event_log import get_logger
from protocols.frames import VERSION, encode
from protocols.mqtt import LinkError, Message
from protocols.packets import (
    AdjustClock,
    Control,
    RunProgram,
    SendAnnouncement,
    decode_announcement,
    decode_packet,
)
from protocols.streams import StreamSchema
from proxy.delivery import Delivery, Publisher
from proxy.entry_schedule import EntrySchedule
from proxy.fleet import Fleet
from proxy.fleet_instructions import (
    FleetInstruction,
    ForMote,
    OfferStream,
    RefuseAnnouncement,
    RefuseDemand,
    RememberAnnouncement,
    RememberProgram,
    RemoveEntry,
    TuplesDropped,
)
from proxy.flushing import CatalogChanges
from proxy.link_seam import Clocks
from proxy.metrics import ProxyMetrics
from proxy.mote_events import MoteInstruction, PublishEntry, Refusal, Refused, SendControl, TuplesAccepted
from proxy.mote_reports import report
from proxy.neighbours import Neighbours
from proxy.quarantine import Quarantine, RefusedFrame
from proxy.waiting_tuples import PacketTuples

log = get_logger(__name__)

_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement", AdjustClock: "adjust_clock"}
_CLOCK = frozenset({Refusal.CLOCK_AHEAD, Refusal.CLOCK_BEHIND})
_parse_topic = lru_cache(maxsize=65_536)(topics.parse)


class Receiver:
    """Takes messages of one proxy.

    Parameters
    ----------
    proxy
        Its name.
    fleet, delivery
        Who decides about motes, and about acknowledgements.
    link
        Over which motes are answered.
    quarantine, metrics, entries
        Where refused frames go, what is counted, and which catalog entries are due.
    clocks
        Where the time comes from.
    neighbours
        What is known of other proxies.
    """

    def __init__(
        self,
        proxy: str,
        fleet: Fleet,
        delivery: Delivery,
        link: Publisher,
        *,
        quarantine: Quarantine,
        metrics: ProxyMetrics,
        entries: EntrySchedule,
        clocks: Clocks,
        neighbours: Neighbours,
    ) -> None:
        self.offers: dict[str, StreamSchema] = {}
        self.unoffered: set[str] = set()
        self.changes = CatalogChanges()
        self.foreign_motes: Container[str] = ()
        """Motes that drivers speak for, and what to do with what is to be told to one; False: it is none of them."""
        self.to_driver: Callable[[str, Control, Message | None], Awaitable[bool]] | None = None
        self.removed: set[str] = set()
        """Motes that another proxy has, whose entries are to be removed."""
        self._neighbours = neighbours
        self._proxy = proxy
        self._fleet = fleet
        self._delivery = delivery
        self._link = link
        self._quarantine = quarantine
        self._metrics = metrics
        self._entries = entries
        self._clocks = clocks
        self._went_on: list[PacketTuples] = []

    async def receive(self, messages: Sequence[Message]) -> None:
        """Take messages that came together; whatever is wrong with one is counted and kept in the quarantine."""
        radio_us, heard_us = self._clocks.radio(), self._clocks.real()
        try:
            for message in messages:
                try:
                    instructions = self._take(message, radio_us, heard_us)
                except FrameError as error:
                    self._refuse_frame(message, error.reason, str(error))
                except TopicError as error:
                    self._refuse_frame(message, "topic", str(error))
                else:
                    for mote, control in self._note(instructions, message):
                        await self._send_control(mote, control, message, radio_us)
        finally:
            self._count_went_on()

    def _take(self, message: Message, radio_us: int, heard_us: int) -> Sequence[FleetInstruction]:
        parsed = _parse_topic(message.topic)
        match parsed.kind:
            case "packet":
                return self._packet(message, parsed.names[1], radio_us, heard_us)
            case "announcement":
                return self._announcement(message, parsed.names[1], radio_us, heard_us)
            case "acks":
                self._ack(message, radio_us)
            case "cluster_status":
                self._cluster(message, radio_us)
            case "demand":
                return self._demand(message, parsed.names[0], radio_us)
            case "mote_entry" | "proxy_status":
                news = self._neighbours.received(parsed, message.payload, self._fleet.has)
                return self._fleet.neighbours_changed(news, radio_us=radio_us, heard_us=heard_us)
            case _:
                raise FrameError("topic", f"nothing is expected on {message.topic}")
        return ()

    async def carry_out(
        self, instructions: Sequence[FleetInstruction], message: Message | None = None, radio_us: int = 0
    ) -> None:
        """Do what the fleet says; `message` is what led to it."""
        for mote, control in self._note(instructions, message):
            await self._send_control(mote, control, message, radio_us)

    def _note(
        self, instructions: Sequence[FleetInstruction], message: Message | None
    ) -> Sequence[tuple[str, SendControl]]:
        """Do what can be done at once; return what is to be sent."""
        controls: Sequence[tuple[str, SendControl]] = ()
        for instruction in instructions:
            match instruction:
                case ForMote():
                    mote, inner = instruction.mote, instruction.instruction
                    if isinstance(inner, SendControl):
                        controls = [*controls, (mote, inner)]
                    else:
                        self._for_mote(mote, inner, message)
                case RememberAnnouncement(announcement):
                    self.changes.announcements[announcement.mote] = announcement
                case RememberProgram(program, stream, reason):
                    self.changes.programs.append(program)
                    log.info("sampling program", stream=stream, program=reason)
                case OfferStream(schema):
                    self.offers[schema.name] = schema
                    self.unoffered.add(schema.name)
                case RefuseAnnouncement(mote, reason, detail):
                    self._refuse("announcements_refused", reason, detail, message, mote=mote)
                case RefuseDemand(stream, refused):
                    self._refuse("demands_refused", "", refused.reason, message, stream=stream, query=refused.query)
                case TuplesDropped(stream, count):
                    self._dropped(stream, count)
                case RemoveEntry(mote):
                    self.removed.add(mote)
        return controls

    def _ack(self, message: Message, radio_us: int) -> None:
        if message.retain:
            raise FrameError("retained", "an acknowledgement that the broker kept says nothing about now")
        self._delivery.acknowledged(decode_ack(message.payload), radio_us)

    def _cluster(self, message: Message, radio_us: int) -> None:
        if message.payload:
            status = decode_status(message.payload)
            # What the broker kept is not news.
            if status.presence is Presence.ONLINE and not message.retain:
                self._delivery.cluster_began(radio_us)

    def _packet(self, message: Message, mote: str, radio_us: int, heard_us: int) -> Sequence[FleetInstruction]:
        if message.retain:
            raise FrameError("retained", "a packet that the broker kept is an old one")
        packet = decode_packet(message.payload)
        if packet.mote != mote:
            raise FrameError("mote", f"packet of mote {packet.mote!r} on the topic of {mote!r}")
        if mote in self.foreign_motes:
            raise FrameError("mote", f"a driver of this proxy speaks for mote {mote!r}")
        tuples = self._fleet.goes_on(packet, radio_us, heard_us)
        if tuples is not None:
            self._went_on.append(tuples)
            return ()
        self._metrics.count("packets")
        return self._fleet.unusual(packet, radio_us=radio_us, heard_us=heard_us)

    def _count_went_on(self) -> None:
        """Count the packets with which motes went on as before, as nearly all do: many at a time."""
        if self._went_on:
            self._metrics.count("packets", by=len(self._went_on))
            self._metrics.count("samples", by=sum([len(each.starts_us) for each in self._went_on]))
            self._entries.counted([each.mote for each in self._went_on])
            self._went_on.clear()

    def _announcement(self, message: Message, mote: str, radio_us: int, heard_us: int) -> list[FleetInstruction]:
        if message.retain:
            raise FrameError("retained", "an announcement that the broker kept is an old one")
        announcement = decode_announcement(message.payload)
        if announcement.mote != mote:
            raise FrameError("mote", f"announcement of mote {announcement.mote!r} on the topic of {mote!r}")
        if mote in self.foreign_motes:
            raise FrameError("mote", f"a driver of this proxy speaks for mote {mote!r}")
        self._metrics.count("announcements")
        return self._fleet.announcement(announcement, radio_us=radio_us, heard_us=heard_us)

    def _demand(self, message: Message, stream: str, radio_us: int) -> list[FleetInstruction]:
        unreadable: tuple[RefusedDemand, ...] = ()
        if message.payload:
            demand, unreadable = read_demands(message.payload)
            if demand.stream != stream:
                raise FrameError("stream", f"demand on stream {demand.stream!r} on the topic of {stream!r}")
        else:  # the broker was told to forget it
            demand = StreamDemand(VERSION, "none", stream, 0, ())
        self._metrics.count("demands")
        self.changes.demands[stream] = demand
        return self._fleet.demand(stream, demand, radio_us=radio_us, unreadable=unreadable)

    def _for_mote(self, mote: str, instruction: MoteInstruction, message: Message | None) -> None:
        match instruction:
            case TuplesAccepted():
                self._metrics.count("samples", by=len(instruction.tuples.starts_us))
                self._entries.note(mote, changed=False)
            case PublishEntry(changed):
                self._entries.note(mote, changed=changed)
            case Refused(reason, detail, samples):
                if reason is Refusal.LATE:
                    self._metrics.count("samples_late", by=samples)
                elif reason in _CLOCK:
                    self._metrics.count("samples_rejected", reason, by=samples)
                self._refuse("packets_refused", reason.value, detail, message, mote=mote)
            case _:
                report(mote, instruction, self._metrics)

    async def _send_control(self, mote: str, instruction: SendControl, message: Message | None, radio_us: int) -> None:
        if self.to_driver is not None and await self.to_driver(mote, instruction.control, message):
            return
        if self._clocks.radio() - radio_us >= instruction.window_us:
            self._metrics.count("controls_unsent")
            return
        try:
            # Quality of service 0: what does not arrive in the window must not arrive at all.
            await self._link.publish(Message(topics.control(self._proxy, mote), encode(instruction.control), qos=0))
        except LinkError:
            self._metrics.count("controls_unsent")
            return
        for each in instruction.control.instructions:
            self._metrics.count("controls", _INSTRUCTION_LABELS[type(each)])

    def _dropped(self, stream: str, count: int) -> None:
        total = self._metrics.count("samples_dropped", stream, by=count)
        if (total - count).bit_length() != total.bit_length():
            log.error("no room: the oldest samples are dropped", stream=stream, samples=total)

    def refuse(self, reason: str, detail: str, message: Message, mote: str) -> None:
        """Count what a driver refuses, and keep the message that led to it."""
        self._refuse("frames_refused", reason, detail, message, mote=mote)

    def _refuse_frame(self, message: Message, reason: str, detail: str) -> None:
        self._refuse("frames_refused", reason, detail, message, topic=message.topic[:120])

    def _refuse(self, counter: str, reason: str, detail: str, message: Message | None, **where: str) -> None:
        times = self._metrics.count(counter, reason)
        if times & (times - 1) == 0:  # the 1st, 2nd, 4th, 8th ...: a flood of them does not flood the log
            log.warning("refused", what=counter, reason=reason, detail=detail, times=times, **where)
        if message is not None:
            self._metrics.count("quarantined")
            frame = RefusedFrame(
                self._clocks.real(), message.topic, reason or counter, detail, message.payload[:65_536]
            )
            self._quarantine.put(frame)
