"""Zigbee2MQTT: devices become motes, programs become reporting."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.packets import Announcement, Health, Packet
from protocols.wire.programs import SLEEP, DeadBand, Panes, SamplingProgram, SendOnChange, program_number
from protocols.wire.streams import FieldType
from proxy.drivers.driver import PASSIVE
from proxy.drivers.zigbee2mqtt import Zigbee2MqttDriver, ZigbeeDriverPlan
from proxy.drivers.zigbee_reporting import ATTRIBUTES, REPORTING, reportable_change

S = 1_000_000
NOW = 1_700_000_000 * S
SONOFF = "0x00124b0025033adc"
RESPONSE = "zigbee2mqtt/bridge/response/device/configure_reporting"
CHANGES = SamplingProgram(
    ("temperature", "voltage"),
    10 * S,
    report=SendOnChange((DeadBand("temperature", 0.25), DeadBand("voltage", 50.0)), 600 * S),
)


@pytest.fixture
def bridge(session, recorded):
    it = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z")))
    it.first = it.send("zigbee2mqtt/bridge/devices", recorded("zigbee2mqtt_devices"), retained=True)
    it.states = recorded("zigbee2mqtt_states")
    it.responses = recorded("configure_reporting_responses")
    return it


def answer(it, publication, how):
    transaction = json.loads(publication.payload)["transaction"]
    return it.send(RESPONSE, {**it.responses[how], "transaction": transaction})


def samples(output):
    return [sample.values for packet in output.frames if isinstance(packet, Packet) for sample in packet.samples]


def test_devices_become_motes(bridge):
    announced = {each.mote: each for each in bridge.first.frames if isinstance(each, Announcement)}
    assert sorted(announced) == [SONOFF, "cellar-wine-shelf-" + sorted(announced)[1][-8:], "my_plug"]
    sonoff, plug = announced[SONOFF], announced["my_plug"]
    assert (sonoff.stream.name, sonoff.kind, sonoff.minimum_period_us) == ("zigbee2mqtt_snzb_02", "SNZB_02", S)
    units = [(each.name, each.type, each.unit) for each in sonoff.stream.fields]
    assert units[:2] == [("temperature", FieldType.REAL, "degC"), ("humidity", FieldType.REAL, "%")]
    assert [(each.name, each.type) for each in plug.stream.fields] == [
        ("state", FieldType.BOOLEAN),
        ("power", FieldType.REAL),
        ("power_outage", FieldType.TEXT),
    ]
    assert bridge.first.rejections == ()


def test_a_repeated_list_changes_nothing_and_a_removed_device_is_forgotten(bridge, recorded):
    devices = recorded("zigbee2mqtt_devices")
    assert bridge.send("zigbee2mqtt/bridge/devices", devices).frames == ()
    bridge.send("zigbee2mqtt/bridge/devices", devices[:2])
    assert not bridge.driver.owns(SONOFF)
    assert len(bridge.at(10).tick().frames) == 1


def test_a_model_with_other_fields_gets_a_stream_of_its_own(bridge, recorded):
    devices = recorded("zigbee2mqtt_devices")
    other = json.loads(json.dumps(devices[2]))
    other |= {"ieee_address": "0xffff", "friendly_name": "other"}
    other["definition"]["exposes"].pop()
    output = bridge.send("zigbee2mqtt/bridge/devices", [*devices, other])
    assert output.frames[0].stream.name.startswith("zigbee2mqtt_snzb_02_")


def test_a_program_becomes_requests_and_runs_once_they_are_answered(bridge):
    output = bridge.run(SONOFF, CHANGES)
    (request,) = output.publications
    assert request.topic == "zigbee2mqtt/bridge/request/device/configure_reporting"
    payload = json.loads(request.payload)
    del payload["transaction"]
    assert payload == {
        "id": SONOFF,
        "endpoint": 1,
        "cluster": "msTemperatureMeasurement",
        "attribute": "measuredValue",
        "minimum_report_interval": 10,
        "maximum_report_interval": 600,
        "reportable_change": 25,
        "option": {},
    }
    assert "voltage" in output.notices[0].text
    assert output.frames == ()
    assert bridge.run(SONOFF, CHANGES).publications == ()  # under way
    bridge.send(RESPONSE, {"data": {}, "status": "ok"})  # the answer to another client
    (packet,) = answer(bridge, request, "ok").frames
    assert packet.program == program_number(CHANGES)


def test_the_device_keeps_its_dead_band_and_the_proxy_the_others(bridge):
    answer(bridge, bridge.run(SONOFF, CHANGES).publications[0], "ok")
    state = {"temperature": 20.0, "voltage": 3000}
    changes = ({}, {"voltage": 3040}, {"temperature": 20.1}, {"voltage": 3100})
    found = []
    for slot, change in enumerate(changes, start=1):
        state |= change
        found.append(bool(samples(bridge.at(10 * slot).send(f"zigbee2mqtt/{SONOFF}", state))))
    assert found == [True, False, True, True]


def test_a_plain_program_reports_once_per_period(bridge):
    (request,) = bridge.run(SONOFF, SamplingProgram(("humidity",), 90 * S)).publications
    payload = json.loads(request.payload)
    assert (payload["minimum_report_interval"], payload["maximum_report_interval"], payload["reportable_change"]) == (
        90,
        90,
        1,
    )


@pytest.mark.parametrize(("period_us", "seconds"), [(S // 10, 1), (S, 1), (1_500_000, 1), (100_000 * S, 65_534)])
def test_intervals_stay_within_the_bounds_of_zigbee(bridge, period_us, seconds):
    output = bridge.run(SONOFF, SamplingProgram(("temperature",), period_us))
    assert json.loads(output.publications[0].payload)["maximum_report_interval"] == seconds
    assert bool(output.notices) == (period_us in {S // 10, 100_000 * S})


def test_a_failed_request_is_sent_again_when_the_device_wakes_and_then_given_up(bridge):
    program = SamplingProgram(("temperature",), 60 * S)
    output = bridge.run(SONOFF, program)
    failed = answer(bridge, output.publications[0], "error")
    assert [each.reason for each in failed.rejections] == ["device_refused"]
    assert "bindRsp" in failed.rejections[0].detail
    assert bridge.at(3).tick().publications == ()
    bridge.at(4).send(f"zigbee2mqtt/{SONOFF}", bridge.states[SONOFF])
    again = bridge.at(5).tick().publications
    assert len(again) == 1
    assert len(bridge.at(100).tick().publications) == 0  # no answer: failed
    assert len(bridge.at(161).tick().publications) == 1  # the last attempt
    output = bridge.at(200).tick()
    assert output.notices[0].text.startswith("temperature keeps the device's own reporting")
    assert program_number(program) in [each.program for each in output.frames]


def test_without_demand_the_device_keeps_its_reporting(bridge):
    answer(bridge, bridge.run(SONOFF, CHANGES).publications[0], "ok")
    output = bridge.run(SONOFF, SLEEP)
    assert output.publications == ()
    assert [each.program for each in output.frames] == [0]


def test_unsupported_programs_and_unknown_motes_are_rejected(bridge):
    assert bridge.run(SONOFF, SamplingProgram(("temperature",), S, report=Panes(S))).rejections[0].reason == "program"
    assert bridge.driver.capabilities_of(SONOFF) == REPORTING
    assert bridge.driver.capabilities_of("unknown") == PASSIVE
    assert bridge.run("unknown", CHANGES).rejections[0].reason == "unknown_mote"


def test_states_become_samples_and_the_battery_health(bridge):
    mote = next(each.mote for each in bridge.first.frames if each.mote.startswith("cellar"))
    program = SamplingProgram(("temperature", "pressure", "linkquality"), S)
    for request in bridge.run(mote, program).publications:
        answer(bridge, request, "ok")
    output = bridge.at(5).send("zigbee2mqtt/cellar/wine shelf", bridge.states["cellar/wine shelf"])
    assert samples(output) == [(27.34, 1007.2, 115.0)]
    assert [each.battery for each in output.frames[0].records if isinstance(each, Health)] == [0.97]
    assert (
        bridge.at(9).send("zigbee2mqtt/cellar/wine shelf", bridge.states["cellar/wine shelf"], retained=True).frames
        == ()
    )


def test_binary_and_enum_values(bridge):
    for request in bridge.run("my_plug", SamplingProgram(("state", "power_outage"), S)).publications:
        answer(bridge, request, "ok")
    assert samples(bridge.at(1).send("zigbee2mqtt/my_plug", bridge.states["my_plug"])) == [(True, "on")]
    assert samples(bridge.at(2).send("zigbee2mqtt/my_plug", {"state": "OFF"})) == [(False, None)]
    assert bridge.at(3).send("zigbee2mqtt/my_plug", {"state": 7}).rejections[0].reason == "type"
    assert bridge.at(3).send("zigbee2mqtt/my_plug", [1]).rejections[0].reason == "shape"


@pytest.mark.parametrize("word", [b"offline", b'{"state":"offline"}'])
def test_a_device_that_is_offline_falls_silent(bridge, word):
    sending = len(bridge.at(10).tick().frames)
    bridge.send("zigbee2mqtt/my_plug/availability", word, retained=True)
    assert len(bridge.at(20).tick().frames) == sending - 1
    bridge.send("zigbee2mqtt/my_plug/availability", word.replace(b"offline", b"online"))
    assert len(bridge.at(30).tick().frames) == sending


def test_other_topics_of_the_bridge_are_nothing(bridge):
    for topic in ("bridge/state", "bridge/logging", "my_plug/set", "unknown", "unknown/availability", "bridge/groups"):
        output = bridge.send(f"zigbee2mqtt/{topic}", b"online")
        assert (output.frames, output.rejections) == ((), ())


@pytest.mark.parametrize("number", [b"1" + b"0" * 400, b"-1" + b"0" * 5000, b"1e308", b"1e999", b"-0", b'"\\ud800"'])
def test_numbers_and_letters_beyond_all_bounds(bridge, number):
    answer(bridge, bridge.run(SONOFF, SamplingProgram(("temperature",), S)).publications[0], "ok")
    output = bridge.at(5).send(f"zigbee2mqtt/{SONOFF}", b'{"temperature": ' + number + b', "battery": ' + number + b"}")
    assert len(samples(output)) + len(output.rejections) == 1
    devices = b'[{"friendly_name": "a", "ieee_address": %s, "definition": {"exposes": [%s]}}]' % (number, number)
    bridge.send("zigbee2mqtt/bridge/devices", devices)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False), st.sampled_from(sorted(ATTRIBUTES)))
def test_a_reportable_change_is_never_wider_than_the_dead_band(width, key):
    attribute = ATTRIBUTES[key]
    change = reportable_change(attribute, width)
    assert change >= (1 if attribute.whole else 0)
    if attribute.step is not None and attribute.whole and width >= attribute.step:
        assert change * attribute.step <= Fraction(str(width))  # as people wrote it


LEAVES = (
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=5)
)


def test_an_endless_dead_band_is_the_widest_there_is():
    assert reportable_change(ATTRIBUTES["temperature", "°C"], float("inf")) == 32_767


KEYS = st.sampled_from(
    (
        *(
            "ieee_address",
            "friendly_name",
            "definition",
            "exposes",
            "features",
            "type",
            "property",
            "access",
            "endpoints",
        ),
        *("1", "clusters", "input", "transaction", "status", "temperature", "battery", "unit", "model"),
    )
)
GARBAGE = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=15
)


@given(
    GARBAGE,
    st.sampled_from(
        ["bridge/devices", "my_plug", "my_plug/availability", "bridge/response/device/configure_reporting"]
    ),
)
def test_garbage_never_raises(content, topic):
    it = Zigbee2MqttDriver(ZigbeeDriverPlan("z"))
    plug = {"type": "numeric", "property": "temperature", "access": 1, "unit": "°C"}
    device = {
        "ieee_address": "0x1",
        "friendly_name": "my_plug",
        "definition": {"model": "m", "exposes": [plug, content]},
    }
    times = {"radio_us": 0, "received_us": NOW}
    it.received("zigbee2mqtt/bridge/devices", json.dumps([device, content]).encode(), **times)
    it.run("my_plug", SamplingProgram(("temperature",), S), **times)
    it.received(f"zigbee2mqtt/{topic}", json.dumps(content).encode(), **times)
    it.time_passed(**times)
