"""The recorded day that system tests replay, and the expected answers, by DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

DAY = Path(__file__).parents[2] / "examples" / "traffic" / "la_loop_speeds_day.parquet"
SPEED = 2_880
"""A day in half a minute."""


def averages_sql(stream: str) -> str:
    return f"SELECT sensor, AVG(speed) AS speed FROM {stream} WINDOW(RANGE 30 MINUTES SLIDE 30 MINUTES) GROUP BY sensor"


def expected_averages() -> dict[tuple[str, datetime], float]:
    """By sensor and end of its half hour, from the file itself."""
    rows = duckdb.sql(
        f"SELECT sensor::VARCHAR, time_bucket(INTERVAL 30 MINUTES, time) + INTERVAL 30 MINUTES, AVG(speed) "
        f"FROM read_parquet('{DAY}') GROUP BY ALL"
    ).fetchall()
    return {(sensor, ended.replace(tzinfo=UTC)): mean for sensor, ended, mean in rows}


def expected_below(mph: float) -> list[tuple[str, datetime, float]]:
    """All readings below a speed, in order of time."""
    rows = duckdb.sql(
        f"SELECT sensor::VARCHAR, time, speed FROM read_parquet('{DAY}') WHERE speed < {mph} ORDER BY time"
    ).fetchall()
    return [(sensor, at.replace(tzinfo=UTC), speed) for sensor, at, speed in rows]


def assert_all_averages(published: list[dict[str, Any]]) -> None:
    """Every average of the day: once, in order, numbered without gaps, and equal to DuckDB's."""
    expected = expected_averages()
    assert len(expected) == 207 * 48
    assert [row["sequence"] for row in published] == list(range(1, len(expected) + 1))
    assert [row["start"] for row in published] == sorted(row["start"] for row in published)
    found = {
        (row["row"]["sensor"], datetime.fromisoformat(row["start"]) + timedelta(microseconds=1)): row["row"]["speed"]
        for row in published
    }
    assert found.keys() == expected.keys()
    for key, mean in expected.items():
        assert found[key] == pytest.approx(mean, rel=1e-12, abs=0)
    half_hour = timedelta(minutes=30)
    for row in published:
        assert datetime.fromisoformat(row["end"]) - datetime.fromisoformat(row["start"]) == half_hour
