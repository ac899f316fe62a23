"""What can go wrong in a simulated deployment: how each fault begins, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import structs

from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Ack
from protocols.wire.frames import VERSION, encode
from tests.simulation.disk import DiskFaults
from tests.simulation.hosts import SECOND_NS
from tests.simulation.network import Way
from tests.simulation.stand_in import STORED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.motes import SimulatedMote
    from tests.simulation.world import World

MILLISECOND_NS = 1_000_000


class Target(Enum):
    """What a kind of fault concerns."""

    BROKER = "broker"
    CLUSTER = "cluster"
    PROXY = "proxy"
    GATEWAY = "gateway"
    MOTE = "mote"
    SUBSCRIBER = "subscriber"
    CLIENT = "client"
    """Any machine that is connected to the broker."""
    DEVICE = "device"
    """A device of another maker, or a bridge."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Parameters
    ----------
    target
        What it concerns.
    begin, end
        Called with the world, the name of the target, and the amount.
    longest_seconds
        How long one lasts.
    amounts
        The least and the most that is drawn.
    """

    target: Target
    begin: Callable[[World, str, float], None]
    end: Callable[[World, str, float], None]
    longest_seconds: float = 60.0
    amounts: tuple[float, float] = (0.0, 1.0)


def nothing(_: World, __: str, ___: float) -> None:
    """End what has ended by itself."""


def _ways(world: World, name: str) -> tuple[Way, Way]:
    return world.network.way(name, "broker"), world.network.way("broker", name)


def _partition(world: World, name: str, _: float) -> None:
    world.network.set_open(name, "broker", is_open=False)
    world.network.set_open("broker", name, is_open=False)


def _half_open(world: World, name: str, amount: float) -> None:
    source, target = (name, "broker") if amount < 0.5 else ("broker", name)
    world.network.set_open(source, target, is_open=False)


def _reunite(world: World, name: str, _: float) -> None:
    world.network.set_open(name, "broker", is_open=True)
    world.network.set_open("broker", name, is_open=True)


def _slow(world: World, name: str, amount: float) -> None:
    for way in _ways(world, name):
        way.fastest_ns, way.slowest_ns = 5 * MILLISECOND_NS, int(amount * SECOND_NS)


def _thin(world: World, name: str, amount: float) -> None:
    for way in _ways(world, name):
        way.bytes_per_second = int(amount)


def _quick(world: World, name: str, _: float) -> None:
    usual = Way()
    for way in _ways(world, name):
        way.fastest_ns, way.slowest_ns, way.bytes_per_second = usual.fastest_ns, usual.slowest_ns, None


def _reset(world: World, name: str, _: float) -> None:
    world.network.reset(name, "broker")


def _forget_connections(world: World, name: str, _: float) -> None:
    world.network.forget_connections(name, "broker")


def _kill_broker(world: World, _: str, __: float) -> None:
    world.broker.kill()


def _broker_returns(memory: str) -> Callable[[World, str, float], None]:
    def start(world: World, _: str, __: float) -> None:
        world.broker.start(memory)

    return start


def _pause(world: World, name: str, _: float) -> None:
    world.loop.pause(world.machine(name).host)


def _resume(world: World, name: str, _: float) -> None:
    world.loop.resume(world.machine(name).host)


def _short_queues(world: World, _: str, amount: float) -> None:
    world.broker.limits.in_flight, world.broker.limits.queued = 2, int(amount)


def _long_queues(world: World, _: str, __: float) -> None:
    world.broker.limits.in_flight, world.broker.limits.queued = 100, 10_000


def _doubling(world: World, _: str, amount: float) -> None:
    world.broker.limits.doubled = amount


def _single(world: World, _: str, __: float) -> None:
    world.broker.limits.doubled = 0.0


def _losing_batches(world: World, _: str, amount: float) -> None:
    world.broker.limits.lost_batches = amount


def _keeping_batches(world: World, _: str, __: float) -> None:
    world.broker.limits.lost_batches = 0.0


def _kill(world: World, name: str, _: float) -> None:
    world.machine(name).kill()


def _start(world: World, name: str, _: float) -> None:
    machine = world.machine(name)
    if machine.host.incarnation is None and name not in world.without_power:
        machine.start()


def _cut_power(world: World, name: str, _: float) -> None:
    if name not in world.without_power:
        world.without_power.add(name)
        world.machine(name).cut_power(world.dice)


def _restore_power(world: World, name: str, _: float) -> None:
    if name in world.without_power:
        world.without_power.discard(name)
        world.machine(name).restore_power()


def _disk(**faults: bool) -> Callable[[World, str, float], None]:
    def begin(world: World, name: str, amount: float) -> None:
        given = {each: True if each == "full" else amount for each in faults}
        disk = world.proxies[name].disk
        disk.faults = replace(disk.faults, **given)

    return begin


def _disk_heals(world: World, name: str, _: float) -> None:
    world.proxies[name].disk.faults = DiskFaults()


def _slow_disk(world: World, name: str, amount: float) -> None:
    world.machine(name).host.threads_slow_ns = int(amount * SECOND_NS)


def _quick_disk(world: World, name: str, _: float) -> None:
    world.machine(name).host.threads_slow_ns = 0


def _step(world: World, name: str, amount: float) -> None:
    world.machine(name).host.clock.step(int(amount * SECOND_NS))


def _step_back(world: World, name: str, amount: float) -> None:
    world.machine(name).host.clock.step(-int(amount * SECOND_NS))


def _mote(world: World, name: str) -> SimulatedMote:
    return world.motes[int(name) % len(world.motes)]


def _mote_off(world: World, name: str, _: float) -> None:
    _mote(world, name).switch_off()


def _mote_on(world: World, name: str, _: float) -> None:
    mote = _mote(world, name)
    if not mote.on:
        mote.switch_on()


def _radio(name_of_share: str) -> Callable[[World, str, float], None]:
    def begin(world: World, name: str, amount: float) -> None:
        setattr(_mote(world, name).radio, name_of_share, amount)

    return begin


def _radio_heals(name_of_share: str) -> Callable[[World, str, float], None]:
    def end(world: World, name: str, _: float) -> None:
        setattr(_mote(world, name).radio, name_of_share, 0.0)

    return end


def _radio_slow(world: World, name: str, amount: float) -> None:
    _mote(world, name).radio.delay_ns = int(amount * SECOND_NS)


def _radio_quick(world: World, name: str, _: float) -> None:
    _mote(world, name).radio.delay_ns = 0


def _stray_acknowledgement(world: World, name: str, _: float) -> None:
    """Let a proxy receive an acknowledgement of all its batches that is for another spool than its own.

    And one that is of another cluster than the one that it obeys, if it obeys one already. Where parts have keys, one
    that an intruder has made just as it should be, but for the key.
    """
    if world.broker.host.incarnation is None:
        return
    proxy = world.proxies[name]
    newest: dict[str, int] = {}
    for batch in proxy.spooled:
        newest[batch.stream] = max(batch.sequence, newest.get(batch.stream, 0))
    strays = [Ack(VERSION, name, "another", stream, through) for stream, through in sorted(newest.items())]
    if proxy.service is not None and proxy.service.stores.spool.cluster is not None:
        epoch = proxy.service.stores.spool.epoch
        strays += [structs.replace(each, epoch=epoch, cluster="another/cluster") for each in strays]
    if world.keys is not None:
        strays += [structs.replace(each, cluster=STORED) for each in strays]
    for ack in strays:
        world.broker.broker.publish(Message(topics.acks(name), encode(ack)))


def _aim(world: World, name: str, amount: float) -> None:
    world.proxies[name].kill_at_commit(1 + int(amount * COMMITS))


def _aim_no_more(world: World, name: str, _: float) -> None:
    world.proxies[name].kill_at_commit(None)


COMMITS = 4
"""Of a proxy's spool, after one of which it is killed."""
STRAY, AIMED, LOSING = "stray acknowledgement", "proxy killed at a commit", "broker loses batches"
"""Drawn beside other faults, not in place of them."""
CUT_OFF, MIGRATES = "publisher cut off", "query migrates"
"""Kinds for real clusters alone."""
OF_DEVICES = frozenset(
    {"device restarted", "device without power", "device cut off", "device reset"},
)
"""Drawn only where there are devices."""
KINDS: dict[str, Kind] = {
    "device restarted": Kind(Target.DEVICE, _kill, _start, 30.0),
    "device without power": Kind(Target.DEVICE, _cut_power, _restore_power, 30.0),
    "device cut off": Kind(Target.DEVICE, _partition, _reunite, 40.0),
    "device reset": Kind(Target.DEVICE, _reset, nothing, 1.0),
    STRAY: Kind(Target.PROXY, _stray_acknowledgement, nothing, 1.0),
    AIMED: Kind(Target.PROXY, _aim, _aim_no_more, 10.0),
    LOSING: Kind(Target.BROKER, _losing_batches, _keeping_batches, 100.0, (0.1, 0.9)),
    "partition": Kind(Target.CLIENT, _partition, _reunite),
    "half-open connection": Kind(Target.CLIENT, _half_open, _reunite),
    "slow network": Kind(Target.CLIENT, _slow, _quick, 40.0, (0.05, 3.0)),
    "thin network": Kind(Target.CLIENT, _thin, _quick, 40.0, (300.0, 5_000.0)),
    "reset": Kind(Target.CLIENT, _reset, nothing, 1.0),
    "connection forgotten": Kind(Target.CLIENT, _forget_connections, nothing, 1.0),
    "broker restarted": Kind(Target.BROKER, _kill_broker, _broker_returns("kept"), 30.0),
    "broker restarted without memory": Kind(Target.BROKER, _kill_broker, _broker_returns("lost"), 30.0),
    "broker restarted with old memory": Kind(Target.BROKER, _kill_broker, _broker_returns("old"), 30.0),
    "broker hangs": Kind(Target.BROKER, _pause, _resume, 40.0),
    "broker drops": Kind(Target.BROKER, _short_queues, _long_queues, 60.0, (0.0, 4.0)),
    "broker doubles": Kind(Target.BROKER, _doubling, _single, 60.0, (0.05, 1.0)),
    "proxy killed": Kind(Target.PROXY, _kill, _start, 20.0),
    "proxy without power": Kind(Target.PROXY, _cut_power, _restore_power, 40.0),
    "proxy stopped": Kind(Target.PROXY, _pause, _resume, 40.0),
    "disk full": Kind(Target.PROXY, _disk(full=True), _disk_heals),
    "disk errors": Kind(Target.PROXY, _disk(error_before=True), _disk_heals, 60.0, (0.1, 1.0)),
    "disk errors after taking effect": Kind(Target.PROXY, _disk(error_after=True), _disk_heals, 60.0, (0.1, 1.0)),
    "unreadable disk": Kind(Target.PROXY, _disk(unreadable=True), _disk_heals, 60.0, (0.1, 1.0)),
    "slow disk": Kind(Target.PROXY, _slow_disk, _quick_disk, 60.0, (0.05, 4.0)),
    "wall clock steps": Kind(Target.PROXY, _step, _step_back, 60.0, (-7_200.0, 7_200.0)),
    "gateway killed": Kind(Target.GATEWAY, _kill, _start, 30.0),
    "gateway stopped": Kind(Target.GATEWAY, _pause, _resume, 30.0),
    "mote reboots": Kind(Target.MOTE, _mote_off, _mote_on, 30.0),
    "radio loses": Kind(Target.MOTE, _radio("loss"), _radio_heals("loss"), 60.0, (0.05, 1.0)),
    "radio doubles": Kind(Target.MOTE, _radio("doubled"), _radio_heals("doubled"), 60.0, (0.1, 1.0)),
    "radio reorders": Kind(Target.MOTE, _radio("reordered"), _radio_heals("reordered"), 60.0, (0.1, 1.0)),
    "radio delays": Kind(Target.MOTE, _radio_slow, _radio_quick, 60.0, (0.01, 3.0)),
    "subscriber killed": Kind(Target.SUBSCRIBER, _kill, _start, 30.0),
    "cluster killed": Kind(Target.CLUSTER, _kill, _start, 30.0),
    "cluster without power": Kind(Target.CLUSTER, _cut_power, _restore_power, 30.0),
    "cluster stopped": Kind(Target.CLUSTER, _pause, _resume, 40.0),
}
"""By name; a schedule draws from them."""
