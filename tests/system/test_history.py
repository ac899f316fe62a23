"""A query with history over a recorded day: its averages are those that DuckDB finds in the stream's table."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql, expected_averages

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

HALF_HOUR = timedelta(minutes=30)


def stored_averages(cluster: RunningCluster, stream: str, since: datetime) -> dict[tuple[str, datetime], float]:
    """By sensor and end of its half hour, from the table itself."""
    stored = pl.read_delta(str(cluster.parts.folder / "cluster" / "streams" / stream)).to_arrow()  # noqa: F841 - DuckDB
    rows = duckdb.sql(
        "SELECT sensor, time_bucket(INTERVAL 30 MINUTES, make_timestamp(fjord_start_us)) + INTERVAL 30 MINUTES, "
        f"AVG(speed) FROM stored WHERE make_timestamp(fjord_start_us) >= '{since:%Y-%m-%d %H:%M:%S.%f}' GROUP BY ALL"
    ).fetchall()
    return {(sensor, ended.replace(tzinfo=UTC)): mean for sensor, ended, mean in rows}


def stored_rows(cluster: RunningCluster, query: str, count: int) -> list[dict[str, Any]]:
    """Return a query's rows once there are `count`."""
    deadline = time.monotonic() + 120
    while len(found := cluster.api.results(query, after=0, limit=10_000)) < count:
        assert time.monotonic() < deadline, (query, len(found), count)
        time.sleep(0.3)
    return found


def test_averages_of_the_last_hours_and_on(cluster: RunningCluster) -> None:
    proxy = cluster.parts.start_proxy("archivist")
    cluster.parts.start_motes("archivist", "--trace", str(DAY), "--stream", "archived", "--speed", str(SPEED))
    cluster.parts.wait_for_stream("archived", proxy)
    cluster.api.add(averages_sql("archived"), "plain")
    stored_rows(cluster, "plain", len(expected_averages()) // 2)
    text = averages_sql("archived").replace("FROM archived", "FROM archived SINCE 6 HOURS AGO")
    added = cluster.api.add(text, "back")
    (history,) = added["history"]
    assert history["rows"] > 207 * 6 * 12 // 2, "a reading every five minutes"
    since = datetime.fromisoformat(history["since"])

    plain = stored_rows(cluster, "plain", len(expected_averages()))
    assert_all_averages(plain)
    expected = stored_averages(cluster, "archived", since)
    assert 207 * 12 < len(expected) < 207 * 48, "some of the day had passed, and some was still to come"
    back = stored_rows(cluster, "back", len(expected))
    assert [row["sequence"] for row in back] == list(range(1, len(expected) + 1))
    assert [row["start"] for row in back] == sorted(row["start"] for row in back)
    found = {
        (row["row"]["sensor"], datetime.fromisoformat(row["start"]) + timedelta(microseconds=1)): row["row"]["speed"]
        for row in back
    }
    assert found.keys() == expected.keys()
    for key, mean in expected.items():
        assert found[key] == pytest.approx(mean, rel=1e-12, abs=0)
    assert all(datetime.fromisoformat(row["end"]) - datetime.fromisoformat(row["start"]) == HALF_HOUR for row in back)

    # The day is over: all of it comes from the table.
    cluster.api.add(text.replace("6 HOURS AGO", "BEGINNING"), "whole")
    assert_all_averages(stored_rows(cluster, "whole", len(plain)))
    for query in ("plain", "back", "whole"):
        cluster.api.drop(query)
