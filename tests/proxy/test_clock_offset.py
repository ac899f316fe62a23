"""The clock of a mote, from its packets: whatever the delays, and however it drifts."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.motes.mote_clock import BUCKET_US, FASTEST_DRIFT, MOST_BUCKETS, ClockOffset

S = 1_000_000
BEGAN = 1_700_000_000 * S


def receive(clock, behind_us, *, ppm=0.0, since=BEGAN, seconds=300, every=2.0, delay=lambda: 0, boot=0):
    """Packets every so often of a clock that is behind by so much at `since`, and goes slow."""
    for number in range(int(seconds / every)):
        sent_us = since + round(number * every * S)
        waits_us = round(delay())
        clock.observe(sent_us + waits_us, sent_us - round(behind_us + (sent_us - since) * ppm * 1e-6), boot)


def test_nothing_is_known_of_a_clock_before_a_few_packets():
    clock = ClockOffset()
    assert clock.estimate() is None
    receive(clock, 500, seconds=4)
    assert clock.estimate() is None
    receive(clock, 500, seconds=2, since=BEGAN + 4 * S)
    found = clock.estimate()
    assert (found.offset_us, found.drift_ppm) == (500, None)
    assert found.error_us == pytest.approx(FASTEST_DRIFT * 4 * S, abs=2)


@given(
    st.integers(-(10**12), 10**12),
    st.floats(-100, 100),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 2.0, 30.0, 300.0]),
)
@example(0, -100.0, 80, 300.0)
@example(0, 0.0, 10_649, 30.0)
def test_offset_and_drift_are_found_though_delays_vary(behind_us, ppm, seed, every):
    """The offset is that of the last packet; the drift error is the difference of delays over that time."""
    clock, source, delays = ClockOffset(), random.Random(seed), []
    seconds = max(200, every * 40)

    def delay():
        delays.append(3_000 + source.expovariate(1 / 5_000))
        return delays[-1]

    receive(clock, behind_us, ppm=ppm, seconds=seconds, every=every, delay=delay)
    found = clock.estimate()
    true_us = behind_us + (seconds - every) * ppm
    assert found.offset_us - true_us == pytest.approx(3_000, abs=found.error_us + 1_000)
    closed = [(received_us, delays[int((received_us - BEGAN) // (every * S))]) for received_us, _ in clock.kept[:-1]]
    least = [delay_us for _, delay_us in closed]
    apart = sorted((later[0] - sooner[0] for sooner, later in combinations(closed, 2)), reverse=True)
    assert found.drift_ppm == pytest.approx(ppm, abs=(max(least) - min(least)) / apart[len(apart) // 2] * 1e6 + 1)


@given(
    st.integers(-(10**9), 10**9),
    st.floats(-199, 199),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20_000)), min_size=4, max_size=60),
)
def test_the_error_bound_holds_for_all_delays(behind_us, ppm, packets):
    """The bound is what is seen of the delays, and what differs between the least ones of the buckets."""
    clock, delays, at_us = ClockOffset(), {}, BEGAN
    for pause, delay_us in packets:
        at_us += pause * S
        clock.observe(at_us, at_us - delay_us - round(behind_us + (at_us - BEGAN) * ppm * 1e-6))
        delays[at_us] = delay_us
    found = clock.estimate()
    least = [delays[received_us] for received_us, _ in clock.kept]
    true_us = behind_us + (at_us - BEGAN) * ppm * 1e-6 + min(least)
    first_us, last_us = clock.kept[0][0], clock.kept[-1][0]
    unseen = 0.0
    if found.drift_ppm is not None:
        unseen = (max(least) - min(least)) * (at_us - first_us) / (last_us - first_us)
    assert abs(found.offset_us - true_us) <= found.error_us + unseen + 3


@given(st.integers(-(10**11), 10**11).filter(lambda by: abs(by) > 200_000), st.floats(-50, 50), st.integers(0, 2**32))
def test_a_clock_that_is_set_is_noticed(by_us, ppm, seed):
    clock, source = ClockOffset(), random.Random(seed)
    delay = lambda: source.expovariate(1 / 4_000)  # noqa: E731
    receive(clock, 0, ppm=ppm, delay=delay)
    receive(clock, by_us, ppm=ppm, since=BEGAN + 300 * S, seconds=100, delay=delay)
    found = clock.estimate()
    assert found.offset_us == pytest.approx(by_us + 100 * ppm, abs=20_000)


def test_one_slow_minute_is_no_jump():
    clock = ClockOffset()
    receive(clock, 1_000)
    receive(clock, 1_000, since=BEGAN + 300 * S, seconds=20, delay=lambda: 400_000)
    receive(clock, 1_000, since=BEGAN + 320 * S, seconds=60)
    assert clock.estimate().offset_us == pytest.approx(1_000, abs=50)


def test_a_new_boot_or_a_step_of_real_time_restarts_the_estimate():
    clock = ClockOffset()
    receive(clock, 1_000)
    receive(clock, 9_000, since=BEGAN + 300 * S, seconds=6, boot=1)
    assert clock.estimate().offset_us == 9_000
    receive(clock, 7_000, since=BEGAN - 100 * S, seconds=6, boot=1)
    assert clock.estimate().offset_us == 7_000


def test_a_replay_at_another_speed_has_no_offset():
    clock = ClockOffset()
    for number in range(100):
        clock.observe(BEGAN + number * S, number * 1440 * S)
        assert clock.estimate() is None


def test_it_corrects_once_a_clock_may_be_off_by_more_than_is_tolerated():
    clock = ClockOffset()
    receive(clock, 30_000, seconds=50)
    assert clock.correction_us(20_000) is None, "too early for an estimate"
    receive(clock, 30_000, since=BEGAN + 50 * S, seconds=30)
    assert clock.correction_us(None) is None
    assert clock.correction_us(40_000) is None
    assert clock.correction_us(20_000) == 30_000
    clock.restart()
    assert clock.estimate() is None
    receive(clock, -30_000)
    assert clock.correction_us(20_000) == -30_000


def test_it_leaves_a_clock_alone_of_which_it_knows_too_little():
    clock, delays = ClockOffset(), iter([0, 40_000, 5_000, 30_000, 0, 44_000, 9_000] * 5)
    receive(clock, 10_000, every=20.0, delay=lambda: next(delays))
    assert clock.estimate().error_us > 40_000
    assert clock.correction_us(20_000) is None


def test_buckets_are_bounded():
    clock = ClockOffset()
    receive(clock, 0, seconds=4_000)
    assert len(clock.kept) == MOST_BUCKETS
    receive(clock, 0, since=BEGAN + 5_000 * S, seconds=40_000, every=1_000)
    received = [received_us for received_us, _ in clock.kept]
    assert received[-1] - received[0] <= 3_600 * S
    assert BUCKET_US < 1_000 * S
