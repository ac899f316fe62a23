"""
time of day   ----|---------------------- receipt ---------|------>
                  |<------- behind ------->|<- ahead ->|
"""  # fmt: skip

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.catalog import ClockFault
from protocols.wire.packets import Packet
from protocols.wire.programs import SLEEP, ListenSchedule, Panes, SamplingProgram, Threshold, VehicleEvents
from proxy.motes.mote_clock import (
    UNBOUNDED,
    ClockBounds,
    Slack,
    longest_age_us,
    oldest_stamp_us,
    slack_of,
    wrong_clock,
)

S = 1_000_000
LISTEN = ListenSchedule(2 * S, 1)
instants = st.integers(-(2**62), 2**62)
spans = st.integers(1, 2**40)
slacks = st.builds(Slack, st.integers(0, 2**40), st.none() | st.integers(0, 2**40))
bounds = st.builds(ClockBounds, st.none() | spans, st.none() | spans)


def packet(clock, low_watermark):
    return Packet(1, "m1", 1, 0, clock, low_watermark, 0, 0, ())


@given(bounds, instants, slacks, st.data())
def test_nothing_within_the_bounds_is_wrong(limits, received, slack, data):
    earliest = -(2**62) if limits.behind_us is None else received - limits.behind_us
    latest = 2**62 if limits.ahead_us is None else received + limits.ahead_us
    oldest = -(2**62) if slack.age_us is None else earliest - slack.age_us
    clock = data.draw(st.integers(earliest, latest))
    low_watermark = data.draw(st.integers(oldest, latest + slack.watermark_us))
    assert wrong_clock(limits, packet(clock, low_watermark), received, slack) is None


@given(bounds, instants, instants, instants, slacks)
def test_instants_outside_the_bounds_are_wrong_by_the_excess(limits, received, clock, low_watermark, slack):
    found = wrong_clock(limits, packet(clock, low_watermark), received, slack)
    ahead = limits.ahead_us is not None and max(clock, low_watermark - slack.watermark_us) > received + limits.ahead_us
    late_promise = slack.age_us is not None and limits.behind_us is not None
    behind = limits.behind_us is not None and clock < received - limits.behind_us
    behind |= late_promise and low_watermark < received - limits.behind_us - slack.age_us
    assert (found is not None) == (ahead or behind)
    if found is not None:
        assert found.fault is (ClockFault.AHEAD if ahead else ClockFault.BEHIND)
        assert found.by_us > (limits.ahead_us if ahead else limits.behind_us)


@given(instants, instants, st.integers(0, 2**40), bounds)
def test_a_clock_is_checked_against_its_receipt_only(received, clock, later, limits):
    """The same packet with the same receipt has the same result at any time."""
    first = wrong_clock(limits, packet(clock, clock), received, Slack())
    shifted = wrong_clock(limits, packet(clock + later, clock + later), received + later, Slack())
    assert first == shifted


@given(instants, instants, instants)
def test_without_bounds_any_clock_is_right(received, clock, low_watermark):
    assert wrong_clock(UNBOUNDED, packet(clock, low_watermark), received, Slack()) is None
    assert oldest_stamp_us(UNBOUNDED, received, Slack()) is None


@pytest.mark.parametrize(
    ("program", "seconds"),
    [
        (SLEEP, 2),
        (SamplingProgram(("x",), S, listen=LISTEN), 4),
        (SamplingProgram(("x",), S, 9, LISTEN), 12),
        (SamplingProgram(("x",), S, 9, LISTEN, patience_us=5 * S), 17),
        (SamplingProgram(("x",), S, 2, LISTEN, report=Panes(60 * S, ())), 182),
    ],
)
def test_how_old_a_record_may_be(program, seconds):
    assert longest_age_us(program) == seconds * S


def test_an_event_may_last_for_ever_and_an_unknown_program_explains_anything():
    events = SamplingProgram(("x",), S, report=VehicleEvents(Threshold("x", 1, 0)))
    assert longest_age_us(events) is None
    assert slack_of((SLEEP, events)) == Slack(S, None)
    assert slack_of((SLEEP, None)) == Slack(0, None)
    assert slack_of((SLEEP, SamplingProgram(("x",), 7 * S, listen=LISTEN))) == Slack(7 * S, 16 * S)
