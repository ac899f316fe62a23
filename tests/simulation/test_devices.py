"""Devices of other makers in a simulated deployment, and what finds that something is lost on the way to a stream."""

from types import SimpleNamespace

import msgspec
import pytest

from protocols.mqtt.messages import Message
from protocols.wire.batches import Batch, encode_batch, make_column, make_columns
from protocols.wire.frames import VERSION
from protocols.wire.streams import FieldType
from tests.simulation import preparing
from tests.simulation.bounds import Bounds
from tests.simulation.device_log import Demanded, DeviceLog, Sent
from tests.simulation.device_oracles import NO_NEIGHBOUR_US, _rows, device_violations
from tests.simulation.device_plans import (
    HALVES,
    METERS,
    UPDATES,
    DevicePlan,
    DevicesPlan,
    drawn_devices,
    queries_of,
    streams_of,
)
from tests.simulation.forked import apart
from tests.simulation.hosts import SECOND_NS, WALL_BEGINS_NS
from tests.simulation.proxy_host import BatchId, Life, Spooled
from tests.simulation.schedules import SMALL_SPOOL, Fault, QueryPlan, drawn, stream_of
from tests.simulation.world import World

BEGAN_US = WALL_BEGINS_NS // 1_000
PLAN = DevicesPlan((DevicePlan("meters", 0, "steady", 1, 0.5),))


def test_some_schedules_have_devices_and_each_of_their_streams_has_a_query():
    plans = {seed: found for seed in range(60) if (found := drawn(seed).devices) is not None}
    assert 10 < len(plans) < 40
    assert {each.pace for plan in plans.values() for each in plan.devices} == {"busy", "steady", "bursty", "seldom"}
    assert {each.qos for plan in plans.values() for each in plan.devices} == {0, 1}
    assert any(plan.bridges for plan in plans.values())
    updates = [each for seed in range(200) if (found := drawn(seed).devices) for each in found.updates.values()]
    assert {each.change for each in updates} == set(UPDATES)
    for seed, plan in plans.items():
        assert plan == drawn_devices(seed, len(drawn(seed).proxies), 500.0)
        read = {stream_of(sql) for _, sql, _, _ in queries_of(seed, plan, 500.0)}
        assert read == set(streams_of(plan))


def test_a_schedule_with_devices_is_read_back():
    schedule = next(found for seed in range(60) if (found := drawn(seed)).devices is not None)
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=type(schedule)) == schedule


