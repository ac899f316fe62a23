"""Each unit and part of the calendar against DuckDB, over all years; texts against a second way to read them."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
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
    floor_to,
    interval_plus,
    number_of,
    part,
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
