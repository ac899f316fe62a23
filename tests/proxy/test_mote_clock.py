"""The clock of a mote: its bounds, its offset and its corrections."""

from __future__ import annotations

from protocols.wire.catalog import ClockFault
from proxy.motes.mote_clock import MEASURE_EVERY_US, ClockBounds, MoteClock, Slack, WrongClock

S = 1_000_000
BOUNDS = ClockBounds(60 * S, 3_600 * S)
NOW = 10**15


def measured(frames, behind_us, *, tolerance_us=None, packets=80):
    """Return a clock that is behind by so much, after packets at intervals of a second."""
    clock = MoteClock(BOUNDS, tolerance_us)
    for number in range(packets):
        received_us = NOW + number * S
        clock.measure(frames.packet(number, clock=received_us - behind_us), received_us)
    return clock


def test_a_clock_is_held_to_its_bounds_unless_they_are_lifted(frames):
    clock = MoteClock(BOUNDS, None)
    packet = frames.packet(0, clock=0)
    assert clock.wrong(packet, NOW, Slack()) == WrongClock(ClockFault.BEHIND, NOW)
    clock.set_bounded(bounded=False)
    assert clock.wrong(packet, NOW, Slack()) is None
    clock.set_bounded(bounded=True)
    assert clock.wrong(packet, NOW, Slack()) is not None


def test_a_fault_changes_once():
    clock = MoteClock(BOUNDS, None)
    wrong = WrongClock(ClockFault.AHEAD, S)
    assert [clock.mark_wrong(wrong), clock.mark_wrong(wrong)] == [True, False]
    assert clock.fault is ClockFault.AHEAD
    assert [clock.mark_right(), clock.mark_right()] == [True, False]
    assert clock.fault is None


def test_the_offset_is_measured_at_intervals(frames):
    clock = MoteClock(BOUNDS, None)
    for number in range(3):
        received_us = NOW + number * (MEASURE_EVERY_US - 1)
        clock.measure(frames.packet(number, clock=received_us), received_us)
    assert clock.offset_us is None, "two of three packets were measured"
    clock.measure(frames.packet(3, clock=NOW + S), NOW + 2 * S)
    assert clock.offset_us is not None


def test_a_correction_is_made_once_and_starts_a_new_estimate(frames):
    clock = measured(frames, 30_000, tolerance_us=20_000)
    assert clock.offset_us == 30_000
    assert clock.take_correction_us() == 30_000
    assert (clock.take_correction_us(), clock.offset_us) == (None, None)
    assert measured(frames, 30_000).take_correction_us() is None, "without a tolerance no clock is corrected"


def test_a_packet_that_was_held_back_opens_no_listen_window(frames):
    clock, at_us = measured(frames, 0), NOW + 80 * S
    window = frames.packet(90, clock=at_us, listen=50_000)
    assert clock.listens(window, at_us)
    assert not clock.listens(window, at_us + 10 * S)
