"""When the records of several reports are due, and how often the mote listens: against the rule, played out slowly."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.power import listening as under_test
from protocols.power.listening import (
    LONGEST_CYCLE,
    MOST_INSTANTS,
    Listening,
    due_together,
    instants_per_second,
    listening_of_reports,
    record_instants,
    when_regular,
)
from protocols.wire.programs import ListenSchedule, Panes, ProgramReport, SamplingProgram, Several
from protocols.wire.streams import FieldName

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
HUGE = 13_343_000 * DAY


def program_of(timing: list[tuple[int, int]], per_packet: int, every_us: int) -> SamplingProgram:
    """Return a program of regular reports: each has the interval that a record covers, 0 for samples, and a period."""
    reports = tuple(
        ProgramReport((FieldName("speed"),), period_us, kind=Panes(interval_us) if interval_us else None)
        for interval_us, period_us in timing
    )
    tick_us = math.gcd(*(report.every_us for report in reports))
    listen = ListenSchedule(every_us, min(every_us, 100_000))
    return SamplingProgram((FieldName("speed"),), tick_us, per_packet, listen, report=Several(reports))


def played(program: SamplingProgram, most_windows: int) -> Listening | None:
    """Return the rates of the rule, simulated window by window; None if that takes too many."""
    instants = list(islice(record_instants(program, 0), MOST_INSTANTS))
    packets = instants[program.samples_per_packet - 1 :: program.samples_per_packet]
    rate, every_us = len(packets) * SECOND / packets[-1], program.listen.every_us
    if rate * every_us / SECOND > 100:
        return when_regular(rate, every_us / SECOND)
    begins_us = polls = place = 0
    for listens in range(most_windows):
        ask_us = begins_us + every_us
        while place < len(packets) and packets[place] < ask_us:
            place += 1
        if place == len(packets):
            seconds = max(begins_us, 1) / SECOND
            found = Listening(rate, polls / seconds, listens / seconds)
            return found if listens else when_regular(rate, every_us / SECOND)
        if packets[place] <= ask_us + every_us:
            begins_us = packets[place]
        else:
            polls, begins_us = polls + 1, ask_us
    return None


periods = st.one_of(
    st.sampled_from([1, 1_000, SECOND // 2, SECOND, 3 * SECOND, 60 * SECOND, HOUR, DAY, 7 * DAY]),
    st.integers(1, 100 * DAY),
    st.integers(0, 47).map(lambda bits: 2**bits),
)
timings = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, 7, 60]), periods).map(lambda each: (each[0] * each[1], each[1])),
    min_size=2,
    max_size=5,
)
every = st.sampled_from([SECOND, 2 * SECOND, 30 * SECOND, HOUR])


@settings(deadline=None)
@given(timings, st.sampled_from([1, 2, 7]), every)
def test_windows_are_counted_as_the_rule_has_them(
    timing: list[tuple[int, int]], per_packet: int, every_us: int
) -> None:
    program = program_of(timing, per_packet, every_us)
    expected = played(program, 200_000)
    if expected is not None:
        assert listening_of_reports(program) == expected


@settings(deadline=None)
@given(st.lists(st.one_of(periods, st.integers(1, 2**60)), min_size=2, max_size=5), every)
def test_listening_is_bounded_for_any_periods(every_period: list[int], every_us: int) -> None:
    found = listening_of_reports(program_of([(0, each) for each in every_period], 1, every_us))
    assert 0 <= found.polls <= found.listens <= SECOND / every_us + 1e-9
    assert found.packets > 0


@pytest.mark.parametrize("apart_us", [HOUR, DAY, 366 * DAY])
def test_windows_between_rare_records_are_not_gone_through_one_by_one(
    apart_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    look = under_test.bisect_left

    def counted(*place: Any) -> int:
        nonlocal looked
        looked += 1
        assert looked <= MOST_INSTANTS + 1
        return look(*place)

    monkeypatch.setattr(under_test, "bisect_left", counted)
    program = program_of([(apart_us, apart_us), (0, apart_us)], 1, 2 * SECOND)
    found = under_test._listening.__wrapped__(under_test._timing(program), 1, 2 * SECOND)
    # From one instant with records on it listens every two seconds, and the last time but one they are soon enough.
    windows = apart_us // (2 * SECOND) - 1
    assert found.listens == pytest.approx(windows / (apart_us / SECOND))
    assert found.polls == pytest.approx((windows - 1) / (apart_us / SECOND))


def test_periods_beyond_what_64_bits_hold_of_instants() -> None:
    found = listening_of_reports(program_of([(0, HUGE), (0, HUGE - DAY)], 1, 2 * SECOND))
    assert found.packets == pytest.approx(2 * SECOND / HUGE, rel=0.01)
    assert found.listens == pytest.approx(0.5)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_reports_due_at_one_instant_are_counted_together(every_ticks: list[int]) -> None:
    cycle = math.lcm(*every_ticks)
    if cycle > LONGEST_CYCLE:
        return
    expected: dict[tuple[int, ...], int] = {}
    for tick in range(cycle):
        due = tuple(place for place, period in enumerate(every_ticks) if tick % period == 0)
        if due:
            expected[due] = expected.get(due, 0) + 1
    found = due_together(tuple(every_ticks))
    # In the same order, too: sums of reals depend on it.
    assert list(found.items()) == list(expected.items())


@given(st.lists(st.integers(1, 2**60), min_size=1, max_size=5))
def test_instants_a_second_lie_between_the_fastest_period_and_the_sum(every_period: list[int]) -> None:
    found = instants_per_second(tuple(sorted(every_period)))
    slowest, together = SECOND / min(every_period), sum(SECOND / each for each in every_period)
    assert slowest * (1 - 1e-9) <= found <= together * (1 + 1e-9)


@given(timings)
def test_instants_come_in_order(timing: list[tuple[int, int]]) -> None:
    found = list(islice(record_instants(program_of(timing, 1, SECOND), 0), 100))
    assert found == under_test._first_instants(under_test._timing(program_of(timing, 1, SECOND)))[:100].tolist()
    assert all(one <= other for one, other in pairwise(found))
