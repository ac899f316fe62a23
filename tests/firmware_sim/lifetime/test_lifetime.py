"""The highway example: which mote dies first, why, and what each query costs."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from firmware_sim.command import app
from firmware_sim.errors import MissingLibraryError
from firmware_sim.lifetime import query_file
from firmware_sim.lifetime.fleet_file import load_fleet, read_fleet
from firmware_sim.lifetime.query_file import load_queries, split_queries
from firmware_sim.lifetime.report import FleetFolding, make_report, virtual_motes
from firmware_sim.printing import cost_text, days_text
from protocols.acquisition.merging import workload_for
from protocols.errors import SettingsError
from protocols.power.estimate import draw_mw
from protocols.power.payload import check_program
from protocols.wire.programs import reports_of

HIGHWAY = Path(__file__).parents[3] / "examples" / "highway"
SECOND = 1_000_000


@pytest.fixture(scope="module")
def fleet():
    return load_fleet(HIGHWAY / "fleet.toml")


@pytest.fixture(scope="module")
def queries(fleet):
    return load_queries(HIGHWAY / "queries.sql", fleet.motes[0].description.stream)


def test_the_example_is_64_motes_and_5_queries(fleet, queries):
    assert len(fleet.motes) == 64
    assert [each.query.name for each in queries] == [
        "segment_speed", "slow_segments", "standstill", "lane_flow", "fastest",
    ]  # fmt: skip


def test_one_program_answers_all_and_costs_less_than_every_sample(fleet, queries):
    mote = fleet.motes[0]
    program = FleetFolding(fleet, queries).merged(mote).program
    assert program.period_us == SECOND // 2, "standstill asks for two samples a second"
    assert any(part.bands and part.period_us == SECOND // 2 for part in reports_of(program)), "of low speeds only"
    raw = FleetFolding(fleet, queries, pushed_down=False).merged(mote).program
    assert (raw.fields, raw.period_us, raw.samples_per_packet) == (("speed", "flow"), SECOND // 2, 7)
    pushed_mw, raw_mw = (
        draw_mw(mote.profile, each, workload_for(each, fleet.observed)).sum() for each in (program, raw)
    )
    assert pushed_mw < raw_mw * 0.8
    slow = [each for each in queries if each.query.name != "standstill"]
    assert FleetFolding(fleet, slow).merged(mote).program.period_us == 30 * SECOND
    assert FleetFolding(fleet, []).merged(mote).program.sleeping


def test_dropping_the_dearest_query_lengthens_life_by_what_was_predicted(fleet, queries):
    report = make_report(fleet, queries, days=200, seed=1)
    dearest = max(report.queries, key=lambda query: query.days_of_first)
    assert dearest.name == "standstill"
    assert 0 < report.outcome.died_days.min() < 200, "the first one dies within the run"
    rest = [each for each in queries if each.query.name != dearest.name]
    after = make_report(fleet, rest, days=300, seed=2)
    assert after.outcome.died_days.min() < 300
    assert dearest.days_of_first > 0
    assert dearest.first_days_without == pytest.approx(float(after.outcome.expected_days.min()), rel=0.02)
    assert dearest.median_days_without == pytest.approx(float(np.median(after.outcome.expected_days)), rel=0.02)


def test_the_report_names_the_mote_and_the_reason(fleet, queries):
    report = make_report(fleet, queries, days=5)
    content = report.as_json()
    assert content["first"]["group"] == "shoulder"
    assert content["first"]["lifetime_days"] == min(each["lifetime_days"] for each in content["motes"])
    assert "2.7 V with 78% of the battery's capacity unused" in content["first"]["why"]
    assert "% of the charge that leaves the battery does so by itself, at about 14 degC" in content["first"]["why"]
    assert len(content["queries"]) == 5
    assert len(content["motes"]) == 64
    for each in content["motes"]:
        assert each["predicted_days"] == pytest.approx(each["lifetime_days"], rel=0.1)


def test_the_command_prints_a_report_json_and_a_plot(tmp_path):
    arguments = ["lifetime", "--fleet", str(HIGHWAY / "fleet.toml"), "--queries", str(HIGHWAY / "queries.sql")]
    plot = tmp_path / "plot.png"
    result = CliRunner().invoke(app, [*arguments, "--days", "10", "--json", "--plot", str(plot)])
    assert result.exit_code == 0
    assert json.loads(result.output)["days"] == 10
    assert plot.read_bytes().startswith(b"\x89PNG")
    shown = CliRunner().invoke(app, [*arguments, "--days", "2"]).output
    assert "first to die" in shown
    assert "standstill" in shown


def test_with_keys_batteries_last_less_as_packets_are_longer() -> None:
    arguments = ["lifetime", "--fleet", str(HIGHWAY / "fleet.toml"), "--queries", str(HIGHWAY / "queries.sql")]
    plain, sealed = (
        json.loads(CliRunner().invoke(app, [*arguments, "--days", "0.1", "--json", *more]).output)
        for more in ([], ["--sealed"])
    )
    assert len(plain["motes"]) == 64
    for before, after in zip(plain["motes"], sealed["motes"], strict=True):
        assert after["predicted_days"] < before["predicted_days"]


FLEET = (HIGHWAY / "fleet.toml").read_text()


@pytest.mark.parametrize(("change", "message"), [
    (('battery = "lisocl2-aa"', 'batery = "lisocl2-aa"'), r"line 29 of f, field group\[2\].batery: unknown field"),
    (('preset = "mica2"', 'preset = "mica3"'), r"line 20 of f, field group\[1\].preset: there is no preset 'mica3'"),
    (('battery = "lisocl2-aa"', 'battery = "lemon"'), r"line 29 of f, field group\[2\].battery.*lemon"),
    (("loss = 0.10", "loss = nan"), r"line 22 of f, field group\[1\].loss: nan is not a finite amount"),
    (("mean_c = 14.0", "mean_c = inf"), r"line 15 of f, field group\[0\].climate.mean_c: inf is not a finite amount"),
    (("loss = 0.10", "loss = 1.10"), r"line 22 of f, field group\[1\].loss"),
    (("mean_c = 14.0", 'mean_c = "warm"'), r"line 15 of f, field group\[0\].climate.mean_c: expected"),
    (('every = "5 minutes"', 'every = "5 moments"'), r"line 7 of f, field listen.every.*moments"),
    (('world = "traffic"', 'world = "trafic"'), r"line 3 of f, field world.*traffic, road, climate"),
    (('motes = ["s01*l[34]"]', 'motes = ["x*"]'), r"line 27 of f, field group\[2\].motes: no mote is called x\*"),
    (('motes = ["s01*l[34]"]', 'motes = ["s016l1"]'), r"s016l1 is in group 'median' already"),
    (('motes = ["s01*l[34]"]', 'motes = ["s016l3"]'), "13 of 64 motes of f are in no group"),
    (("motes = 64", "motes = 64 64"), "not TOML.*line 4"),
])  # fmt: skip
def test_mistakes_in_a_fleet_name_line_and_field(change, message):
    assert change[0] in FLEET
    with pytest.raises(SettingsError, match=message):
        read_fleet(FLEET.replace(*change, 1), "f")


def test_packets_are_no_longer_than_each_radio_takes(queries):
    fleet = read_fleet(FLEET.replace("samples_per_packet = 7", "samples_per_packet = 64"), "f")
    for motes in (virtual_motes(fleet, queries), virtual_motes(fleet, queries, pushed_down=False)):
        for mote in motes:
            check_program(mote.profile, mote.program)
        assert any(mote.program.samples_per_packet > 7 for mote in motes if mote.profile.name == "nrf52840-154")


@pytest.mark.parametrize(("text", "expected"), [
    ("SELECT 1; SELECT 2", [("q1", 1), ("q2", 1)]),
    ("-- name: a\nSELECT ';' -- ; no end\nFROM t;\n\n-- name: b.c\nSELECT 2;\n;", [("a", 1), ("b.c", 5)]),
    ('/* ; */ SELECT "a;b" FROM t', [("q1", 1)]),
    ("SELECT 'it''s; fine' - 1 / 2", [("q1", 1)]),
])  # fmt: skip
def test_queries_in_a_file(text, expected):
    assert [(each.name, each.line) for each in split_queries(text, "f")] == expected


@pytest.mark.parametrize(("text", "message"), [
    (" -- nothing\n;", "no query in f"),
    ("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2", "line 3 of f: there is a query 'a' already"),
])  # fmt: skip
def test_files_without_sense(text, message):
    with pytest.raises(SettingsError, match=message):
        split_queries(text, "f")


def test_a_wrong_query_is_reported_with_its_place(fleet, tmp_path):
    file = tmp_path / "q.sql"
    file.write_text("SELECT speed FROM traffic;\n\nSELECT sped FROM traffic;\n")
    with pytest.raises(SettingsError, match=r"query 'q2', from line 3 .*sped.*line 1, column 8.*speed"):
        load_queries(file, fleet.motes[0].description.stream)


def test_without_the_cluster_it_says_what_to_install(fleet, monkeypatch):
    monkeypatch.setattr(query_file, "LANGUAGE_GROUP", "fjord.none")
    with pytest.raises(MissingLibraryError, match=r"fjord\[cluster\]"):
        load_queries(HIGHWAY / "queries.sql", fleet.motes[0].description.stream)


def test_queries_that_are_not_utf8_are_refused_with_their_line(fleet, tmp_path):
    path = tmp_path / "queries.sql"
    path.write_bytes(b"SELECT speed\nFROM traffic WHERE segment = '\xff';")
    with pytest.raises(SettingsError, match=r"line 2 of .*queries\.sql is not UTF-8"):
        load_queries(path, fleet.motes[0].description.stream)


OFFICE = """
name = "office"
world = "climate"
motes = 2
listen = { every = "10 minutes", for = "50ms" }
[[group]]
name = "rooms"
motes = ["room*"]
preset = "telosb"
"""
QUERY = "-- name: q\nSELECT room, temperature FROM climate SAMPLE EVERY 1 MINUTE;\n"


def shown(tmp_path, *more, fleet=OFFICE, query=QUERY):
    """Return what the report prints."""
    (tmp_path / "fleet.toml").write_text(fleet)
    (tmp_path / "queries.sql").write_text(query)
    files = ["--fleet", str(tmp_path / "fleet.toml"), "--queries", str(tmp_path / "queries.sql")]
    result = CliRunner().invoke(app, ["lifetime", *files, *more])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_band_has_the_self_discharge_as_that_of_power_has(tmp_path):
    first = json.loads(shown(tmp_path, "--days", "5", "--json"))["first"]
    (mote,) = virtual_motes(fleet := read_fleet(OFFICE.replace("motes = 2", "motes = 1"), "f"), load_queries(
        tmp_path / "queries.sql", fleet.motes[0].description.stream))  # fmt: skip
    milliwatts = float(draw_mw(mote.profile, mote.program, mote.workload).sum())
    processor, margin = mote.profile.processor, 1 + mote.profile.uncertainty
    low, middle, high = (
        mote.battery.life_seconds(milliwatts * factor, supply_v=processor.supply_v, minimum_v=processor.minimum_v)
        for factor in (margin, 1, 1 / margin)
    )
    assert high / middle < 0.97 * margin, "self-discharge matters here"
    assert first["lifetime_days_low"] / first["lifetime_days"] == pytest.approx(low / middle, rel=1e-3)
    assert first["lifetime_days_high"] / first["lifetime_days"] == pytest.approx(high / middle, rel=1e-3)
    assert f"{days_text(first['lifetime_days_high'])} if the draw is off by 15%" in shown(tmp_path, "--days", "5")


SUN = OFFICE + 'battery = "nimh-aa-pair"\nsolar = { peak_mw = 500.0 }\n'


def test_a_fleet_that_lives_for_ever_has_no_first_to_die(tmp_path):
    words = shown(tmp_path, "--days", "2", fleet=SUN)
    assert "no mote dies" in words
    assert "first to die" not in words
    assert "because" not in words
    first = json.loads(shown(tmp_path, "--days", "2", "--json", fleet=SUN))["first"]
    assert (first["lifetime_days"], first["lifetime_days_low"]) == (None, None)


def test_a_query_that_lengthens_life_is_said_to(tmp_path):
    """A mote asleep sends packets only to listen; one that samples listens after packets that it sends anyway."""
    often = OFFICE.replace("10 minutes", "30s")
    content = json.loads(shown(tmp_path, "--days", "2", "--json", fleet=often))
    (query,) = content["queries"]
    assert query["costs_days_of_first"] < -1
    assert query["saved_mw"] < 0
    words = shown(tmp_path, "--days", "2", fleet=often)
    assert "nothing" not in words.split("note:")[0]
    less = days_text(-query["costs_days_of_first"])
    assert "gains" in words
    assert f"without q the first mote would live {less} less, as a sleeping mote sends packets only to open" in words


@pytest.mark.parametrize(
    ("days", "words"),
    [(0.01, "nothing"), (-0.01, "nothing"), (float("nan"), "nothing"), (2.0, "2.0 days"), (-2.0, "gains 2.0 days"),
     (float("inf"), "for ever without it"), (float("-inf"), "for ever with it")],
)  # fmt: skip
def test_costs_in_words(days, words):
    assert cost_text(days) == words


@pytest.mark.parametrize("suffix", ["", "+seal"])
def test_a_profile_is_found_beside_the_fleet(tmp_path, suffix):
    presets = resources.files("protocols.power") / "presets"
    folder = tmp_path / "fleets"
    (folder / "devices").mkdir(parents=True)
    (folder / "devices" / "mine.toml").write_text((presets / "telosb.toml").read_text())
    (folder / "fleet.toml").write_text(OFFICE.replace('"telosb"', f'"devices/mine.toml{suffix}"'))
    assert load_fleet(folder / "fleet.toml").motes[0].profile.name == f"telosb{suffix}"
    (folder / "fleet.toml").write_text(OFFICE.replace('"telosb"', f'"{folder}/devices/mine.toml{suffix}"'))
    assert load_fleet(folder / "fleet.toml").motes[0].profile.name == f"telosb{suffix}"
    (folder / "fleet.toml").write_text(OFFICE.replace('"telosb"', '"none.toml"'))
    with pytest.raises(SettingsError, match=rf"group\[0\].preset: .*{folder}/none.toml"):
        load_fleet(folder / "fleet.toml")


def test_devices_of_one_name_have_programs_of_their_own(tmp_path, queries):
    """A profile that began as a copy of a preset may still have its name."""
    text = (resources.files("protocols.power") / "presets" / "telosb.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace("bytes = { value = 116", "bytes = { value = 20"))
    changed = FLEET.replace('preset = "nrf52840-154"\nbattery = "lisocl2-aa"', 'preset = "mine.toml"')
    changed = changed.replace("samples_per_packet = 7", "samples_per_packet = 50")
    fleet = read_fleet(changed, "f", tmp_path)
    every_sample = virtual_motes(fleet, queries, pushed_down=False)
    packets = {mote.profile.radio.max_payload_bytes: mote.program.samples_per_packet for mote in every_sample}
    assert packets[20.0] < packets[116.0]
