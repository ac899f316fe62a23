"""The sample clock: held, released, faster than real time, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.errors import SimulationError
from firmware_sim.mote.sample_clock import SampleClock


def test_held_clock_stands_at_its_origin_until_released() -> None:
    clock = SampleClock(1_000, begins_radio_us=None, speed=10)
    assert clock.held
    assert [clock.at(radio) for radio in (0, 5_000)] == [1_000, 1_000]
    assert clock.radio_time_of(2_000) is None
    clock.release(5_000)
    clock.release(9_999)
    assert [clock.at(radio) for radio in (5_000, 5_100)] == [1_000, 2_000]
    assert clock.radio_time_of(2_000) == 5_100


@given(st.integers(0, 10**16), st.floats(0.01, 10_000), st.integers(0, 10**10))
def test_radio_time_is_the_first_at_which_the_clock_is_there(origin: int, speed: float, ahead: int) -> None:
    clock = SampleClock(origin, begins_radio_us=0, speed=speed)
    radio = clock.radio_time_of(origin + ahead)
    assert radio is not None
    assert clock.at(radio) >= origin + ahead
    assert radio == 0 or clock.at(radio - 2) < origin + ahead or speed < 1


def test_clock_that_does_not_run_is_refused() -> None:
    with pytest.raises(SimulationError, match="speed 0"):
        SampleClock(0, begins_radio_us=0, speed=0)
