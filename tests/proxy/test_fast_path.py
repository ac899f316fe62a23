"""The fast path for packets in sequence has the same results as the slow path.

Each scenario runs twice: in a proxy with the fast path, and in one in which every packet takes the slow path. All that
can be observed is compared: instructions, counters, catalog entries, quarantine, and everything that goes to the spool,
with the counts of samples that were due and are missing.
"""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocols.mqtt.link import Message
from protocols.wire.demands import CompletenessDemand, QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Health
from protocols.wire.programs import SLEEP, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.batching import BatchLimits
from proxy.fleet.demand_assembly import DemandAssemblies
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_clock import ClockBounds
from proxy.motes.mote_presence import TrackingLimits
from proxy.motes.mote_tracking import MoteTracking
from proxy.running.frame_intake import FrameIntake
from proxy.running.link_interface import Clocks
from proxy.running.metrics import ProxyMetrics
from proxy.running.unpublished import EntrySchedule, Unpublished
from proxy.storage.flushing import store_batches
from tests.proxy.conftest import TRAFFIC, announcement, packet

S = 1_000_000
BEGAN_S = 1_700_000_000
PERIOD_S = 10
OTHER = StreamSchema("traffic", (Field("segment", FieldType.INTEGER, fixed=True), Field("speed", FieldType.REAL)))
DEMANDS = {
    "speed": (QueryDemand("q", ("speed",), PERIOD_S * S),),
    "both": (QueryDemand("q", ("speed",), PERIOD_S * S), QueryDemand("r", ("flow", "speed"), 5 * S)),
    "counted": (
        QueryDemand("q", ("speed",), PERIOD_S * S, completeness=CompletenessDemand("c1", 60 * S)),
        QueryDemand("r", ("speed",), PERIOD_S * S, completeness=CompletenessDemand("c2", 20 * S)),
    ),
    "none": (),
}
LIMITS = {
    "of a deployer": {},
    "of clocks": {"clock": ClockBounds(30 * S, 60 * S), "clock_tolerance_us": S},
    "of patience": {"silence_after_us": 25 * S, "patience_us": 15 * S},
    "of order": {"reorder_within_us": 15 * S},
}


class Recorder:
    """A proxy from the intake of frames to the spool, without a disk."""

    def __init__(self, limits, waiting):
        tracking = TrackingLimits(**{"silence_after_us": 200 * S} | limits)
        batches = BatchLimits(waiting=waiting, rows=4)
        self.now_s = BEGAN_S
        self.fleet = Fleet("p", FleetLimits(tracking=tracking, batches=batches), now_us=0)
        self.metrics = ProxyMetrics()
        self.entries = EntrySchedule(1, 1)
        self.kept, self.spooled = [], []
        self.intake = FrameIntake(
            self.fleet,
            quarantine=SimpleNamespace(put=self.kept.append),
            metrics=self.metrics,
            unpublished=Unpublished("p", self.fleet, DemandAssemblies("p"), self.entries, now_us=0),
            clocks=Clocks(lambda: self.radio_us, lambda: self.now_s * S),
        )
        spool = SimpleNamespace(
            epoch="e", writer=b"", append=lambda *what, **_: self.spooled.append([list(each) for each in what])
        )
        self.stores = SimpleNamespace(spool=spool)
        self.results = []

    @property
    def radio_us(self):
        return (self.now_s - BEGAN_S) * S

    def receive(self, frame):
        times = {"radio_us": self.radio_us, "received_us": self.now_s * S}
        self.results.append(self.intake.receive(frame, Message("t", b""), **times))

    def carry_out(self, instructions):
        self.results.append(instructions)
        self.intake.carry_out(instructions)

    def demand(self, name):
        demand = StreamDemand(VERSION, "c", "traffic", 1, DEMANDS[name])
        self.carry_out(self.fleet.receive_demand("traffic", demand, radio_us=self.radio_us))

    def cut(self):
        self.intake.count_accepted()
        store_batches(self.stores, "p", self.fleet.cut(self.radio_us), self.fleet.positions(), 0)

    def state(self):
        """Return everything that can be observed of the proxy, and its internal state."""
        self.intake.count_accepted()
        motes = [
            (name, mote.watermark, mote.numbers.position, mote.state, mote.entry(), mote.ledger.began_us)
            for name, mote in self.fleet.motes.items()
        ]
        observed = [each.observed for each in self.fleet.streams.values()]
        waiting = [each.waiting for each in self.fleet.streams.values()]
        due = sorted(self.entries.due(self.radio_us))
        counts = dict(self.metrics._counts)
        return self.results[-1], motes, deepcopy(observed), waiting, due, counts, tuple(self.kept), tuple(self.spooled)


