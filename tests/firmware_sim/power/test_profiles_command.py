"""`fjord motes profiles` lists presets and batteries, and prints a preset as the start of an own file."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from firmware_sim.command import app
from firmware_sim.power.battery import known_batteries
from protocols.errors import SettingsError
from protocols.power.profiles import find_profile, preset_names, read_profile


def profiles(*arguments):
    result = CliRunner().invoke(app, ["profiles", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_all_presets_and_batteries_are_listed_with_their_titles():
    shown = profiles()
    for name in preset_names():
        assert f"{name} " in shown
        assert all(word in shown for word in find_profile(name).title.split())
    for name, battery in known_batteries().items():
        assert f"{name} " in shown
        assert all(word in shown for word in battery.title.split())


@pytest.mark.parametrize("name", preset_names())
def test_what_is_printed_is_a_profile(name):
    assert read_profile(profiles(name), "printed") == find_profile(name)


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(SettingsError, match="no preset 'telosc'") as caught:
        profiles("telosc")
    assert "telosb" in caught.value.hint
