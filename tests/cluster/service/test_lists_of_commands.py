"""Lists that commands print: a line for each, whatever the width."""

from __future__ import annotations

from typing import Any, Self

import pytest
from typer.testing import CliRunner

from cluster.service import query_command
from cluster.service.client.command import shortened
from cluster.service.client.faults import fault_texts

SQL = "SELECT sensor, AVG(speed) AS mean FROM traffic\n WINDOW(RANGE 1 HOUR SLIDE 5 MINUTES) GROUP BY sensor"
STATUS: dict[str, Any] = {
    "broker": {"connected": False, "address": "10.0.0.2:1883", "trouble": "connection refused"},
    "fjord": {"running": False, "starts": 2},
    "results": {"publisher": {"trouble": None}},
    "storage": {
        "last": "no space left on device",
        "last_seconds_ago": 4.2,
        "damaged": {"old": "commit 3 is missing"},
        "over_budget": {},
    },
    "proxy_spools": {
        "roadside": {"online": False, "heard": "2026-11-29T03:00:00Z", "batches": 1_200},
        "harbour": {"online": True, "heard": "2026-11-29T03:00:00Z", "batches": 0},
    },
    "proxy_clocks": {"roadside": {"fault": None}, "harbour": {"fault": "3,600 s ahead"}},
}
REASON = "set aside since 2026-11-28T22:44:59.912101Z: it took more memory than 6.0 GiB in operator Join"


class Client:
    """A client of a cluster with some queries."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def status(self) -> dict[str, Any]:
        return STATUS

    def queries(self) -> list[dict[str, Any]]:
        shown = {"rows": 1_234_567, "lag": {"seconds": 1.2, "rows": 3_400}, "epoch": 17, "sql": SQL}
        return [
            {"name": f"hourly_{number}", "state": state, **shown} for number, state in enumerate(["running", REASON])
        ]


def listed(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    monkeypatch.setattr(query_command, "make_client", lambda _: Client())
    found = CliRunner(env=environment).invoke(query_command.query, ["list"], catch_exceptions=False)
    assert len(found.stderr.splitlines()) == 6
    return found.stdout.splitlines()


def test_faults_are_sentences() -> None:
    assert list(fault_texts(STATUS)) == [
        "the broker at 10.0.0.2:1883 is away, samples and results wait: connection refused",
        "the engine does not run, and is started again: rows are stored, answers wait",
        "something failed 4 s ago, and is tried again: no space left on device",
        "the table of stream old is damaged: commit 3 is missing",
        "proxy roadside is offline, its last report came at 2026-11-29T03:00:00Z; 1,200 batches were in its spool",
        "the clock of proxy harbour is wrong: 3,600 s ahead",
    ]


def test_one_batch_is_singular() -> None:
    status = {"proxy_spools": {"roadside": {"online": False, "batches": 1}}}
    assert list(fault_texts(status)) == ["proxy roadside is offline; 1 batch was in its spool"]


def test_a_deployment_without_faults_has_none() -> None:
    sound = {
        "broker": {"connected": True, "trouble": None},
        "fjord": {"running": True, "starts": 1},
        "storage": {"last": "no space left on device", "last_seconds_ago": 61.0},
        "proxy_spools": {"harbour": {"online": True}},
    }
    assert list(fault_texts(sound)) == []


def test_on_a_terminal_each_query_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch, COLUMNS="80", FORCE_COLOR="1", TERM="xterm")
    assert len(lines) == 3
    assert all("hourly_" in line and "1,234,567" in line and "1.2s, 3,400 rows" in line for line in lines[1:])
    assert all("SELECT" in line and "…" in line for line in lines[1:])
    assert "set aside since 202…" in lines[2]


def test_in_a_file_each_line_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch, COLUMNS="80")
    assert len(lines) == 3
    assert all(line.rstrip().endswith("GROUP BY sensor") for line in lines[1:])


@pytest.mark.parametrize(("text", "most", "short"), [
    ("running", 7, "running"), ("running", 6, "runni…"), ("waits: for a", 8, "waits…"),
])  # fmt: skip
def test_a_text_is_shortened(text: str, most: int, short: str) -> None:
    assert shortened(text, most) == short
