"""The configuration of docs/how-to/connect-devices.md reads messages that real devices sent."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from protocols.wire.packets import Announcement
from proxy.drivers.settings import load_drivers, read_drivers
from proxy.errors import ConfigurationError

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "connect-devices.md"


def documented():
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return tomllib.loads(example)


@pytest.fixture
def drivers():
    return {each.name: each for each in read_drivers(documented(), "docs/how-to/connect-devices.md")}


@pytest.mark.parametrize(
    ("name", "mote", "stream"),
    [
        ("tasmota", "TH16", "climate"),
        ("shelly", "shelly-b8d61a8b17cc", "shelly_climate"),
        ("esphome", "livingroom", "esphome_temperature"),
    ],
)
def test_recorded_messages_are_accepted(drivers, recorded, session, name, mote, stream):
    message = recorded(name)
    output = session(drivers[name]).send(message["topic"], message["payload"])
    announcement = output.frames[0]
    assert isinstance(announcement, Announcement)
    assert (announcement.mote, announcement.stream.name, output.rejections) == (mote, stream, ())


def test_every_setting_is_documented(drivers):
    assert set(drivers) == {"tasmota", "shelly", "esphome", "factory", "zigbee2mqtt"}


JSON = {
    "kind": "json",
    "name": "d",
    "topic": "a/{mote}",
    "stream": "s",
    "field": [{"name": "t", "path": "t", "type": "real"}],
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "zwave"}, "driver 1: kind = 'zwave' is unknown"),
        ({"topic": "a/+"}, "wildcard"),
        ({"topic": "a/b"}, "named either by"),
        ({"mote": "x"}, "named either by"),
        ({"topic": "{mote}/{mote}"}, "twice"),
        ({"default_period": "soon"}, "'soon' is not a duration"),
        ({"field": []}, "field"),
        ({"field": [{"name": "t", "path": "t", "type": "float"}]}, "driver 1 ('d'): field.1.type = 'float'"),
        ({"field": JSON["field"] * 2}, "two fields named"),
        ({"property": [{"name": "p", "part": "line"}]}, "no part 'line'"),
        ({"property": [{"name": "p", "type": "integer", "value": "x"}]}, "holds integer"),
        ({"time": {"path": "t", "form": "seconds", "zone": "CET"}}, "time.zone"),
        ({"colour": "red"}, "colour"),
        ({"name": "a b"}, "cannot be part of a topic"),
    ],
)
def test_errors_name_file_entry_and_setting(changes, words):
    with pytest.raises(ConfigurationError) as caught:
        read_drivers({"driver": [{**JSON, **changes}]}, "devices.toml")
    assert str(caught.value).startswith("devices.toml: driver 1")
    assert words in str(caught.value)
    assert caught.value.hint


def test_driver_files_that_cannot_be_used_are_rejected(tmp_path):
    file = tmp_path / "devices.toml"
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_drivers(file)
    file.write_text("[[driver")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_drivers(file)
    file.write_text("")
    assert load_drivers(file) == []
    with pytest.raises(ConfigurationError, match="2 drivers are named"):
        read_drivers({"driver": [JSON, JSON]}, "x")
    with pytest.raises(ConfigurationError, match="only"):
        read_drivers({"drivers": []}, "x")
