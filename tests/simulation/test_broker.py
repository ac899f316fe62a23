import asyncio
from random import Random

import pytest

from protocols.mqtt.link import BrokerAddress, LastingSession, LinkError, Message, MqttLink, Subscription, Version
from tests.simulation import sources
from tests.simulation.broker import PORT, Broker, BrokerLimits
from tests.simulation.forked import apart
from tests.simulation.hosts import Host, HostClock, WorldTime
from tests.simulation.network import Network
from tests.simulation.virtual_loop import VirtualLoop

ADDRESS = BrokerAddress("broker", PORT)


class Cellar:
    """A network with a broker."""

    def __init__(self, seed=1, limits=None):
        self.loop = VirtualLoop(Random(seed), WorldTime())
        self.network = self.loop.network = Network(self.loop, Random(seed))
        self.machine = self.host("broker")
        self.limits = limits or BrokerLimits()
        self.broker = None
        self.start()

    def host(self, name):
        return Host(name, HostClock(self.loop.world))

    def start(self, retained=None, sessions=None):
        self.machine.start()
        self.broker = Broker(self.limits, iter(Random(1).random, None), retained or {}, absent=sessions)
        self.network.listen(self.machine, PORT, self.broker.session)

    def kill(self, host):
        self.loop.kill(host)
        self.network.killed(host)

    def client(self, name, *filters, **options):
        """Return a link, a list of what it receives, and its host."""
        seen, host = [], self.host(name)
        process = host.start()
        subscriptions = [Subscription(each) for each in filters]

        def make():
            return MqttLink(ADDRESS, client_id=name, subscriptions=subscriptions, random_source=process.dice, **options)

        link = process.run(make)

        async def take(message):
            seen.append((message.topic, message.payload, message.retain))

        self.loop.spawn(process, link.run(take), name)
        return link, seen, host

    def run(self, steer):
        def work():
            sources.install()
            self.loop.run_until_complete(steer)
            assert not self.loop.unhandled
            assert not self.broker.malformed
            return self.loop.trace

        trace = apart(work)
        steer.close()
        return trace

    async def publish(self, client, *messages):
        link, _, host = client
        for each in messages:
            await self.loop.spawn(host.incarnation, link.publish(each), "publish")


@pytest.fixture
def cellar():
    return Cellar()


@pytest.mark.parametrize("version", list(Version))
def test_the_products_client_publishes_and_receives(cellar, version):
    async def steer():
        one = cellar.client("one", "a/+", versions=[version])
        two = cellar.client("two", "a/#", "b", versions=[version])
        await cellar.loop.passed(1)
        await cellar.publish(one, Message("a/x", b"1"), Message("b", b"2"), Message("a", b"3", qos=0))
        await cellar.loop.passed(1)
        assert one[1] == [("a/x", b"1", False)]
        assert two[1] == [("a/x", b"1", False), ("b", b"2", False), ("a", b"3", False)]

    cellar.run(steer())


@pytest.mark.parametrize("version", list(Version))
def test_a_session_that_goes_on_ends_subscriptions_from_before(cellar, version):
    def receiver(*filters, former=()):
        lasting = LastingSession(3_600, former=former)
        return cellar.client("one", *filters, versions=[version], session=lasting)

    async def steer():
        two = cellar.client("two")
        first = receiver("a/+", "b")
        await cellar.loop.passed(1)
        cellar.kill(first[2])
        second = receiver("a/x", former=("a/+", "b"))
        await cellar.loop.passed(1)
        await cellar.publish(two, Message("a/x", b"1"), Message("a/y", b"2"), Message("b", b"3"))
        await cellar.loop.passed(1)
        assert [(topic, payload) for topic, payload, _ in second[1] if payload] == [("a/x", b"1")]

    cellar.run(steer())