class Deployment:
    """What the oracle looks at: a device published 1 to 5, one a second, and each is a tuple."""

    def __init__(self):
        self.now_ns = self.deleted = 0
        loop = SimpleNamespace(world=self)
        self.loop = SimpleNamespace(world=self, slow=[], unhandled=[])
        self.device_log = DeviceLog(loop)
        clock = SimpleNamespace(wall_ns=lambda: WALL_BEGINS_NS + self.now_ns)
        self.host = SimpleNamespace(name="p0", clock=clock, started=1)
        self.process = SimpleNamespace(number=1, host=self.host)
        self.device_log.demands["p0", "meters"].append(Demanded(0, 1, any=True))
        self.life = Life(0)
        self.proxy = SimpleNamespace(
            name="p0",
            host=self.host,
            lives={1: self.life},
            spooled={},
            settings=SimpleNamespace(flush_interval=1_000_000, spool_size=1 << 30),
            deleted_ns=0,
            acknowledged=lambda batch: batch.sequence <= self.deleted,
            disk=SimpleNamespace(failed={}),
        )
        self.proxies = {"p0": self.proxy}
        self.schedule = SimpleNamespace(devices=PLAN, commit_seconds=24.0, proxies=(), motes=())
        self.watch = SimpleNamespace(settled_us=[], bounds=Bounds())
        self.happened = dict.fromkeys(("broker doubles", "wall clock steps"), 0)
        previous_us = NO_NEIGHBOUR_US
        for number in range(1, 6):
            self.now_ns = (20 + number) * SECOND_NS
            self.publish(number).published.kept = True
            self.store(number, BEGAN_US + self.now_ns // 1_000, previous_us)
            previous_us = BEGAN_US + self.now_ns // 1_000
        self.now_ns = 100 * SECOND_NS

    def publish(self, number, rejected="", sent=None):
        topic, payload = "meters0/m/up", b"%d" % number
        values = {"n": number, "level": number + 0.5, "door": "shut", "ticks": number}
        self.device_log.send("p0", topic, payload, sent or Sent("meters", "m", number, values, rejected))
        self.device_log.accepted(Message(topic, payload))
        delivery = self.device_log.delivering(Message(topic, payload), self.process, again=False)
        self.device_log.handed(delivery)
        return delivery

    def store(self, number, start_us, previous_us, **other):
        values = {"n": number, "level": number + 0.5, "door": "shut", "ticks": number} | other
        rate = values.pop("rate", True)
        next_us = values.pop("next_us", None)
        columns = make_columns(METERS, [start_us], ["m"], [rate], {name: [each] for name, each in values.items()})
        for name, stamp_us in (("fjord_previous_us", previous_us), ("fjord_next_us", next_us)):
            columns += (make_column(name, FieldType.INTEGER, [stamp_us]),)
        place = len(self.proxy.spooled) + 1
        batch = Batch(VERSION, "p0", "e", "meters", place, start_us, True, 1, columns)
        self.proxy.spooled[BatchId("p0", "e", "meters", place)] = Spooled(encode_batch(batch), self.now_ns)

    def replace(self, number, **changes):
        """Store a tuple otherwise than it was."""
        self.now_ns = (20 + number) * SECOND_NS
        previous_us = BEGAN_US + (19 + number) * 1_000_000
        later = {each: found for each, found in self.proxy.spooled.items() if each.sequence > number}
        self.proxy.spooled = {each: found for each, found in self.proxy.spooled.items() if each.sequence < number}
        start_us = BEGAN_US + self.now_ns // 1_000 + changes.pop("later_us", 0)
        self.store(number, start_us, changes.pop("previous_us", previous_us), **changes)
        self.proxy.spooled |= later
        self.now_ns = 100 * SECOND_NS

    def found(self):
        return [(each.kind, each.what.partition(": ")[0].partition(" ")[2]) for each in device_violations(self, {})]


@pytest.fixture
def world():
    return Deployment()


def test_a_deployment_that_is_right_has_no_violations(world):
    assert world.found() == []


def test_a_broker_that_keeps_no_messages_of_devices_is_a_violation(world):
    for each in world.device_log.published:
        each.kept = False
    assert world.found() == [("lost", "broker keeps messages of devices while p0 is away")]


LOST = "messages that are no tuples and not counted (0 as anything)"


def test_a_message_that_is_no_tuple_and_not_counted(world):
    world.now_ns = 50 * SECOND_NS
    world.publish(6)
    world.now_ns = 100 * SECOND_NS
    assert world.found() == [("lost", LOST)]
    world.life.counted["samples_dropped", "meters"] = 1
    assert world.found() == []


def test_a_message_is_on_its_way_for_a_while(world):
    world.now_ns = 97 * SECOND_NS
    world.publish(6)
    world.now_ns = 100 * SECOND_NS
    assert world.found() == []


NEVER = "messages that a broker has kept for a proxy and that it never had"


@pytest.mark.parametrize(("at", "found"), [(50, [("lost", NEVER)]), (97, [])])
def test_a_message_that_the_broker_keeps_is_handed_over_or_on_its_way(world, at, found):
    world.now_ns = at * SECOND_NS
    published = world.publish(6).published
    published.kept = True
    published.deliveries.clear()
    world.now_ns = 100 * SECOND_NS
    assert world.found() == found


@pytest.mark.parametrize("merges", [True, False])
def test_halves_that_are_merged_count_as_one_tuple(world, merges):
    """Of which no query reads the stream; if they are not merged, each counts."""
    world.schedule.devices = DevicesPlan(PLAN.devices, merges=merges)
    world.life.counted["device_messages_not_demanded", "halves"] = 1
    for number, values in ((1, {"n": 1, "warm": 1.25}), (2, {"damp": 2.5})):
        world.now_ns = 60 * SECOND_NS
        world.publish(number, sent=Sent("halves", "h", number, values))
    world.now_ns = 100 * SECOND_NS
    lost = LOST.replace("0 as anything", "1 as field_overwritten or not_demanded" if merges else "1 as not_demanded")
    assert world.found() == ([] if merges else [("lost", lost)])
    world.life.counted["device_messages_not_demanded", "halves"] = 0
    assert len(world.found()) == 1


def publish_halves(world, *halves):
    for number, at, readable in halves:
        world.now_ns = int(at * SECOND_NS)
        values = {"n": number, "warm": number + 0.25} if number % 2 else {"damp": number + 0.5}
        world.publish(number, sent=Sent("halves", "h", number, values, "" if readable else "garbled"))
    world.now_ns = 100 * SECOND_NS


NOT_DEMANDED = "messages that are no tuples and not counted ({} as field_overwritten or not_demanded)"


@pytest.mark.parametrize(
    ("halves", "tuples"),
    [
        # The first of the next two is merged with a half whose own first half cannot be read.
        ([(1, 60.0, False), (2, 60.2, True), (3, 61.0, True), (4, 61.2, False)], 1),
        ([(1, 60.0, False), (2, 60.2, True), (3, 61.0, True), (4, 61.2, True), (5, 62.0, True)], 2),
        ([(2, 60.2, True), (3, 61.0, False), (4, 61.2, False), (5, 61.9, True)], 1),
        ([(1, 60.0, True), (2, 60.2, False), (3, 61.0, True)], 2),  # of the same fields
        ([(1, 60.0, False), (2, 60.2, True), (3, 67.2, True)], 2),  # too late
        ([(1, 60.0, True), (2, 60.2, True), (3, 61.0, True)], 2),
    ],
)
def test_a_half_is_merged_with_the_next_message_that_has_other_fields(world, halves, tuples):
    world.schedule.devices = DevicesPlan(PLAN.devices, merges=True)
    publish_halves(world, *halves)
    world.life.counted["frames_refused", "garbled"] = len(halves)
    world.life.counted["device_messages_not_demanded", "halves"] = tuples
    assert world.found() == []
    world.life.counted["device_messages_not_demanded", "halves"] = tuples - 1
    assert world.found() == [("lost", NOT_DEMANDED.format(tuples - 1))]


def test_a_tuple_that_is_dropped_may_be_two_halves(world):
    """There was no room for it; that queries read the stream makes no difference."""
    world.schedule.devices = DevicesPlan(PLAN.devices, merges=True)
    world.device_log.demands["p0", "halves"].append(Demanded(0, 1, any=True))
    publish_halves(world, (1, 60.0, True), (2, 60.2, True), (3, 61.0, True), (4, 61.2, True))
    world.life.counted["samples_dropped", "halves"] = 2
    assert world.found() == []
    world.life.counted["samples_dropped", "halves"] = 1
    assert world.found() == [("lost", LOST.replace("anything", "field_overwritten").replace("0 as", "1 as"))]


def test_halves_between_which_a_tuple_came_are_not_merged(world):
    """Of 2 and 5 each counts, as 3 and 4 are a tuple."""
    world.schedule.devices = DevicesPlan(PLAN.devices, merges=True)
    publish_halves(world, (2, 60.0, True), (3, 61.0, True), (4, 61.2, True), (5, 62.0, True))
    columns = make_columns(HALVES, [BEGAN_US + 61_000_000], ["h"], [True], {"n": [3], "warm": [3.25], "damp": [4.5]})
    for name, stamp_us in (("fjord_previous_us", NO_NEIGHBOUR_US), ("fjord_next_us", None)):
        columns += (make_column(name, FieldType.INTEGER, [stamp_us]),)
    batch = Batch(VERSION, "p0", "e", "halves", 1, BEGAN_US + 61_000_000, True, 1, columns)
    world.proxy.spooled[BatchId("p0", "e", "halves", 1)] = Spooled(encode_batch(batch), 62 * SECOND_NS)
    world.life.counted["device_messages_not_demanded", "halves"] = 2
    assert world.found() == []
    world.life.counted["device_messages_not_demanded", "halves"] = 1
    assert world.found() == [("lost", NOT_DEMANDED.format(1))]


class TestASmallSpool:
    """Is full from the last write on until the cluster has what is in it; what comes meanwhile waits in memory."""

    @pytest.fixture
    def world(self, world):
        world.proxy.settings.spool_size = SMALL_SPOOL
        world.proxy.spooled = dict(world.proxy.spooled)
        world.life.spooled_ns = [55 * SECOND_NS]
        world.now_ns = 58 * SECOND_NS
        world.publish(6)
        world.now_ns = 100 * SECOND_NS
        return world

    def test_may_be_full_while_batches_are_in_it(self, world):
        world.deleted, world.proxy.deleted_ns = 4, 57 * SECOND_NS
        assert world.found() == []

    def test_has_been_full_until_batches_were_deleted(self, world):
        world.deleted, world.proxy.deleted_ns = 5, 98 * SECOND_NS
        assert world.found() == []

    def test_is_written_to_soon_after_they_were(self, world):
        world.deleted, world.proxy.deleted_ns = 5, 90 * SECOND_NS
        assert world.found() == [("lost", LOST)]

    def test_has_all_that_came_before_it_was_written_to(self, world):
        world.deleted = 4
        world.life.spooled_ns.append(70 * SECOND_NS)
        assert world.found() == [("lost", LOST)]

    def test_lets_messages_wait_at_the_broker(self, world):
        published = world.device_log.published[-1]
        published.kept = True
        published.deliveries.clear()
        assert world.found() == []
        world.life.spooled_ns.append(70 * SECOND_NS)
        assert world.found() == [("lost", NEVER)]

    def test_is_no_large_one(self, world):
        world.proxy.settings.spool_size = 1 << 30
        assert world.found() == [("lost", LOST)]


@pytest.mark.parametrize(("kept", "found"), [(False, []), (True, [("lost", LOST)])])
def test_a_message_of_a_process_that_was_killed_is_lost_unless_the_broker_keeps_a_session(world, kept, found):
    world.now_ns = 50 * SECOND_NS
    world.publish(6).published.kept = kept
    world.life.ended_ns = 52 * SECOND_NS
    world.now_ns = 100 * SECOND_NS
    assert world.found() == found


def test_a_message_that_was_to_be_on_disk_before_the_kill(world):
    world.now_ns = 50 * SECOND_NS
    world.publish(6)
    world.life.spooled_ns.append(60 * SECOND_NS)
    world.life.ended_ns = 62 * SECOND_NS
    world.now_ns = 100 * SECOND_NS
    assert world.found() == [("lost", LOST)]


def test_a_message_that_cannot_be_read_is_counted_by_its_name(world):
    world.now_ns = 50 * SECOND_NS
    world.publish(6, rejected="garbled")
    world.now_ns = 100 * SECOND_NS
    assert world.found() == [("lost", LOST.replace("anything", "garbled"))]
    world.life.counted["frames_refused", "garbled"] = 1
    assert world.found() == []


def test_a_message_while_no_query_reads_the_stream_is_counted_as_not_demanded(world):
    world.device_log.demands["p0", "meters"].append(Demanded(40 * SECOND_NS, 1, any=False))
    world.now_ns = 60 * SECOND_NS
    world.publish(6)
    world.now_ns = 100 * SECOND_NS
    assert world.found() == [("lost", LOST.replace("anything", "not_demanded"))]
    world.life.counted["device_messages_not_demanded", "meters"] = 1
    assert world.found() == []


def test_a_message_that_is_two_tuples(world):
    world.now_ns = 25 * SECOND_NS
    world.store(5, BEGAN_US + 25_000_000, BEGAN_US + 25_000_000)
    world.now_ns = 100 * SECOND_NS
    assert world.found() == [("doubled", "messages that are more than one tuple")]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"level": 7.0}, "tuples stored otherwise than published"),
        ({"later_us": -400_000}, "tuples not stamped when their message came"),
        ({"rate": False}, "tuples of free publishers that a query without SAMPLE does not get"),
        ({"previous_us": BEGAN_US}, "tuples with other neighbours than stored before them"),
        ({"next_us": BEGAN_US + 60_000_000}, "tuples with other neighbours than stored before them"),
        ({"ticks": 105}, "counters that lose or gain when they begin anew"),
    ],
)
def test_a_tuple_that_is_stored_otherwise(world, changes, found):
    world.replace(5, **changes)
    assert world.found() == [("wrong", found)]


