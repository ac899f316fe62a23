"""What it saves to send changes only, by the lifetime report: estimated, and measured by the simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app
from firmware_sim.lifetime.fleet_file import read_fleet
from firmware_sim.lifetime.query_file import load_queries
from firmware_sim.lifetime.report import virtual_motes
from firmware_sim.power.virtual_run import run_motes
from protocols.wire.programs import SendOnChange

FLEET = """
name = "office"
world = "climate"
motes = 4
begins_day = 90
default_period = "10s"
samples_per_packet = 1
listen = { every = "1 minute", for = "50ms" }

[[group]]
name = "rooms"
motes = ["room*"]
preset = "telosb"
battery = "alkaline-aa-pair"
"""
QUERY = """-- name: door
SELECT s.room, MAX(DURATION(VALID(s))) AS longest
FROM climate WINDOW(RANGE 1 DAY SLIDE 1 HOUR) COALESCE(door_open BY room) AS s WHERE s.door_open GROUP BY s.room;
"""


def test_the_report_shows_what_changes_save_and_the_simulation_measures_it(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "queries.sql").write_text(QUERY)
    arguments = ["lifetime", "--fleet", str(tmp_path / "fleet.toml"), "--queries", str(tmp_path / "queries.sql")]
    content = json.loads(CliRunner().invoke(app, [*arguments, "--days", "2", "--json"]).output)
    (query,) = content["queries"]
    assert query["asks"] == "changes of door_open, room the default period"
    assert query["alone_mw"] < 0.7 * query["every_sample_mw"]
    fleet = read_fleet(FLEET, "f")
    queries = load_queries(tmp_path / "queries.sql", fleet.motes[0].description.stream)
    changes, samples = (virtual_motes(fleet, queries, pushed_down=pushed) for pushed in (True, False))
    assert all(isinstance(mote.program.report, SendOnChange) for mote in changes)
    assert all(mote.program.report is None for mote in samples)
    for motes, estimated in ((changes, query["alone_mw"]), (samples, query["every_sample_mw"])):
        measured = run_motes(motes, days=2)
        assert float(measured.draw_mw(0).sum()) == pytest.approx(estimated, rel=0.05)
