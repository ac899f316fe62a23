"""What is behind while nothing goes wrong is found, even if it comes right before the end."""

from types import SimpleNamespace

import msgspec
import pytest

from protocols.wire.batches import Batch, encode_batch
from protocols.wire.frames import VERSION
from tests.simulation.bounds import Bounds, bounds_of, commit_seconds
from tests.simulation.fault_kinds import LOSING
from tests.simulation.hosts import SECOND_NS, WALL_BEGINS_NS
from tests.simulation.liveness import Watch
from tests.simulation.proxy_host import BatchId, Spooled
from tests.simulation.schedules import SMALL_SPOOL, Fault, drawn

BEGAN_US = WALL_BEGINS_NS // 1_000
BOUNDS = Bounds()


class Deployment:
    """What is looked at: a proxy, and the time."""

    def __init__(self):
        self.acknowledged = 0
        self.spooled = {}
        self.proxies = {"p0": SimpleNamespace(spooled=self.spooled, acknowledged=self.has)}
        self.loop = SimpleNamespace(world=SimpleNamespace(now_ns=0))
        self.cluster = SimpleNamespace(watermark_us=None)
        self.watch = Watch(self, BOUNDS)

    def has(self, identity):
        return identity.sequence <= self.acknowledged

    @property
    def seconds(self):
        return self.loop.world.now_ns / 1e9

    @seconds.setter
    def seconds(self, seconds):
        self.loop.world.now_ns = int(seconds * SECOND_NS)

    def spool(self, number, *, behind_seconds=0, sampling=True):
        watermark_us = BEGAN_US + int((self.seconds - behind_seconds) * 1e6)
        batch = Batch(VERSION, "p0", "e", "traffic", number, watermark_us, sampling, 0, ())
        self.spooled[BatchId("p0", "e", "traffic", number)] = Spooled(encode_batch(batch), self.loop.world.now_ns)

    def found(self):
        self.watch.look()
        return [each.what for each in self.watch.violations()]


@pytest.fixture
def world():
    return Deployment()


@pytest.mark.parametrize(("seconds", "is_behind"), [(130, False), (131, True)])
def test_a_batch_that_waits_for_long(world, seconds, is_behind):
    world.seconds = 100
    world.spool(1)
    world.seconds = seconds
    assert bool(world.found()) is is_behind
    world.acknowledged = 1
    assert bool(world.found()) is is_behind  # it has been


@pytest.mark.parametrize(("behind", "sampling", "is_behind"), [(45, True, False), (46, True, True), (46, False, False)])
def test_a_watermark_that_does_not_follow(world, behind, sampling, is_behind):
    world.seconds = 100
    world.spool(1, behind_seconds=behind, sampling=sampling)
    world.acknowledged = 1
    assert bool(world.found()) is is_behind


def test_a_stored_watermark_that_does_not_follow(world):
    world.seconds = 100
    world.cluster.watermark_us = BEGAN_US + 100_000_000 - BOUNDS.lag_us
    assert world.found() == []
    world.cluster.watermark_us -= 1_000_000
    assert world.found() == ["the stored watermark was behind though nothing went wrong: 46 s at 100 s"]


def test_when_nothing_goes_wrong(world):
    world.seconds = 100
    world.watch.begin()
    world.seconds = 110
    world.watch.begin()
    world.seconds = 120
    world.watch.end()
    world.seconds = 300
    world.watch.end()
    assert not world.watch.is_settled
    world.seconds = 300 + BOUNDS.settled_seconds
    assert world.watch.is_settled
    world.seconds = 400
    world.watch.begin()
    assert not world.watch.is_settled
    world.watch.end()
    world.seconds = 410
    world.watch.begin()
    found = [((begin - BEGAN_US) / 1e6, (end - BEGAN_US) / 1e6) for begin, end in world.watch.settled_us]
    assert found == [(BOUNDS.settled_seconds, 100), (300 + BOUNDS.settled_seconds, 400)]


def test_bounds_follow_from_how_often_batches_are_stored():
    schedule = msgspec.structs.replace(drawn(3), period_us=60_000_000, faults=())
    assert bounds_of(msgspec.structs.replace(schedule, commit_seconds=6.0)) == BOUNDS
    assert bounds_of(msgspec.structs.replace(schedule, commit_seconds=12.0)) == Bounds(52.0, 42.0, 57_000_000)
    losing = msgspec.structs.replace(schedule, faults=(Fault(LOSING, "broker", 10.0, 5.0, 0.5),))
    assert bounds_of(msgspec.structs.replace(losing, commit_seconds=6.0)) == BOUNDS
    assert bounds_of(msgspec.structs.replace(losing, commit_seconds=12.0)) == Bounds(64.0, 54.0, 69_000_000)


def test_proxies_have_room_for_what_waits_while_nothing_goes_wrong():
    for seed in range(200):
        schedule = drawn(seed)
        for number, proxy in enumerate(schedule.proxies):
            motes = sum(mote.proxy == number for mote in schedule.motes)
            waits_us = proxy.settings["flush_interval"]
            if proxy.settings["spool_size"] == SMALL_SPOOL:  # full until the cluster has stored what is in it
                waits_us += int(schedule.commit_seconds * 1e6)
            between_flushes = waits_us // schedule.period_us
            assert proxy.settings["waiting_samples"] >= motes * (between_flushes + proxy.settings["samples_per_packet"])


def test_no_proxy_has_more_to_send_than_it_may_between_two_commits():
    for seed in range(200):
        schedule = drawn(seed)
        seconds, period_us = commit_seconds(schedule), schedule.period_us
        assert 0 < seconds <= schedule.commit_seconds
        for number, proxy in enumerate(schedule.proxies):
            motes = sum(mote.proxy == number for mote in schedule.motes)
            flushes = min(motes, period_us / proxy.settings["flush_interval"])
            assert flushes * seconds * 1e6 / period_us <= proxy.settings["in_flight"]
