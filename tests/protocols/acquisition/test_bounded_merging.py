"""Merging takes bounded work, whatever the demands; one that cannot be merged affects its own query only."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocols.acquisition import merging, search
from protocols.acquisition.effort import FEW_STEPS, MOST_STEPS, PRICING_STEPS, Effort, SharedEffort
from protocols.acquisition.exhaustive import Exhaustive
from protocols.acquisition.merging import MergedProgram, Merger
from protocols.acquisition.needs import MOST_INTERVALS, DemandClass, Need, NeedKind, fewer, fold_demands, united
from protocols.acquisition.observed import Observed
from protocols.acquisition.pricing import Pricing, Sensor
from protocols.acquisition.program_reports import ProgramStyle, SensorTraits, reports_in
from protocols.power.profiles import find_profile
from protocols.wire.demands import EventDemand, PaneDemand, QueryDemand
from protocols.wire.frames import LONGEST_PERIOD_US, VERSION, encode
from protocols.wire.packets import MAX_CONTROL_BYTES, Control, RunProgram, decode_control
from protocols.wire.programs import Band, ListenSchedule, Measure, Panes, ProgramReport, Threshold, reports_of
from protocols.wire.streams import Field, FieldName, FieldType, StreamSchema

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
NAMES = [FieldName(name) for name in ("speed", "flow", "level")]
SCHEMA = StreamSchema("traffic", tuple(Field(name, FieldType.REAL) for name in NAMES))
SPEED = (NAMES[0],)


def merge(demands: list[QueryDemand], **traits: Any) -> MergedProgram:
    about = SensorTraits(
        **{
            "default_period_us": SECOND // 2,
            "minimum_period_us": 1_000,
            "profile": find_profile("telosb"),
            "battery_joules": 1_000.0,
            **traits,
        }
    )
    style = ProgramStyle(7, ListenSchedule(300 * SECOND, 50_000))
    return Merger(fold_demands(demands, SCHEMA), style).merge(about, {})


def averages(name: str, every_us: int, pane_us: int, bands: tuple[Band, ...] = ()) -> QueryDemand:
    panes = PaneDemand(f"form{name}", pane_us, (Measure.COUNT, Measure.SUM))
    return QueryDemand(name, SPEED, every_us, bands, panes=panes, output_us=pane_us)


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the work independently of the counts of the code itself."""
    counts = {"programs priced": 0, "divisions": 0, "needs compared": 0}

    def counting(what: str, of: Any, name: str) -> None:
        inner = getattr(of, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            counts[what] += 1
            if counts["programs priced"] * PRICING_STEPS + counts["divisions"] > 2 * MOST_STEPS:
                pytest.fail("there is no end to it")
            return inner(*arguments, **more)

        monkeypatch.setattr(of, name, counted)

    counting("programs priced", Pricing, "_priced")
    counting("divisions", Exhaustive, "_divide")
    counting("needs compared", search, "_implied")
    return counts


periods = st.one_of(
    st.sampled_from([1, 1_000, SECOND // 2, SECOND, HOUR, DAY, LONGEST_PERIOD_US, LONGEST_PERIOD_US - 1]),
    st.integers(1, LONGEST_PERIOD_US),
    st.integers(0, 44).map(lambda bits: 2**bits),
)


@st.composite
def demands(draw: st.DrawFn) -> QueryDemand:
    """Any demand that the protocol lets pass, with periods from one end to the other."""
    name = draw(st.integers(1, 10**6).map(lambda number: f"q{number}"))
    period_us = draw(periods)
    bands = draw(st.sampled_from([(), (Band(NAMES[0], high=10.0),)]))
    kind = draw(st.sampled_from(["samples", "stretched", "panes", "events", "tallies"]))
    pane_us = draw(st.one_of(st.just(period_us), periods.map(lambda each: max(each, period_us))))
    if kind == "panes":
        return averages(name, period_us, pane_us, bands)
    if kind in ("events", "tallies"):
        panes = PaneDemand(f"p{name}", pane_us) if kind == "tallies" else None
        return QueryDemand(name, (), period_us, panes=panes, events=EventDemand("e", Threshold(NAMES[0], 0.6, 0.4)))
    slowest_us = LONGEST_PERIOD_US // period_us * period_us if kind == "stretched" else 0
    return QueryDemand(name, tuple(sorted(NAMES[:2])), period_us, bands, slowest_us=slowest_us)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(demands(), min_size=1, max_size=5, unique_by=lambda each: each.query),
    periods,
    periods,
    st.sampled_from([0, 10**15]),
)
def test_any_periods_lead_to_a_program_in_bounded_work(
    demands: list[QueryDemand], default_us: int, minimum_us: int, lifetime_us: int
) -> None:
    spent: list[Effort] = []
    steps = 10_000

    class Watched(SharedEffort):
        def share(self) -> Effort:
            spent.append(Effort(steps))
            return spent[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "SharedEffort", Watched)
        merged = merge(demands, default_period_us=default_us, minimum_period_us=minimum_us, lifetime_us=lifetime_us)
    assert merged.left_out == ()
    # What is left when the last step has been taken: a few programs for each of the periods still tried.
    assert all(each.left > -steps for each in spent)
    decode_control(encode(Control(VERSION, "m1", (RunProgram(merged.program, 0),))))


@pytest.mark.parametrize("demands", [
    [QueryDemand(f"q{n}", SPEED, SECOND, (Band(NAMES[0], high=float(n)),)) for n in range(600)],
    [QueryDemand(f"q{n}", SPEED, (1_000 + n) * SECOND) for n in range(600)],
    [QueryDemand(f"q{n}", (), SECOND, events=EventDemand(f"e{n}", Threshold(NAMES[0], n, 0))) for n in range(600)],
    [averages(f"{n}", SECOND, 60 * SECOND, (Band(NAMES[0], high=float(n)),)) for n in range(600)],
], ids=["bands", "periods", "detectors", "panes"])  # fmt: skip
def test_many_different_demands_take_work_in_proportion(demands: list[QueryDemand], worked: dict[str, int]) -> None:
    assert merge(demands).left_out == ()
    assert worked["needs compared"] <= 3 * search.MOST_COMPARED * len(demands)
    assert worked["programs priced"] <= MOST_STEPS // PRICING_STEPS + 100
    assert worked["divisions"] <= MOST_STEPS


def test_a_battery_that_must_last_does_not_have_every_longer_period_searched(worked: dict[str, int]) -> None:
    demands = [
        QueryDemand(f"q{n}", tuple(sorted(NAMES[n % 2 :])), SECOND * n, slowest_us=SECOND * n * 2_000)
        for n in range(1, 7)
    ]
    merged = merge(demands, battery_joules=1.0, lifetime_us=10**15)
    assert merged.stretched > 1
    assert worked["programs priced"] * PRICING_STEPS + worked["divisions"] <= 2 * MOST_STEPS


def test_sensors_share_the_work_and_each_has_some() -> None:
    shared = SharedEffort(MOST_STEPS + 7)
    first = shared.share()
    first.spend(MOST_STEPS)
    assert first.exhausted
    shared.settle(MOST_STEPS)
    assert [shared.share().left, shared.share().left] == [FEW_STEPS, FEW_STEPS]


@pytest.mark.parametrize("panes", [False, True])
def test_values_in_hundreds_of_intervals_make_programs_that_motes_can_run(panes: bool) -> None:
    bands = tuple(Band(NAMES[0], float(2 * n), float(2 * n)) for n in range(256))
    demands = averages("a", SECOND, 60 * SECOND, bands) if panes else QueryDemand("a", SPEED, SECOND, bands)
    merged = merge([demands, QueryDemand("b", (NAMES[1],), HOUR)])
    (report,) = [each for each in reports_in(merged.program) if NAMES[0] in each.fields]
    assert report.kind is None
    assert len(report.bands) <= MOST_INTERVALS
    assert report.bands == () or (report.bands[0].low, report.bands[-1].high) == (0.0, 510.0)


def test_programs_fit_into_a_control_frame() -> None:
    long = FieldName("s" * 64)
    schema = StreamSchema("traffic", (Field(long, FieldType.REAL), *SCHEMA.fields))
    demands = [
        QueryDemand(
            f"q{n}", (long,), n * 60 * SECOND, tuple(Band(long, 2.0 * k + n / 100, 2.0 * k + 1) for k in range(64)),
            panes=PaneDemand(f"f{n}", n * 3_600 * SECOND, (Measure.COUNT,)), output_us=n * 3_600 * SECOND,
        ) for n in (7, 11, 13, 17)
    ]  # fmt: skip
    about = SensorTraits(SECOND, SECOND, find_profile("telosb"))
    merged = Merger(fold_demands(demands, schema), ProgramStyle(1, ListenSchedule(300 * SECOND, 50_000))).merge(
        about, {}
    )
    assert merged.left_out == ()
    frame = encode(Control(VERSION, "m1", (RunProgram(merged.program, 0),)))
    assert len(frame) <= MAX_CONTROL_BYTES
    assert len(merged.reason) <= 2_048


def test_a_program_that_is_too_long_is_none_to_choose() -> None:
    long = FieldName("s" * 64)
    reports = [
        ProgramReport(
            (long,), SECOND, tuple(Band(long, 2.0 * k + n / 100, 2.0 * k + 1) for k in range(64)), Panes(n * SECOND)
        )
        for n in range(1, 5)
    ]
    needs = [Need(NeedKind.SAMPLES, (long,), SECOND, patience_us=SECOND)]
    sensor = Sensor((long,), SECOND, find_profile("telosb"))
    pricing = Pricing(sensor, ProgramStyle(1, ListenSchedule(300 * SECOND, 50_000)), Observed())
    assert math.isfinite(pricing.candidate(reports[:1], needs).milliwatts)
    assert pricing.candidate(reports, needs).milliwatts == math.inf


def test_panes_of_few_intervals_are_still_made_by_the_mote() -> None:
    bands = tuple(Band(NAMES[0], float(2 * n), float(2 * n)) for n in range(20))
    merged = merge([averages("a", SECOND, HOUR, bands)])
    (report,) = reports_of(merged.program)
    assert isinstance(report.report, Panes)
    assert report.bands == bands


def test_a_demand_that_cannot_be_merged_costs_its_owner_only() -> None:
    # No decoder accepts such a period; merging continues all the same.
    merged = merge([QueryDemand("wild", SPEED, 2**70), averages("b", SECOND, HOUR)])
    assert [each.query for each in merged.left_out] == ["wild"]
    assert merged.program == merge([averages("b", SECOND, HOUR)]).program


def test_where_no_search_succeeds_every_sample_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault in the model")

    monkeypatch.setattr(merging.Search, "cheapest", fail)
    merged = merge([QueryDemand("a", SPEED, 6 * SECOND), QueryDemand("b", (NAMES[1],), 4 * SECOND)])
    assert [(each.query, "a fault in the model" in each.reason) for each in merged.left_out] == [
        ("a", True),
        ("b", True),
    ]
    assert merged.program.sleeping

    failures = iter([True])

    def fail_together(merger: Merger, classes: list[DemandClass], *_: object, **__: object) -> MergedProgram:
        if len(classes) > 1 and next(failures, True):
            raise ZeroDivisionError("a fault in the model")
        return MergedProgram(merging.SLEEP, "")

    monkeypatch.setattr(merging.Merger, "_merged", fail_together)
    merged = merge([QueryDemand("a", SPEED, 6 * SECOND), QueryDemand("b", (NAMES[1],), 4 * SECOND)])
    assert merged.left_out == ()
    assert (merged.program.fields, merged.program.period_us) == (("speed", "flow"), 2 * SECOND)
    assert merged.needs


def slowly_fewer(intervals: list[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """Unite the closest two, one pair after the other."""
    found = list(intervals)
    while len(found) > most:
        gaps = [found[place + 1][0] - found[place][1] for place in range(len(found) - 1)]
        place = gaps.index(min(gaps))
        found[place : place + 2] = [(found[place][0], found[place + 1][1])]
    return tuple(found)


numbers = st.one_of(st.integers(-50, 50).map(float), st.floats(allow_nan=False, allow_infinity=False, width=32))


@given(
    st.lists(st.tuples(numbers, st.sampled_from([0.0, 0.25])).map(lambda each: (each[0], sum(each))), max_size=40),
    st.integers(1, 20),
)
def test_the_closest_intervals_are_united(some: list[tuple[float, float]], most: int) -> None:
    intervals = united(some)
    found = fewer(intervals, most)
    assert found == slowly_fewer(list(intervals), most)
    assert all(any(low <= begin and end <= high for low, high in found) for begin, end in intervals)


def test_intervals_without_an_end_are_united_too() -> None:
    assert fewer(((-math.inf, 0.0), (1.0, 2.0), (9.0, math.inf)), 2) == ((-math.inf, 2.0), (9.0, math.inf))
