import threading
from itertools import chain

import msgspec
import pytest

from protocols.mqtt.link import BrokerAddress, Message, MqttLink
from protocols.wire import topics
from tests.simulation import preparing
from tests.simulation.broker import PORT
from tests.simulation.device_plans import DevicePlan, DevicesPlan
from tests.simulation.fault_kinds import KINDS
from tests.simulation.forked import apart
from tests.simulation.hosts import Host, HostClock
from tests.simulation.schedules import Fault, drawn
from tests.simulation.world import World


def calm(seconds=20.0, faults=()):
    return msgspec.structs.replace(drawn(3, seconds), faults=tuple(faults), devices=DEVICES)


def test_a_subscriber_has_what_was_published_while_it_ran(tmp_path):
    def work():
        preparing.prepare()
        world = World(calm(), tmp_path)
        accepted = []
        world.broker.observers.append(accepted.append)

        async def steer():
            world.subscriber.start()
            process = Host("publisher", HostClock(world.loop.world)).start()
            link = process.run(lambda: MqttLink(BrokerAddress("broker", PORT), client_id="publisher"))
            world.loop.spawn(process, link.run(_ignore), "publisher")
            await world.loop.passed(1)
            for number, topic in enumerate((topics.results("a"), topics.query_errors("a"), topics.acks("p0"))):
                if number == 1:
                    world.subscriber.kill()
                    world.subscriber.start()
                    await world.loop.passed(1)
                await world.loop.spawn(process, link.publish(Message(topic, b"%d" % number)), "publish")
            await world.loop.passed(1)

        world.loop.run_until_complete(steer())
        assert [arrival.message.payload for arrival in world.subscriber.arrivals] == [b"0", b"1"]
        assert [message.payload for message in accepted] == [b"0", b"1", b"2"]

    apart(work)


async def _ignore(_):
    pass


TARGETS = {"proxy": "p0", "gateway": "g0", "client": "p0", "mote": "1", "device": "d0"}
DEVICES = DevicesPlan((DevicePlan("meters", 0, "steady", 1, 0.5),))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_fault_ends_as_it_should(tmp_path, kind):
    """Nothing of it is left once it has ended: all machines run, and all ways are open."""
    target = TARGETS.get(KINDS[kind].target.value, KINDS[kind].target.value)

    def work():
        preparing.prepare()
        world = World(calm(12.0, [Fault(kind, target, 5.0, 3.0, KINDS[kind].amounts[1])]), tmp_path / "world")

        async def steer():
            world.cluster.start()
            others = world.gateways.values(), world.devices.values()
            for machine in (*world.proxies.values(), *chain(*others), world.subscriber):
                machine.start()
            for mote in world.motes:
                mote.switch_on()
            await world.loop.passed(4)
            await world._fault(world.schedule.faults[0])
            await world.loop.passed(4)

        world.loop.run_until_complete(steer())
        machines = [world.broker, world.cluster, world.subscriber, *world.proxies.values(), *world.gateways.values()]
        for machine in (*machines, *world.devices.values()):
            assert machine.host.incarnation is not None
            assert not machine.host.incarnation.paused
        assert all(mote.on and not mote.radio.loss for mote in world.motes)
        assert all(way.open and way.bytes_per_second is None for way in world.network._ways.values())
        assert world.happened == {kind: 1}
        assert not world.without_power
        assert threading.active_count() == 1

    apart(work)
