"""A recorded day tried over its file answers as DuckDB does over the same file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from cluster.local.stream_files import StreamFile
from cluster.local.table_files import open_table
from cluster.local.tried_query import Files
from cluster.local.trying import Trial
from protocols.wire.streams import FieldType

TRAFFIC = Path(__file__).parents[3] / "examples" / "traffic"
DAY = TRAFFIC / "la_loop_speeds_day.parquet"
KNOWN = TRAFFIC / "known.csv"
INCIDENTS = "segment,description\n716339,road works\n717458,crash\n767350,crash\n765171,crash\n764853,truck\n"
HALF_HOUR = "WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES)"
READINGS = f"(SELECT epoch_us(time) AS t, sensor::VARCHAR AS sensor, speed FROM read_parquet('{DAY}'))"
"""Stamps in microseconds."""


def sliding(minutes: int, slide: int) -> str:
    """Readings in every window that holds them: at each step, the tuples of so many minutes before it."""
    size_us, slide_us = minutes * 60_000_000, slide * 60_000_000
    ends = f"unnest(range(t // {slide_us} + 1, (t + {size_us}) // {slide_us} + 1)) * {slide_us}"
    return f"(SELECT sensor, speed, {ends} - 1 AS start FROM {READINGS})"


HALF_HOURS = sliding(30, 30)
SLOW = f"(SELECT start, sensor, AVG(speed) AS mean FROM {HALF_HOURS} GROUP BY ALL HAVING mean < 20)"

ADA = f"(SELECT segment FROM read_csv('{KNOWN}') WHERE person = 'ada')"

# Name, query, rows with start and end according to DuckDB.
QUERIES = [
    (
        "Q1",
        (
            f"SELECT AVG(speed) AS speed FROM traffic {HALF_HOUR} "
            "WHERE sensor IN (SELECT segment FROM known WHERE person = 'ada')"
        ),
        f"SELECT start, start + 1800000000, AVG(speed) FROM {HALF_HOURS} WHERE sensor IN {ADA} GROUP BY ALL",
    ),
    (
        "Q2",
        f"""SELECT i.description, AVG(slow.speed) AS speed
            FROM (SELECT sensor AS segment, AVG(speed) AS speed FROM traffic {HALF_HOUR}
                  GROUP BY sensor HAVING AVG(speed) < 20) AS slow, known AS k, incidents AS i
            WHERE slow.segment = k.segment AND k.person = 'ada' AND slow.segment = i.segment
            GROUP BY i.description""",
        f"""SELECT start, start + 1800000000, i.description, AVG(mean) FROM {SLOW} AS slow
            JOIN incidents AS i ON slow.sensor = i.segment WHERE slow.sensor IN {ADA} GROUP BY ALL""",
    ),
    (
        "average by sensor",
        (
            "SELECT sensor, AVG(speed) AS speed, COUNT(*) AS n FROM traffic WINDOW(RANGE 3 HOURS SLIDE 1 HOUR) "
            "GROUP BY sensor HAVING AVG(speed) < 40"
        ),
        (
            "SELECT start, start + 3600000000, sensor, AVG(speed) AS mean, COUNT(*) "
            f"FROM {sliding(180, 60)} GROUP BY start, sensor HAVING mean < 40"
        ),
    ),
    (
        "join of two streams",
        """SELECT a.sensor, a.speed, b.speed AS other
           FROM traffic WINDOW(RANGE 5 MINUTES) AS a, traffic WINDOW(RANGE 5 MINUTES) AS b
           WHERE a.sensor = '716339' AND b.sensor IN ('717458', '767350') AND a.speed > b.speed + 10""",
        f"""SELECT a.t, a.t + 300000000, a.sensor, a.speed, b.speed FROM {READINGS} a JOIN {READINGS} b USING (t)
            WHERE a.sensor = '716339' AND b.sensor IN ('717458', '767350') AND a.speed > b.speed + 10""",
    ),
    (
        "join with a relation",
        (
            "SELECT t.sensor, speed, description FROM traffic AS t LEFT JOIN incidents AS i ON t.sensor = i.segment "
            "WHERE t.speed < 6"
        ),
        (
            f"SELECT t, t + 1, sensor, speed, description FROM {READINGS} LEFT JOIN incidents ON sensor = segment "
            "WHERE speed < 6"
        ),
    ),
    (
        "DISTINCT over groups",
        f"SELECT DISTINCT FLOOR(AVG(speed) / 5) * 5 AS band FROM traffic {HALF_HOUR} GROUP BY sensor",
        (
            f"SELECT DISTINCT start, start + 1800000000, floor(mean / 5) * 5 "
            f"FROM (SELECT start, AVG(speed) AS mean FROM {HALF_HOURS} GROUP BY start, sensor)"
        ),
    ),
]


@pytest.fixture(scope="module")
def incidents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("day") / "incidents.csv"
    path.write_text(INCIDENTS)
    return path


def tried(sql: str, incidents: Path, **more: Any) -> list[tuple[Any, ...]]:
    relations = {
        name: open_table(path, types={"segment": FieldType.TEXT})
        for name, path in (("known", KNOWN), ("incidents", incidents))
    }
    day = StreamFile(open_table(DAY, types={"sensor": FieldType.TEXT}))
    pieces = Trial(sql, Files({"traffic": day}, relations)).answers(**more)
    return [
        (start, end, *msgspec.json.decode(row).values()) for piece in pieces for start, end, row in piece.iter_rows()
    ]


def counted(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows as they are counted: sums may be added up in another order."""
    return Counter(tuple(float(f"{each:.9g}") if isinstance(each, float) else each for each in row) for row in rows)


@pytest.mark.parametrize(("name", "sql", "definition"), QUERIES, ids=[name for name, _, _ in QUERIES])
def test_a_day_is_answered_as_duckdb_does(name: str, sql: str, definition: str, incidents: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE incidents AS SELECT * FROM read_csv('{incidents}', all_varchar = true)")
        expected = connection.execute(definition).fetchall()
    found = tried(sql, incidents)
    assert len(found) > 10, name
    assert counted(found) == counted(expected)


def test_answers_do_not_depend_on_how_much_is_read_at_once(incidents: Path) -> None:
    _, q2, _ = QUERIES[1]
    assert counted(tried(q2, incidents, batch_rows=1_000)) == counted(tried(q2, incidents))
