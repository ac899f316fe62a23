"""A mote's own clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.mote.sample_clock import Drift, DriftingClock, SampleClock

SECOND = 1_000_000


def test_it_drifts_until_it_is_put_right():
    clock = DriftingClock(SampleClock(0, begins_radio_us=0), Drift(40.0, 300 * SECOND, 1.0))
    errors = [clock.error_us(seconds * SECOND) for seconds in (0, 100, 299, 300, 450)]
    assert errors == [1, 4001, 11961, 1, 6001]


@given(
    st.floats(-50_000, 50_000),
    st.sampled_from([0, 60 * SECOND, 300 * SECOND]),
    st.integers(0, 10**12),
    st.sampled_from([0.5, 1.0, 1440.0]),
)
def test_it_wakes_when_it_shows_the_time(rate, every_us, sample_us, speed):
    true = SampleClock(0, begins_radio_us=0, speed=speed)
    clock = DriftingClock(true, Drift(rate, every_us))
    radio_us = clock.radio_time_of(sample_us)
    assert clock.at(radio_us) >= sample_us
    true_us = true.radio_time_of(sample_us)
    error_us = max(abs(clock.error_us(each)) for each in (radio_us, true_us)) + 2  # put right in between, maybe
    assert abs(radio_us - true_us) <= error_us * 2.2 / min(speed, 1) + error_us
    assert clock.true_time_of(sample_us) == true.at(radio_us)


def test_a_held_clock_stands_still_for_all():
    true = SampleClock(77, begins_radio_us=None)
    clock = DriftingClock(true, Drift(100.0))
    assert (clock.held, clock.at(SECOND), clock.radio_time_of(78)) == (True, 77, None)
    clock.release(SECOND)
    assert not true.held
    assert clock.at(2 * SECOND) == pytest.approx(77 + SECOND + 200, abs=1)
