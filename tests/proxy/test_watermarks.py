from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.wire.demands import QueryDemand, StreamDemand
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Packet, RunProgram, Sample
from protocols.wire.programs import SLEEP, first_sample_at_or_after, program_number
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_events import Rejected, Rejection, SendControl
from proxy.records.waiting_tuples import LOWEST_US, MoteWatermark, advance

S = 1_000_000
SCHEMA = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
WATCHES = ("m1", "m2", "m3")


@pytest.mark.parametrize(
    ("before", "mote_watermarks", "after"),
    [
        (None, [], None),
        (3, [], 3),
        (None, [5, 4], 4),
        (3, [5, 4], 4),
        (6, [5, 4], 6),
        (3, [5, None], 3),
        (None, [None, 5], None),
    ],
)
def test_the_watermark_is_the_least_of_the_motes_and_never_decreases(before, mote_watermarks, after):
    assert advance(before, [MoteWatermark(each) for each in mote_watermarks]) == after


class ScriptedMote:
    """A mote that respects its low watermark; independent of the code under test."""

    def __init__(self, name, period):
        self.name, self.period = name, period
        self.boot, self.sequence, self.guaranteed, self.program = 1, 0, 0, SLEEP
        self.next = None

    def announcement(self):
        return Announcement(VERSION, self.name, self.boot, "loop", SCHEMA, {}, self.period, S)

    def reboot(self):
        self.boot, self.sequence, self.program, self.next = self.boot + 1, 0, SLEEP, None

    def obey(self, instruction):
        self.program = instruction.program
        self.next = None
        if not self.program.sleeping:
            self.next = first_sample_at_or_after(
                max(instruction.not_before_us, self.guaranteed), self.program.period_us
            )
            self.guaranteed = self.next

    def packet(self, clock):
        records = []
        while self.next is not None and self.next <= clock:
            records.append(Sample(clock - self.next, (1.0,)))
            self.next += self.program.period_us
        self.guaranteed = max(self.guaranteed, clock if self.next is None else self.next)
        made = Packet(
            VERSION, self.name, self.boot, self.sequence, clock, self.guaranteed, 50_000,
            program_number(self.program), tuple(records),
        )  # fmt: skip
        self.sequence += 1
        return made


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "send late", "lose", "reboot", "demand", "no demand", "cut", "cut"]),
        st.integers(0, len(WATCHES) - 1),
        st.integers(1, 9),
    ),
    max_size=120,
)


class Run:
    """Three motes and a proxy; every batch is checked against earlier low watermarks."""

    def __init__(self):
        self.fleet = Fleet("p", FleetLimits(), now_us=0)
        self.motes = [ScriptedMote(name, (index + 1) * S) for index, name in enumerate(WATCHES)]
        self.now = 100 * S
        self.watermark = LOWEST_US
        self.forwarded = []
        self.late = 0
        self.pending = {name: [] for name in WATCHES}
        for mote in self.motes:
            self.announce(mote)

    def announce(self, mote):
        self.fleet.receive_announcement(mote.announcement(), radio_us=self.now, received_us=self.now)

    def deliver(self, mote, packet, *, receives=True):
        for each in self.fleet.receive_packet(packet, radio_us=self.now, received_us=self.now):
            if not isinstance(each, ForMote):
                continue
            if isinstance(each.instruction, SendControl) and receives:
                for instruction in each.instruction.control.instructions:
                    assert isinstance(instruction, RunProgram)
                    mote.obey(instruction)
            if isinstance(each.instruction, Rejected) and each.instruction.reason is Rejection.LATE:
                self.late += each.instruction.samples

    def step(self, kind, index, seconds):
        self.now += seconds * S // 3
        mote = self.motes[index]
        self.fleet.time_passed(self.now)
        waiting = self.pending[mote.name]
        if kind == "send":
            while waiting:  # the packets of a mote stay in order
                self.deliver(mote, waiting.pop(0), receives=False)
            self.deliver(mote, mote.packet(self.now))
        elif kind == "send late":
            waiting.append(mote.packet(self.now))
        elif kind == "lose":
            mote.packet(self.now)
        elif kind == "reboot":
            mote.reboot()
            waiting.clear()
            self.announce(mote)
        elif kind == "demand":
            self.demand(QueryDemand("a", ("speed",), seconds * S))
        elif kind == "no demand":
            self.demand()
        else:
            self.cut()

    def complete_by_definition(self):
        """Tuples wait, and no mote may still send one stamped as the latest of them, or earlier."""
        stream = self.fleet.streams["traffic"]
        stamps = [start_us for packet in stream._waiting._queue for start_us in packet.starts_us]
        bounds = [mote.watermark for mote in self.fleet.motes.values() if mote.watermark is not None]
        return bool(stamps) and all(bound.instant_us is not None and bound.instant_us > max(stamps) for bound in bounds)

    def demand(self, *demands):
        self.fleet.receive_demand("traffic", StreamDemand(VERSION, "c", "traffic", 1, demands), radio_us=self.now)

    def cut(self):
        for batch in self.fleet.cut(self.now):
            for each in batch.tuples:
                assert each.start_us >= self.watermark, "a tuple from before a watermark that was sent"
                self.forwarded.append((each.start_us, each.position.mote))
            assert batch.watermark_us >= self.watermark, "the watermark went back"
            self.watermark = batch.watermark_us


@given(steps)
@settings(max_examples=200)
def test_no_tuple_is_ever_below_a_watermark_already_sent(script):
    run = Run()
    for kind, index, seconds in script:
        run.step(kind, index, seconds)
    run.step("cut", 0, 1)


@given(st.lists(st.tuples(st.permutations([0, 1, 2]), st.integers(1, 3), st.booleans()), min_size=4, max_size=30))
def test_without_loss_and_silence_nothing_is_late_nothing_is_lost_and_the_watermark_follows(rounds):
    run = Run()
    run.step("demand", 0, 1)
    for order, seconds, cut_between in rounds:
        for index in order:
            run.step("send", index, seconds)
            # Where programs change a mote may fall behind again: then a batch is cut early, which does no harm.
            assert run.fleet.is_complete() == run.complete_by_definition()
            if cut_between:
                run.cut()
    run.cut()
    assert run.late == 0
    assert run.watermark == min(mote.guaranteed for mote in run.motes)
    for mote in run.motes:
        got = [start for start, name in run.forwarded if name == mote.name]
        assert got == sorted(set(got))
        period = mote.program.period_us
        assert not got or len(got) == (got[-1] - got[0]) // period + 1, (
            "an instant between the first and last is missing"
        )
