"""Motes, their radio, and the gateways that pass their packets on to a broker.

A mote is the machine of the product's firmware with a clock of its own, which drifts; it samples whether or not its
gateway runs. A gateway is a process with the product's MQTT client. Between them is a radio that loses, doubles, delays
and reorders packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from firmware_sim.mote.mote import Mote
from firmware_sim.mote.mote_events import Announce, ControlReceived, Instruction, PowerOn, SendPacket, Wake, WakeAt
from firmware_sim.mote.sample_clock import Drift, DriftingClock, SampleClock
from protocols.errors import ProtocolError
from protocols.mqtt.link import BrokerAddress, LinkError, Message, MqttLink, Subscription
from protocols.wire import topics
from protocols.wire.frames import encode
from protocols.wire.packets import decode_control
from tests.simulation.hosts import WALL_BEGINS_NS, Host

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from firmware_sim.phenomena.traffic import Traffic
    from protocols.mqtt.messages import Message as Received
    from protocols.wire.packets import SampleValue
    from tests.simulation.keyed import WorldKeys
    from tests.simulation.network import Network
    from tests.simulation.virtual_loop import VirtualLoop

BACKOFF_US = 20_000
"""As with live motes: packets of samples of one instant are not sent all at once."""
LATE_NS = 1_500_000_000
"""A packet that is overtaken comes up to so much later."""
SECOND_TIME_LATE, SECOND_TIME_NS = 0.5, 30_000_000_000
"""The share of doubled packets whose copy comes later, and by how much: as over another gateway that keeps packets."""
CONTROL_NS = (1_000_000, 15_000_000)
"""From the gateway to a mote that listens."""


@dataclass(slots=True)
class Radio:
    """What happens to packets at present.

    Parameters
    ----------
    loss, doubled, reordered
        Shares of them.
    delay_ns
        What each takes longer.
    """

    loss: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    delay_ns: int = 0


class Gateway:
    """The process that receives the packets of a proxy's motes.

    Parameters
    ----------
    loop, network
        Where it runs.
    host
        On which.
    proxy
        The proxy whose motes these are.
    broker
        Its address.
    keys
        Of the deployment; None for none. What motes seal with theirs is sealed here, and opened.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        host: Host,
        proxy: str,
        broker: BrokerAddress,
        keys: WorldKeys | None = None,
    ) -> None:
        self.keys = keys
        self.loop = loop
        self.network = network
        self.host = host
        self.proxy = proxy
        self.lost = 0
        """Packets for which there was no broker, or no gateway."""
        self._broker = broker
        self._link: MqttLink | None = None
        self._motes: dict[str, SimulatedMote] = {}

    def adopt(self, mote: SimulatedMote) -> None:
        """Let a mote send by this gateway."""
        self._motes[mote.name] = mote

    def start(self) -> None:
        """Begin its process."""
        process = self.host.start()
        self._link = process.run(
            lambda: MqttLink(
                self._broker,
                client_id=f"gateway-{self.proxy}",
                subscriptions=[Subscription(topics.control(self.proxy, "+"), qos=0)],
                seals=None if self.keys is None else self.keys.of_motes(self.proxy),
            )
        )
        self.loop.spawn(process, self._link.run(self._receive), "gateway")

    def kill(self) -> None:
        """Kill its process."""
        self.loop.kill(self.host)
        self.network.killed(self.host)

    def receive(self, topic: str, payload: bytes) -> None:
        """Pass on what a mote has sent, if there is a process that receives it."""
        process = self.host.incarnation
        if process is None or process.paused:
            self.lost += 1
        else:
            self.loop.spawn(process, self._pass_on(topic, payload), "packet")

    async def _pass_on(self, topic: str, payload: bytes) -> None:
        try:
            assert self._link is not None
            await self._link.publish(Message(topic, payload, qos=0))
        except LinkError:
            self.lost += 1

    async def _receive(self, message: Received) -> None:
        if message.refusal:
            return
        try:
            names = topics.parse(message.topic).names
            control = decode_control(message.payload)
        except ProtocolError:
            return
        mote = self._motes.get(names[1])
        if mote is not None:
            mote.send_control(control)


