"""When a proxy cuts batches, without a proxy."""

from __future__ import annotations

import pytest

from proxy.running.unwritten_batches import ENOUGH_UNACKNOWLEDGED, POSITIONS_EVERY_US, STALL_SECONDS, FlushSchedule


@pytest.fixture
def flushes() -> FlushSchedule:
    return FlushSchedule(longest_seconds=1.0, positions_us=0)


def test_the_first_tuple_waits_for_as_long_as_the_settings_say(flushes: FlushSchedule) -> None:
    flushes.received(10.0, waits=False)
    assert flushes.seconds_left(10.0, 10.4, complete=False) == pytest.approx(0.6)
    flushes.received(10.4, waits=True)
    flushes.received(11.3, waits=True)
    assert flushes.seconds_left(10.0, 11.3, complete=False) == pytest.approx(0.1)
    assert flushes.seconds_left(10.0, 11.4, complete=False) <= 0.0


def test_tuples_of_all_motes_wait_no_longer(flushes: FlushSchedule) -> None:
    flushes.received(10.0, waits=True)
    assert flushes.seconds_left(10.0, 10.0, complete=True) == 0.0


def test_a_cut_ends_the_wait(flushes: FlushSchedule) -> None:
    flushes.received(10.0, waits=True)
    flushes.cut(batches=True)
    assert flushes.seconds_left(12.0, 12.0, complete=False) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("batches", "waits", "unwritten", "pauses"),
    [(False, False, False, False), (True, False, False, True), (False, True, False, True), (False, False, True, True)],
)
def test_a_pause_follows_unless_there_was_nothing_to_do(
    flushes: FlushSchedule, *, batches: bool, waits: bool, unwritten: bool, pauses: bool
) -> None:
    flushes.cut(batches=batches)
    assert flushes.pauses(waits=waits, unwritten=unwritten) is pauses


def test_positions_are_written_now_and_then_and_in_the_end(flushes: FlushSchedule) -> None:
    assert not flushes.takes_positions(POSITIONS_EVERY_US - 1, stopping=False)
    assert flushes.takes_positions(POSITIONS_EVERY_US, stopping=False)
    assert not flushes.takes_positions(POSITIONS_EVERY_US + 1, stopping=False)
    assert flushes.takes_positions(POSITIONS_EVERY_US + 2, stopping=True)


def test_messages_are_held_back_once_in_a_slow_flush(flushes: FlushSchedule) -> None:
    assert not flushes.holds_back(flushing=False, nearly_full=True)
    assert not flushes.holds_back(flushing=True, nearly_full=False)
    assert flushes.holds_back(flushing=True, nearly_full=True)
    flushes.held_long_enough()
    assert not flushes.holds_back(flushing=True, nearly_full=True)
    flushes.flushed()
    assert flushes.holds_back(flushing=True, nearly_full=True)


def test_a_broker_that_waits_for_acknowledgements_gets_them_soon(flushes: FlushSchedule) -> None:
    #  messages   8 . .          9           a flush
    #  due              stalls   stalls
    flushes.received(10.0, waits=True)
    flushes.unacknowledged(10.0, ENOUGH_UNACKNOWLEDGED - 1)
    assert flushes.seconds_left(10.0, 10.0, complete=False) == pytest.approx(1.0)
    flushes.unacknowledged(10.0, ENOUGH_UNACKNOWLEDGED)
    assert flushes.seconds_left(10.0, 10.0, complete=False) == pytest.approx(STALL_SECONDS)
    assert flushes.pause_left(11.0, 10.0) == pytest.approx(STALL_SECONDS)
    flushes.unacknowledged(10.0 + STALL_SECONDS / 2, ENOUGH_UNACKNOWLEDGED + 1)
    assert flushes.seconds_left(10.0, 10.0 + STALL_SECONDS, complete=False) == pytest.approx(STALL_SECONDS / 2)
    flushes.flushed()  # even if it could not write
    assert flushes.pause_left(11.0, 10.5) == pytest.approx(0.5)


def test_a_broker_with_room_is_not_hurried(flushes: FlushSchedule) -> None:
    flushes.unacknowledged(10.0, ENOUGH_UNACKNOWLEDGED)
    flushes.unacknowledged(10.0, 0)
    assert flushes.pause_left(11.0, 10.0) == pytest.approx(1.0)
