"""Demands in, program out: merging the demands of queries, and the sensor's program."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.acquisition.merging import MergedProgram, Merger
from protocols.acquisition.needs import Need, NeedKind, answers, fold_demands
from protocols.acquisition.observed import Observed
from protocols.acquisition.program_reports import Abilities, ProgramStyle, SensorTraits, allow_changes
from protocols.power.profiles import find_profile
from protocols.wire.demands import EventDemand, PaneDemand, PropertyBand, QueryDemand
from protocols.wire.programs import (
    Band,
    DeadBand,
    ListenSchedule,
    Measure,
    Panes,
    SamplingProgram,
    SendOnChange,
    Several,
    Threshold,
    reports_of,
)
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND = 1_000_000
MINUTE = 60 * SECOND
SCHEMA = StreamSchema(
    "traffic",
    (
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL),
        Field("flow", FieldType.INTEGER),
        Field("note", FieldType.TEXT),
    ),
)
LISTEN = ListenSchedule(5 * MINUTE, 50_000)
AVERAGE = (Measure.COUNT, Measure.SUM)
OVER = Threshold("speed", 0.6, 0.4)
SLOW = Band("speed", high=10.0)


def q(name, fields="", period=None, **rest):
    return QueryDemand(name, tuple(fields.split()), period and round(period * SECOND), **rest)


def merge(demands, *, observed=None, most=7, segment=3, **traits):
    about = SensorTraits(
        **{
            "default_period_us": 10 * SECOND,
            "minimum_period_us": 2 * SECOND,
            "profile": find_profile("telosb"),
            **traits,
        }
    )
    folded = fold_demands(demands, SCHEMA)
    return Merger(folded, ProgramStyle(most, LISTEN), observed).merge(about, {"segment": segment}), folded.refused


def pane_demand(fingerprint="f", pane=60, measures=AVERAGE):
    return PaneDemand(fingerprint, pane * SECOND, measures)


@pytest.mark.parametrize(("demands", "fields", "period"), [
    ([], (), 0),
    ([q("a", "speed")], ("speed",), 10),
    ([q("a", "speed", 5)], ("speed",), 5),
    ([q("a", "speed", 30), q("b", "flow")], ("speed", "flow"), 10),
    ([q("a", "flow", 30), q("b", "speed", 3), q("c", "speed", 60)], ("speed", "flow"), 3),
    ([q("too slow for both", "flow", 5), q("b", "speed", 3)], ("speed", "flow"), 3),
    ([q("too fast", "speed", 1)], ("speed",), 2),
    ([q("too fast", "speed", 0.75)], ("speed",), 2.25),
    ([q("only instants")], ("speed",), 10),
    ([q("fixed only", "segment", 4)], ("speed",), 4),
    ([q("fixed too", "flow segment", 4)], ("flow",), 4),
    ([q("wrong", "colour", 2), q("b", "flow", 7)], ("flow",), 7),
    ([q("wrong", "speed colour", 3)], (), 0),
])  # fmt: skip
def test_a_program_has_the_fields_and_the_common_period_of_its_demands(demands, fields, period):
    program = merge(demands, most=1)[0].program
    assert program.fields == fields
    assert program.period_us == period * SECOND


@pytest.mark.parametrize(("demand", "words"), [
    (q("a", "speed colour"), "no field 'colour'"),
    (q("a", "speed", bands=(Band("segment", 1.0),)), "'segment' of stream 'traffic' is not sampled as a number"),
    (q("a", "speed", bands=(Band("note", 1.0),)), "'note'"),
    (q("a", "speed", sensors=(PropertyBand("speed", 1.0),)), "cannot choose sensors"),
    (q("a", "note", panes=pane_demand()), "text and cannot be added up"),
    (q("a", events=EventDemand("e", Threshold("level", 1, 0))), "no field 'level'"),
])  # fmt: skip
def test_demands_that_sensors_cannot_answer_are_refused_without_affecting_others(demand, words):
    merged, refused = merge([demand, q("b", "flow", 7)])
    assert [each.query for each in refused] == ["a"]
    assert words in refused[0].reason
    assert merged.program.fields == ("flow",)


def test_sensors_that_no_query_is_about_sleep():
    demanded = [
        q("a", "speed", 5, sensors=(PropertyBand("segment", 3, 4),)),
        q("b", "flow", sensors=(PropertyBand("segment", 9),)),
    ]
    assert merge(demanded, segment=3)[0].program.fields == ("speed",)
    assert merge(demanded, segment=9)[0].program.fields == ("flow",)
    assert merge(demanded, segment=1)[0].program == SamplingProgram(listen=LISTEN)


def kinds(merged: MergedProgram) -> list[str]:
    return [
        type(alone.report).__name__ if alone.report else "bands" if alone.bands else "all"
        for alone in reports_of(merged.program)
    ]


def test_rare_values_at_a_high_rate_and_means_at_a_low_one_go_apart():
    """Together they would be every sample at the high rate."""
    demanded = [
        q("standstill", "speed", 2, bands=(SLOW,)),
        q("mean", "speed", 30, panes=pane_demand(), output_us=MINUTE),
    ]
    observed = Observed()
    for value in range(100):
        observed.see("speed", float(value), float(value - 1))
    merged, _ = merge(demanded, observed=observed)
    assert isinstance(merged.program.report, Several)
    assert merged.program.period_us == 2 * SECOND
    assert "bands" in kinds(merged)
    assert "instead of" in merged.reason


def test_means_alone_become_panes():
    merged, _ = merge(
        [
            q("a", "speed", 2, panes=pane_demand("f", 60)),
            q("b", "speed", 2, panes=pane_demand("f", 900, (Measure.MAX,))),
        ]
    )
    assert merged.program.report == Panes(MINUTE, (Measure.COUNT, Measure.SUM, Measure.MAX))


def test_a_need_of_every_sample_answers_all_others():
    merged, _ = merge([q("a", "speed", 2), q("b", "speed", 4, panes=pane_demand()), q("c", "speed", 2, bands=(SLOW,))])
    assert kinds(merged) in (["all"], ["SendOnChange"])


def test_unchanged_samples_are_left_out_if_that_is_cheaper():
    observed = Observed()
    for value in range(1000):
        observed.see("speed", float(value // 50), float((value - 1) // 50))
    merged, _ = merge([q("a", "speed", 2)], observed=observed)
    assert kinds(merged) == ["SendOnChange"]
    tolerant, _ = merge([q("a", "speed", 2, tolerances=(DeadBand("speed", 1.5),))], observed=observed)
    assert tolerant.milliwatts < merged.milliwatts
    assert tolerant.program.report.dead_bands == (DeadBand("speed", 1.5),)
    both, _ = merge([q("a", "speed", 2, tolerances=(DeadBand("speed", 1.5),)), q("b", "speed", 2)], observed=observed)
    assert both.program.report.dead_bands == (DeadBand("speed", 0.0),), "a query without tolerance gets exact values"


def test_a_device_without_abilities_sends_every_sample():
    plain = Abilities(filters=False, sends_on_change=False, aggregates=False, detects_events=False, several=False)
    demanded = [q("standstill", "speed", 2, bands=(SLOW,)), q("mean", "speed", 30, panes=pane_demand())]
    assert kinds(merge(demanded, abilities=plain)[0]) == ["all"]


def test_a_device_that_detects_no_events_packs_its_samples_as_for_any_query() -> None:
    plain = Abilities(filters=False, sends_on_change=False, aggregates=False, detects_events=False, several=False)
    passages = q("passages", period=2, events=EventDemand("e", Threshold("speed", 60.0, 40.0)))
    merged, _ = merge([passages], abilities=plain)
    assert kinds(merged) == ["all"]
    assert merged.program.samples_per_packet == 7
    assert merge([passages], abilities=plain, most=1)[0].program.samples_per_packet == 1


def test_a_battery_that_has_to_last_slows_sampling_but_not_below_what_queries_state():
    demanded = [q("a", "speed", 2, slowest_us=MINUTE), q("b", "flow", 10)]
    free, _ = merge(demanded, battery_joules=20_000.0)
    life = free and SensorTraits(1, 1, find_profile("telosb"), 20_000.0).days(free.milliwatts)
    lifetime_us = round(life * 1.2 * 86_400 * SECOND)
    kept, _ = merge(
        [msgspec.structs.replace(demanded[0], lifetime_us=lifetime_us), demanded[1]], battery_joules=20_000.0
    )
    assert kept.stretched > 1
    assert kept.lifetime_kept
    assert kept.milliwatts < free.milliwatts
    assert (
        any(report.period_us == 10 * SECOND for report in reports_of(kept.program))
        or kept.program.period_us <= 10 * SECOND
    )
    impossible, _ = merge(
        [msgspec.structs.replace(demanded[0], lifetime_us=lifetime_us * 100), demanded[1]], battery_joules=20_000.0
    )
    assert not impossible.lifetime_kept
    assert "will not last" in impossible.reason
    owner, _ = merge(demanded, battery_joules=20_000.0, lifetime_us=lifetime_us)
    assert owner.program == kept.program


panes = st.builds(
    lambda pane, measures: PaneDemand("f", pane * SECOND, measures),
    st.sampled_from([30, 60, 300]),
    st.sampled_from([(), AVERAGE, (Measure.MIN,)]),
)
demands = st.lists(
    st.builds(
        QueryDemand,
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(["speed", "flow", "segment"]), unique=True).map(tuple),
        st.none() | st.sampled_from([1, 2, 3, 5, 30]).map(lambda seconds: seconds * SECOND),
        st.sampled_from([(), (SLOW,), (Band("flow", 1.0, 5.0),), (SLOW, Band("speed", low=90.0))]),
        st.just(()),
        st.none() | panes,
        silence_us=st.sampled_from([0, 0, MINUTE, 10 * MINUTE]),
    ),
    max_size=5,
)


def own_fingerprint(demand: QueryDemand) -> QueryDemand:
    """Give a demand the fingerprint of the samples that it aggregates."""
    if demand.panes is None:
        return demand
    demand = msgspec.structs.replace(demand, silence_us=0)
    number = hash((demand.period_us, demand.bands)) & 0xFFFF
    return msgspec.structs.replace(demand, panes=msgspec.structs.replace(demand.panes, fingerprint=f"f{number:x}"))


def comes_in_time(report: SamplingProgram, need: Need) -> bool:
    """Return whether samples of a report stay away for no longer than a need allows; only then it may be NULLs."""
    if not isinstance(report.report, SendOnChange):
        return True
    return report.report.maximum_silence_us <= max(need.patience_us, need.silence_us)


def test_changes_are_sent_while_all_queries_need_only_these():
    observed = Observed()
    for value in range(1000):
        observed.see("speed", float(value // 50), float((value - 1) // 50))
        observed.see("flow", float(value), float(value - 1))
    held, longer = q("held", "speed", 2, silence_us=MINUTE), q("longer", "speed", 4, silence_us=10 * MINUTE)
    alone, _ = merge([held], observed=observed, most=1)
    assert alone.program.report == SendOnChange((DeadBand("speed", 0.0),), MINUTE)
    assert "instead of" in alone.reason
    together, _ = merge([held, longer], observed=observed, most=1)
    assert together.program.report == SendOnChange((DeadBand("speed", 0.0),), MINUTE)
    assert kinds(merge([held, q("all", "speed", 2)], observed=observed, most=1)[0]) == ["all"]
    assert kinds(merge([held, q("all", "speed", 4)], observed=observed, most=1)[0]) == ["all"]
    assert kinds(merge([q("all", "speed", 2)], observed=observed, most=1)[0]) == ["all"]
    assert kinds(merge([q("all", "speed", 2)], observed=observed, most=7)[0]) == ["SendOnChange"]
    assert kinds(merge([held, q("all", "speed", 2)], observed=observed, most=7)[0]) == ["all"], "it would get NULLs"
    many = [q(f"held{number}", "speed", 2, silence_us=(10 + number) * SECOND) for number in range(20)]
    assert kinds(merge(many, observed=observed, most=1)[0]) == ["SendOnChange"]
    later = q("all", "speed", 2, output_us=MINUTE)
    assert kinds(merge([*many, later], observed=observed, most=1)[0]) == ["all"], "the others do not imply it"


@settings(max_examples=60, deadline=None)
@given(demands, st.sampled_from([1, 7]), st.randoms())
def test_every_need_is_answered_whatever_the_order(demanded, most, random):
    demanded = [own_fingerprint(each) for each in demanded]
    merged, refused = merge(demanded, most=most, minimum_period_us=SECOND, default_period_us=10 * SECOND)
    assert not refused
    assert merged.program.sleeping == (not demanded)
    for need, _ in merged.needs:
        answering = [report for report in reports_of(merged.program) if answers(report, need)]
        assert answering, need
        assert any(comes_in_time(report, need) for report in answering), need
    random.shuffle(demanded)
    again, _ = merge(demanded, most=most, minimum_period_us=SECOND, default_period_us=10 * SECOND)
    assert again.milliwatts == pytest.approx(merged.milliwatts)


def test_a_device_that_samples_when_it_likes_sends_changes_only_where_each_query_allows_it():
    able = Abilities(filters=False, aggregates=False, detects_events=False, several=False, keeps_time=False)
    exact = Need(NeedKind.SAMPLES, ("speed",), 1_000_000, patience_us=60_000_000)
    rough = replace(exact, tolerances=(("speed", 1.0),))
    held = replace(exact, silence_us=60_000_000)
    assert [allow_changes(needs, able) for needs in ([exact], [rough], [held], [rough, held], [rough, exact])] == [
        *(False, True, True, True, False)
    ]
    assert allow_changes([exact], Abilities())
    assert not allow_changes([rough], replace(able, sends_on_change=False))