def test_what_is_retained_comes_with_a_subscription_until_it_is_emptied(cellar):
    async def steer():
        one = cellar.client("one")
        await cellar.loop.passed(1)
        await cellar.publish(one, Message("a", b"1", retain=True), Message("b", b"2", retain=True))
        await cellar.publish(one, Message("b", b"", retain=True))
        two = cellar.client("two", "#")
        await cellar.loop.passed(1)
        assert two[1] == [("a", b"1", True)]
        await cellar.publish(one, Message("a", b"3", retain=True))
        await cellar.loop.passed(1)
        assert two[1][1:] == [("a", b"3", False)]

    cellar.run(steer())


def test_a_will_is_published_when_a_client_is_killed_or_silent(cellar):
    async def steer():
        watcher = cellar.client("watcher", "will/#")
        killed = cellar.client("killed", will=Message("will/killed", b"gone"))
        silent = cellar.client("silent", will=Message("will/silent", b"gone"))
        await cellar.loop.passed(1)
        cellar.kill(killed[2])
        await cellar.loop.passed(1)
        assert watcher[1] == [("will/killed", b"gone", False)]
        cellar.network.power_lost(silent[2])
        cellar.loop.kill(silent[2])
        await cellar.loop.passed(60)
        assert len(watcher[1]) == 1
        await cellar.loop.passed(60)
        assert watcher[1][1:] == [("will/silent", b"gone", False)]

    cellar.run(steer())


def test_a_broker_that_restarts_has_its_clients_again(cellar):
    async def steer():
        one, two = cellar.client("one"), cellar.client("two", "a")
        await cellar.loop.passed(1)
        await cellar.publish(one, Message("a", b"1", retain=True))
        await cellar.loop.passed(1)
        retained = cellar.broker.retained
        cellar.kill(cellar.machine)
        await cellar.loop.passed(1)
        with pytest.raises(LinkError):
            await cellar.publish(one, Message("a", b"2"))
        await cellar.loop.passed(10)
        cellar.start(retained)
        await cellar.loop.passed(20)
        assert two[1] == [("a", b"1", False), ("a", b"1", True)]
        await cellar.publish(one, Message("a", b"3"))
        await cellar.loop.passed(1)
        assert two[1][2:] == [("a", b"3", False)]

    cellar.run(steer())


def test_a_broker_that_hangs_is_left_and_found_again(cellar):
    async def steer():
        one = cellar.client("one")
        await cellar.loop.passed(1)
        cellar.loop.pause(cellar.machine)
        await cellar.loop.passed(25)
        assert one[0].hangs_total == 1
        assert not one[0].connected.is_set()
        cellar.loop.resume(cellar.machine)
        await cellar.loop.passed(40)
        assert one[0].connected.is_set()

    cellar.run(steer())


def test_a_connection_that_a_firewall_forgot_is_replaced(cellar):
    async def steer():
        one, two = cellar.client("one"), cellar.client("two", "a")
        await cellar.loop.passed(1)
        cellar.network.forget_connections("broker", "two")
        await cellar.publish(one, Message("a", b"1"))
        await cellar.loop.passed(5)
        assert two[1] == []
        await cellar.loop.passed(20)
        await cellar.publish(one, Message("a", b"2"))
        await cellar.loop.passed(1)
        assert two[1] == [("a", b"2", False)]
        assert (two[0].hangs_total, one[0].hangs_total) == (1, 0)

    cellar.run(steer())


def test_a_way_that_is_closed_keeps_bytes_until_it_opens(cellar):
    async def steer():
        one, two = cellar.client("one"), cellar.client("two", "a")
        await cellar.loop.passed(1)
        cellar.network.set_open("broker", "two", is_open=False)
        await cellar.publish(one, Message("a", b"1"))
        await cellar.loop.passed(5)
        assert two[1] == []
        cellar.network.set_open("broker", "two", is_open=True)
        await cellar.loop.passed(1)
        assert two[1] == [("a", b"1", False)]

    cellar.run(steer())


