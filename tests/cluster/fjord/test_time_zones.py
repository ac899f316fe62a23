"""Clocks of zones: by hand where they change, and against DuckDB's calendar elsewhere."""

from __future__ import annotations

import random

import duckdb
import polars as pl
import pytest

from cluster.expressions.timestamps import EARLIEST_US, HOUR_US, LATEST_US, timestamp_iso, timestamp_us
from cluster.fjord.timestamp_functions import local_in, local_of

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "UTC")


def us(text: str) -> int:
    found = timestamp_us(text)
    assert found is not None
    return found


def shown(value: pl.Series) -> list[str | None]:
    return [None if each is None else timestamp_iso(each)[:19] for each in value.to_list()]


def test_clocks_leap_in_spring_and_go_back_in_autumn() -> None:
    before = ["2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]
    found = local_in("Europe/Berlin")(pl.Series(list(map(us, before))))
    assert shown(found) == ["2026-03-29T01:59:59", "2026-03-29T03:00:00", "2026-10-25T02:30:00", "2026-10-25T02:30:00"]


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        ("2026-03-29T01:59:59", "2026-03-29T00:59:59"),
        ("2026-03-29T02:30:00", "2026-03-29T01:30:00"),  # never shown: 03:30 by the offset before the leap
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00"),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00"),  # shown twice: the first time
        ("2026-10-25T03:00:00", "2026-10-25T02:00:00"),
        ("1893-03-31T23:59:59", "1893-03-31T23:06:31"),  # before there were zones
    ],
)
def test_a_local_timestamp_is_one_instant(local: str, instant: str) -> None:
    assert shown(local_of("Europe/Berlin")(pl.Series([us(local)]))) == [instant]


def test_what_is_beyond_the_years_is_null() -> None:
    ends = pl.Series([EARLIEST_US, LATEST_US, None], dtype=pl.Int64)
    assert local_in("America/New_York")(ends).is_null().to_list() == [True, False, True]
    assert local_in("Asia/Kolkata")(ends).is_null().to_list() == [False, True, True]
    assert local_of("Asia/Kolkata")(ends).is_null().to_list() == [True, False, True]
    assert local_of("America/New_York")(ends).is_null().to_list() == [False, True, True]
    assert local_in("Europe/Berlin")(pl.Series([], dtype=pl.Int64)).to_list() == []


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_show_what_those_of_duckdb_show(zone: str) -> None:
    dice = random.Random(zone)
    hours = [dice.randrange(us("1971-01-01") // HOUR_US, us("2037-12-01") // HOUR_US) * HOUR_US for _ in range(3000)]
    instants = [hour + dice.choice((0, 1, HOUR_US - 1, HOUR_US // 2)) for hour in hours]
    connection = duckdb.connect()
    connection.execute("LOAD icu")
    connection.register("given", pl.DataFrame({"us": instants}).to_arrow())
    sql = "SELECT epoch_us(timezone(?, make_timestamptz(us))) FROM given"
    assert local_in(zone)(pl.Series(instants)).to_list() == [
        row[0] for row in connection.execute(sql, [zone]).fetchall()
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_an_instant_comes_back_from_what_clocks_show_but_where_they_go_back(zone: str) -> None:
    dice = random.Random(zone)
    instants = pl.Series([dice.randrange(us("1971-01-01"), us("2080-01-01")) for _ in range(3000)])
    back = local_of(zone)(local_in(zone)(instants))
    later = instants.filter(back != instants)
    assert local_in(zone)(later).to_list() == local_in(zone)(back.filter(back != instants)).to_list()
    assert later.len() <= 10
