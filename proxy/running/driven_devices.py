"""Driven devices: messages of devices of other makers become frames, and their sampling programs go to the devices.

A thin shell around the pure drivers of :mod:`proxy.drivers`, and around what is decided apart: the order of an exchange
with a driver (:mod:`proxy.running.driver_exchange`), and which messages to devices are published
(:mod:`proxy.running.device_messages`). Their frames are handled like those of motes. Controls
that the fleet sends in return go back to the driver, which may answer with further frames::

    message, or time  ->  driver  ->  frames  ->  intake  ->  controls
                            ^                                    |
                            +-------- until there are none ------+

There is no pause in between, so the frames of a device reach the fleet in the order of their numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.packets import Announcement, Packet, RunProgram, SendAnnouncement
from proxy.drivers.driver import NOTHING, Driver, DriverOutput
from proxy.drivers.driver_registry import DriverRegistry
from proxy.fleet.fleet import Fleet
from proxy.motes.device_traits import DeviceTraits
from proxy.motes.mote_events import SendControl
from proxy.running.device_messages import DeviceMessages
from proxy.running.driver_exchange import DemandedPrograms, Exchange, request
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics

log = get_logger(__name__)

_OWN_TOPICS = topics.PREFIX + "/"
_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement"}
"""Metric labels of the instructions that drivers carry out."""


def device_of(registry: DriverRegistry, mote: str) -> DeviceTraits | None:
    """Return the traits of a driven device; None for a mote of Fjord."""
    driver = registry.driver_of(mote)
    if driver is None:
        return None
    can = driver.capabilities_of(mote)
    return DeviceTraits(
        driver.name, can.publishes, can.stored_always, can.event_fields, can.expected_every_us, can.mains
    )


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
        metrics: ProxyMetrics,
        clocks: Clocks,
    ) -> None:
        self._registry = registry
        self._fleet = fleet
        self._intake = intake
        self._link = link
        self._metrics = metrics
        self._clocks = clocks
        self._messages = DeviceMessages()
        self._arrived = asyncio.Event()
        self._demanded = DemandedPrograms()

    def __contains__(self, mote: str) -> bool:
        """Return whether a mote is a driven device."""
        return mote in self._registry

    def handles(self, topic: str) -> bool:
        """Return whether messages on a topic go to the drivers: those on Fjord's own topics do not."""
        return bool(self._registry.drivers) and not topic.startswith(_OWN_TOPICS)

    def received(self, message: Message) -> None:
        """Handle a message of a device."""
        for driver in self._registry.drivers:
            call = partial(driver.received, message.topic, message.payload, retained=message.retain)
            self._run(driver, call, message)

    @property
    def held_since_us(self) -> int | None:
        """When the first message came that has not led to a tuple yet and may, by the radio's clock; None for none."""
        held = [getattr(driver, "held_since_us", None) for driver in self._registry.drivers]
        for mote, _ in self._registry.motes:
            tracking = self._fleet.motes.get(mote)
            if tracking is not None:
                held.append(tracking.reordering.held_since_us)
        return min((each for each in held if each is not None), default=None)

    def demand_changed(self) -> None:
        """Send devices their new programs at once: they do not sleep between listen windows."""
        for mote, driver in self._registry.motes:
            tracking = self._fleet.motes.get(mote)
            if tracking is not None and self._demanded.lets_listen(mote, tracking.state, tracking.desired):
                self._run(driver, partial(driver.listen, mote))

    def time_passed(self) -> None:
        """Let drivers do what is due."""
        for driver in self._registry.drivers:
            self._run(driver, driver.time_passed)

    async def publish(self) -> None:
        """Publish the messages of drivers, until cancelled."""
        while True:
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

    def _run(self, driver: Driver, call: Callable[..., DriverOutput], message: Message | None = None) -> None:
        """Call a driver, and deliver its frames and the controls they lead to, until there are no more."""
        exchange = Exchange()
        exchange.answered(self._call(driver, call, message))
        while (each := exchange.next()) is not None:
            if isinstance(each, DriverOutput):
                self._note(driver, each, message)
                continue
            for control in self._deliver(driver, each, message):
                if exchange.passes_on(each.mote):
                    self._pass_on(driver, control, exchange, message)
                else:
                    self._metrics.count("controls_unsent")
        self._intake.count_accepted()

    def _call(self, driver: Driver, call: Callable[..., DriverOutput], message: Message | None) -> DriverOutput:
        """Return the output of a driver; a failure loses one message of its own devices, and nothing else."""
        try:
            return call(radio_us=self._clocks.radio(), received_us=self._clocks.real())
        except Exception as error:  # a driver reads foreign messages: none of them may end the proxy
            log.exception("a driver failed", driver=driver.name)
            self._reject(driver, "driver_failed", f"driver {driver.name!r}: {error!r}", message)
            return NOTHING

    def _note(self, driver: Driver, output: DriverOutput, message: Message | None) -> None:
        """Count and log rejections and notices of a driver, and queue its messages."""
        for rejection in output.rejections:
            self._reject(driver, rejection.reason, rejection.detail, message, rejection.mote)
        for notice in output.notices:
            log.info("device", mote=notice.mote, driver=driver.name, notice=notice.text)
        self._metrics.count("controls_unsent", by=self._messages.add(output.publications))
        if output.publications:
            self._arrived.set()

    def _deliver(
        self, driver: Driver, frame: Announcement | Packet, message: Message | None
    ) -> tuple[SendControl, ...]:
        """Deliver a frame to the intake; return the controls for its mote."""
        known = self._fleet.motes.get(frame.mote)
        problem = self._registry.claim(driver, frame.mote, None if known is None else known.announcement)
        if problem:
            self._reject(driver, "mote", problem, message, frame.mote)
            return ()
        return tuple(
            self._intake.receive(frame, message, radio_us=self._clocks.radio(), received_us=self._clocks.real())
        )

    def _pass_on(self, driver: Driver, sent: SendControl, exchange: Exchange, message: Message | None) -> None:
        """Pass a control for one of its motes on to a driver, whose outputs belong to the same exchange."""
        mote = sent.control.mote
        for instruction in sent.control.instructions:
            call = request(driver, mote, instruction)
            if call is not None:
                self._demanded.asked(mote, instruction)
                self._metrics.count("controls", _INSTRUCTION_LABELS[type(instruction)])
                exchange.answered(self._call(driver, call, message))

    def _reject(self, driver: Driver, reason: str, detail: str, message: Message | None, mote: str = "") -> None:
        cause = message or Message(f"drivers/{driver.name}", b"")  # where time led to it, not a message
        self._intake.reject("frames_refused", reason, detail, cause, mote=mote)
