"""The example of examples/traffic, followed word for word: each command prints what the page shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pytest

from cluster.demo.parts import Children
from cluster.service.client.api_client import ApiClient
from tests.postgres_server import find_postgres, running_postgres
from tests.system.page_reader import ROOT, Reader
from tests.system.recorded_day import DAY

pytestmark = [pytest.mark.system, pytest.mark.spark]

PAGE = ROOT / "examples" / "traffic" / "README.md"
KNOWN = ("716339", "717458", "767350")
INCIDENTS = {"716339": "road works", "717458": "crash", "767350": "crash"}


@contextmanager
def database(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Choose PostgreSQL if it is installed, with its user's environment, and credentials in a folder; else SQLite."""
    programs = find_postgres()
    if programs is None:
        yield "sqlite", {}
        return
    with running_postgres(programs) as server:
        url = urlsplit(server.url())
        credentials = folder / "credentials"
        credentials.write_text(f"{url.hostname}:{url.port}:*:{url.username}:{unquote(str(url.password))}\n")
        credentials.chmod(0o600)
        yield (
            "postgresql",
            {
                "PGHOST": str(url.hostname),
                "PGPORT": str(url.port),
                "PGUSER": str(url.username),
                "PGPASSWORD": unquote(str(url.password)),
                "FJORD_RELATION_CREDENTIALS": str(credentials),
                "PATH": f"{programs}:{os.environ['PATH']}",
            },
        )


@pytest.mark.proof
def test_every_command_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with database(tmp_path) as (chosen, environment), Children(tmp_path / "logs") as children:
        reader = Reader(children, tmp_path, environment)
        assert reader.follow(PAGE, chosen) > 15
        with ApiClient(reader.parts.api_address) as api:
            q1, q2 = (api.results(name, limit=10_000) for name in ("q1", "q2"))
    averages = half_hours()
    day = {ended: sum(by.values()) / len(KNOWN) for ended, by in averages.items()}
    assert {ended(row): row["row"]["speed"] for row in q1} == pytest.approx(day, abs=0.051)
    assert len(q1) == len(day) == 48
    wanted = {
        (ended, description): sum(speeds) / len(speeds)
        for ended, by in averages.items()
        for description in INCIDENTS.values()
        if (speeds := [mean for each, mean in by.items() if mean < 20 and INCIDENTS[each] == description])
    }
    assert {(ended(row), row["row"]["description"]): row["row"]["speed"] for row in q2} == pytest.approx(
        wanted, abs=0.051
    )
    assert len(q2) == len(wanted) == 36


def half_hours() -> dict[datetime, dict[str, float]]:
    """Return the average speeds in the file, by DuckDB: by end of each half hour and known segment."""
    found: dict[datetime, dict[str, float]] = {}
    for sensor, at, mean in duckdb.sql(
        f"SELECT sensor::VARCHAR, time_bucket(INTERVAL 30 MINUTES, time) + INTERVAL 30 MINUTES, AVG(speed) "
        f"FROM read_parquet('{DAY}') WHERE sensor::VARCHAR IN {KNOWN} GROUP BY ALL"
    ).fetchall():
        found.setdefault(at, {})[sensor] = mean
    return found


def ended(message: dict[str, Any]) -> datetime:
    """Return the end of the half hour that a row is about."""
    return datetime.fromisoformat(message["start"]).replace(tzinfo=None) + timedelta(microseconds=1)
