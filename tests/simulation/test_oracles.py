"""Each oracle finds what it is for, in a deployment that is right otherwise."""

from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from protocols.wire.batches import Batch, aggregate_columns, encode_batch, make_column, make_columns
from protocols.wire.frames import VERSION
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.simulation.bounds import Bounds
from tests.simulation.hosts import SECOND_NS, WALL_BEGINS_NS
from tests.simulation.oracles import PANE_US, violations
from tests.simulation.proxy_host import BatchId, Spooled
from tests.simulation.violations import Violation
from tests.simulation.virtual_loop import SlowCallback

SCHEMA = StreamSchema("traffic", (Field("speed", FieldType.REAL), Field("flow", FieldType.REAL)))
BEGAN_US = WALL_BEGINS_NS // 1_000
SECONDS = 300
PERIOD_US = 1_000_000


class Mote:
    name = "m"
    on = True
    gateway = SimpleNamespace(proxy="p0")

    def __init__(self):
        self.sensed = dict.fromkeys(range(BEGAN_US, BEGAN_US + SECONDS * PERIOD_US, PERIOD_US))

    def value(self, stamp_us, fields):
        return tuple(float(stamp_us % 97) for _ in fields)


def batch(number, stamps, **options):
    values = {"speed": [float(each % 97) for each in stamps], "flow": [None for _ in stamps]}
    columns = make_columns(SCHEMA, stamps, ["m"] * len(stamps), [True] * len(stamps), values)
    watermark_us = max(stamps, default=0)
    made = Batch(VERSION, "p0", "e", "traffic", number, watermark_us, True, len(stamps), columns)
    return msgspec.structs.replace(made, **options)


def count_batch(number, end_us, expected, missing, epoch="old"):
    """A batch with one count of samples."""
    columns = make_columns(SCHEMA, [end_us - 1], ["m"], [False], {})
    columns += aggregate_columns(SCHEMA, {"fjord_form": ["f"], "fjord_pane_us": [PANE_US]}, 1)
    columns += tuple(
        make_column(name, FieldType.INTEGER, [count])
        for name, count in (("fjord_expected", expected), ("fjord_missing", missing))
    )
    return Batch(VERSION, "p0", epoch, "traffic", number, end_us, True, 1, columns)


def service_with(*queries):
    """A proxy's process that knows these demands."""
    demand = SimpleNamespace(demands=[SimpleNamespace(query=name) for name in queries])
    return SimpleNamespace(fleet=SimpleNamespace(streams={"traffic": SimpleNamespace(_demand=demand)}))