def test_a_copy_that_comes_late_is_a_tuple_among_those_that_came_with_it(world):
    """A gateway that was cut off passes on its copy of 5 after 6, longer after the other copy than copies may come."""
    fifth_us, sixth_us = BEGAN_US + 25_000_000, BEGAN_US + 60_000_000
    world.now_ns = 60 * SECOND_NS
    world.publish(6)
    world.publish(5)
    world.store(5, fifth_us, fifth_us, next_us=sixth_us)
    world.store(6, sixth_us, fifth_us)
    world.now_ns = 100 * SECOND_NS
    assert world.found() == []


def test_a_tuple_that_no_device_has_published(world):
    world.store(9, BEGAN_US + 25_000_001, BEGAN_US + 25_000_000)
    assert world.found() == [("wrong", "tuples stored that no device has published")]


def test_the_time_of_a_stream_whose_device_is_silent(world):
    world.watch.settled_us = [(BEGAN_US + 40_000_000, BEGAN_US + 70_000_000)]
    assert world.found() == [("stalled", "streams of silent devices of p0 without time")]
    batch = Batch(VERSION, "p0", "e", "meters", 6, BEGAN_US + 65_000_000, False, 0, ())
    world.proxy.spooled[BatchId("p0", "e", "meters", 6)] = Spooled(encode_batch(batch), 66 * SECOND_NS)
    assert world.found() == []


