"""The queries of benchmarks/endurance.py, and their expected answers, computed by DuckDB.

Each answer is reduced to three figures that do not depend on how rows are cut in time: the number of rows (of
queries without a window), how long they were valid in all, and the sum of their numbers, weighted by validity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from endurance_motes import SEGMENTS, Motes, values_of

ROADS = 5
PLACES = "segment,road,toll\n" + "".join(f"{number},{number % ROADS},{number}\n" for number in range(SEGMENTS))
SECOND_US = 1_000_000
LONGEST_WINDOW_SECONDS = 20
AGGREGATES = ("COUNT(*)", "SUM(speed)", "AVG(speed)", "MIN(flow)", "MAX(speed)")
WINDOWS = ((5, 5), (10, 5), (10, 10), (20, 10), (20, 5))
"""Range and slide, in seconds."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Parameters
    ----------
    name
        Its name.
    sql
        Its text in FjordSQL.
    select
        DuckDB's query over ``tuples``: a row per row and slide, numbers only.
    slide_us
        For how long each of these rows is valid.
    """

    name: str
    sql: str
    select: str
    slide_us: int = 1


@dataclass(slots=True)
class Answer:
    """The answer of a query, actual or expected."""

    valid_us: int = 0
    weighted: float = 0.0

    def add(self, valid_us: int, numbers: float) -> None:
        """Add a row."""
        self.valid_us += valid_us
        self.weighted += numbers * valid_us

    def agrees_with(self, other: Answer) -> bool:
        """Return whether both are the same, but for the order in which reals were added."""
        return self.valid_us == other.valid_us and math.isclose(self.weighted, other.weighted, rel_tol=1e-9)


def queries(count: int) -> list[Query]:
    """Return so many queries, of all kinds in turn: of 100, 40 filters, 20 windows by segment, 10 over all."""
    kinds = (_filter, _windowed, _filter, _looked_up, _filter, _windowed, _grouped, _filter, _distinct, _total)
    return [kinds[number % len(kinds)](number) for number in range(count)]


def _filter(number: int) -> Query:
    flow = number * 7 % 1_000
    # No band is as narrow as a remainder, so motes send all fields of every sample.
    condition = f"flow = {flow}" if number % 4 else f"(flow + lane) % 500 = {flow % 500}"
    return Query(
        f"q{number}",
        f"SELECT sensor, segment, speed, flow FROM traffic WHERE {condition}",
        f"SELECT segment, speed, flow FROM tuples WHERE {condition}",
    )


def _windowed(number: int) -> Query:
    return _aggregate(number, ("segment",))


def _grouped(number: int) -> Query:
    return _aggregate(number, ("lane", "segment"), f" WHERE flow < {100 + number}")


def _total(number: int) -> Query:
    return _aggregate(number, (), f" WHERE speed >= {number % 50}")


def _aggregate(number: int, keys: tuple[str, ...], where: str = "") -> Query:
    aggregate, (size, slide) = AGGREGATES[number // 10 % 5], WINDOWS[number // 2 % 5]
    listed, by = "".join(f"{key}, " for key in keys), f" GROUP BY {', '.join(keys)}" if keys else ""
    return Query(
        f"q{number}",
        f"SELECT {listed}{aggregate} AS answer FROM traffic WINDOW(RANGE {size} SECONDS SLIDE {slide} SECONDS)"
        f"{where}{by}",
        f"SELECT {listed}{aggregate} FROM {_in_windows(size, slide)}{where} GROUP BY {', '.join((*keys, 'part'))}",
        slide * SECOND_US,
    )


def _looked_up(number: int) -> Query:
    flow = number * 3 % 1_000
    if number // 10 % 2:
        condition = f"t.segment = p.segment AND t.flow = {flow}"
        return Query(
            f"q{number}",
            f"SELECT t.sensor, t.speed, p.toll FROM traffic AS t, places AS p WHERE {condition}",
            f"SELECT t.speed, p.toll FROM tuples AS t, places AS p WHERE {condition}",
        )
    condition = "t.segment = p.segment AND p.toll > 3"
    return Query(
        f"q{number}",
        "SELECT p.road, SUM(t.speed) AS answer FROM traffic AS t WINDOW(RANGE 10 SECONDS SLIDE 5 SECONDS), places AS p "
        f"WHERE {condition} AND t.flow >= {flow} GROUP BY p.road",
        f"SELECT p.road, SUM(t.speed) FROM {_in_windows(10, 5)} AS t, places AS p "
        f"WHERE {condition} AND t.flow >= {flow} GROUP BY p.road, t.part",
        5 * SECOND_US,
    )


def _distinct(number: int) -> Query:
    window = "WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)"
    return Query(
        f"q{number}",
        f"SELECT DISTINCT lane, segment FROM traffic {window} WHERE flow < {number}",
        f"SELECT lane, segment FROM (SELECT DISTINCT lane, segment, part FROM {_in_windows(10, 10)} "
        f"WHERE flow < {number})",
        10 * SECOND_US,
    )


def _in_windows(size: int, slide: int) -> str:
    """Return the tuples, once for each slide at which they are in the window."""
    return (
        f"(SELECT tuples.*, stamp // {slide * SECOND_US} + slides.range AS part "
        f"FROM tuples, range({size // slide}) AS slides)"
    )


def expected(asked: Sequence[Query], fleet: Motes) -> dict[str, Answer]:
    """Return the expected answers to all samples of the motes."""
    motes, period_us = fleet.motes, fleet.fleet.period_us
    numbers = np.concatenate([np.full(mote.following - mote.first, mote.number) for mote in motes])
    ticks = np.concatenate([np.arange(mote.first, mote.following) for mote in motes])
    tuples = pa.table({"stamp": ticks * period_us, "segment": numbers % SEGMENTS, **values_of(numbers, ticks)})
    places = pa.table(
        {
            "segment": list(range(SEGMENTS)),
            "road": [number % ROADS for number in range(SEGMENTS)],
            "toll": list(range(SEGMENTS)),
        }
    )
    found = {}
    with duckdb.connect() as database:
        database.register("tuples_sent", tuples)
        database.register("places", places)
        database.execute("CREATE TABLE tuples AS SELECT * FROM tuples_sent")
        for query in asked:
            rows = database.execute(f"SELECT COUNT(*), SUM(COLUMNS(*)::DOUBLE) FROM ({query.select})").fetchall()
            count, *totals = rows[0]
            found[query.name] = Answer(count * query.slide_us, sum(each or 0.0 for each in totals) * query.slide_us)
    return found