class Deployment:
    """What oracles look at: ten samples in a batch."""

    def __init__(self):
        self.motes = [Mote()]
        stamps = sorted(self.motes[0].sensed)
        self.batches = {}
        for number in range(1, SECONDS // 10 + 1):
            self.store(batch(number, stamps[number * 10 - 10 : number * 10]))
        self.acknowledged = len(self.batches)
        proxy = SimpleNamespace(
            name="p0",
            disk=SimpleNamespace(failed=Counter()),
            crashes=[],
            failures=[],
            service=service_with("q"),
            spooled={identity: Spooled(encode_batch(found), 0) for identity, found in self.batches.items()},
            acknowledged=lambda identity: identity.sequence <= self.acknowledged,
        )
        self.proxies = {"p0": proxy}
        self.loop = SimpleNamespace(world=SimpleNamespace(now_ns=SECONDS * SECOND_NS), slow=[], unhandled=[])
        self.schedule = SimpleNamespace(period_us=PERIOD_US, queries=(), devices=None)
        self.cluster = SimpleNamespace(batches=self.batches, violations=list, demanded={"q"})
        settled_us = [(BEGAN_US + 240 * PERIOD_US, BEGAN_US + SECONDS * PERIOD_US)]
        self.watch = SimpleNamespace(settled_us=settled_us, violations=list, bounds=Bounds())
        topics = ["fjord/v1/proxies/p0/motes/m", "fjord/v1/proxies/p0/streams/traffic"]
        self.broker = SimpleNamespace(malformed=[], broker=SimpleNamespace(retained=dict.fromkeys(topics)))
        self.queries_refused = []

    def store(self, found):
        self.batches[BatchId(found.proxy, found.epoch, found.stream, found.sequence)] = found

    def spool(self, found, at_ns=0):
        self.proxies["p0"].spooled[BatchId("p0", found.epoch, "traffic", found.sequence)] = Spooled(
            encode_batch(found), at_ns
        )

    def found(self):
        return [(each.kind, each.what.partition(": ")[0].partition(" ")[2]) for each in violations(self)]


@pytest.fixture
def world():
    return Deployment()


def test_a_deployment_that_is_right_has_no_violations(world):
    assert world.found() == []


def test_a_batch_that_was_acknowledged_and_not_stored(world):
    world.spool(batch(31, []))
    world.acknowledged = 31
    assert world.found() == [("lost", "batches acknowledged and not stored")]


def test_a_batch_that_was_spooled_long_ago_and_not_stored(world):
    world.spool(batch(31, []), at_ns=(SECONDS - 40) * SECOND_NS)
    assert world.found() == [("stalled", "batches spooled long ago and not stored")]


def test_a_batch_that_was_spooled_just_now_is_on_its_way(world):
    world.spool(batch(31, []), at_ns=(SECONDS - 5) * SECOND_NS)
    assert world.found() == []


def test_a_batch_that_was_changed(world):
    identity = BatchId("p0", "e", "traffic", 5)
    world.batches[identity] = msgspec.structs.replace(world.batches[identity], watermark_us=1)
    assert world.found() == [("wrong", "batches stored otherwise than they were spooled")]


def test_a_batch_of_unknown_origin(world):
    world.store(batch(31, []))
    assert world.found() == [("wrong", "batches stored that no proxy has spooled")]


def test_a_sample_that_is_stored_twice(world):
    again = batch(31, [BEGAN_US], epoch="old")
    world.store(again)
    world.spool(again)
    assert world.found() == [("doubled", "samples stored more than once")]


@pytest.mark.parametrize("change", ["value", "stamp"])
def test_a_sample_that_no_mote_has_taken(world, change):
    del world.motes[0].sensed[BEGAN_US]
    if change == "value":
        world.motes[0].sensed[BEGAN_US] = None
        world.motes[0].value = lambda stamp_us, fields: tuple(float(stamp_us == BEGAN_US) for _ in fields)
    assert ("wrong", "samples stored that no mote has taken") in world.found()


@pytest.mark.parametrize(("missing", "lost"), [(0, True), (9, True), (10, False), (12, False)])
def test_a_pane_of_which_samples_are_neither_stored_nor_counted(world, missing, lost):
    first = BatchId("p0", "e", "traffic", 1)
    del world.batches[first], world.proxies["p0"].spooled[first]
    count = count_batch(31, BEGAN_US + PANE_US, 20, missing)
    world.store(count)
    world.spool(count)
    assert world.found() == [("lost", "panes of which samples are lost and not counted")] * lost


@pytest.mark.parametrize(("covered_us", "cut", "lost"), [(10, False, False), (9, False, True), (10, True, False)])
def test_samples_that_only_aggregates_contain_are_stored(world, covered_us, cut, lost):
    """Those of a pane that a change of program ended end before its stamp, others with it."""
    first = BatchId("p0", "e", "traffic", 1)
    del world.batches[first], world.proxies["p0"].spooled[first]
    end_us = BEGAN_US + 10 * PERIOD_US
    columns = make_columns(SCHEMA, [end_us - (not cut)], ["m"], [True], {})
    columns += aggregate_columns(SCHEMA, {"fjord_form": ["f"], "fjord_pane_us": [covered_us * PERIOD_US]}, 1)
    for found in (
        Batch(VERSION, "p0", "old", "traffic", 30, end_us, True, 1, columns),
        count_batch(31, BEGAN_US + PANE_US, 20, 0),
    ):
        world.store(found)
        world.spool(found)
    assert world.found() == [("lost", "panes of which samples are lost and not counted")] * lost


def test_a_pane_that_is_counted_twice(world):
    for epoch in ("old", "older"):
        count = count_batch(31, BEGAN_US + PANE_US, 20, 0, epoch)
        world.store(count)
        world.spool(count)
    assert world.found() == [("doubled", "panes counted more than once")]


def test_a_pane_between_others_that_is_not_counted(world):
    for number in (0, 4):
        count = count_batch(number + 1, BEGAN_US + PANE_US * (number + 1), 20, 0)
        world.store(count)
        world.spool(count)
    assert world.found() == [("lost", "panes of which samples are not counted at all")]


def test_a_row_stamped_before_a_promised_watermark(world):
    world.spool(batch(31, [BEGAN_US + SECONDS * PERIOD_US - 2 * PERIOD_US]), at_ns=(SECONDS - 5) * SECOND_NS)
    assert world.found() == [("wrong", "rows stamped before a watermark that was promised")]


def test_what_the_broker_and_proxies_do_not_know(world):
    world.broker.broker.retained.clear()
    world.proxies["p0"].service = service_with("gone")
    assert world.found() == [
        ("lost", "motes missing in the catalog"),
        ("lost", "offers of streams missing"),
        ("wrong", "demands that proxies do not know, or that are gone"),
    ]


def test_samples_that_are_missing_in_the_calm(world):
    calm = BatchId("p0", "e", "traffic", 25)
    del world.batches[calm], world.proxies["p0"].spooled[calm]
    assert world.found() == [("lost", "samples missing though nothing went wrong")]


def test_a_mote_of_which_nothing_comes(world):
    for number in range(25, 31):
        identity = BatchId("p0", "e", "traffic", number)
        watermark_us = world.batches[identity].watermark_us
        world.batches[identity] = batch(number, [], watermark_us=watermark_us)
        world.spool(world.batches[identity])
    assert world.found() == [
        ("lost", "samples missing though nothing went wrong"),
        ("stalled", "motes of which no sample came for long"),
    ]
    world.motes[0].on = False
    world.motes[0].sensed = {stamp: None for stamp in world.motes[0].sensed if stamp < BEGAN_US + 240 * PERIOD_US}
    assert world.found() == []


def test_a_watermark_that_stands_still(world):
    for number in range(1, 31):
        identity = BatchId("p0", "e", "traffic", number)
        world.batches[identity] = msgspec.structs.replace(world.batches[identity], watermark_us=BEGAN_US)
        world.spool(world.batches[identity])
    assert world.found() == [("stalled", "watermarks far behind")]


def test_what_processes_did_wrong(world):
    world.loop.slow.append(SlowCallback("p0#1", 0.7, "f"))
    world.loop.unhandled.append(("p0#1", {"message": "m", "exception": ValueError()}))
    world.broker.malformed.append("x")
    world.proxies["p0"].crashes.append("traceback")
    world.proxies["p0"].failures.append("no disk")
    world.queries_refused.append("no")
    assert world.found() == [
        ("stalled", "callbacks that computed for too long"),
        ("wrong", "errors that no code handles"),
        ("wrong", "frames that are not MQTT"),
        ("wrong", "ends of p0"),
        ("wrong", "ends of p0 although its disk is fine"),
        ("wrong", "queries refused"),
    ]
    world.proxies["p0"].disk.failed["disk full"] = 1
    assert ("wrong", "ends of p0 although its disk is fine") not in world.found()


def test_violations_are_alike_whatever_their_numbers():
    first = Violation("stalled", "3 motes of which no sample came for long: ('m1', '60 s')")
    assert first.alike == Violation("stalled", "1 motes of which no sample came for long: ('m2', '90 s')").alike
    assert first.alike != Violation("stalled", "the stored watermark was behind: 117 s at 444 s").alike
    assert first.alike != first._replace(kind="lost").alike
