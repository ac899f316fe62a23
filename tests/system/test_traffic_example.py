"""The example of examples/traffic, followed word for word: each command prints what the page says."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pytest

from cluster.demo.parts import Parts, accepts, is_ready
from cluster.demo.processes import Child, Children
from cluster.service.client import ApiClient
from tests.postgres_server import find_postgres, running_postgres
from tests.system.followed_page import Terminals, differences, steps_of, type_in
from tests.system.recorded_day import DAY

pytestmark = [pytest.mark.system, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples" / "traffic" / "README.md"
SECONDS = 120.0
KNOWN = ("716339", "717458", "767350")
INCIDENTS = {"716339": "road works", "717458": "crash", "767350": "crash"}
STREAM_SECONDS = 30.0
"""A reader who goes to another terminal takes longer than a mote that announces itself."""


@contextmanager
def database() -> Iterator[tuple[str, dict[str, str]]]:
    """Choose PostgreSQL if it is installed, with what its user has in the environment; else SQLite."""
    programs = find_postgres()
    if programs is None:
        yield "sqlite", {}
        return
    with running_postgres(programs) as server:
        url = urlsplit(server.url())
        yield (
            "postgresql",
            {
                "PGHOST": str(url.hostname),
                "PGPORT": str(url.port),
                "PGUSER": str(url.username),
                "PGPASSWORD": unquote(str(url.password)),
                "PATH": f"{programs}:{os.environ['PATH']}",
            },
        )


class Reader:
    """Types what the page says into terminals, where ports and folders are those of a test.

    Parameters
    ----------
    children
        Holds what goes on.
    folder
        Where the page is read.
    environment
        What the reader's database asks for.
    """

    def __init__(self, children: Children, folder: Path, environment: dict[str, str]) -> None:
        self.parts = Parts.on_free_ports(children, folder)
        (folder / "examples").symlink_to(ROOT / "examples")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(sys.executable)
        fjord = programs / "fjord"
        fjord.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m protocols.command_line "$@"\n')
        fjord.chmod(0o755)
        self.environment = {
            **os.environ,
            **environment,
            "PATH": f"{programs}:{environment.get('PATH', os.environ['PATH'])}",
            "PYTHONPATH": str(ROOT),
            "FJORD_BROKER": str(self.parts.broker),
            "FJORD_API": self.parts.api_address,
            "FJORD_API_PORT": self.parts.api_address.rpartition(":")[2],
        }

    def open_terminal(self, command: str) -> None:
        """Start a command that goes on, and wait as the page says."""
        fjord, name, *rest = command.split()
        assert fjord == "fjord"
        if name == "broker":
            rest = ["--port", str(self.parts.broker.port), *rest]
        child = self.parts.children.start(name, [name, *rest], self.environment)
        if name == "broker":
            self.parts.children.wait_until(lambda: accepts(self.parts.broker), child, seconds=SECONDS)
        if name == "cluster":
            self._wait_for_cluster(child)

    def type(self, command: str) -> list[str]:
        """Type a command and return the lines it prints."""
        name, is_variable, value = command.partition("=")
        if is_variable and name.isidentifier():
            self.environment[name] = value
            return []
        deadline = time.monotonic() + STREAM_SECONDS
        while True:
            lines = type_in(command, self.parts.folder, self.environment)
            if not any("there is no stream 'road'" in line for line in lines) or time.monotonic() > deadline:
                return lines
            time.sleep(0.5)

    def _wait_for_cluster(self, child: Child) -> None:
        with ApiClient(self.parts.api_address) as api:
            self.parts.children.wait_until(lambda: is_ready(api), child, seconds=SECONDS)


def test_every_command_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with database() as (chosen, environment), Children(tmp_path / "logs") as children:
        reader = Reader(children, tmp_path, environment)
        commands = 0
        for step in steps_of(PAGE, chosen):
            if isinstance(step, Terminals):
                for command in step.commands:
                    reader.open_terminal(command)
                continue
            found = reader.type(step.command)
            assert not differences(step.printed, found), (step.command, found)
            commands += 1
        assert commands > 15
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
    """Return what DuckDB says of the file: by the end of each half hour and known segment, the average speed."""
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
