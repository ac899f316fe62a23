"""`fjord motes power`, as its users see it."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app
from firmware_sim.errors import MissingLibraryError
from firmware_sim.power import plots
from protocols.errors import ProgramError, SettingsError
from protocols.power.costs import Component
from protocols.power.profiles import preset_names


def power(*arguments):
    result = CliRunner().invoke(app, ["power", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("program", "printed_mw"), [("raw", 13.0), ("events", 1.1), ("count", 0.38)])
def test_figure_11_as_json(program, printed_mw):
    content = json.loads(power("--preset", "atmel8515", "--program", program, "--rate", "180", "--json"))
    assert set(content["draw_mw"]) == {*(each.value for each in Component), "total"}
    assert content["draw_mw"]["total"] == pytest.approx(printed_mw, rel=0.1)
    assert sum(content["draw_mw"].values()) == pytest.approx(2 * content["draw_mw"]["total"])
    assert content["lifetime_days_low"] < content["lifetime_days"] < content["lifetime_days_high"]
    rates = [point["rate_hz"] for point in content["curve"]]
    assert rates == sorted(rates)
    assert len(rates) > 20


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_an_answer(preset):
    content = json.loads(power("--preset", preset, "--program", "count", "--rate", "0.1", "--json"))
    assert 0 < content["draw_mw"]["total"] < 200
    assert content["lifetime_days"] > 1


def test_people_see_a_table_and_an_error_band(tmp_path):
    program = tmp_path / "p.toml"
    program.write_text('fields = ["temperature"]\nperiod = "1m"\n[report]\nkind = "panes"\npane = "1h"\n')
    shown = power("--preset", "telosb", "--program", str(program))
    for words in ("radio listen", "alkaline", "days", "if the draw is off by 15%", "0.0166667 Hz"):
        assert words in shown


def test_plot_writes_a_png(tmp_path):
    file = tmp_path / "plot.png"
    power("--program", "events", "--rate", "180", "--plot", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")


def test_listening_is_asked_for_explicitly_with_the_papers_programs():
    quiet, listening = (
        json.loads(power("--program", "count", "--rate", "180", "--json", *more))["draw_mw"]
        for more in ([], ["--listen-every", "2s", "--listen-for", "50ms"])
    )
    assert quiet["radio_listen"] == pytest.approx(0, abs=1e-9)
    assert listening["radio_listen"] == pytest.approx(11.4 * 0.05 / 2, rel=0.02)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    (("--program", "raw"), SettingsError, "give --rate"),
    (("--program", "raw", "--rate", "-1"), SettingsError, "-1 Hz is no rate"),
    (("--program", "raw", "--rate", "1e-320"), SettingsError, "Hz is no rate"),
    (("--program", "raw", "--rate", "nan"), SettingsError, "nan Hz is no rate"),
    (("--program", "raw", "--rate", "20000"), ProgramError, r"1.667e\+04 Hz"),
    (("--program", "rwa", "--rate", "1"), SettingsError, "raw, events, count"),
    (("--preset", "mica3", "--rate", "1"), SettingsError, "mica2"),
])  # fmt: skip
def test_wrong_arguments_are_errors_of_ours(arguments, error, message):
    with pytest.raises(error, match=message):
        power(*arguments)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingLibraryError, match=r"fjord\[plots\]"):
        plots.new_figure(1, 1)


def test_a_program_may_never_listen(tmp_path):
    program = tmp_path / "p.toml"
    program.write_text('fields = ["temperature"]\nperiod = "10s"\nlisten = "never"\n')
    assert "never listening" in power("--preset", "telosb", "--program", str(program))
    silent = json.loads(power("--preset", "telosb", "--program", str(program), "--json"))
    assert silent["draw_mw"]["radio_listen"] < 1e-9
    program.write_text('fields = ["temperature"]\nperiod = "10s"\n')
    assert "listening 100ms every 2s" in power("--preset", "telosb", "--program", str(program))


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ('priod = "10s"', "priod", "did you mean period?"),
        ('period = "10s"\n[listen]\nevry = "3s"', "listen.evry", "did you mean every?"),
        ('period = "10s"\n[[band]]\nfield = "t"\nhihg = 3', "band[0].hihg", "did you mean high?"),
        ('period = "10s"\n[report]\nkind = "panes"\npanne = "1h"', "report.panne", "did you mean pane?"),
        ('period = "10s"\nzzz = 1', "zzz", None),
    ],
)
def test_an_unknown_field_of_a_file_is_compared_with_those_there_are(tmp_path, text, path, hint):
    program = tmp_path / "p.toml"
    program.write_text(f'fields = ["t"]\n{text}\n')
    with pytest.raises(SettingsError, match="unknown field") as caught:
        power("--program", str(program))
    assert (f"field {path}:" in caught.value.message, caught.value.hint) == (True, hint)


def test_the_plot_has_the_point_on_its_curve(monkeypatch, tmp_path):
    drawn = []
    new_figure = plots.new_figure
    monkeypatch.setattr(plots, "new_figure", lambda *given: drawn.append(new_figure(*given)) or drawn[-1])
    power("--preset", "mica2", "--program", "raw", "--rate", "7.3", "--plot", str(tmp_path / "plot.png"))
    ((figure, (raw, events, count)),) = drawn
    total = next(each for each in raw.get_lines() if each.get_label() == "total")
    point = raw.get_lines()[-1].get_xydata()[0]
    assert any(point == pytest.approx(each) for each in total.get_xydata())
    assert all(each.collections for each in (raw, events, count)), "the band of uncertainty"
    (legend,) = figure.legends
    panels = [each.get_window_extent() for each in (raw, events, count)]
    assert not any(legend.get_window_extent().overlaps(each) for each in panels)
    assert not legend.get_window_extent().overlaps(figure._suptitle.get_window_extent())


@pytest.fixture
def profile(tmp_path):
    """Return what writes a profile: that of a TelosB with changes."""

    def write(*changes):
        text = (resources.files("protocols.power") / "presets" / "telosb.toml").read_text()
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "mine.toml").write_text(text)
        return str(tmp_path / "mine.toml")

    return write


def test_a_doubtful_profile_is_warned_of_beside_the_report(profile):
    file = profile(("sleep_mw = { value = 0.0153", "sleep_mw = { value = 15.3"))
    result = CliRunner().invoke(app, ["power", "--preset", file, "--rate", "1", "--json"])
    assert "warning: telosb draws more asleep (15.3 mW) than idle (0.1635 mW)" in result.stderr
    assert json.loads(result.stdout)["draw_mw"]["total"] > 15


def test_a_battery_that_gives_nothing_is_a_reason(profile):
    file = profile(("minimum_v = { value = 2.1", "minimum_v = { value = 3.0"))
    shown = power("--preset", file, "--rate", "1", "--battery", "nimh-aa-pair")
    assert "0.0 hours: even full, its voltage is not above the 3 V at which telosb stops" in " ".join(shown.split())
    assert "between" not in shown


def test_a_device_that_draws_nothing_lasts_for_ever_for_a_reason(tmp_path, profile):
    text = re.sub(r"(mw = \{ value = )[0-9.]+", r"\g<1>0.0", Path(profile()).read_text())
    (tmp_path / "none.toml").write_text(text)
    shown = power("--preset", str(tmp_path / "none.toml"), "--rate", "1", "--battery", "ideal:100")
    assert "for ever, as it draws nothing" in shown


BANDED = '[[band]]\nfield = "t"\nhigh = 4.5\n'
CHANGES = '[report]\nkind = "send_on_change"\nmaximum_silence = "10m"\n'


@pytest.mark.parametrize(
    ("program", "options", "warned"),
    [
        ("raw", ["--listen-for", "10ms"], "--listen-for has no effect without --listen-every"),
        ("raw", ["--listen-every", "2s", "--listen-for", "10ms"], None),
        ("raw", ["--kept", "0.5"], "--kept has no effect: the program has no bands"),
        ("raw", ["--changed", "0.5"], "--changed has no effect: the program does not send on change"),
        ("raw", ["--vehicles", "2"], "--vehicles has no effect: the program sends no vehicle events"),
        ("count", ["--vehicles", "2"], "--vehicles has no effect"),
        ("events", ["--vehicles", "2"], None),
        (BANDED, ["--kept", "0.5"], None),
        (CHANGES, ["--changed", "0.5"], None),
        (CHANGES, ["--kept", "0.5"], "--kept has no effect"),
        (CHANGES, ["--listen-every", "2s"], "--listen-every has no effect: a program file has its own listen"),
        (CHANGES, ["--listen-for", "10ms"], "--listen-for has no effect: a program file has its own listen"),
        (CHANGES, [], None),
    ],
)
def test_an_option_without_effect_is_warned_of(tmp_path, program, options, warned):
    arguments = ["--program", program, "--rate", "1"]
    if "\n" in program:
        (tmp_path / "p.toml").write_text(f'fields = ["t"]\nperiod = "10s"\n{program}')
        arguments = ["--program", str(tmp_path / "p.toml")]
    result = CliRunner().invoke(app, ["power", *arguments, *options])
    assert result.exit_code == 0
    if warned is None:
        assert result.stderr == ""
    else:
        assert result.stderr.startswith(f"warning: {warned}")
        plain = CliRunner().invoke(app, ["power", *arguments])
        assert result.stdout == plain.stdout, "it has no effect indeed"


def test_a_plot_of_all_three_programs_has_vehicles(tmp_path):
    plotted = ["--plot", str(tmp_path / "plot.png")]
    for more, warned in (([], True), (plotted, False)):
        result = CliRunner().invoke(app, ["power", "--rate", "1", "--vehicles", "2", *more])
        assert ("--vehicles has no effect" in result.stderr) == warned


@pytest.mark.parametrize("option", ["--listen-every", "--listen-for"])
def test_a_listen_window_is_longer_than_nothing(option):
    result = CliRunner().invoke(app, ["power", "--rate", "1", "--listen-every", "2s", option, "0s"])
    assert result.exit_code == 2
    assert "least 1us" in result.stderr