def test_the_time_of_a_stream_in_a_small_spool_stands_still_until_the_cluster_has_stored_what_is_in_it(world):
    world.watch.settled_us = [(BEGAN_US + 24_000_000, BEGAN_US + 68_000_000)]
    assert world.found() == [("stalled", "streams of silent devices of p0 without time")]
    world.proxy.settings.spool_size = SMALL_SPOOL
    assert world.found() == []
    world.watch.settled_us = [(BEGAN_US + 24_000_000, BEGAN_US + 70_000_000)]
    assert world.found() == [("stalled", "streams of silent devices of p0 without time")]


def test_a_query_has_the_same_rows_with_and_without_others(tmp_path):
    """Of a device that stamps its values, so that only what is stored may differ."""
    plan = DevicesPlan((DevicePlan("clocked", 0, "bursty", 1, 0.5, gates=2),))

    def rows(*more):
        def work():
            preparing.prepare()
            schedule = drawn(3, 60.0)
            queries = (*schedule.queries, *(msgspec.convert(each, type=type(schedule.queries[0])) for each in more))
            changed = msgspec.structs.replace(schedule, faults=(), devices=plan, queries=queries)
            world = World(changed, tmp_path / str(len(more)))
            world.loop.run_until_complete(world.run())
            found = [row for proxy in world.proxies.values() for row in world_rows(proxy)]
            assert found
            return [(row.mote, row.start_us, row.values) for row in found if row.at_default_rate]

        return apart(work)

    first = {"name": "a", "sql": "SELECT n FROM clocked", "added": 1.0}
    second = {"name": "b", "sql": "SELECT level FROM clocked SAMPLE EVERY 1 SECONDS", "added": 5.0}
    assert rows(first) == rows(first, second)


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_halves_that_wait_outlive_kills_of_the_proxy(tmp_path, seed):
    """A message is acknowledged once its tuple is on disk, however long that waits for the rest of its fields.

    killed      20 s         29.4 s        38.7 s
    halves       1 2  3 4    |     5 6 | waits 2 s
    """
    devices = (DevicePlan("halves", 0, "bursty", 1, 0.5), DevicePlan("halves", 0, "steady", 1, 0.5))

    def work():
        preparing.prepare()
        schedule = drawn(seed, 300.0)
        settings = {"flush_interval": 1_000_000, "in_flight": 64, "waiting_samples": 100_000}
        others = [each for each in schedule.queries if stream_of(each.sql) == "traffic"]
        changed = msgspec.structs.replace(
            schedule,
            devices=DevicesPlan(devices, merges=True),
            proxies=tuple(
                msgspec.structs.replace(each, settings={**each.settings, **settings}) for each in schedule.proxies
            ),
            faults=tuple(Fault("proxy killed", "p0", 20.0 + 9.37 * number, 1.0, 0.0) for number in range(28)),
            queries=(*others, QueryPlan("h", "SELECT n FROM halves", 1.0)),
        )
        world = World(changed, tmp_path / "world")
        world.loop.run_until_complete(world.run())
        return [each.what for each in device_violations(world, {})]

    assert apart(work) == []


def world_rows(proxy):
    return sorted(_rows(proxy), key=lambda row: (row.mote, row.start_us))
