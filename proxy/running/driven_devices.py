"""Driven devices: messages of devices of other makers become frames, and their sampling programs go to the devices.

A thin shell around the pure drivers of :mod:`proxy.drivers`, and around what is decided apart: the order of an exchange
with a driver (:mod:`proxy.running.driver_exchange`), and which messages to devices are published
(:mod:`proxy.running.driver_exchange`). Their frames are handled like those of motes. Controls
that the fleet sends in return go back to the driver, which may answer with further frames::

    message, or time  ->  driver  ->  frames  ->  intake  ->  controls
                            ^                                    |
                            +-------- until there are none ------+

There is no pause in between, so the frames of a device reach the fleet in the order of their numbers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.packets import Announcement, Packet, RunProgram, SendAnnouncement
from proxy.drivers.driver import NOTHING, Driver, DriverOutput
from proxy.drivers.driver_registry import Before, DriverRegistry
from proxy.fleet.batching import CutBatch
from proxy.fleet.fleet import Fleet
from proxy.motes.mote_entries import DeviceTraits
from proxy.motes.mote_events import SendControl
from proxy.records.waiting_tuples import MotePosition
from proxy.running.driver_exchange import DemandedPrograms, DeviceMessages, Exchange, request
from proxy.running.frame_intake import FrameIntake, Outcome
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics
from proxy.running.session_messages import SessionMessages
from proxy.storage.spool import NO_STATES

log = get_logger(__name__)

_OWN_TOPICS = topics.PREFIX + "/"
_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement"}
"""Metric labels of the instructions that drivers carry out."""
_OUTCOME_COUNTERS = {each: f"device_messages_{each}" for each in Outcome}


def device_of(registry: DriverRegistry, mote: str) -> DeviceTraits | None:
    """Return the traits of a driven device; None for a mote of Fjord."""
    driver = registry.driver_of(mote)
    if driver is None:
        return None
    can = driver.capabilities_of(mote)
    return DeviceTraits(
        driver.name, can.publishes, can.stored_always, can.event_fields, can.expected_every_us, can.mains
    )


class _Times(NamedTuple):
    """When something happens that a driver handles."""

    radio_us: int
    received_us: int


@dataclass(slots=True)
class _Tally:
    """What has become of the messages of one driver since this was counted last."""

    tuples: int = 0
    used: int = 0
    others: Counter[Outcome] = field(default_factory=Counter)
    """Messages that led to no tuple, by what they led to."""


class DrivenDevices:
    """The devices of other makers of one proxy.

    Parameters
    ----------
    registry
        Drivers of the devices.
    fleet
        Chooses their programs.
    intake
        Handles their frames.
    link
        Publishes messages to them.
    session
        Their messages that are not acknowledged yet.
    metrics, clocks
        Counters, and the time.
    """

    def __init__(
        self,
        registry: DriverRegistry,
        fleet: Fleet,
        intake: FrameIntake,
        link: Publisher,
        *,
        session: SessionMessages,
        metrics: ProxyMetrics,
        clocks: Clocks,
    ) -> None:
        self._registry = registry
        self._session = session
        self._fleet = fleet
        self._intake = intake
        self._link = link
        self._metrics = metrics
        self._clocks = clocks
        self._messages = DeviceMessages()
        self._arrived = asyncio.Event()
        self._demanded = DemandedPrograms()
        self._tallies = {driver.name: _Tally() for driver in registry.drivers}

    def __contains__(self, mote: str) -> bool:
        """Return whether a mote is a driven device."""
        return mote in self._registry

    def handles(self, topic: str) -> bool:
        """Return whether messages on a topic go to the drivers: those on Fjord's own topics do not."""
        return bool(self._registry.drivers) and not topic.startswith(_OWN_TOPICS)

    def restore(self, before: Before) -> None:
        """Go on with the devices from before a restart, before any message: they announce themselves and promise."""
        for name, count in self._registry.left.items():
            log.warning("devices are not driven: their driver is not configured any more", driver=name, devices=count)
        for driver in self._registry.drivers:
            devices = self._registry.known_devices(driver, before)
            if devices:
                self._run(driver, partial(driver.restore, devices))
        self.count_received()

    def changed_states(self, batches: Sequence[CutBatch], positions: Sequence[MotePosition]) -> Mapping[str, bytes]:
        """Return what drivers keep of the motes of batches and positions, where it has changed."""
        if not self._registry.drivers:
            return NO_STATES
        motes = dict.fromkeys(each.mote for batch in batches for each in batch.packets)
        return self._registry.changed_states(motes | dict.fromkeys(each.mote for each in positions))

    def received(self, message: Message) -> None:
        """Handle a message of a device; what becomes of it is counted by the next :meth:`count_received`."""
        radio_us, received_us = self._clocks.radio(), self._clocks.real()
        for driver in self._registry.reading(message.topic):
            mark = self._intake.mark()
            try:
                output = driver.received(
                    message.topic, message.payload, radio_us=radio_us, received_us=received_us, retained=message.retain
                )
            except Exception as error:  # a driver reads foreign messages: none of them may end the proxy
                log.exception("a driver failed", driver=driver.name)
                output = self._failed(driver, error, message)
            self._led_to(driver, output, message, _Times(radio_us, received_us))
            done = self._intake.since(mark)
            tally = self._tallies[driver.name]
            if done.tuples:
                tally.tuples += done.tuples
                tally.used += 1
            else:
                tally.others[done.outcome] += 1

    def demand_changed(self) -> None:
        """Send devices their new programs at once: they do not sleep between listen windows."""
        for mote, driver in self._registry.motes:
            tracking = self._fleet.motes.get(mote)
            if tracking is not None and self._demanded.lets_listen(mote, tracking.state, tracking.desired):
                self._run(driver, partial(driver.listen, mote))
        self.count_received()

    def time_passed(self) -> None:
        """Let drivers do what is due."""
        for driver in self._registry.drivers:
            self._run(driver, driver.time_passed)
        self.count_received()

    def finish(self) -> None:
        """Let drivers give out what waits, as the proxy stops."""
        for driver in self._registry.drivers:
            self._run(driver, driver.finish)
        self.count_received()

    def count_received(self) -> None:
        """Update the counters of messages, packets and tuples, for many messages at a time."""
        for name, tally in self._tallies.items():
            if tally.tuples:
                self._metrics.count("device_tuples", name, by=tally.tuples)
                tally.tuples = 0
            if tally.used or tally.others:
                self._metrics.count("device_messages_received", name, by=tally.used + tally.others.total())
                for outcome, number in {Outcome.USED: tally.used, **tally.others}.items():
                    if number:
                        self._metrics.count(_OUTCOME_COUNTERS[outcome], name, by=number)
                tally.used = 0
                tally.others.clear()
        self._intake.count_accepted()

    def hold_promises(self, *, held: bool) -> None:
        """Let low watermarks of devices stand, or move again: messages from before may still wait at the broker."""
        for driver in self._registry.drivers:
            driver.hold_promises(held=held)

    async def publish(self, connected: asyncio.Event) -> None:
        """Publish the messages of drivers while there is a connection, until cancelled."""
        while True:
            await connected.wait()
            publication, late = self._messages.next(self._clocks.radio())
            self._metrics.count("controls_unsent", by=late)
            if publication is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            try:
                await self._link.publish(Message(publication.topic, publication.payload, publication.qos))
            except LinkError as error:
                self._metrics.count("controls_unsent")
                log.debug("a message to a device was not sent", topic=publication.topic, error=str(error))
            else:
                self._metrics.count("device_messages")

    def _run(self, driver: Driver, call: Callable[..., DriverOutput]) -> None:
        """Call a driver that no message leads to call, and deliver what its output leads to."""
        times = _Times(self._clocks.radio(), self._clocks.real())
        mark = self._intake.mark()
        self._led_to(driver, self._call(driver, call, None, times), None, times)
        self._tallies[driver.name].tuples += self._intake.since(mark).tuples

    def _led_to(self, driver: Driver, output: DriverOutput, message: Message | None, times: _Times) -> None:
        """Deliver the frames of an output and the controls they lead to, until there are no more."""
        packet = output.only_packet
        if packet is not None and self._registry.driver_of(packet.mote) is driver:  # as with most messages
            controls = self._intake.receive(packet, message, radio_us=times.radio_us, received_us=times.received_us)
            if controls:
                exchange = Exchange()
                self._answer(driver, controls, exchange, message, times)
                self._carry_on(driver, exchange, message, times)
        else:
            exchange = Exchange()
            exchange.answered(output)
            self._carry_on(driver, exchange, message, times)
        if output.waits is not None and message is not None:
            mote, number = output.waits
            self._session.hold(message, lambda: driver.waiting(mote) == number)

    def _carry_on(self, driver: Driver, exchange: Exchange, message: Message | None, times: _Times) -> None:
        """Deliver what waits in an exchange, and what it leads to."""
        while (each := exchange.next()) is not None:
            if isinstance(each, DriverOutput):
                self._note(driver, each, message)
            elif self._claim(driver, each, exchange, message):
                controls = self._deliver(driver, each, message, times)
                self._answer(driver, controls, exchange, message, times)

    def _answer(
        self,
        driver: Driver,
        controls: Sequence[SendControl],
        exchange: Exchange,
        message: Message | None,
        times: _Times,
    ) -> None:
        """Pass on the controls that a frame led to."""
        for control in controls:
            if exchange.passes_on(control.control.mote):
                self._pass_on(driver, control, exchange, message, times)
            else:
                self._metrics.count("controls_unsent")

    def _call(
        self, driver: Driver, call: Callable[..., DriverOutput], message: Message | None, times: _Times
    ) -> DriverOutput:
        """Return the output of a driver."""
        try:
            return call(radio_us=times.radio_us, received_us=times.received_us)
        except Exception as error:
            log.exception("a driver failed", driver=driver.name)
            return self._failed(driver, error, message)

    def _failed(self, driver: Driver, error: Exception, message: Message | None) -> DriverOutput:
        """Note that a driver failed, which loses one message of its own devices, and nothing else."""
        self._reject(driver, "driver_failed", f"driver {driver.name!r}: {error!r}", message)
        return NOTHING

    def _note(self, driver: Driver, output: DriverOutput, message: Message | None) -> None:
        """Count and log rejections and notices of a driver, and queue its messages."""
        for rejection in output.rejections:
            self._reject(driver, rejection.reason, rejection.detail, message, rejection.mote)
        for notice in output.notices:
            log.info("device", mote=notice.mote, driver=driver.name, notice=notice.text)
        if output.publications:
            self._metrics.count("controls_unsent", by=self._messages.add(output.publications))
            self._arrived.set()

    def _deliver(
        self, driver: Driver, frame: Announcement | Packet, message: Message | None, times: _Times
    ) -> Sequence[SendControl]:
        """Deliver a frame to the intake; return the controls for its mote."""
        controls = self._intake.receive(frame, message, radio_us=times.radio_us, received_us=times.received_us)
        if isinstance(frame, Announcement) and self._fleet.has_announced(frame):
            self._intake.note_owner(self._registry.owner(driver, frame))
        return controls

    def _claim(self, driver: Driver, frame: Announcement | Packet, exchange: Exchange, message: Message | None) -> bool:
        """Return whether a driver may deliver a frame: no other mote has its name."""
        mote = frame.mote
        known = self._fleet.motes.get(mote)
        problem = self._registry.claim(driver, mote, None if known is None else known.announcement)
        if not problem:
            return True
        if not exchange.refuses(mote):
            return False  # one rejection is enough for what one message led to
        if self._registry.clashed(driver, mote, "" if message is None else message.topic):
            log.error("two devices have the same name", mote=mote, driver=driver.name, problem=problem)
            self._intake.note_counts(mote, changed=True)
        if message is not None:
            self._metrics.count("device_name_clashes", driver.name)
            self._reject(driver, "mote", problem, message, mote)
        return False

    def _pass_on(
        self, driver: Driver, sent: SendControl, exchange: Exchange, message: Message | None, times: _Times
    ) -> None:
        """Pass a control for one of its motes on to a driver, whose outputs belong to the same exchange."""
        mote = sent.control.mote
        for instruction in sent.control.instructions:
            call = request(driver, mote, instruction)
            if call is not None:
                self._demanded.asked(mote, instruction)
                self._metrics.count("controls", _INSTRUCTION_LABELS[type(instruction)])
                exchange.answered(self._call(driver, call, message, times))

    def _reject(self, driver: Driver, reason: str, detail: str, message: Message | None, mote: str = "") -> None:
        cause = message or Message(f"drivers/{driver.name}", b"")  # where time led to it, not a message
        if mote and mote not in self._registry:
            self._registry.rejected(mote, reason)
        self._intake.reject("frames_refused", reason, detail, cause, mote=mote)