class Mote:
    """What a mote sends, step by step."""

    def __init__(self, name):
        self.name = name
        self.boot, self.sequence, self.number = 1, -1, 0
        self.sent = []

    def packet(self, proxy, step):
        """Return a packet; `step` has its deviations from the usual one."""
        tracking = proxy.fleet.motes.get(self.name)
        desired = SLEEP if tracking is None else tracking.desired
        self.sequence += 1 + step.get("skips", 0)
        if step.get("reboots"):
            self.boot, self.sequence = self.boot + 1, 0
        self.number = {"desired": program_number(desired), "sleeps": 0, "unknown": 99}.get(
            step.get("program"), self.number
        )
        clock = proxy.now_s + step.get("clock", 0)
        tick = clock // PERIOD_S * PERIOD_S
        fields = len(desired.fields) or 1
        samples = [
            ((tick - ago) * S, *[value] * fields)
            for ago, value in step.get("samples", [(0, 1.5)] * (not desired.sleeping))
        ]
        found = packet(
            self.sequence,
            *samples,
            mote=self.name,
            boot=self.boot,
            clock=clock * S,
            low_watermark=(tick + PERIOD_S + step.get("low_watermark", 0)) * S,
            listen=step.get("listens", 0),
            program=self.number,
        )
        if step.get("health"):
            found = replace(found, records=(*found.records, Health(0.5, 1, 1, 1, 1)))
        self.sent.append(found)
        return found


def run(steps, limits, waiting):
    """Run a scenario in a proxy; return its state after each step."""
    proxy = Recorder(LIMITS[limits], waiting)
    motes = {name: Mote(name) for name in ("m1", "m2")}
    proxy.demand("counted")
    for name in motes:
        proxy.receive(announcement(name))
    for mote in motes.values():
        proxy.receive(mote.packet(proxy, {"program": "desired", "samples": []}))
    found = []
    for what, name, step in steps:
        mote = motes[name]
        match what:
            case "sends":
                proxy.now_s += step.get("after", PERIOD_S)
                proxy.receive(mote.packet(proxy, step))
            case "sends again":
                proxy.receive(mote.sent[-step % len(mote.sent)])
            case "announces":
                proxy.receive(announcement(name, boot=mote.boot, schema=OTHER if step else TRAFFIC))
            case "demand":
                proxy.demand(step)
            case "time":
                proxy.now_s += step
                proxy.carry_out(proxy.fleet.time_passed(proxy.radio_us))
            case "cut":
                proxy.cut()
        found.append(proxy.state())
    proxy.carry_out(proxy.fleet.skip_gaps())
    proxy.now_s += 300
    proxy.carry_out(proxy.fleet.time_passed(proxy.radio_us))
    proxy.cut()
    return [*found, proxy.state()]


SAMPLES = st.lists(
    st.tuples(st.sampled_from([0, 0, 10, 20, 100, -20]), st.sampled_from([1.5, 1.5, 2, None, "x"])), max_size=3
)
USUAL = st.just({})
UNUSUAL = st.fixed_dictionaries(
    {},
    optional={
        "skips": st.integers(-2, 3),
        "reboots": st.booleans(),
        "program": st.sampled_from(["desired", "desired", "sleeps", "unknown"]),
        "clock": st.sampled_from([1, 5, -5, -40, 50, -70, 100_000]),
        "low_watermark": st.sampled_from([-10, -40, 10, 40, 65, 1_000]),
        "samples": SAMPLES,
        "listens": st.sampled_from([0, 9 * S]),
        "health": st.booleans(),
        "after": st.sampled_from([0, 1, 10, 30]),
    },
)
NAMES = st.sampled_from(["m1", "m1", "m2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sends"), NAMES, USUAL),
        st.tuples(st.just("sends"), NAMES, USUAL),
        st.tuples(st.just("sends"), NAMES, UNUSUAL),
        st.tuples(st.just("sends again"), NAMES, st.integers(0, 5)),
        st.tuples(st.just("announces"), NAMES, st.booleans()),
        st.tuples(st.just("demand"), NAMES, st.sampled_from(sorted(DEMANDS))),
        st.tuples(st.just("time"), NAMES, st.sampled_from([1, 10, 30, 300])),
        st.tuples(st.just("cut"), NAMES, st.none()),
    ),
    min_size=15,
    max_size=40,
)


@given(STEPS, st.sampled_from(sorted(LIMITS)), st.sampled_from([3, 1_000]))
def test_fast_path_and_slow_path_are_equal(steps, limits, waiting):
    fast = run(steps, limits, waiting)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MoteTracking, "_fast_path", lambda *_: None)
        slow = run(steps, limits, waiting)
    for number, (one, other) in enumerate(zip(fast, slow, strict=True)):
        assert one == other, f"after step {number}"
