"""The handover of a program to a mote: times are in microseconds."""

from __future__ import annotations

from protocols.wire.packets import RunProgram
from protocols.wire.programs import SLEEP, SamplingProgram
from proxy.motes.mote_controls import ProgramHandover
from proxy.records.waiting_tuples import MoteWatermark

S = 1_000_000
FAST = SamplingProgram(("speed",), S)
NUMBER = 7


def demanded(program=FAST, number=NUMBER, running=0):
    handover = ProgramHandover(patience_us=10 * S, attempts=2)
    handover.demand(program, number, running, 0)
    return handover


def test_the_watermark_waits_for_a_mote_until_it_runs_its_program():
    handover = demanded()
    assert handover.watermark(5, is_new=False) == MoteWatermark(5)
    handover.program_changed(NUMBER, S)
    assert handover.watermark(5, is_new=False) is None


def test_the_watermark_waits_for_a_bounded_time():
    handover = demanded()
    handover.time_passed(10 * S - 1)
    assert handover.is_awaited
    handover.time_passed(10 * S)
    assert not handover.is_awaited


def test_the_watermark_does_not_wait_for_a_mote_that_should_sleep():
    assert not demanded(SLEEP, 0, running=NUMBER).is_awaited


def test_a_new_mote_holds_the_watermark_where_it_is_and_a_rebooted_one_does_not():
    handover = demanded()
    assert handover.watermark(None, is_new=True) == MoteWatermark(None)
    assert handover.watermark(None, is_new=False) is None


def test_the_bound_of_the_first_sample_never_decreases():
    handover = demanded()
    assert handover.next_control(30) == RunProgram(FAST, 30)
    assert handover.next_control(20) == RunProgram(FAST, 30)
    assert handover.watermark(5, is_new=False) == MoteWatermark(30)
    handover.program_changed(NUMBER, S)
    handover.program_changed(0, S)
    assert handover.next_control(20) == RunProgram(FAST, 20), "the bound was for the earlier handover"


def test_failure_is_reported_once_until_the_mote_runs_its_program():
    handover = demanded()
    found = []
    for _ in range(5):
        handover.next_control(0)
        found.append(handover.newly_failed)
    assert found == [False, False, True, False, False]
    handover.program_changed(NUMBER, S)
    handover.next_control(0)
    assert not handover.newly_failed
