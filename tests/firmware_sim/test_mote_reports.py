"""Whatever a program reports, in whatever order programs come: watermarks hold, stamps grow, nothing is sent twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_sim.mote.mote import Mote
from firmware_sim.mote.mote_events import ControlReceived, MoteDescription, PowerOn, SendPacket, Wake, WakeAt
from firmware_sim.mote.sample_clock import SampleClock
from firmware_sim.power.meter import Meter
from protocols.power.profiles import find_profile
from protocols.wire.packets import Control, Health, Partial, RunProgram, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import (
    Band,
    DeadBand,
    ListenSchedule,
    Panes,
    SamplingProgram,
    SendOnChange,
    Threshold,
    VehicleCount,
    VehicleEvents,
)
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
SCHEMA = StreamSchema("s", (Field("level", FieldType.REAL), Field("word", FieldType.TEXT)))
OVER = Threshold("level", 0.6, 0.4)


def level_at(instant_us):
    return (instant_us // 100_000 * 7919 % 11) / 10


def make():
    about = MoteDescription("m1", "t", SCHEMA, {}, SECOND, 50_000)
    clock = SampleClock(0, begins_radio_us=0)
    meter = Meter(find_profile("telosb"))
    return Mote(
        about, clock, lambda at, fields: tuple({"level": level_at(at), "word": "a"}[n] for n in fields), meter=meter
    )


REPORTS = st.sampled_from([
    None, SendOnChange((DeadBand("level", 0.3),), 2 * SECOND), Panes(SECOND), Panes(700_000),
    VehicleEvents(OVER), VehicleCount(OVER, SECOND), VehicleCount(OVER, 900_000),
])  # fmt: skip
PROGRAMS = st.builds(
    lambda period, size, every, report, banded: SamplingProgram(
        ("level",), period, size, ListenSchedule(every, 50_000), (Band("level", 0.3, 0.8),) if banded else (), report
    ),
    st.sampled_from([100_000, 300_000, 700_000]), st.integers(1, 4), st.sampled_from([200_000, SECOND]), REPORTS,
    st.booleans(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(PROGRAMS, st.integers(0, 4_000_000)), min_size=1, max_size=6))
def test_promises_hold(changes):
    mote, now, found = make(), 0, []

    def handle(event):
        instructions = mote.handle(event)
        found.extend(each.packet for each in instructions if isinstance(each, SendPacket))
        return next(each.radio_us for each in instructions if isinstance(each, WakeAt))

    wake = handle(PowerOn(0))
    for program, pause in changes:
        until = now + pause
        while wake <= until:
            now, wake = wake, handle(Wake(wake))
        now = until
        mote._listens_until_us = now
        if program != mote.program:
            wake = handle(ControlReceived(now, Control(1, "m1", (RunProgram(program, 0),))))
    while wake <= now + 5 * SECOND:
        wake = handle(Wake(wake))
    low_watermark_us, covered = -(2**62), -(2**62)
    for packet in found:
        for record in packet.records:
            if isinstance(record, Health):
                continue
            stamp = packet.clock_us - record.age_us
            assert stamp >= low_watermark_us, record
            if isinstance(record, Sample):
                assert record.values == (level_at(stamp),)
            if isinstance(record, Partial | VehicleTally):
                width_us = record.pane_us if isinstance(record, Partial) else record.every_us
                assert stamp - width_us + 1 >= covered, "intervals do not overlap"
                covered = stamp
            if isinstance(record, VehicleEvent):
                assert record.passing_us > 0
        assert packet.promise_us >= low_watermark_us
        low_watermark_us = packet.promise_us


def test_text_cannot_be_added_up():
    mote = make()
    mote.handle(PowerOn(0))
    program = SamplingProgram(("word",), SECOND, report=Panes(10 * SECOND))
    assert mote.handle(ControlReceived(1, Control(1, "m1", (RunProgram(program, 0),)))) == []
    assert "text" in mote.refusal


def test_a_sample_that_is_due_when_a_new_program_comes_is_not_lost():
    """The mote wakes a little after the instant of a sample; the control comes in between."""
    mote = make()
    mote.handle(PowerOn(0))

    def load(at_us, program):
        mote._listens_until_us = at_us
        return mote.handle(ControlReceived(at_us, Control(1, "m1", (RunProgram(program, 0),))))

    load(500_000, SamplingProgram(("level",), SECOND))
    mote.handle(Wake(SECOND))
    sent = load(2 * SECOND + 10, SamplingProgram(("level",), SECOND, 2))
    packets = [each.packet for each in sent if isinstance(each, SendPacket)]
    stamps = [packet.clock_us - record.age_us for packet in packets for record in packet.samples]
    assert stamps == [2 * SECOND]
    assert mote.low_watermark_us == 3 * SECOND
