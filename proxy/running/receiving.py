"""Received messages are decoded and passed on; controls are sent to motes while they listen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from protocols.errors import FrameError, TopicError
from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from protocols.presence.name_claim import NameWatch, concerns_another
from protocols.stimulus import HANDLED
from protocols.wire import topics
from protocols.wire.batches import decode_ack
from protocols.wire.catalog import Presence, Status, decode_status
from protocols.wire.frames import encode
from protocols.wire.packets import (
    AdjustClock,
    Announcement,
    Packet,
    RunProgram,
    SendAnnouncement,
    decode_announcement,
    decode_packet,
)
from proxy.errors import NameSharedError
from proxy.fleet.demand_assembly import Assembled, DemandAssemblies
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import Neighbours
from proxy.motes.mote_events import SendControl
from proxy.running.delivery import Delivery
from proxy.running.demand_merging import DemandMerging
from proxy.running.driven_devices import DrivenDevices
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics
from proxy.running.session_messages import SessionMessages

log = get_logger(__name__)

_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement", AdjustClock: "adjust_clock"}
_DECODERS: Mapping[str, Callable[[bytes], Announcement | Packet]] = {
    "packet": decode_packet,
    "announcement": decode_announcement,
}


class Receiver:
    """Handles the messages of one proxy.

    Parameters
    ----------
    proxy
        Its name.
    fleet, delivery, neighbours, merging
        Handle motes, acknowledgements, messages of other proxies, and demands.
    demands
        The messages of demands, until they are complete.
    intake, devices
        Handle the frames of motes, and the messages of driven devices.
    link
        Publishes controls, and the status.
    status
        Of this proxy: it answers another process of the same name that starts.
    session
        Messages that are acknowledged once what they led to is on disk.
    metrics, clocks
        Counters, and the time.
    """

    def __init__(
        self,
        proxy: str,
        fleet: Fleet,
        delivery: Delivery,
        neighbours: Neighbours,
        *,
        merging: DemandMerging,
        demands: DemandAssemblies,
        intake: FrameIntake,
        devices: DrivenDevices,
        link: Publisher,
        status: Message,
        session: SessionMessages,
        metrics: ProxyMetrics,
        clocks: Clocks,
    ) -> None:
        self._proxy = proxy
        self._fleet = fleet
        self._delivery = delivery
        self._neighbours = neighbours
        self._merging = merging
        self._demands = demands
        self._intake = intake
        self._devices = devices
        self._link = link
        self._status = status
        self._own = decode_status(status.payload)
        self._watch = NameWatch(self._own)
        self._session = session
        self._metrics = metrics
        self._clocks = clocks
        self._asked = False
        """Whether another proxy claims the name of this one."""

    async def receive(self, messages: Sequence[Message]) -> None:
        """Handle messages that were received together; an invalid one is counted and kept in the quarantine."""
        radio_us, received_us = self._clocks.radio(), self._clocks.real()
        try:
            for message in messages:
                HANDLED.set(message)
                if message.number and not self._new_of_session(message):
                    continue
                if message.refusal:
                    self._reject(message, message.refusal, "its seal is not right")
                    continue
                if self._devices.handles(message.topic):
                    self._devices.received(message)
                    continue
                try:
                    controls = self._handle(message, radio_us, received_us)
                    if self._asked:
                        await self._answer_claim()
                except FrameError as error:
                    self._reject(message, error.reason, str(error))
                except TopicError as error:
                    self._reject(message, "topic", str(error))
                else:
                    if controls:
                        await self._send(controls, radio_us)
        finally:
            HANDLED.set(None)
            if self._session.is_handling:
                self._session.handled()
            self._devices.count_received()

    def _new_of_session(self, message: Message) -> bool:
        """Note a message of the devices' session; return whether it is to be handled."""
        if self._session.received(message):
            return self._devices.handles(message.topic)
        self._metrics.count("redelivered")
        return False

    def _handle(self, message: Message, radio_us: int, received_us: int) -> Sequence[SendControl]:
        """Handle a message; return the controls for the mote that sent it."""
        parsed = topics.parse(message.topic)
        match parsed.kind:
            case "packet" | "announcement" as kind:
                frame = self._frame(kind, parsed.names[1], message)
                return self._intake.receive(frame, message, radio_us=radio_us, received_us=received_us)
            case "acks":
                self._ack(message, radio_us)
            case "cluster_status":
                self._cluster(message, radio_us)
            case "demand":
                stream = parsed.names[0]
                self._demand(message, self._demands.receive_head(stream, message.payload, radio_us))
            case "demand_piece":
                stream, number = parsed.names
                self._demand(message, self._demands.receive_piece(stream, number, message.payload))
            case "proxy_claim":
                self._claim(message)
            case "mote_entry" | "proxy_status":
                if parsed.names == (self._proxy,) and message.payload:
                    self._look_whether_shared(decode_status(message.payload), radio_us)
                news = self._neighbours.received(parsed, message.payload, self._fleet.has)
                instructions = self._fleet.neighbours_changed(news, radio_us=radio_us, received_us=received_us)
                self._intake.carry_out(instructions, message)
            case _:
                raise FrameError("topic", f"no message is expected on {message.topic}")
        return ()

    def _frame(self, kind: str, mote: str, message: Message) -> Announcement | Packet:
        """Return the frame that a mote of Fjord sent."""
        if message.retain:
            article = "an" if kind == "announcement" else "a"
            raise FrameError("retained", f"{article} {kind} that the broker retained is out of date")
        frame = _DECODERS[kind](message.payload)
        if frame.mote != mote:
            raise FrameError("mote", f"{kind} of mote {frame.mote!r} on the topic of {mote!r}")
        if mote in self._devices:
            raise FrameError("mote", f"mote {mote!r} is driven by a driver of this proxy")
        return frame

    def _ack(self, message: Message, radio_us: int) -> None:
        if message.retain:
            raise FrameError("retained", "an acknowledgement that the broker retained is out of date")
        self._delivery.acknowledged(decode_ack(message.payload), radio_us)

    def _claim(self, message: Message) -> None:
        if message.retain:
            raise FrameError("retained", "a claim that the broker retained is out of date")
        self._asked = concerns_another(message.payload, self._own)
        if self._asked:
            self._metrics.count("claims_refused")
            log.error("another proxy of the same name was started: it is refused", proxy=self._proxy)
        else:
            self._fleet.attention.echoed()

    def connected(self) -> None:
        """Note that there is another connection to the broker."""
        self._watch.connected()

    def _look_whether_shared(self, status: Status, radio_us: int) -> None:
        if self._watch.seen(status, radio_us):
            raise NameSharedError(self._proxy, status.epoch)

    async def _answer_claim(self) -> None:
        self._asked = False
        with contextlib.suppress(LinkError):
            await self._link.publish(self._status)

    def _cluster(self, message: Message, radio_us: int) -> None:
        if message.payload:
            status = decode_status(message.payload)
            # A retained status is an old one.
            if status.presence is Presence.ONLINE and not message.retain:
                self._delivery.cluster_began(radio_us)

    def _demand(self, message: Message, found: Assembled | None) -> None:
        """Let the demand on a stream be merged if a message has completed it."""
        if found is None:
            return
        demand = found.demand
        self._metrics.count("demands")
        self._intake.note_demand(demand.stream, self._demands.take_changes(demand.stream))
        self._merging.received(demand, found.unreadable, message)

    async def _send(self, controls: Iterable[SendControl], radio_us: int) -> None:
        """Send controls to a mote that has been listening since `radio_us`."""
        for each in controls:
            expiry = each.expiry_seconds(radio_us, self._clocks.radio())
            if expiry is None:
                self._metrics.count("controls_unsent")
                continue
            topic = topics.control(self._proxy, each.control.mote)
            try:
                # Quality of service 0: a control that does not arrive in the window must not arrive at all.
                await self._link.publish(Message(topic, encode(each.control), qos=0, expiry_seconds=expiry))
            except LinkError:
                self._metrics.count("controls_unsent")
                continue
            for instruction in each.control.instructions:
                self._metrics.count("controls", _INSTRUCTION_LABELS[type(instruction)])

    def _reject(self, message: Message, reason: str, detail: str) -> None:
        self._intake.reject("frames_refused", reason, detail, message, topic=message.topic[:120])
