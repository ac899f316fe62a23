"""Devices that publish JSON as they like: in bursts, in halves, seldom, late, with fields that cannot be read.

Each has a process with the product's MQTT client; nothing else of it is the product's. What it counts outlives its
restarts, so that each message is different from all others.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink
from tests.simulation.device_log import DeviceLog, Sent
from tests.simulation.device_plans import MAX_DELAY_US, METERS, MODULUS
from tests.simulation.hosts import SECOND_NS, WALL_BEGINS_NS

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.device_plans import DevicePlan
    from tests.simulation.hosts import Host
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop

HALF_SECONDS = 0.2
"""Between the two messages of a device that sends its values in halves."""
COPIED, COPY_SECONDS = 0.4, (0.01, 2.0)
"""The share of messages that a second gateway passes on, too, and how much later."""
MOST_TRIES = 6
"""Of a message with a quality of service of 1, over new connections."""
_PACES = {"busy": (0.3, 1.4), "steady": (7.0, 7.0), "bursty": (8.0, 30.0), "seldom": (40.0, 90.0)}
"""Seconds between two messages, or between the ends and beginnings of bursts: least and most."""
_WAITED_SECONDS = 0.5


class Publishing:
    """A machine with one process that publishes.

    Parameters
    ----------
    loop, network, host
        Where it runs.
    broker
        Its address.
    log
        Of what it sends.
    proxy
        Whose topics it publishes on.
    """

    def __init__(
        self, loop: VirtualLoop, network: Network, host: Host, broker: BrokerAddress, log: DeviceLog, proxy: str
    ) -> None:
        self.loop = loop
        self.network = network
        self.host = host
        self.broker = broker
        self.log = log
        self.proxy = proxy
        self.link: MqttLink | None = None
        self.gave_up = 0
        """Messages that no broker has accepted."""

    @property
    def now_us(self) -> int:
        """True time in microseconds since 1970."""
        return (WALL_BEGINS_NS + self.loop.world.now_ns) // 1_000

    @property
    def seconds(self) -> float:
        """True time since the beginning."""
        return self.loop.world.now_ns / 1e9

    def kill(self) -> None:
        """Kill its process."""
        if self.host.incarnation is not None:
            self.loop.kill(self.host)
            self.network.killed(self.host)

    def cut_power(self, dice: Random | None = None) -> None:
        """Cut its power."""
        del dice
        self.network.power_lost(self.host)
        self.loop.kill(self.host)

    def publish(self, topic: str, payload: bytes, sent: Sent | None, *, qos: int, retain: bool = False) -> None:
        """Publish soon; with a quality of service of 1 again until the broker has it, or it is given up."""
        if sent is not None:
            self.log.send(self.proxy, topic, payload, sent)
        process = self.host.incarnation
        if process is not None:
            message = Message(topic, payload, qos=qos, retain=retain)
            self.loop.spawn(process, self._deliver(message), "message")

    async def _deliver(self, message: Message) -> None:
        assert self.link is not None
        for _ in range(MOST_TRIES if message.qos else 1):
            try:
                await self.link.publish(message)
            except LinkError:
                with suppress(TimeoutError):
                    async with asyncio.timeout(30.0):
                        await self.link.connected.wait()
                await asyncio.sleep(_WAITED_SECONDS)
            else:
                return
        self.gave_up += 1


class JsonDevice(Publishing):
    """A device.

    Parameters
    ----------
    plan
        How it publishes.
    merges
        Whether its driver makes one tuple of two halves.
    dice
        Draws when, and what.
    """

    def __init__(self, *given: Any, plan: DevicePlan, merges: bool, dice: Random) -> None:
        super().__init__(*given)
        self.plan = plan
        self.name = self.host.name
        self._merges = merges
        self._dice = dice
        self._number = self._ticks = 0
        self._door = "shut"

    def start(self) -> None:
        """Begin its process."""
        process = self.host.start()
        self.link = process.run(lambda: MqttLink(self.broker, client_id=self.name))
        self.loop.spawn(process, self.link.run(_ignore), "link")
        self.loop.spawn(process, self._run(), "device")

    def restore_power(self) -> None:
        """Switch it on again."""
        self.network.power_returned(self.host)
        self.start()

    async def _run(self) -> None:
        await asyncio.sleep(max(0.0, self.plan.on_at - self.seconds))
        least, most = _PACES[self.plan.pace]
        while self.plan.silent_from is None or self.seconds < self.plan.silent_from:
            for _ in range(self._dice.randint(2, 6) if self.plan.pace == "bursty" else 1):
                await self._say()
                await asyncio.sleep(self._dice.uniform(0.02, 0.3))
            await asyncio.sleep(self._dice.uniform(least, most))

    async def _say(self) -> None:
        if self.plan.stream != "halves":
            self._send(self._values())
            return
        self._number += 1
        warm = {"n": self._number, "warm": self._number + 0.25}
        self._send(warm)
        await asyncio.sleep(HALF_SECONDS)
        self._number += 1
        damp: dict[str, Any] = {"damp": self._number + 0.5}
        self._send(damp if self._merges else {"n": self._number, **damp})

    def _values(self) -> dict[str, Any]:
        self._number += 1
        values: dict[str, Any] = {"n": self._number, "level": self._number % 50 + 0.5}
        if self.plan.stream == METERS.name:
            if self._dice.random() < 0.4:
                self._door = "open" if self._door == "shut" else "shut"
            values["door"] = self._door
            self._ticks += self._dice.randrange(9)
            values["ticks"] = self._ticks
        return values

    def _send(self, values: dict[str, Any]) -> None:
        """Send values, some of which cannot be read, or nothing of which can."""
        plan, dice, number = self.plan, self._dice, self._number
        written, at_us = dict(values), None
        if "ticks" in written:
            written["ticks"] %= MODULUS
        if plan.stream == "clocked":
            delay_us = dice.randrange(MAX_DELAY_US) * 7 // 10 if dice.random() < 0.25 else 0
            at_us = (self.now_us - delay_us) // 1_000 * 1_000
            written["t"] = at_us // 1_000
        text = json.dumps(written)
        rejected = ""
        if "level" in values and dice.random() < plan.broken:
            values = values | {"level": None}
            text = text.replace(f'"level": {written["level"]}', f'"level": {dice.choice(_BROKEN)}')
        elif dice.random() < plan.garbled:
            text, rejected = text[:-1], "garbled"
        sent = Sent(plan.stream, self.name, number, values, rejected, at_us)
        for gate in range(plan.gates):
            if gate == 0 or dice.random() < COPIED:
                late_ns = gate and int(dice.uniform(*COPY_SECONDS) * SECOND_NS)
                self.loop.schedule_in(late_ns, self._pass_on, gate, text.encode(), sent)

    def _pass_on(self, gate: int, payload: bytes, sent: Sent) -> None:
        """Publish a message by one of the gateways."""
        parts = [f"{self.plan.stream}{self.plan.proxy}", f"gate{gate}", self.name, "up"]
        if self.plan.stream != "clocked":
            del parts[1]
        self.publish("/".join(parts), payload, sent, qos=self.plan.qos, retain=self.plan.retains)


_BROKEN = ("nan", '"abc"', "1e999", "[1]")
"""What a number is not."""


async def _ignore(_: object) -> None:
    pass
