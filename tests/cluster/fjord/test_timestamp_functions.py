"""Each unit and part of the calendar against DuckDB, over all years; texts against a second way to read them."""

from __future__ import annotations

import random
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.expressions.timestamps import (
    EARLIEST_US,
    LATEST_US,
    LONGEST_INTERVAL_US,
    UNITS,
    interval_iso,
    interval_us,
    timestamp_iso,
    timestamp_us,
)
from cluster.fjord.timestamp_functions import (
    PARTS,
    epoch,
    floor_to,
    interval_plus,
    number_of,
    part,
    parts,
    plus,
    times,
    timestamp_of_text,
    timestamps_in,
)
from tests.cluster.oracle.time_meaning import connected

DICE = random.Random(26)
INSTANTS = [EARLIEST_US, LATEST_US, -1, 0, 1, *(DICE.randrange(EARLIEST_US, LATEST_US) for _ in range(2000))]


def meant(sql: str) -> list[int | None]:
    with connected() as connection:
        connection.register("given", pl.DataFrame({"us": INSTANTS}).to_arrow())
        return [row[0] for row in connection.execute(f"SELECT {sql} FROM given").fetchall()]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_begins_where_duckdb_begins_it(unit: str) -> None:
    assert floor_to(unit)(pl.Series(INSTANTS)).to_list() == meant(f"f_floor('{unit.lower()}', us)")


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_numbered_from_1970_on(unit: str) -> None:
    assert number_of(unit)(pl.Series(INSTANTS)).to_list() == meant(f"f_steps('{unit.lower()}', 0, us)")


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_that_of_duckdb(name: str) -> None:
    assert part(name)(pl.Series(INSTANTS)).to_list() == meant(f"f_part('{name.lower()}', us)")


def test_what_leaves_the_years_or_the_longest_interval_is_null() -> None:
    ends = pl.Series([EARLIEST_US, LATEST_US])
    assert plus(ends, pl.Series([-1])).is_null().to_list() == [True, False]
    assert plus(ends, pl.Series([1])).is_null().to_list() == [False, True]
    assert plus(ends, pl.Series([LONGEST_INTERVAL_US])).is_null().all()
    longest = pl.Series([LONGEST_INTERVAL_US])
    assert interval_plus(longest, pl.Series([1])).to_list() == [None]
    assert times(longest, pl.Series([16])).to_list() == [None]  # 64 bits would wrap around to zero
    assert times(longest, pl.Series([1e300])).to_list() == [None]
    assert timestamps_in(1_000_000)(pl.Series([2**62, LATEST_US // 1_000_000 + 1, 1])).to_list() == [
        None,
        None,
        1_000_000,
    ]


INTERVALS = st.one_of(
    st.integers(-LONGEST_INTERVAL_US, LONGEST_INTERVAL_US),
    st.integers(-200, 200),
    st.sampled_from([LONGEST_INTERVAL_US, -LONGEST_INTERVAL_US, 2**53 + 1, 1_100_000]),
)
INTEGERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-20, 20), st.sampled_from([-(2**63), 2**63 - 1]))
REALS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-3, 3),
    st.sampled_from([0.1, 0.3, 0.5, 1.5, 1.0, 1 + 2.0**-52, 5e-324, 1e300]),
)


def near(true: Fraction | None) -> int | None:
    """Return the interval next to a true one."""
    return None if true is None or abs(round(true)) > LONGEST_INTERVAL_US else round(true)


@example([(2**60 - 1, 1), (5, 2), (3, 2), (-5, 2), (2**60, -(2**63)), (-1, 2**63 - 1)])
@given(st.lists(st.tuples(st.none() | INTERVALS, st.none() | INTEGERS), min_size=1, max_size=5))
def test_intervals_times_and_by_integers_are_exact(rows: list[tuple[int | None, int | None]]) -> None:
    intervals, numbers = (pl.Series([row[place] for row in rows], dtype=pl.Int64) for place in (0, 1))
    products = [None if i is None or n is None else near(Fraction(i * n)) for i, n in rows]
    quotients = [None if i is None or not n else near(Fraction(i, n)) for i, n in rows]
    assert times(intervals, numbers).to_list() == products
    assert parts(intervals, numbers).to_list() == quotients
    assert parts(intervals, numbers[:1]).to_list()[0] == quotients[0]


@example(
    [(2**60 - 1, 1.0), (4_503_599_627_369_786, 1.5), (5, 0.3), (5, 0.5), (2**53 + 1, 3.0), (0, 1e300), (2**60, 1e300)]
)
@given(st.lists(st.tuples(st.none() | INTERVALS, st.none() | REALS), min_size=1, max_size=5))
def test_intervals_times_and_by_reals_are_rounded_once(rows: list[tuple[int | None, float | None]]) -> None:
    intervals = pl.Series([row[0] for row in rows], dtype=pl.Int64)
    numbers = pl.Series([row[1] for row in rows], dtype=pl.Float64)
    products = [None if i is None or x is None else near(i * Fraction(x)) for i, x in rows]
    quotients = [None if i is None or not x else near(i / Fraction(x)) for i, x in rows]
    assert times(intervals, numbers).to_list() == products
    assert parts(intervals, numbers).to_list() == quotients


@example([253_402_300_799_999_999, 2**53 + 1, 1_100_000])
@given(st.lists(st.none() | INTERVALS | st.integers(EARLIEST_US, LATEST_US), min_size=1, max_size=5))
def test_seconds_are_the_reals_next_to_the_true_ones(values: list[int | None]) -> None:
    meant = [None if each is None else each / 1_000_000 for each in values]  # Python divides integers so
    assert epoch(pl.Series(values, dtype=pl.Int64)).to_list() == meant


def test_seconds_of_a_tenth_are_written_as_one() -> None:
    assert epoch(pl.Series([1_100_000])).to_list() == [1.1]
    assert epoch(pl.Series([253_402_300_799_999_999, 1_100_000])).to_list() == [253_402_300_800.0, 1.1]


DATE = "[0-9]{4}-[01][0-9]-[0-3][0-9]"
CLOCK = r"[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?"
ZONE = "(Z|[+-][0-2][0-9](:?[0-6][0-9])?)"
TEXTS = st.one_of(
    st.integers(EARLIEST_US, LATEST_US).map(timestamp_iso),
    st.from_regex(rf" ?{DATE}([T ]{CLOCK})?( ?{ZONE})?", fullmatch=True),
    st.text(max_size=30),
)


@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_columns_of_texts_are_read_as_literals_are(texts: list[str]) -> None:
    assert timestamp_of_text(pl.Series(texts)).to_list() == list(map(timestamp_us, texts))


@given(st.integers(EARLIEST_US, LATEST_US), st.integers(-LONGEST_INTERVAL_US, LONGEST_INTERVAL_US))
def test_what_is_written_is_read_again(instant_us: int, length_us: int) -> None:
    assert timestamp_us(timestamp_iso(instant_us)) == instant_us
    assert interval_us(interval_iso(length_us)) == length_us
