"""`--plot` of `fjord motes power` and `fjord motes lifetime`: files that cannot be written are refused first."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app
from firmware_sim.lifetime import report
from protocols.errors import SettingsError
from tests.firmware_sim.lifetime.test_hints import FLEET
from tests.protocols.power.test_profiles import SMALL

NOTHING = re.sub(r"mw = \{ value = [\d.]+", "mw = { value = 0.0", SMALL)
"""A profile whose powers are all zero."""


@pytest.fixture
def commands(tmp_path):
    """Return the beginnings of both commands."""
    (tmp_path / "fleet.toml").write_text(FLEET % "")
    (tmp_path / "queries.sql").write_text("SELECT temperature FROM climate")
    files = ["--fleet", str(tmp_path / "fleet.toml"), "--queries", str(tmp_path / "queries.sql")]
    return {"power": ["power", "--rate", "1"], "lifetime": ["lifetime", *files, "--days", "0.1"]}


def run(arguments):
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("name", ["power", "lifetime"])
@pytest.mark.parametrize(
    ("file", "message"),
    [("a.xyz", r"\.xyz.*png"), ("nowhere/a.png", "there is no folder .*nowhere"), ("file/a.png", "there is no folder")],
)
def test_a_plot_that_cannot_be_written_is_refused_before_the_simulation(
    monkeypatch, tmp_path, commands, name, file, message
):
    monkeypatch.setattr(report, "run_motes", lambda *_, **__: pytest.fail("simulated first"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SettingsError, match=message):
        run([*commands[name], "--plot", str(tmp_path / file)])


@pytest.mark.parametrize("name", ["power", "lifetime"])
def test_an_error_of_the_file_system_is_an_error_of_ours(tmp_path, commands, name):
    (tmp_path / "a.png").symlink_to(tmp_path / "nowhere" / "a.png")
    with pytest.raises(SettingsError, match=r"cannot write .*a\.png"):
        run([*commands[name], "--plot", str(tmp_path / "a.png")])


@pytest.mark.parametrize("name", ["power", "lifetime"])
def test_a_device_that_draws_nothing_is_drawn(tmp_path, commands, name):
    (tmp_path / "nothing.toml").write_text(NOTHING)
    (tmp_path / "fleet.toml").write_text((FLEET % "").replace("telosb", str(tmp_path / "nothing.toml")))
    more = ["--preset", str(tmp_path / "nothing.toml")] if name == "power" else []
    run([*commands[name], *more, "--plot", str(tmp_path / "plot.png")])
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_seed_is_no_negative_number(commands):
    result = CliRunner().invoke(app, [*commands["lifetime"], "--seed", "-1"])
    assert result.exit_code == 2
    assert "--seed" in result.output
