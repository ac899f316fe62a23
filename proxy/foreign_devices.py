"""Drivers at work: messages of foreign devices to the fleet, and what the fleet wants to the devices.

An asyncio shell around the pure drivers of :mod:`proxy.drivers`: it keeps who speaks for which mote, and carries out
what drivers say. To fleet and cluster the frames of a driver are those of any mote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from protocols import topics
from protocols.acquisition.parts import Abilities
from protocols.catalog import MoteState
from protocols.event_log import get_logger
from protocols.mqtt import LinkError, Message
from protocols.packets import Announcement, Control, Packet, RunProgram, SendAnnouncement
from protocols.programs import SamplingProgram
from proxy.delivery import Publisher
from proxy.drivers.driver import Capabilities, Driver, DriverOutput, Publication
from proxy.fleet import Fleet
from proxy.fleet_instructions import FleetInstruction
from proxy.link_seam import Clocks
from proxy.metrics import ProxyMetrics

log = get_logger(__name__)

MOST_WAITING = 1_024
"""Messages to devices that wait to be published; more are given up, and drivers ask again."""
_OWN_TOPICS = topics.PREFIX + "/"
_DEMANDS = topics.demand("+").removesuffix("+")


def abilities(capabilities: Capabilities) -> Abilities:
    """Return what the merge of demands may use of a device; only Fjord's own motes report several things at once.

    Examples
    --------
    >>> from proxy.drivers.driver import PASSIVE
    >>> abilities(PASSIVE).aggregates
    False
    """
    return Abilities(
        filters=capabilities.filters,
        sends_on_change=capabilities.sends_on_change,
        aggregates=capabilities.aggregates,
        detects_events=capabilities.detects_events,
        several=capabilities.listens and capabilities.aggregates and capabilities.detects_events,
    )


class Spokesmen:
    """Which driver speaks for which mote: the first that brings it.

    Parameters
    ----------
    drivers
        Of a proxy.
    """

    def __init__(self, drivers: Iterable[Driver] = ()) -> None:
        self.drivers = tuple(drivers)
        self.of: dict[str, Driver] = {}

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topic filters of all drivers, each once."""
        return tuple(dict.fromkeys(each for driver in self.drivers for each in driver.subscriptions))

    def abilities_of(self, mote: str) -> Abilities:
        """Return what a mote can do: everything, if no driver speaks for it."""
        driver = self.of.get(mote)
        return Abilities() if driver is None else abilities(driver.capabilities_of(mote))

    def problem(self, driver: Driver, mote: str, announced: Announcement | None) -> str:
        """Return why a driver may not speak for a mote, empty if it may.

        Parameters
        ----------
        driver, mote
            Which driver for which mote.
        announced
            What the fleet knows of the mote; drivers announce boot 0, and a mote of Fjord has booted at least once.
        """
        other = self.of.get(mote)
        if other is not None and other is not driver and other.owns(mote):
            return f"mote {mote!r} is a device of driver {other.name!r}: give {driver.name!r} a prefix"
        if other is None and announced is not None and announced.boot > 0:
            return f"mote {mote!r} is one of Fjord's own: give driver {driver.name!r} a prefix"
        return ""


class Frames(Protocol):
    """What is needed of :class:`proxy.receiving.Receiver`."""

    async def carry_out(
        self, instructions: list[FleetInstruction], message: Message | None = None, radio_us: int = 0
    ) -> None:
        """Do what the fleet says."""

    def refuse(self, reason: str, detail: str, message: Message, mote: str) -> None:
        """Count a refusal, and keep the message that led to it."""


