"""Outcomes of schedules as text and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from tests.faults.running import Outcome
from tests.faults.schedules import Fault, Kind, Part, Schedule, Setting
from tests.faults.table import as_json, line, table, totals

KILLED = Schedule(7, Setting.LOCAL, (Fault(Kind.KILL, Part.BROKER, 1.0, 2.0),))
STOPPED = Schedule(8, Setting.SHORT, (Fault(Kind.STOP, Part.PROXY, 1.0, 4.0),))
OUTCOMES = [
    Outcome(KILLED, 3.0, 1.5, 100, ()),
    Outcome(STOPPED, 9.0, None, 0, ("it has not recovered",), Path("/logs")),
]


def test_a_line_for_each_schedule() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(OUTCOMES))
    _, killed, stopped = [text.split() for text in console.export_text().splitlines()]
    assert killed == ["7", "local", "kill", "broker", "1-3", "s", "3.0", "1.5", "100", "kept"]
    assert stopped[-4:] == ["9.0", "none", "0", "failed"]
    assert line(OUTCOMES[0]) == "seed 7 kept: kill broker 1-3 s; outage 3.0 s, recovery 1.5 s"


def test_totals_name_what_failed_and_where_its_logs_are() -> None:
    assert totals(OUTCOMES) == [
        "2 schedules, 1 failed; 100 answers compared",
        "longest outage: 9.0 s (seed 8)",
        "recovery: 1.5 s in the median, 1.5 s at worst",
        "seed 8 failed: it has not recovered",
        "  its logs: /logs",
    ]
    assert totals([]) == ["no schedule has run"]


def test_json_has_everything() -> None:
    killed, stopped = json.loads(json.dumps(as_json(OUTCOMES)))
    assert killed == {
        "seed": 7,
        "parts": "local",
        "faults": [{"kind": "kill", "part": "broker", "at": 1.0, "seconds": 2.0, "delay": 0.0}],
        "outage_seconds": 3.0,
        "recovery_seconds": 1.5,
        "answers": 100,
        "problems": [],
        "logs": None,
    }
    assert (stopped["problems"], stopped["logs"]) == (["it has not recovered"], "/logs")
