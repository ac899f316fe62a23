"""A mote whose clock is moved by its proxy.

clock (s)    0    1    2    3         3    4    5         back by 1.5 s: sample 4 waits until the clock is there again
samples           s    s    s                s    s

clock (s)    0    1    2   |   4.6    5    6              forward by 2.5 s: 3 and 4 are missed
samples           s    s              s    s
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.mote.mote_events import ControlReceived, PowerOn, Wake
from firmware_sim.mote.sample_clock import Drift, DriftingClock, SampleClock
from protocols.wire.packets import AdjustClock, Control, Partial, RunProgram, Sample
from protocols.wire.programs import ListenSchedule, Panes, SamplingProgram
from tests.firmware_sim.test_mote import HERTZ, SECOND, make, packets, run, stamps, until

OFTEN = SamplingProgram(("speed",), SECOND, listen=ListenSchedule(SECOND, 100_000))
MOVES = st.lists(st.tuples(st.integers(0, 20), st.integers(-5 * SECOND, 5 * SECOND)), max_size=12)


def adjust(by_us):
    return Control(1, "m1", (AdjustClock(by_us),))


def sampling(clock=None, program=OFTEN):
    mote = make(clock)
    began = mote.handle(PowerOn(0))
    return mote, [*began, *mote.handle(ControlReceived(1_000, run(program)))]


def test_moved_back_it_waits_until_its_clock_is_there_again() -> None:
    mote, instructions = sampling()
    before = until(mote, 3_050_000, instructions)
    after = until(mote, 8 * SECOND, mote.handle(ControlReceived(3_060_000, adjust(-1_500_000))))
    assert stamps(before) == [1 * SECOND, 2 * SECOND, 3 * SECOND]
    assert stamps(after) == [4 * SECOND, 5 * SECOND, 6 * SECOND]
    assert mote.clock.at(8 * SECOND) == 6_500_000


def test_moved_forward_it_skips_what_it_jumped_over() -> None:
    mote, instructions = sampling()
    until(mote, 2_050_000, instructions)
    after = until(mote, 3_550_000, mote.handle(ControlReceived(2_060_000, adjust(2_500_000))))
    assert stamps(after) == [5 * SECOND, 6 * SECOND]
    moved = mote.handle(ControlReceived(3_560_000, adjust(950_000)))
    assert moved[-1].radio_us == 3_560_001, "7 alone was jumped over: it is taken at once"
    assert stamps(until(mote, 5 * SECOND, moved)) == [7 * SECOND, 8 * SECOND]


def test_it_is_moved_once_in_a_window_and_never_outside() -> None:
    mote, instructions = sampling()
    until(mote, 3_050_000, instructions)
    for _ in range(3):
        mote.handle(ControlReceived(3_060_000, adjust(10_000)))
    assert mote.clock.at(4 * SECOND) == 4_010_000
    mote.handle(ControlReceived(3_500_000, adjust(10_000)))
    assert (mote.clock.at(4 * SECOND), mote.counters.control_missed) == (4_010_000, 1)
    until(mote, 4_992_000, mote.handle(Wake(3_600_000)))
    mote.handle(ControlReceived(4_993_000, adjust(10_000)))
    assert mote.clock.at(5 * SECOND) == 5_020_000
    assert mote.counters.clock_adjustments == 2


def test_a_clock_set_by_years_does_not_make_up_for_them() -> None:
    mote, instructions = sampling(program=SamplingProgram(("speed",), SECOND, report=Panes(10 * SECOND)))
    until(mote, 15 * SECOND, instructions)
    year = 365 * 86_400 * SECOND
    while mote.counters.clock_adjustments == 0:
        wanted = mote.handle(ControlReceived(mote._listens_until_us, adjust(50 * year)))
    after = until(mote, 40 * SECOND, wanted)
    assert mote.counters.samples < 45
    panes = [each for packet in after for each in packet.records if isinstance(each, Partial)]
    assert all(each.samples <= 10 for each in panes)


def test_a_held_clock_is_not_moved() -> None:
    clock = SampleClock(77, begins_radio_us=None)
    mote = make(clock)
    mote.handle(PowerOn(0))
    assert mote.handle(ControlReceived(1_000, adjust(5))) == []
    assert mote.clock is clock


@pytest.mark.parametrize("drift", [None, Drift(40_000.0), Drift(-40_000.0, 7 * SECOND)])
@given(moves=MOVES)
def test_no_instant_is_sampled_twice_and_no_promise_broken(drift, moves) -> None:
    shared = SampleClock(0, begins_radio_us=0)
    mote, instructions = sampling(shared if drift is None else DriftingClock(shared, drift))
    found = packets(instructions)
    radio_us = 2_000
    for pause, by_us in moves:
        radio_us = max(radio_us + pause * 250_000, radio_us + 1)
        found += until(mote, radio_us, mote.handle(Wake(radio_us)))
        moved = mote.handle(ControlReceived(radio_us, adjust(by_us)))
        if moved:
            found += until(mote, radio_us, moved)
    found += until(mote, radio_us + 20 * SECOND, mote.handle(Wake(radio_us)))
    assert len(stamps(found)) > 5
    instants = stamps(found)
    assert len(set(instants)) == len(instants)
    low_watermark_us = -(2**62)
    for packet in found:
        assert all(
            packet.clock_us - each.age_us >= low_watermark_us for each in packet.records if isinstance(each, Sample)
        )
        assert packet.promise_us >= low_watermark_us
        low_watermark_us = packet.promise_us
    assert [after - before for before, after in pairwise(instants) if after <= before] == []


def test_a_clock_of_its_own_is_moved_until_it_is_put_right() -> None:
    clock = DriftingClock(SampleClock(0, begins_radio_us=0), Drift(40.0, 300 * SECOND))
    assert clock.adjusted(-4_000, 100 * SECOND) is clock
    clock.adjusted(-100, 110 * SECOND)
    assert [clock.error_us(seconds * SECOND) for seconds in (100, 200, 300, 400)] == [-100, 3_900, 0, 4_000]
    clock.adjusted(9, 400 * SECOND)
    assert clock.error_us(400 * SECOND) == 4_009
    assert clock.at(clock.radio_time_of(450 * SECOND)) == 450 * SECOND


def test_a_shared_clock_stays_as_it_is() -> None:
    shared = SampleClock(10, begins_radio_us=0, speed=2)
    own = shared.adjusted(5, 0).adjusted(-7, 0)
    assert (shared.at(100), own.at(100), own.held) == (210, 208, False)
    assert own.radio_time_of(208) == 100
    waiting = SampleClock(10, begins_radio_us=None).adjusted(5, 0)
    assert (waiting.held, waiting.radio_time_of(99)) == (True, None)
    waiting.release(50)
    assert waiting.at(60) == 25


def test_a_program_may_come_with_it() -> None:
    mote = make()
    mote.handle(PowerOn(0))
    both = Control(1, "m1", (AdjustClock(-SECOND), RunProgram(HERTZ, 0)))
    assert packets(mote.handle(ControlReceived(1_000, both)))[0].promise_us == 0