class SimulatedMote:
    """A mote, with its clock and the packets that it has sent.

    Parameters
    ----------
    gateway
        That it sends by.
    road, place
        What it senses there.
    drift_ppm, error_us
        Of its clock, and how wrong it is at the beginning and after each synchronisation.
    dice
        Draws what happens to its packets.
    radio
        By which it sends.
    """

    def __init__(
        self, gateway: Gateway, road: Traffic, place: int, *, drift_ppm: float, error_us: int, dice: Random,
        radio: Radio,
    ) -> None:  # fmt: skip
        self.description = road.motes[place]
        self.name = self.description.name
        self.gateway = gateway
        self.radio = radio
        self.sensed: dict[int, None] = {}
        """Stamps of all samples that it has taken."""
        self.on = False
        self.boots_at_us: list[int] = []
        self.packets_sent = self.packets_lost = 0
        self._road, self._place = road, place
        self._dice = dice
        self._wakes_us: int | None = None
        self._loop = gateway.loop
        true = SampleClock(self.now_us, begins_radio_us=self.now_us)
        clock = DriftingClock(true, Drift(drift_ppm, 60_000_000, error_us), begins_radio_us=self.now_us)
        self.mote = Mote(self.description, clock, self._sense, sealed=gateway.keys is not None)
        gateway.adopt(self)

    @property
    def now_us(self) -> int:
        """True time in microseconds since 1970."""
        return (WALL_BEGINS_NS + self._loop.world.now_ns) // 1_000

    def value(self, stamp_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return what it senses when its clock shows this."""
        return self._road.sense(self._place, stamp_us, fields)

    def switch_on(self) -> None:
        """Connect its battery, or do so again."""
        self.on = True
        self.boots_at_us.append(self.now_us)
        self._carry_out(self.mote.handle(PowerOn(self.now_us)))

    def switch_off(self) -> None:
        """Take its battery away; what it has not sent is lost."""
        self.on = False
        self._wakes_us = None

    def send_control(self, control: object) -> None:
        """Let it receive a control, unless that is lost on its way; the gateway calls this."""
        if self._dice.random() >= self.radio.loss:
            takes_ns = self._dice.randrange(*CONTROL_NS) + self.radio.delay_ns
            self._loop.schedule_in(takes_ns, self._receive, control)

    def _sense(self, stamp_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        self.sensed[stamp_us] = None
        return self.value(stamp_us, fields)

    def _receive(self, control: object) -> None:
        if self.on:
            self._carry_out(self.mote.handle(ControlReceived(self.now_us, control)))  # type: ignore[arg-type]

    def _wake(self, wanted_us: int) -> None:
        if self.on and self._wakes_us == wanted_us:
            self._carry_out(self.mote.handle(Wake(self.now_us)))

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        proxy = self.gateway.proxy
        for instruction in instructions:
            match instruction:
                case SendPacket():
                    takes_us = round(self.mote.meter.profile.radio.airtime_us(instruction.payload_bits)) + 1
                    self.mote.transmitted(instruction.packet, self.now_us + takes_us)
                    self._send(topics.packet(proxy, self.name), encode(instruction.packet), takes_us)
                case Announce():
                    self._send(topics.announcement(proxy, self.name), encode(instruction.announcement), 5_000)
                case WakeAt():
                    wakes_us = max(instruction.radio_us, self.now_us) + self._dice.randrange(BACKOFF_US)
                    self._wakes_us = wakes_us
                    self._loop.schedule(wakes_us * 1_000 - WALL_BEGINS_NS, self._wake, wakes_us)

    def _send(self, topic: str, payload: bytes, takes_us: int) -> None:
        self.packets_sent += 1
        radio, dice = self.radio, self._dice
        if dice.random() < radio.loss:
            self.packets_lost += 1
            return
        late_ns = dice.randrange(LATE_NS) if dice.random() < radio.reordered else 0
        arrive = partial(self.gateway.receive, topic, payload)
        self._loop.schedule_in(takes_us * 1_000 + radio.delay_ns + late_ns, arrive)
        if dice.random() < radio.doubled:
            again_ns = dice.randrange(SECOND_TIME_NS) if dice.random() < SECOND_TIME_LATE else 0
            self._loop.schedule_in(takes_us * 1_000 + radio.delay_ns + again_ns, arrive)
