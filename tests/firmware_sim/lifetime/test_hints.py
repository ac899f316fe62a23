"""LIFETIME and AT LEAST EVERY in the lifetime report: periods are as long as the proxy would make them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app

FLEET = """
name = "office"
world = "climate"
motes = 2
%s
[[group]]
name = "rooms"
motes = ["room*"]
preset = "telosb"
"""
DEMANDED = "SELECT room, temperature FROM climate SAMPLE EVERY 1 SECONDS"


@pytest.fixture
def shown(tmp_path):
    """Return what the report says about one query, for people and as JSON."""

    def show(query: str, setting: str = "") -> tuple[str, dict]:
        (tmp_path / "fleet.toml").write_text(FLEET % setting)
        (tmp_path / "queries.sql").write_text(query)
        files = ["--fleet", str(tmp_path / "fleet.toml"), "--queries", str(tmp_path / "queries.sql")]
        arguments = ["lifetime", *files, "--days", "1"]
        words, content = (CliRunner().invoke(app, [*arguments, *more]).stdout for more in ([], ["--json"]))
        return words, json.loads(content)

    return show


def test_periods_are_stretched_until_the_battery_lasts(shown):
    _, plain = shown(DEMANDED)
    words, hinted = shown(f"{DEMANDED} AT LEAST EVERY 10 MINUTES LIFETIME 1500 DAYS")
    assert plain["first"]["lifetime_days"] < 1500
    assert plain["notes"] == []
    assert hinted["first"]["lifetime_days"] > plain["first"]["lifetime_days"]
    (note,) = hinted["notes"]
    assert "rooms: samples every " in note
    assert "instead of every 1s" in note
    assert "1500d" in note
    assert note in words


def test_it_says_so_if_no_period_that_queries_allow_is_long_enough(shown):
    for hints in ("LIFETIME 7300 DAYS", "AT LEAST EVERY 2 SECONDS LIFETIME 7300 DAYS"):
        _, content = shown(f"{DEMANDED} {hints}")
        assert any("will not last the 7300d of LIFETIME" in each for each in content["notes"]), hints


def test_a_query_without_hints_has_no_note_of_periods(shown):
    assert shown(f"{DEMANDED} AT LEAST EVERY 10 MINUTES")[1]["notes"] == []
    assert "at least every 10m" in shown(f"{DEMANDED} AT LEAST EVERY 10 MINUTES")[1]["queries"][0]["asks"]


@pytest.mark.parametrize(
    ("query", "at_most", "saves"),
    [
        (DEMANDED.replace("temperature", "temperature WITHIN 2"), 1, False),
        (DEMANDED.replace("temperature", "temperature WITHIN 2"), 4, True),
        (DEMANDED, 1, True),
    ],
)
def test_it_says_why_tolerances_save_nothing(shown, query, at_most, saves):
    _, content = shown(query, f"samples_per_packet = {at_most}")
    noted = [each for each in content["notes"] if "WITHIN saves nothing" in each]
    assert bool(noted) != saves
    assert all("q1" in each and "samples_per_packet" in each for each in noted)


def test_it_says_how_many_records_a_packet_holds(shown):
    (note,) = shown(DEMANDED, "samples_per_packet = 200")[1]["notes"]
    assert note.startswith("rooms: samples_per_packet = 200 is more than a packet of telosb holds, which is 58")
    assert shown(DEMANDED, "samples_per_packet = 58")[1]["notes"] == []


def test_a_fleet_may_never_listen(shown):
    never, usual, stated = (
        shown(DEMANDED, setting)[1]["first"]["draw_mw"]["radio_listen"]
        for setting in ('listen = "never"', "", 'listen = { every = "30s", for = "50ms" }')
    )
    assert never < 1e-9 < usual == stated


def test_a_hint_is_about_the_motes_of_its_query_only(shown):
    other = "SELECT room, humidity FROM climate WHERE floor = 9 SAMPLE EVERY 1 SECONDS LIFETIME 36000 DAYS"
    assert shown(f"{DEMANDED};\n{other}")[1]["notes"] == []