class ForeignDevices:
    """The foreign devices of one proxy.

    Parameters
    ----------
    spokesmen
        Its drivers.
    fleet, frames
        Who decides about motes, and who carries that out.
    link
        Over which devices are spoken to.
    metrics, clocks
        What is counted, and where the time comes from.
    """

    def __init__(
        self,
        spokesmen: Spokesmen,
        fleet: Fleet,
        frames: Frames,
        link: Publisher,
        *,
        metrics: ProxyMetrics,
        clocks: Clocks,
    ) -> None:
        self._spokesmen = spokesmen
        self._fleet = fleet
        self._frames = frames
        self._link = link
        self._metrics = metrics
        self._clocks = clocks
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Queue[Publication] = asyncio.Queue(MOST_WAITING)
        self._told: dict[str, SamplingProgram] = {}

    async def receive(self, message: Message) -> bool:
        """Take a message if it is none of Fjord's own; return whether it was taken."""
        if message.topic.startswith(_OWN_TOPICS):
            return False
        async with self._turn:  # frames of a device must reach the fleet in the order of their numbers
            for driver in self._spokesmen.drivers:
                asking = partial(driver.received, message.topic, message.payload, retained=message.retain)
                await self._ask(driver, asking, message)
        return True

    async def after(self, message: Message) -> None:
        """Tell devices at once what follows from a message of Fjord's own: they do not sleep between windows."""
        if self._spokesmen.of and message.topic.startswith(_DEMANDS):
            async with self._turn:
                for mote, driver in list(self._spokesmen.of.items()):
                    await self._catch_up(mote, driver)

    async def time_passed(self) -> None:
        """Have drivers do what is due."""
        async with self._turn:
            for driver in self._spokesmen.drivers:
                await self._ask(driver, driver.time_passed)

    async def control(self, mote: str, control: Control, message: Message | None) -> bool:
        """Take what the fleet says to a mote to its driver; return False if it has none.

        Called while frames of the mote's driver are carried out: only those open listen windows.
        """
        driver = self._spokesmen.of.get(mote)
        if driver is None:
            return False
        for instruction in control.instructions:
            match instruction:
                case RunProgram(program, not_before_us):
                    self._told[mote] = program
                    self._metrics.count("controls", "run_program")
                    await self._ask(driver, partial(driver.run, mote, program, not_before_us=not_before_us), message)
                case SendAnnouncement():
                    self._metrics.count("controls", "send_announcement")
                    await self._ask(driver, partial(driver.announce, mote), message)
                case _:
                    pass  # its samples are stamped by the proxy's own clock
        return True

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
                log.debug("a device was not told", topic=wanted.topic, error=str(error))
            else:
                self._metrics.count("device_messages")

    async def _catch_up(self, mote: str, driver: Driver) -> None:
        """Open a listen window of a device that should run another program than it was told."""
        tracking = self._fleet.motes.get(mote)
        if tracking is None or tracking.state is not MoteState.CHANGING or self._told.get(mote) == tracking.desired:
            return
        await self._ask(driver, partial(driver.listen, mote))

    async def _ask(self, driver: Driver, asking: Callable[..., DriverOutput], message: Message | None = None) -> None:
        """Carry out what a driver says; one that fails costs its own devices a message, and nobody else anything."""
        try:
            output = asking(radio_us=self._clocks.radio(), heard_us=self._clocks.real())
        except Exception as error:  # a driver reads what strangers wrote: none of it may end the proxy
            log.exception("a driver failed", driver=driver.name)
            self._frames.refuse("driver_failed", f"driver {driver.name!r}: {error!r}", message or _unasked(driver), "")
        else:
            await self._carry_out(driver, output, message)

    async def _carry_out(self, driver: Driver, output: DriverOutput, message: Message | None = None) -> None:
        for refusal in output.refusals:
            self._frames.refuse(refusal.reason, refusal.detail, message or _unasked(driver), refusal.mote)
        for remark in output.remarks:
            log.info("device", mote=remark.mote, driver=driver.name, remark=remark.text)
        for publication in output.publications:
            if self._waiting.full():
                self._metrics.count("controls_unsent")
            else:
                self._waiting.put_nowait(publication)
        for frame in output.frames:
            await self._hand_over(driver, frame, message)

    async def _hand_over(self, driver: Driver, frame: Announcement | Packet, message: Message | None) -> None:
        known = self._fleet.motes.get(frame.mote)
        problem = self._spokesmen.problem(driver, frame.mote, None if known is None else known.announcement)
        if problem:
            self._frames.refuse("mote", problem, message or _unasked(driver), frame.mote)
            return
        self._spokesmen.of[frame.mote] = driver
        radio_us, heard_us = self._clocks.radio(), self._clocks.real()
        if isinstance(frame, Announcement):
            self._metrics.count("announcements")
            instructions = self._fleet.announcement(frame, radio_us=radio_us, heard_us=heard_us)
        else:
            self._metrics.count("packets")
            instructions = self._fleet.packet(frame, radio_us=radio_us, heard_us=heard_us)
        await self._frames.carry_out(instructions, message, radio_us)


def _unasked(driver: Driver) -> Message:
    """Return what stands for the message that led to something, where none did but time."""
    return Message(f"drivers/{driver.name}", b"")