def test_a_slow_subscriber_has_its_queue_bounded():
    cellar = Cellar(limits=BrokerLimits(in_flight=2, queued=3))

    async def steer():
        one, two = cellar.client("one"), cellar.client("two", "a")
        await cellar.loop.passed(1)
        cellar.loop.pause(two[2])
        await cellar.publish(one, *(Message("a", b"%d" % number) for number in range(10)))
        cellar.loop.resume(two[2])
        await cellar.loop.passed(1)
        assert [payload for _, payload, _ in two[1]] == [b"0", b"1", b"2", b"3", b"4"]
        assert cellar.broker.dropped.total() == 5

    cellar.run(steer())


def test_a_second_connection_of_one_name_ends_the_first(cellar):
    async def steer():
        first = cellar.client("one")
        await cellar.loop.passed(1)
        cellar.kill(first[2])
        cellar.network.set_open("one", "broker", is_open=True)
        again = cellar.client("one", "a")
        await cellar.loop.passed(1)
        await cellar.publish(again, Message("a", b"1"))
        await cellar.loop.passed(1)
        assert again[1] == [("a", b"1", False)]

    cellar.run(steer())


def test_a_slow_way_delays_and_a_reset_breaks(cellar):
    async def steer():
        one, two = cellar.client("one"), cellar.client("two", "a")
        await cellar.loop.passed(1)
        cellar.network.way("broker", "two").bytes_per_second = 1_000
        await cellar.publish(one, Message("a", b"1" * 3_000))
        await cellar.loop.passed(2)
        assert two[1] == []
        await cellar.loop.passed(2)
        assert len(two[1]) == 1
        cellar.network.reset("broker", "two")
        await cellar.loop.passed(0.01)
        assert not two[0].connected.is_set()
        await cellar.loop.passed(5)
        assert two[0].connected.is_set()
        assert two[0].connects_total == 2

    cellar.run(steer())


def test_runs_of_one_seed_are_alike():
    def trace(seed):
        cellar = Cellar(seed)

        async def steer():
            one, _ = cellar.client("one"), cellar.client("two", "a")
            await cellar.loop.passed(1)
            for number in range(20):
                await cellar.publish(one, Message("a", b"%d" % number))
                await asyncio.sleep(0.1)

        return cellar.run(steer())

    assert trace(1) == trace(1) != trace(2)


def test_a_session_that_lasts_goes_on_where_it_was(cellar):
    #  device    1 2       3            4
    #  client    1 2 | away    | 2 again 3    4
    async def steer():
        sensor = cellar.client("sensor")
        process = cellar.host("proxy")

        def receiver():
            seen, running = [], process.start()
            link = running.run(
                lambda: MqttLink(
                    ADDRESS,
                    client_id="devices",
                    subscriptions=[Subscription("d/+")],
                    session=LastingSession(60),
                    random_source=running.dice,
                )
            )

            async def take(messages):
                seen.extend(messages)

            cellar.loop.spawn(running, link.run_in_bursts(take), "devices")
            return link, seen

        first, seen = receiver()
        await asyncio.sleep(1)
        await cellar.publish(sensor, Message("d/a", b"1"), Message("d/a", b"2"))
        await asyncio.sleep(1)
        assert not first.session_present
        process.incarnation.run(lambda: first.acknowledge([seen[0].number]))
        await asyncio.sleep(1)
        cellar.kill(process)
        await asyncio.sleep(1)
        await cellar.publish(sensor, Message("d/a", b"3"))
        kept = cellar.broker.kept_sessions()
        cellar.kill(cellar.machine)
        cellar.start(sessions=kept)
        second, seen = receiver()
        await asyncio.sleep(30)
        assert second.session_present
        await cellar.publish(sensor, Message("d/a", b"4"))
        await asyncio.sleep(1)
        assert [(each.payload, each.again) for each in seen] == [(b"2", True), (b"3", False), (b"4", False)]

    cellar.run(steer())
