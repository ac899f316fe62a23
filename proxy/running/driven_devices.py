"""Driven devices: messages of devices of other makers become frames, and their sampling programs go to the devices.

A thin shell around the pure drivers of :mod:`proxy.drivers`. Their frames are handled like those of motes. Controls
that the fleet sends in return go back to the driver, which may answer with further frames::

    message, or time  ->  driver  ->  frames  ->  intake  ->  controls
                            ^                                    |
                            +-------- until there are none ------+

There is no pause in between, so the frames of a device reach the fleet in the order of their numbers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from protocols.event_log import get_logger
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.catalog import MoteState
from protocols.wire.packets import Announcement, Instruction, Packet, RunProgram, SendAnnouncement
from protocols.wire.programs import SamplingProgram
from proxy.drivers.driver import NOTHING, Driver, DriverOutput, Publication
from proxy.drivers.driver_registry import DriverRegistry
from proxy.fleet.fleet import Fleet
from proxy.motes.mote_events import SendControl
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import Clocks, Publisher
from proxy.running.metrics import ProxyMetrics

log = get_logger(__name__)

MOST_WAITING = 1_024
"""Messages to devices that may wait to be published; more are dropped, and drivers send them again."""
MOST_CONTROLS = 16
"""Controls that a driver gets for one mote after one message; later ones are sent again in another window."""
_OWN_TOPICS = topics.PREFIX + "/"
_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement"}
"""Metric labels of the instructions that drivers carry out."""


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
        self._waiting: asyncio.Queue[Publication] = asyncio.Queue(MOST_WAITING)
        self._demanded: dict[str, SamplingProgram] = {}

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

    def demand_changed(self) -> None:
        """Send devices their new programs at once: they do not sleep between listen windows."""
        for mote, driver in self._registry.motes:
            tracking = self._fleet.motes.get(mote)
            if tracking is None or tracking.state is not MoteState.CHANGING:
                continue
            if self._demanded.get(mote) != tracking.desired:
                self._run(driver, partial(driver.listen, mote))

    def time_passed(self) -> None:
        """Let drivers do what is due."""
        for driver in self._registry.drivers:
            self._run(driver, driver.time_passed)

    async def publish(self) -> None:
        """Publish the messages of drivers, until cancelled."""
        while True:
            publication = await self._waiting.get()
            if publication.before_radio_us is not None and self._clocks.radio() >= publication.before_radio_us:
                self._metrics.count("controls_unsent")
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
        waiting = deque([self._call(driver, call, message)])
        controls: Counter[str] = Counter()
        while waiting:
            output = waiting.popleft()
            self._note(driver, output, message)
            for frame in output.frames:
                for control in self._deliver(driver, frame, message):
                    controls[frame.mote] += 1
                    if controls[frame.mote] > MOST_CONTROLS:
                        self._metrics.count("controls_unsent")
                    else:
                        waiting.extend(self._pass_on(driver, control, message))
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
        for publication in output.publications:
            if self._waiting.full():
                self._metrics.count("controls_unsent")
            else:
                self._waiting.put_nowait(publication)

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

    def _pass_on(self, driver: Driver, sent: SendControl, message: Message | None) -> list[DriverOutput]:
        """Pass a control for one of its motes on to a driver; return the outputs."""
        mote, answers = sent.control.mote, []
        for instruction in sent.control.instructions:
            call = request(driver, mote, instruction)
            if call is not None:
                if isinstance(instruction, RunProgram):
                    self._demanded[mote] = instruction.program
                self._metrics.count("controls", _INSTRUCTION_LABELS[type(instruction)])
                answers.append(self._call(driver, call, message))
        return answers

    def _reject(self, driver: Driver, reason: str, detail: str, message: Message | None, mote: str = "") -> None:
        cause = message or Message(f"drivers/{driver.name}", b"")  # where time led to it, not a message
        self._intake.reject("frames_refused", reason, detail, cause, mote=mote)


def request(driver: Driver, mote: str, instruction: Instruction) -> Callable[..., DriverOutput] | None:
    """Return the call of a driver for an instruction to one of its motes; None for none.

    A device's clock is never moved: its samples are stamped by the proxy's own.
    """
    match instruction:
        case RunProgram(program, not_before_us):
            return partial(driver.run, mote, program, not_before_us=not_before_us)
        case SendAnnouncement():
            return partial(driver.announce, mote)
        case _:
            return None
