"""Programs carried out sample by sample: samples in, records out.

Levels are given one a second from second 0 on; what comes out is (second, record).
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware_sim.execution.execution import Execution
from protocols.wire.packets import Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import (
    Band,
    DeadBand,
    Measure,
    Panes,
    ProgramReport,
    SamplingProgram,
    SendOnChange,
    Several,
    Threshold,
    VehicleCount,
    VehicleEvents,
)

SECOND = 1_000_000
OVER = Threshold("level", above=0.6, below=0.4)


def program(report=None, bands=(), period_us=SECOND):
    return SamplingProgram(("level",), period_us, report=report, bands=bands)


def run(asked, levels, *, begins=0, close=True):
    execution = Execution(asked, begins * SECOND)
    found = []
    for place, level in enumerate(levels):
        found += execution.take((begins + place) * SECOND, (level,))
    if close:
        found += execution.close((begins + len(levels)) * SECOND)
    return [(stamp / SECOND, record) for stamp, record in found]


def sent(asked, levels, *, close=False):
    return [stamp for stamp, record in run(asked, levels, close=close) if isinstance(record, Sample)]


@pytest.mark.parametrize(("bands", "expected"), [
    ((), [0, 1, 2, 3, 4]),
    ((Band("level", low=5.0),), [2, 3]),
    ((Band("level", low=5.0), Band("level", high=1.0)), [0, 2, 3]),
    ((Band("level", 1.0, 5.0),), [0, 1, 2]),
])  # fmt: skip
def test_only_samples_within_a_band_are_sent(bands, expected):
    assert sent(program(bands=bands), [1.0, 2.0, 5.0, 9, None]) == (expected if bands else [0, 1, 2, 3, 4])


def test_bands_of_several_fields_must_all_hold():
    asked = SamplingProgram(("a", "b"), SECOND, bands=(Band("a", low=1.0), Band("b", high=2.0)))
    execution = Execution(asked, 0)
    assert [bool(execution.take(0, values)) for values in ((1, 2), (1, 3), (0, 2), (5, None))] == [
        True,
        False,
        False,
        False,
    ]
    assert execution.filtered == 3


@pytest.mark.parametrize(("levels", "silence_s", "expected"), [
    ([0, 0, 0, 0, 0], 100, [0]),
    ([0, 1.0, 1.5, 2.5, 2.5], 100, [0, 2]),
    ([0, 1.0, 1.0001], 100, [0, 2]),
    ([0, 0.6, 1.2, 1.8, 2.4], 100, [0, 2, 4]),  # the dead band is about what was sent, not about the sample before
    ([0, 0, 0, 0, 0, 0, 0], 3, [0, 3, 6]),
    ([0, 5, 5, 5, 5, 5], 3, [0, 1, 4]),
    ([0, None, None, 1], 100, [0, 1, 3]),
    ([0, math.nan, math.inf, math.inf, 0], 100, [0, 1, 2, 3, 4]),  # what cannot be compared has changed
])  # fmt: skip
def test_send_on_change(levels, silence_s, expected):
    assert sent(program(SendOnChange((DeadBand("level", 1.0),), silence_s * SECOND)), levels) == expected


def test_in_the_end_the_last_sample_tells_all_before_it():
    program_of_two = program(SendOnChange((DeadBand("level", 1.0),), 100 * SECOND))
    assert sent(program_of_two, [0, 0, 5, 5, 5], close=True) == [0, 2, 4]
    assert sent(program_of_two, [0, 0, 5], close=True) == [0, 2]


def test_the_last_sample_of_one_of_several_reports_is_sent_for_that_report():
    """The proxy reads a sample by the reports that send it: the first one here sends none."""
    reports = (
        ProgramReport(("level",), SECOND, (), Panes(2 * SECOND, ())),
        ProgramReport(("level",), SECOND, (), SendOnChange((), 60 * SECOND)),
    )
    found = run(program(Several(reports)), [4, 4])
    assert [record for _, record in found if isinstance(record, Sample)] == [Sample(0, (4,), 0b10)] * 2


def test_a_field_without_dead_band_counts_any_change():
    assert sent(program(SendOnChange((), 100 * SECOND)), ["a", "a", "b", "b"]) == [0, 2]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=60), st.floats(0, 5), st.integers(1, 20))
def test_what_was_sent_last_is_within_the_dead_band_of_what_is(levels, width, silence):
    stamps = sent(program(SendOnChange((DeadBand("level", width),), silence * SECOND)), levels)
    assert stamps[0] == 0
    for place, level in enumerate(levels):
        latest = max(int(stamp) for stamp in stamps if stamp <= place)
        assert abs(levels[latest] - level) <= width or latest == place
    assert all(after - before <= silence for before, after in pairwise(stamps))


ALL = tuple(Measure)
END_OF = [place + 1 - 1e-6 for place in range(10)]
"""Last instant of each second."""


def test_panes_aggregate_samples_from_begin_to_end_of_the_program():
    """Panes of 3 s; the program begins in the middle of the first and ends in the middle of the last."""
    found = run(program(Panes(3 * SECOND, ALL)), [4, 2, 6.0, None, 5, 7, 1], begins=1)
    assert found == [
        (END_OF[2], Partial(0, 2 * SECOND, ((2, 6, 20, 2, 4),), 2)),
        (END_OF[5], Partial(0, 3 * SECOND, ((2, 11.0, 61.0, 5, 6.0),), 3)),
        (8, Partial(0, 2 * SECOND, ((2, 8, 50, 1, 7),), 2)),
    ]


def test_panes_of_nulls_say_so_and_panes_of_nothing_are_not_sent():
    panes = Panes(2 * SECOND, (Measure.COUNT, Measure.MIN))
    assert run(program(panes), [None, None]) == [(END_OF[1], Partial(0, 2 * SECOND, ((0, None),), 2))]
    banded = program(panes, bands=(Band("level", low=5.0),))
    assert run(banded, [1, 1, 9, 1, 1, 1]) == [(END_OF[3], Partial(0, 2 * SECOND, ((1, 9),), 1))]
    assert run(banded, [9, 1, 1], close=False) == [(END_OF[1], Partial(0, 2 * SECOND, ((1, 9),), 1))], (
        "as soon as it is over"
    )


@given(st.lists(st.none() | st.integers(-1000, 1000), max_size=50), st.integers(1, 7), st.integers(0, 20))
def test_panes_together_are_the_aggregates_of_all_samples(levels, pane_s, begins):
    found = [record for _, record in run(program(Panes(pane_s * SECOND, ALL)), levels, begins=begins)]
    values = [level for level in levels if level is not None]
    counts, sums, squares, lows, highs = (
        zip(*(record.measures[0] for record in found), strict=True) if found else [()] * 5
    )
    assert sum(counts) == len(values)
    assert sum(sums) == sum(values)
    assert sum(squares) == sum(value * value for value in values)
    assert min((low for low in lows if low is not None), default=None) == min(values, default=None)
    assert max((high for high in highs if high is not None), default=None) == max(values, default=None)
    assert sum(record.pane_us for record in found) == len(levels) * SECOND, "no gap and no overlap"


def test_a_vehicle_is_a_pair_of_times_between_samples():
    """Level 0 at 1 s and 1 at 2 s: it reached 0.6 at 1.6 s. It fell from 1 at 4 s to 0 at 5 s: 0.4 at 4.6 s."""
    found = run(program(VehicleEvents(OVER)), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    assert found == [(1.6, VehicleEvent(0, 3 * SECOND))]


@pytest.mark.parametrize("levels", [
    [0, 0.5, 0.5, 0],                 # never over
    [0, 0.5, 0.59, 0.41, 0.5],        # between the two
    [0, 1, 1, 1],                     # has not left
    [None, None],
])  # fmt: skip
def test_levels_that_do_not_cross_the_threshold_are_no_vehicle(levels):
    assert run(program(VehicleEvents(OVER)), levels) == []


def test_a_level_that_trembles_is_one_vehicle():
    assert len(run(program(VehicleEvents(OVER)), [0, 1, 0.5, 0.7, 0.5, 0.9, 0.3, 0.5, 0])) == 1


def test_more_vehicles_than_allowed_are_counted_not_sent():
    asked = program(VehicleEvents(OVER, at_most_per_second=2), period_us=100_000)
    execution = Execution(asked, 0)
    found = [record for place in range(20) for record in execution.take(place * 100_000, (float(place % 2),))]
    assert [stamp // SECOND for stamp, _ in found] == [0, 0, 1, 1]
    assert execution.suppressed == 5
    execution.close(2 * SECOND)
    assert execution.suppressed == 6, "the last one has not left"


def test_counts_come_every_interval_also_when_they_are_zero():
    found = run(program(VehicleCount(OVER, 3 * SECOND)), [0, 1, 0, 1, 1, 0, 0, 0, 0, 1], begins=1)
    assert found == [
        (END_OF[2], VehicleTally(0, 2 * SECOND, 1)),
        (END_OF[5], VehicleTally(0, 3 * SECOND, 1)),
        (END_OF[8], VehicleTally(0, 3 * SECOND, 0)),
        (11, VehicleTally(0, 2 * SECOND, 1)),
    ]


REPORTS = st.sampled_from([
    None, SendOnChange((), 5 * SECOND), Panes(3 * SECOND), VehicleEvents(OVER), VehicleCount(OVER, 4 * SECOND),
])  # fmt: skip


@given(REPORTS, st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]), max_size=40), st.integers(0, 9))
def test_records_are_in_order_and_never_before_what_was_open(report, levels, begins):
    execution = Execution(program(report), begins * SECOND)
    low_watermark_us, last = -math.inf, -math.inf
    for place, level in enumerate([*levels, None]):
        now_us = (begins + place) * SECOND
        taken = execution.close(now_us) if level is None else execution.take(now_us, (level,))
        for stamp, _ in taken:
            # In the end send-on-change repeats a sample, which the mote leaves out if its low watermark has passed it.
            assert stamp >= low_watermark_us or (level is None and isinstance(report, SendOnChange))
            assert stamp >= last
            last = stamp
        open_us = execution.open_us
        low_watermark_us = max(low_watermark_us, now_us + SECOND if open_us is None else min(open_us, now_us + SECOND))
