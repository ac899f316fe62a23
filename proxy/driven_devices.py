"""Drivers at work: messages of devices of other makers become frames, and programs of their motes go to the devices.

A thin shell around the pure drivers of :mod:`proxy.drivers`. Their frames enter where those of motes do, and whatever
the fleet wants said in return goes back to the driver, which may answer with further frames::

    message, or time  ->  driver  ->  frames  ->  intake  ->  controls
                            ^                                    |
                            +----------- until there are none ---+

All of it happens without a pause, so the frames of a device reach the fleet in the order of their numbers.
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
from proxy.driver_registry import DriverRegistry
from proxy.drivers.driver import NOTHING, Driver, DriverOutput, Publication
from proxy.fleet import Fleet
from proxy.frame_intake import FrameIntake
from proxy.link_interface import Clocks, Publisher
from proxy.metrics import ProxyMetrics
from proxy.mote_events import SendControl

log = get_logger(__name__)

MOST_WAITING = 1_024
"""Messages to devices that wait to be published; more are given up, and drivers ask again."""
MOST_CONTROLS = 16
"""A driver gets so many controls for one mote after one message; what it has not done by then is sent again later."""
_OWN_TOPICS = topics.PREFIX + "/"
_INSTRUCTION_LABELS = {RunProgram: "run_program", SendAnnouncement: "send_announcement"}
"""By instruction that means something to a driver, how it is counted."""


class DrivenDevices:
    """The devices of other makers of one proxy.

    Parameters
    ----------
    registry
        Their drivers.
    fleet
        Knows what they should do.
    intake
        Takes their frames.
    link
        Over which they are spoken to.
    metrics, clocks
        What is counted, and where the time comes from.
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
        """Return whether a driver speaks for a mote."""
        return mote in self._registry

    def wants(self, topic: str) -> bool:
        """Return whether a message goes to the drivers: there are some, and it is none of Fjord's own."""
        return bool(self._registry.drivers) and not topic.startswith(_OWN_TOPICS)

    def received(self, message: Message) -> None:
        """Take a message of a device."""
        for driver in self._registry.drivers:
            asking = partial(driver.received, message.topic, message.payload, retained=message.retain)
            self._request_announcement(driver, asking, message)

    def demand_changed(self) -> None:
        """Tell devices at once what follows from a demand: they do not sleep between listen windows."""
        for mote, driver in self._registry.motes:
            tracking = self._fleet.motes.get(mote)
            if tracking is None or tracking.state is not MoteState.CHANGING:
                continue
            if self._demanded.get(mote) != tracking.desired:
                self._request_announcement(driver, partial(driver.listen, mote))

    def time_passed(self) -> None:
        """Have drivers do what is due."""
        for driver in self._registry.drivers:
            self._request_announcement(driver, driver.time_passed)

    async def publish(self) -> None:
        """Publish what drivers want published, until cancelled."""
        while True:
            wanted = await self._waiting.get()
            if wanted.before_radio_us is not None and self._clocks.radio() >= wanted.before_radio_us:
                self._metrics.count("controls_unsent")
                continue
            try:
                await self._link.publish(Message(wanted.topic, wanted.payload, wanted.qos))
            except LinkError as error:
                self._metrics.count("controls_unsent")
                log.debug("a message to a device was not sent", topic=wanted.topic, error=str(error))
            else:
                self._metrics.count("device_messages")

    def _request_announcement(
        self, driver: Driver, asking: Callable[..., DriverOutput], message: Message | None = None
    ) -> None:
        """Carry out what a driver says, and what it says to that, until it has nothing more to say."""
        waiting = deque([self._answer(driver, asking, message)])
        controls: Counter[str] = Counter()
        while waiting:
            output = waiting.popleft()
            self._note(driver, output, message)
            for frame in output.frames:
                for control in self._hand_over(driver, frame, message):
                    controls[frame.mote] += 1
                    if controls[frame.mote] > MOST_CONTROLS:
                        self._metrics.count("controls_unsent")
                    else:
                        waiting.extend(self._tell(driver, control, message))
        self._intake.count_accepted()

    def _answer(self, driver: Driver, asking: Callable[..., DriverOutput], message: Message | None) -> DriverOutput:
        """Return what a driver makes of it; one that fails costs its own devices a message, and nothing else."""
        try:
            return asking(radio_us=self._clocks.radio(), received_us=self._clocks.real())
        except Exception as error:  # a driver reads what others wrote: none of it may end the proxy
            log.exception("a driver failed", driver=driver.name)
            self._reject(driver, "driver_failed", f"driver {driver.name!r}: {error!r}", message)
            return NOTHING

    def _note(self, driver: Driver, output: DriverOutput, message: Message | None) -> None:
        """Count and log what a driver says, and let its messages wait to be published."""
        for rejection in output.rejections:
            self._reject(driver, rejection.reason, rejection.detail, message, rejection.mote)
        for notice in output.notices:
            log.info("device", mote=notice.mote, driver=driver.name, notice=notice.text)
        for publication in output.publications:
            if self._waiting.full():
                self._metrics.count("controls_unsent")
            else:
                self._waiting.put_nowait(publication)

    def _hand_over(
        self, driver: Driver, frame: Announcement | Packet, message: Message | None
    ) -> tuple[SendControl, ...]:
        """Hand a frame over; return the controls for its mote."""
        known = self._fleet.motes.get(frame.mote)
        problem = self._registry.claim(driver, frame.mote, None if known is None else known.announcement)
        if problem:
            self._reject(driver, "mote", problem, message, frame.mote)
            return ()
        return tuple(self._intake.take(frame, message, radio_us=self._clocks.radio(), received_us=self._clocks.real()))

    def _tell(self, driver: Driver, said: SendControl, message: Message | None) -> list[DriverOutput]:
        """Give a driver a control for one of its motes; return what it answers."""
        mote, answers = said.control.mote, []
        for instruction in said.control.instructions:
            asking = request(driver, mote, instruction)
            if asking is not None:
                if isinstance(instruction, RunProgram):
                    self._demanded[mote] = instruction.program
                self._metrics.count("controls", _INSTRUCTION_LABELS[type(instruction)])
                answers.append(self._answer(driver, asking, message))
        return answers

    def _reject(self, driver: Driver, reason: str, detail: str, message: Message | None, mote: str = "") -> None:
        cause = message or Message(f"drivers/{driver.name}", b"")  # where none led to it but time
        self._intake.reject("frames_refused", reason, detail, cause, mote=mote)


def request(driver: Driver, mote: str, instruction: Instruction) -> Callable[..., DriverOutput] | None:
    """Return what to ask of a driver for an instruction to one of its motes; None for nothing.

    A device's clock is never moved: its samples are stamped by the proxy's own.
    """
    match instruction:
        case RunProgram(program, not_before_us):
            return partial(driver.run, mote, program, not_before_us=not_before_us)
        case SendAnnouncement():
            return partial(driver.announce, mote)
        case _:
            return None
