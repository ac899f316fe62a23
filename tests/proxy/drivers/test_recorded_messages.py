"""The configuration of docs/how-to/connect-devices.md reads messages that real devices sent."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from protocols.wire.packets import Announcement
from proxy.drivers.settings import load_drivers, read_drivers
from proxy.errors import ConfigurationError
from tests.proxy.drivers.conftest import NOW, S

HINT = "docs/how-to/connect-devices.md describes every setting"
DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "connect-devices.md"


def documented():
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return tomllib.loads(example)


@pytest.fixture
def drivers():
    return {each.name: each for each in read_drivers(documented(), "docs/how-to/connect-devices.md")}


@pytest.mark.parametrize(
    ("name", "mote", "stream", "at", "values"),
    [
        ("tasmota", "TH16", "climate", 1_520_011_810, (22.6, 32.4)),
        ("shelly", "shelly-b8d61a8b17cc", "shelly_climate", 1_680_962_879.62, (19.8, True)),
        ("esphome", "livingroom", "esphome_temperature", 1_700_000_000, (23.4,)),
    ],
)
def test_recorded_messages_are_accepted(drivers, recorded, session, name, mote, stream, at, values):
    message = recorded(name)
    output = session(drivers[name]).at(at - NOW / S).send(message["topic"], message["payload"])
    announcement, packet = output.frames
    assert isinstance(announcement, Announcement)
    assert (announcement.mote, announcement.stream.name, output.rejections) == (mote, stream, ())
    (sample,) = packet.samples
    assert (packet.clock_us - sample.age_us, sample.values) == (round(at * S), values)


def test_every_setting_is_documented(drivers):
    assert set(drivers) == {
        *("tasmota", "shelly", "esphome", "factory", "chirpstack", "doors", "zigbee2mqtt"),
    }


FIELD = {"name": "t", "path": "t", "type": "real"}
JSON = {
    "kind": "json",
    "name": "d",
    "topic": "a/{mote}",
    "stream": "s",
    "field": [FIELD],
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
        ({"time": {"path": "t", "form": "seconds", "zone": "Mars/Base"}}, "time.zone"),
        ({"property": [{"name": "p", "part": "mote", "path": "x"}]}, "a part of the topic and a path"),
        ({"mapping": [{"versions": "<2"}]}, "version is not known"),
        ({"version": {"topic": "b"}, "mapping": [{"versions": "2"}]}, "mapping.versions"),
        ({"version": {"topic": "b"}, "mapping": [{"versions": "<2", "paths": {"x": "y"}}]}, "no field 'x'"),
        ({"version": {"topic": "b/#"}}, "version.topic"),
        ({"message_id": "id"}, "copies are not recognised"),
        ({"field": [FIELD | {"modulus": 10}]}, "modulus is for a counter"),
        ({"field": [FIELD | {"valid": [2, 1]}]}, "no number lies in"),
        ({"field": [FIELD | {"valid": [2]}]}, "valid"),
        ({"field": [FIELD | {"type": "text", "no_value": [1]}]}, "only numbers"),
        ({"field": [FIELD | {"default": "x"}]}, "default of field"),
        ({"merge_within": "1s", "field": [FIELD | {"kind": "counter", "default": 0}]}, "begin anew with each half"),
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


@pytest.mark.parametrize(
    ("changes", "words", "hint"),
    [
        ({"topci": "a"}, "there is no setting 'topci'", "did you mean topic?"),
        ({"field": [FIELD | {"scael": 2}]}, "there is no setting 'field.1.scael'", "did you mean scale?"),
        ({"field": [{"name": "t", "type": "real"}]}, "the setting 'field.1.path' is missing", HINT),
        ({"field": [{"name": "t", "type": "real", "paht": "t"}]}, "no setting 'field.1.paht'", "did you mean path?"),
        ({"time": {"path": "t", "form": "seconds", "zon": "UTC"}}, "'time.zon'", "did you mean zone?"),
    ],
)
def test_an_unknown_setting_is_compared_with_those_there_are(changes, words, hint):
    with pytest.raises(ConfigurationError) as caught:
        read_drivers({"driver": [{**JSON, **changes}]}, "devices.toml")
    assert words in caught.value.message
    assert caught.value.hint == hint


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
