"""Durations, rates and numbers of rows: a unit is asked for, and whatever is written gets an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.language.declarations import CreateRelation
from cluster.language.errors import FjordSqlError
from cluster.language.item_clause import ItemClause
from cluster.language.quantities import (
    DURATION_UNITS,
    LONGEST_US,
    QuantityError,
    distance_us,
    duration_us,
    exactly,
    period_us,
    row_count,
)
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.translation import parse_statement, translate, translate_derived
from cluster.operators import Source, TimeWindow, Zip
from cluster.plan.demand import demands_of
from protocols.wire.demands import QueryDemand, StreamDemand, decode_demand
from protocols.wire.frames import LONGEST_PERIOD_US, VERSION, encode
from tests.cluster.language.example_catalog import CATALOG


def _of_clause(clause: ItemClause) -> Iterator[tuple[str, str]]:
    text = f"SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) {clause.word}({{}})"
    yield clause.word, text
    if clause.bounds is not None:
        worst, best = clause.bounds
        yield worst, text.format(f"{worst} {{}}, {best} 1 US")
        yield best, text.format(f"{worst} 36500 DAYS, {best} {{}}")


DURATIONS = {
    **{name: text for clause in ITEM_CLAUSES for name, text in _of_clause(clause)},
    "window": "SELECT lane FROM traffic WINDOW(RANGE {})",
    "slide": "SELECT MAX(lane) AS m FROM traffic WINDOW(RANGE 1 HOUR SLIDE {})",
    "smallest window": "SELECT lane FROM traffic WINDOW(RANGE MIN {}, MAX 36500 DAYS)",
    "largest window": "SELECT lane FROM traffic WINDOW(RANGE MIN 1 US, MAX {})",
    "sample": "SELECT lane FROM traffic SAMPLE EVERY {}",
    "sample of the query": "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) SAMPLE EVERY {}",
    "slowest sample": "SELECT lane FROM traffic SAMPLE EVERY 1 US AT LEAST EVERY {}",
    "lifetime": "SELECT lane FROM traffic LIFETIME {}",
    "since": "SELECT lane FROM traffic SINCE {} AGO",
    "zip": "SELECT lane FROM traffic ZIP JOIN weather WITHIN {}",
    "pattern": "SELECT n FROM traffic MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES COUNT(*) AS n PATTERN (A+) WITHIN {})",
    "zip from": "SELECT lane FROM traffic ZIP JOIN weather WITHIN {} TO 36500 DAYS",
    "asof": "SELECT lane FROM traffic ASOF JOIN weather WITHIN {}",
    "near": "SELECT lane FROM traffic JOIN weather WITHIN {} ON TRUE",
    "near to": "SELECT lane FROM traffic JOIN weather WITHIN - 1 DAY TO {} ON TRUE",
    "zip to": "SELECT lane FROM traffic ZIP JOIN weather WITHIN - 1 DAY TO {}",
}
RELATIONS = {
    "refresh": "CREATE RELATION a FROM 'b' REFRESH EVERY {}",
    "stale": "CREATE RELATION a FROM 'b' REFRESH EVERY 1 SECOND STALE AFTER {}",
}
OTHERS = {
    "rate": "SELECT lane FROM traffic SAMPLE RATE {}",
    "slowest rate": "SELECT lane FROM traffic SAMPLE RATE 1 KHZ AT LEAST RATE {}",
    "counted window": "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE {0} SLIDE {0}) SAMPLE EVERY 366 DAYS",
    "rows": "SELECT lane FROM traffic WINDOW(ROWS {})",
    "slide of rows": "SELECT lane FROM traffic WINDOW(ROWS 100 SLIDE {})",
    "rows by sensor": "SELECT lane FROM traffic WINDOW(PARTITION BY sensor ROWS {})",
    "fewest rows": "SELECT lane FROM traffic WINDOW(ROWS MIN {}, MAX 1000000)",
    "most rows": "SELECT lane FROM traffic WINDOW(ROWS MIN 1, MAX {})",
    "level": "SELECT * FROM traffic EVENTS(speed ABOVE {})",
    "lower level": "SELECT * FROM traffic EVENTS(speed ABOVE 1e300 BELOW {})",
    "error": "SELECT speed WITHIN {} FROM traffic",
    "argument": "CREATE STREAM a (b INT) SOURCE mqtt({})",
}
EVERYWHERE = DURATIONS | RELATIONS | OTHERS


def understood(text: str, *, registered: bool = False):
    if text.startswith("CREATE"):
        return parse_statement(text, registered=registered)
    return translate(text, CATALOG, registered=registered)


def nodes(node):
    return [node, *(each for below in node.inputs for each in nodes(below))]


@pytest.mark.parametrize("place", [*DURATIONS, *RELATIONS])
def test_a_duration_without_a_unit_is_asked_for_one(place):
    text = EVERYWHERE[place].format(5_000_000)
    with pytest.raises(FjordSqlError, match="a duration needs a unit") as caught:
        understood(text)
    assert caught.value.offending == "5000000"
    assert caught.value.start == text.index("5000000")
    assert "5000000 US" in (caught.value.hint or "")


@pytest.mark.parametrize(("place", "number", "meant"), [
    ("slide", "5", "write 5 SECONDS, or 5 US"), ("window", "1", "or 1 US"), ("lifetime", "90", "write 90 DAYS"),
    ("since", "2", "write 2 HOURS"), ("zip", "50", "write 50 MS"),
    ("asof", "5", "write 5 MINUTES"), ("stale", "5.", "write 5. MINUTES"),
])  # fmt: skip
def test_the_hint_says_what_was_probably_meant(place, number, meant):
    with pytest.raises(FjordSqlError, match="needs a unit") as caught:
        understood(EVERYWHERE[place].format(number))
    assert meant in (caught.value.hint or "")


@pytest.mark.parametrize("place", [*DURATIONS, *RELATIONS])
def test_what_was_registered_without_a_unit_goes_on_as_microseconds(place):
    text = EVERYWHERE[place]
    kept = understood(text.format("5000000"), registered=True)
    meant = understood(text.format("5000000 US"))
    if isinstance(kept, CreateRelation):
        assert (kept.refresh_us, kept.stale_us) == (meant.refresh_us, meant.stale_us)
    else:
        assert kept.node == meant.node
    assert any("5000000 microseconds" in each for each in kept.warnings)
    assert not any("microseconds" in each for each in meant.warnings)


def test_a_registered_derived_stream_goes_on_as_microseconds():
    text = "CREATE STREAM load AS SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE {0} SLIDE {0})"
    with pytest.raises(FjordSqlError, match="needs a unit"):
        translate_derived(text.format(100), CATALOG)
    kept = translate_derived(text.format(100), CATALOG, registered=True)
    assert kept.node == translate_derived(text.format("100 US"), CATALOG).node
    assert kept.warnings == ("100 without a unit is 100 microseconds",)
    assert translate("SELECT n FROM load", CATALOG.with_stream(kept)).warnings == ()


@pytest.mark.parametrize("zero", ["0", "0.0", "0 US", "- 0"])
def test_zero_needs_no_unit(zero):
    (zipped,) = (each for each in nodes(understood(DURATIONS["zip"].format(zero)).node) if isinstance(each, Zip))
    assert (zipped.low_us, zipped.high_us) == (0, 0)
    assert understood(DURATIONS["zip from"].format(zero)).warnings == ()


@pytest.mark.parametrize(("text", "offending", "reason", "hint"), [
    ("RANGE MIN 2 HOURS, MAX 1 HOUR", "2 HOURS, MAX 1 HOUR", "the wrong way round", "MIN a, MAX b"),
    ("RANGE MIN 2 HUORS, MAX 1 HOUR", "HUORS", "no unit of time", "did you mean HOURS?"),
    ("ROWS MIN 5, MAX 4", "5, MAX 4", "the wrong way round", "MIN a, MAX b"),
    ("ROWS MIN 1.5, MAX 4", "1.5", "not a positive whole number", None),
])  # fmt: skip
def test_both_bounds_of_a_range_of_qualities_are_checked(text, offending, reason, hint):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        translate(f"SELECT lane FROM traffic WINDOW({text})", CATALOG)
    assert caught.value.offending == offending
    assert hint is None or hint in (caught.value.hint or "")
    granular = "SELECT lane FROM traffic GRANULARITY(COARSEST 1 SECOND, FINEST 2 SECONDS)"
    with pytest.raises(FjordSqlError, match="the wrong way round"):
        translate(granular, CATALOG)
    assert translate(granular, CATALOG, registered=True).warnings == (
        "this range is the wrong way round, so the best is always delivered",
    )


@pytest.mark.parametrize(("place", "written", "offending", "reason"), [
    ("window", "1e99999999 SECONDS", "1e99999999 SECONDS", "the number is too large"),
    ("window", "1e90 SECONDS", "1e90 SECONDS", "the duration is too long"),
    ("window", "1e-400 SECONDS", "1e-400 SECONDS", "the number is too small"),
    ("window", "1e-7 SECONDS", "1e-7 SECONDS", "whole number of microseconds"),
    ("window", f"{'9' * 5000} US", "9" * 5000, "longer than 400 characters"),
    ("window", f"1.{'0' * 40}1 SECONDS", f"1.{'0' * 40}1 SECONDS", "whole number of microseconds"),
    ("window", f"{2**60 + 1} US", f"{2**60 + 1} US", "the duration is too long"),
    ("window", "0x10 US", "0x10 US", "no number"),
    ("window", "1_000 US", "1_000 US", "no number"),
    ("window", "5e US", "5e", "no number"),
    ("window", "5e1.5 US", "5e1.5", "no number"),
    ("window", "0 SECONDS", "0 SECONDS", "not positive"),
    ("window", "0", "0", "not positive"),
    ("rate", "1e-300 HZ", "1e-300 HZ", "the number is too small"),
    ("rate", "1e-80 HZ", "1e-80 HZ", "the rate is too low"),
    ("rate", "1e-16 KHZ", "1e-16 KHZ", "the rate is too low"),
    ("rate", "3 HZ", "3 HZ", "whole number of microseconds"),
    ("rate", "2 MHZ", "MHZ", "no unit of frequency"),
    ("rate", "1e7 HZ", "1e7 HZ", "whole number of microseconds"),
    ("rate", "10", "10", "a rate needs a unit"),
    ("rate", "0 HZ", "0 HZ", "the rate is not positive"),
    ("slowest rate", "0.0 KHZ", "0.0 KHZ", "the rate is not positive"),
    ("sample", f"{2**60 + 1} US", f"{2**60 + 1} US", "the duration is too long"),
    ("sample", "13343000 DAYS", "13343000 DAYS", "a sample period is at most 366 DAYS"),
    ("sample", f"{LONGEST_PERIOD_US + 1} US", f"{LONGEST_PERIOD_US + 1} US", "a sample period is at most 366 DAYS"),
    ("slowest sample", "732 DAYS", "732 DAYS", "a sample period is at most 366 DAYS"),
    ("rate", "3e-8 HZ", "3e-8 HZ", "whole number of microseconds"),
    ("rate", "1e-8 HZ", "1e-8 HZ", "a sample period is at most 366 DAYS"),
    ("rows", "1e30", "1e30", "the number of rows is too large"),
    ("rows", "1.5", "1.5", "not a positive whole number"),
    ("rows", "0", "0", "not a positive whole number"),
    ("rows", "10 SECONDS", "SECONDS", "takes no unit"),
    ("level", "5e", "5e", "no number"),
    ("error", "5e", "5e", "no number"),
    ("argument", "5e", "5e", "no number"),
])  # fmt: skip
def test_numbers_out_of_their_range_are_refused_with_their_place(place, written, offending, reason):
    with pytest.raises(FjordSqlError, match=reason) as caught:
        understood(EVERYWHERE[place].format(written))
    assert caught.value.offending == offending


@pytest.mark.parametrize(("written", "size_us"), [
    ("5. SECONDS", 5_000_000), ("1.5e3 MS", 1_500_000), ("15E-1 SECONDS", 1_500_000), ("5S", 5_000_000),
    (".5 SECONDS", 500_000), ("0000005 US", 5), (f"{2**60} US", 2**60), ("0.000001 seconds", 1), ("1 US", 1),
])  # fmt: skip
def test_numbers_as_people_write_them(written, size_us):
    windows = [
        each for each in nodes(understood(DURATIONS["window"].format(written)).node) if isinstance(each, TimeWindow)
    ]
    assert [each.size_us for each in windows] == [size_us]


def test_a_long_argument_of_a_source_is_no_trap():
    with pytest.raises(FjordSqlError, match="longer than 400 characters"):
        parse_statement(OTHERS["argument"].format("9" * 5000))
    assert parse_statement(OTHERS["argument"].format("12, 0.5, 1e3")).arguments == (12, 0.5, 1000.0)


NUMBERS = st.one_of(
    st.from_regex(r"[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{0,12})?", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,3}", fullmatch=True),
    st.sampled_from(["9" * 5000, f"0.{'0' * 5000}1", "1e99999999", "1e-99999999", "0e999999999999", f"{2**60}"]),
    st.sampled_from([f"{2**60 - 1}", f"{2**62}", "0x10", "0b1", "1_000", ".5", "5.", "5e", "²", "٣", "NaN", "inf"]),
)
UNITS = st.sampled_from(["", *DURATION_UNITS, "HZ", "KHZ", "MHZ", "_0", "x1", "e", "é", "hz", '"US"', "'US'"])


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(list(EVERYWHERE)), NUMBERS, st.sampled_from(["", " "]), UNITS, st.booleans())
@example("rate", "1e-12", " ", "HZ", False)
@example("sample", f"{2**60}", " ", "US", False)
@example("slowest sample", f"{2**60}", " ", "US", False)
@example("counted window", "7320", " ", "DAYS", False)
def test_every_quantity_gets_an_answer(place, number, space, unit, registered):
    text = EVERYWHERE[place].format(f"{number}{space}{unit}")
    try:
        found = understood(text, registered=registered)
    except FjordSqlError as error:
        assert 0 <= error.start <= error.end <= len(error.text)
        assert "^" in error.underlined()
        return
    if text.startswith("CREATE"):
        return
    for each in nodes(found.node):
        for name in ("size_us", "slide_us", "granule_us", "rows", "slide_rows"):
            assert 1 <= (getattr(each, name, None) or 1) <= LONGEST_US
        if isinstance(each, Source):
            assert 1 <= (each.sample_period_us or 1) <= LONGEST_PERIOD_US
            assert each.slowest_us <= LONGEST_PERIOD_US
            assert each.history is None or 1 <= (each.history.back_us or 1) <= LONGEST_US
    # What the language lets pass, the protocol carries.
    for stream, demands in demands_of("q", found.node).items():
        assert all(isinstance(each, QueryDemand) for each in demands)
        message = StreamDemand(VERSION, "cluster", stream, 1, demands)
        assert decode_demand(encode(message)) == message


@given(st.text(max_size=12), st.one_of(st.none(), st.text(max_size=6), st.sampled_from(list(DURATION_UNITS))))
def test_reading_any_quantity_raises_only_our_error(number, unit):
    for read in (duration_us, distance_us, period_us, row_count):
        try:
            assert abs(read(number, unit)) <= LONGEST_US
        except QuantityError as error:
            assert error.reason


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20, min_value=-(10**40), max_value=10**40))
def test_numbers_are_exact(number):
    assert exactly(f"{number:f}") == number
