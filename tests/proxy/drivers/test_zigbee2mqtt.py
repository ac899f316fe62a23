"""Zigbee2MQTT: devices become motes, programs become reporting."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.packets import Announcement, Health, Packet
from protocols.wire.programs import (
    SLEEP,
    DeadBand,
    Panes,
    SamplingProgram,
    SendOnChange,
    program_number,
    publishing_program,
)
from protocols.wire.streams import FieldType, StreamSchema
from proxy.drivers.driver import NOTHING, PASSIVE, DriverOutput, KnownDevice
from proxy.drivers.settings import read_drivers
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


def run(it, mote, program):
    """Let a device run a program, and its bridge accept all requests."""
    for request in it.run(mote, program).publications:
        transaction = json.loads(request.payload)["transaction"]
        it.send(RESPONSE, {"status": "ok", "transaction": transaction})


def stamps(output):
    return [
        (packet.clock_us - sample.age_us - NOW, *sample.values)
        for packet in output.frames
        if isinstance(packet, Packet)
        for sample in packet.samples
    ]


def samples(output):
    return [sample.values for packet in output.frames if isinstance(packet, Packet) for sample in packet.samples]


def values_of(it, mote, output, *names):
    """The values of these fields in the samples of a device, each of which has all of its stream's."""
    (announced,) = it.driver.announce(mote, **it.times).frames
    places = [[each.name for each in announced.stream.sampled].index(name) for name in names]
    return [tuple(values[place] for place in places) for values in samples(output)]


def test_devices_become_motes(bridge):
    announced = {each.mote: each for each in bridge.first.frames if isinstance(each, Announcement)}
    assert sorted(announced) == [SONOFF, "cellar-wine-shelf-" + sorted(announced)[1][-8:], "my_plug"]
    sonoff, plug = announced[SONOFF], announced["my_plug"]
    assert (sonoff.stream.name, sonoff.kind, sonoff.minimum_period_us) == ("zigbee2mqtt_snzb_02", "SNZB_02", S)
    units = [(each.name, each.type, each.unit) for each in sonoff.stream.fields]
    assert units[2:4] == [("temperature", FieldType.REAL, "degC"), ("humidity", FieldType.REAL, "%")]
    assert [each.name for each in sonoff.stream.fixed] == ["sensor", "address"]
    assert [(each.name, each.type) for each in plug.stream.sampled] == [
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


def listed(device, **changes):
    """A copy of a listed device, with a friendly name and an address of its own."""
    other = json.loads(json.dumps(device))
    return other | {"ieee_address": "0xffff", "friendly_name": "other"} | changes


def announcements(output):
    return {each.mote: each for each in output.frames if isinstance(each, Announcement)}


def test_devices_know_who_they_are(bridge):
    names = {each.properties["sensor"]: each.properties["address"] for each in announcements(bridge.first).values()}
    assert names["cellar/wine shelf"] == "0x00158d0001a2b3c4"
    assert bridge.driver.device_of(SONOFF) == SONOFF
    assert bridge.driver.device_of("unknown") == ""


def test_a_model_with_a_field_less_keeps_its_stream(bridge, recorded):
    devices = recorded("zigbee2mqtt_devices")
    other = listed(devices[2])
    other["definition"]["exposes"] = other["definition"]["exposes"][:2]  # battery and temperature
    output = bridge.send("zigbee2mqtt/bridge/devices", [*devices, other])
    assert {mote: each.stream.name for mote, each in announcements(output).items()} == {"other": "zigbee2mqtt_snzb_02"}
    assert (output.rejections, bridge.driver.trouble_of("other")) == ((), "")
    run(bridge, "other", SamplingProgram(("temperature", "humidity"), S))
    output = bridge.at(1).send("zigbee2mqtt/other", {"temperature": 20})
    assert values_of(bridge, "other", output, "temperature", "humidity") == [(20.0, None)]


def test_a_model_with_a_field_more_gives_it_to_all_of_its_stream(bridge, recorded):
    devices = recorded("zigbee2mqtt_devices")
    more = {"access": 1, "name": "dew", "property": "dew", "type": "numeric", "unit": "°C"}
    other = listed(devices[2])
    other["definition"]["exposes"].append(more)
    found = announcements(bridge.send("zigbee2mqtt/bridge/devices", [*devices, other]))
    assert sorted(found) == sorted([SONOFF, "other"])
    assert {each.stream for each in found.values()} == {found["other"].stream}
    assert found["other"].stream.field_names[-1] == "dew"
    # An update takes the field away again: that changes nothing.
    again = bridge.send("zigbee2mqtt/bridge/devices", [*devices, listed(devices[2])])
    assert (again.frames, again.rejections) == ((), ())


@pytest.mark.parametrize("change", [{"unit": "°F"}, {"type": "text", "unit": ""}, {"unit": ""}])
def test_a_field_of_another_type_or_unit_is_named_and_null(bridge, recorded, change):
    devices = recorded("zigbee2mqtt_devices")
    other = listed(devices[2])
    other["definition"]["exposes"][1] |= change
    output = bridge.send("zigbee2mqtt/bridge/devices", [*devices, other])
    assert announcements(output)["other"].stream == announcements(bridge.first)[SONOFF].stream
    assert [(each.reason, each.mote) for each in output.rejections] == [("mismatch", "other")]
    for words in ("temperature REAL UNIT 'degC'", "another pattern of streams"):
        assert words in bridge.driver.trouble_of("other")
    assert bridge.driver.trouble_of(SONOFF) == ""
    run(bridge, "other", SamplingProgram(("temperature", "humidity"), S))
    state = {"temperature": "x" if change.get("type") else 70, "humidity": 40}
    output = bridge.at(1).send("zigbee2mqtt/other", state)
    assert values_of(bridge, "other", output, "temperature", "humidity") == [(None, 40.0)]
    assert bridge.driver.counts_of("other")["field_mismatch"] == 1
    assert bridge.send("zigbee2mqtt/bridge/devices", [*devices, other]).rejections == ()


def test_the_version_of_the_bridge_is_noted_once(bridge):
    first = bridge.send("zigbee2mqtt/bridge/info", {"version": "1.42.0"}, retained=True)
    assert "1.42.0" in first.notices[0].text
    assert bridge.send("zigbee2mqtt/bridge/info", {"version": "1.42.0"}).notices == ()
    assert "2.0.0, was 1.42.0" in bridge.send("zigbee2mqtt/bridge/info", {"version": "2.0.0"}).notices[0].text
    for content in (b"{", [1], {"version": 7}, {}):
        assert bridge.send("zigbee2mqtt/bridge/info", content).frames == ()


def known(it, mote, boot=2, **changes):
    announcement = it.driver.announce(mote, **it.times).frames[0]
    return KnownDevice(mote, it.driver.device_of(mote), boot, announcement, it.driver.state_of(mote), **changes)


def test_after_a_restart_devices_are_read_before_the_bridge_lists_them(bridge, session, recorded):
    again = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z"))).at(100)
    devices = [known(bridge, mote, boot=4) for mote in (SONOFF, "my_plug")]
    output = again.driver.restore(devices, **again.times)
    assert [(type(each), each.boot) for each in output.frames] == [(Announcement, 4), (Packet, 4)] * 2
    assert [each.stream for each in output.frames[::2]] == [each.announcement.stream for each in devices]
    assert output.frames[1].promise_us == NOW + 100 * S
    assert again.driver.owns(SONOFF)
    run(again, SONOFF, SamplingProgram(("temperature",), S))
    output = again.at(101).send(f"zigbee2mqtt/{SONOFF}", {"temperature": 20.5})
    assert values_of(again, SONOFF, output, "temperature") == [(20.5,)]
    assert again.send("zigbee2mqtt/bridge/devices", recorded("zigbee2mqtt_devices")[:4]).frames[::2] == tuple(
        each for each in bridge.first.frames if isinstance(each, Announcement) and each.mote.startswith("cellar")
    )


def test_messages_before_the_first_list_are_named(bridge, session):
    again = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z"))).at(100)
    announcement = known(bridge, SONOFF).announcement
    again.driver.restore([KnownDevice(SONOFF, SONOFF, 2, announcement)], **again.times)
    assert again.run(SONOFF, CHANGES) == NOTHING
    for topic in (SONOFF, "new"):
        output = again.send(f"zigbee2mqtt/{topic}", {"temperature": 20})
        assert [each.reason for each in output.rejections] == ["unlisted"]
    for topic in ("bridge/state", "new/set", "new/get", "new/availability"):
        assert again.send(f"zigbee2mqtt/{topic}", {"state": "online"}) == NOTHING
    assert again.driver.counts_of(SONOFF) == {"unlisted": 1}


def test_a_device_with_a_stream_of_an_earlier_version_keeps_it(bridge, session, recorded):
    before = known(bridge, SONOFF)
    fields = before.announcement.stream.fields[2:5]
    stream = StreamSchema("zigbee2mqtt_snzb_02_0123abcd", fields)
    before = replace(before, announcement=msgspec.structs.replace(before.announcement, stream=stream, properties={}))
    again = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z")))
    again.driver.restore([before], **again.times)
    devices = recorded("zigbee2mqtt_devices")
    found = announcements(again.send("zigbee2mqtt/bridge/devices", [*devices, listed(devices[2])]))
    now = again.driver.announce(SONOFF, **again.times).frames[0].stream
    assert (now.name, now.fields[:3]) == (stream.name, stream.fields)
    assert set(now.field_names) >= {"sensor", "address", "linkquality"}
    assert found["other"].stream.name == "zigbee2mqtt_snzb_02"


def test_a_device_that_an_earlier_version_did_not_name_keeps_its_stream(bridge, session, recorded):
    stream = announcements(bridge.first)[SONOFF].stream
    kept = StreamSchema("zigbee2mqtt_snzb_02_0123abcd", stream.sampled)
    before = KnownDevice(SONOFF, "", 1, msgspec.structs.replace(announcements(bridge.first)[SONOFF], stream=kept))
    again = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z")))
    assert again.driver.restore([before], **again.times) == NOTHING
    found = announcements(again.send("zigbee2mqtt/bridge/devices", recorded("zigbee2mqtt_devices")))
    assert found[SONOFF].stream.name == kept.name
    assert found[SONOFF].stream.fields[: len(kept.fields)] == kept.fields


def test_a_device_that_comes_back_goes_on_counting(session, recorded):
    devices = recorded("zigbee2mqtt_devices")
    rule = {"name": "linkquality", "kind": "counter", "modulus": 100}
    it = session(read_drivers({"driver": [{"kind": "zigbee2mqtt", "field": [rule]}]}, "test")[0])
    it.send("zigbee2mqtt/bridge/devices", devices)
    run(it, SONOFF, SamplingProgram(("linkquality",), S))
    values = {"linkquality": 90}
    found = values_of(it, SONOFF, it.at(1).send(f"zigbee2mqtt/{SONOFF}", values), "linkquality")
    it.at(2).send("zigbee2mqtt/bridge/devices", devices[:2])
    it.send("zigbee2mqtt/bridge/devices", devices)
    run(it, SONOFF, SamplingProgram(("linkquality",), S))
    found += values_of(it, SONOFF, it.at(3).send(f"zigbee2mqtt/{SONOFF}", {"linkquality": 5}), "linkquality")
    assert found == [(90.0,), (105.0,)]


def test_messages_of_devices_that_are_not_listed_are_named(bridge):
    bridge.send("zigbee2mqtt/bridge/groups", [{"id": 1, "friendly_name": "lights"}], retained=True)
    (rejected,) = bridge.send("zigbee2mqtt/unknown", {"temperature": 1}).rejections
    assert (rejected.reason, "does not list 'unknown'" in rejected.detail) == ("unlisted", True)
    for topic in ("lights", "unknown/set", "Coordinator"):
        assert bridge.send(f"zigbee2mqtt/{topic}", {"state": "ON"}) == NOTHING
    assert bridge.send("zigbee2mqtt/unknown", {"temperature": 1}, retained=True) == NOTHING


def test_a_device_that_comes_back_has_another_boot(bridge, recorded):
    devices = recorded("zigbee2mqtt_devices")
    bridge.send("zigbee2mqtt/bridge/devices", devices[:2])
    again = announcements(bridge.send("zigbee2mqtt/bridge/devices", devices))
    assert again[SONOFF].boot == 2


def test_what_a_bridge_says_of_power_and_what_is_configured(session, recorded):
    devices = recorded("zigbee2mqtt_devices")
    field = [{"name": "Temperature", "no_value": [85.0], "valid": [-40, 80]}, {"name": "humidity", "kind": "event"}]
    entry = {"kind": "zigbee2mqtt", "store": "always", "expected_every": "1h", "field": field}
    it = session(read_drivers({"driver": [entry]}, "test")[0])
    it.send("zigbee2mqtt/bridge/devices", [*devices, listed(devices[2], power_source="Mains (single phase)")])
    found = {mote: it.driver.capabilities_of(mote) for mote in (SONOFF, "other")}
    assert [each.mains for each in found.values()] == [False, True]
    assert found[SONOFF].event_fields == ("humidity",)
    assert (found[SONOFF].stored_always, found[SONOFF].expected_every_us, found[SONOFF].publishes) == (
        True,
        3600 * S,
        False,
    )
    run(it, SONOFF, SamplingProgram(("temperature", "humidity"), S))
    for temperature in (85, -41):
        state = {"temperature": temperature, "humidity": 1}
        output = it.at(1).send(f"zigbee2mqtt/{SONOFF}", state)
        assert values_of(it, SONOFF, output, "temperature", "humidity") == [(None, 1.0)]
    assert it.driver.counts_of(SONOFF) == {"field_no_value": 1, "field_out_of_range": 1}
    battery = session(read_drivers({"driver": [entry | {"power": "mains"}]}, "test")[0])
    battery.send("zigbee2mqtt/bridge/devices", devices)
    assert battery.driver.capabilities_of(SONOFF).mains


BUTTON = {
    "ieee_address": "0xb",
    "friendly_name": "button",
    "definition": {"model": "B", "exposes": [{"type": "enum", "property": "action", "access": 1}]},
}


def test_a_device_of_which_nothing_can_be_set_publishes_by_its_own_rules(bridge, recorded):
    output = bridge.send("zigbee2mqtt/bridge/devices", [*recorded("zigbee2mqtt_devices"), BUTTON])
    stream = announcements(output)["button"].stream
    capabilities = bridge.driver.capabilities_of("button")
    assert (capabilities.publishes, capabilities.event_fields) == (True, ("action",))
    assert bridge.run("button", CHANGES) == NOTHING
    sent = [bridge.at(at).send("zigbee2mqtt/button", {"action": word}) for at, word in ((3.2, "on"), (3.7, "off"))]
    assert [each.frames[0].program for each in sent] == [program_number(publishing_program(stream))] * 2
    assert [stamps(each) for each in sent] == [[(3_200_000, "on")], [(3_700_000, "off")]]
    assert bridge.send("zigbee2mqtt/button", {"action": "on"}, retained=True).rejections[0].reason == "retained"


EXPOSED = {
    name: {"type": "numeric", "property": name, "unit": unit, "access": 1}
    for name, unit in (("temperature", "°C"), ("humidity", "%"), ("count", ""))
}


def turning(*exposed, settable):
    """A device as the bridge lists it; its reporting can be set if its endpoint has the clusters."""
    clusters = ["msTemperatureMeasurement", "msRelativeHumidity"] if settable else []
    return {
        "ieee_address": "0xc",
        "friendly_name": "turning",
        "definition": {"model": "C", "exposes": [EXPOSED[each] for each in exposed]},
        "endpoints": {"1": {"clusters": {"input": clusters, "output": []}}},
    }


FREE, SETTABLE = turning("temperature", settable=False), turning("temperature", settable=True)
EACH = SamplingProgram(("temperature",), 10 * S)


@pytest.mark.parametrize(("first", "then"), [(FREE, SETTABLE), (SETTABLE, FREE)])
def test_a_device_whose_capabilities_alone_change_announces_the_same_again(bridge, first, then):
    (before, hello) = bridge.send("zigbee2mqtt/bridge/devices", [first]).frames
    (after, again) = bridge.send("zigbee2mqtt/bridge/devices", [then]).frames
    assert after == before
    assert (again.boot, again.sequence) == (hello.boot, hello.sequence + 1), "the numbers of its packets continue"
    assert bridge.driver.capabilities_of("turning").publishes is (then is FREE)
    assert bridge.send("zigbee2mqtt/bridge/devices", [then]).frames == ()


def test_a_device_that_cannot_be_set_any_more_forgets_its_program(bridge):
    stream = announcements(bridge.send("zigbee2mqtt/bridge/devices", [SETTABLE]))["turning"].stream
    run(bridge, "turning", EACH)
    assert bridge.send("zigbee2mqtt/turning", {"temperature": 1}).frames[0].program == program_number(EACH)
    bridge.send("zigbee2mqtt/bridge/devices", [FREE])
    own = program_number(publishing_program(stream))
    assert bridge.send("zigbee2mqtt/turning", {"temperature": 2}).frames[0].program == own
    # When it can be set again, it has to be sent a program.
    bridge.send("zigbee2mqtt/bridge/devices", [SETTABLE])
    assert bridge.send("zigbee2mqtt/turning", {"temperature": 3}).frames[0].program == program_number(SLEEP)
    assert bridge.run("turning", EACH).publications


def test_the_beginning_of_a_forgotten_program_holds_no_tuple_back(bridge):
    bridge.send("zigbee2mqtt/bridge/devices", [SETTABLE])
    (request,) = bridge.run("turning", EACH, not_before_us=NOW + 5 * S).publications
    bridge.send(RESPONSE, {"status": "ok", "transaction": json.loads(request.payload)["transaction"]})
    assert samples(bridge.at(2).send("zigbee2mqtt/turning", {"temperature": 1})) == []
    bridge.send("zigbee2mqtt/bridge/devices", [FREE])
    assert [stamp for stamp, *_ in stamps(bridge.at(3).send("zigbee2mqtt/turning", {"temperature": 2}))] == [3 * S]


def test_an_answer_that_comes_once_the_device_publishes_freely_starts_no_program(bridge):
    stream = announcements(bridge.send("zigbee2mqtt/bridge/devices", [SETTABLE]))["turning"].stream
    (request,) = bridge.run("turning", EACH).publications
    bridge.send("zigbee2mqtt/bridge/devices", [FREE])
    transaction = json.loads(request.payload)["transaction"]
    assert bridge.send(RESPONSE, {"status": "ok", "transaction": transaction}) == NOTHING
    own = program_number(publishing_program(stream))
    assert bridge.send("zigbee2mqtt/turning", {"temperature": 2}).frames[0].program == own


def test_a_device_restored_as_one_that_can_be_set_is_announced_as_one_that_cannot(bridge, session):
    before = announcements(bridge.send("zigbee2mqtt/bridge/devices", [FREE]))["turning"]
    it = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z")))
    kept = KnownDevice("turning", "turning", 2, before, b"")
    it.driver.restore([kept], **it.times)
    assert not it.driver.capabilities_of("turning").publishes, "nothing was kept of it"
    assert "turning" in announcements(it.send("zigbee2mqtt/bridge/devices", [FREE]))
    assert it.driver.capabilities_of("turning").publishes


# seconds:       0    1.5   4     12.25        under a program of 10 s that sends each sample
# reports:            ^     ^     ^            each is a tuple, stamped on arrival
def test_reports_are_tuples_of_their_own_while_each_is_sent(bridge):
    # Before it has confirmed a program it reports by its own rules; the fleet knows whether a query wants that.
    assert [stamp for stamp, *_ in stamps(bridge.at(0.5).send(f"zigbee2mqtt/{SONOFF}", {"temperature": 1}))] == [S // 2]
    run(bridge, SONOFF, SamplingProgram(("temperature",), 10 * S))
    state = {"temperature": 1, "humidity": 40, "linkquality": 7, "voltage": 3_000}
    found = [stamps(bridge.at(at).send(f"zigbee2mqtt/{SONOFF}", state | {"temperature": at})) for at in (1.5, 4, 12.25)]
    assert [stamp for ((stamp, *_),) in found] == [1_500_000, 4 * S, 12_250_000]
    names = [each.name for each in announcements(bridge.first)[SONOFF].stream.sampled]
    read = [dict(zip(names, values, strict=True)) for ((_, *values),) in found]
    # What queries read does not matter: each report has all fields.
    assert read == [state | {"temperature": at} for at in (1.5, 4, 12.25)]
    assert bridge.driver.counts_of(SONOFF) == {}


def test_under_changes_alone_reports_are_on_the_grid(bridge):
    run(bridge, SONOFF, CHANGES)
    found = []
    for at, value in ((11, 1), (14, 5), (21, 9), (22, 1)):
        found += stamps(bridge.at(at).send(f"zigbee2mqtt/{SONOFF}", {"temperature": value}))
    assert found == [(10 * S, 1.0, None), (20 * S, 9.0, None)]
    assert bridge.driver.counts_of(SONOFF) == {"slot_taken": 2}
    run(bridge, SONOFF, SamplingProgram(("temperature",), 10 * S))
    found = [stamps(bridge.at(at).send(f"zigbee2mqtt/{SONOFF}", {"temperature": 2})) for at in (25, 30.5)]
    assert [[stamp for stamp, *_ in each] for each in found] == [[], [30_500_000]], "the slot was promised to be empty"
    assert bridge.driver.counts_of(SONOFF) == {"slot_taken": 3}


def test_halves_of_a_state_are_merged(session, recorded):
    it = session(read_drivers({"driver": [{"kind": "zigbee2mqtt", "merge_within": "500ms"}]}, "test")[0])
    it.send("zigbee2mqtt/bridge/devices", [*recorded("zigbee2mqtt_devices"), BUTTON])
    it.at(1).send("zigbee2mqtt/button", {"action": "on"})
    run(it, SONOFF, SamplingProgram(("temperature", "humidity"), S))
    it.at(2).send(f"zigbee2mqtt/{SONOFF}", {"temperature": 20})
    it.at(2.2).send(f"zigbee2mqtt/{SONOFF}", {"humidity": 40, "temperature": None})
    button = it.at(3).tick().frames
    assert [samples(DriverOutput((each,))) for each in button if each.mote == "button"] == [[("on",)]]
    assert [
        values_of(it, SONOFF, DriverOutput((each,)), "temperature", "humidity")
        for each in button
        if each.mote == SONOFF
    ] == [[(20.0, 40.0)]]
    it.at(4).send("zigbee2mqtt/button", {"action": "off"})
    gone = it.send("zigbee2mqtt/bridge/devices", recorded("zigbee2mqtt_devices"))
    assert samples(gone) == [("off",)], "what waits is not lost with its device"


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
    assert bridge.driver.capabilities_of("my_plug").event_fields == ("state", "power_outage")
    assert bridge.driver.capabilities_of("unknown") == PASSIVE
    assert bridge.run("unknown", CHANGES).rejections[0].reason == "unknown_mote"


def test_states_become_samples_and_the_battery_health(bridge):
    mote = next(each.mote for each in bridge.first.frames if each.mote.startswith("cellar"))
    program = SamplingProgram(("temperature", "pressure", "linkquality"), S)
    for request in bridge.run(mote, program).publications:
        answer(bridge, request, "ok")
    output = bridge.at(5).send("zigbee2mqtt/cellar/wine shelf", bridge.states["cellar/wine shelf"])
    assert values_of(bridge, mote, output, *program.fields) == [(27.34, 1007.2, 115.0)]
    assert [each.battery for each in output.frames[0].records if isinstance(each, Health)] == [0.97]
    assert (
        bridge.at(9).send("zigbee2mqtt/cellar/wine shelf", bridge.states["cellar/wine shelf"], retained=True).frames
        == ()
    )


def test_binary_and_enum_values(bridge):
    for request in bridge.run("my_plug", SamplingProgram(("state", "power_outage"), S)).publications:
        answer(bridge, request, "ok")
    for at, state, expected in ((1, bridge.states["my_plug"], (True, "on")), (2, {"state": "OFF"}, (False, None))):
        output = bridge.at(at).send("zigbee2mqtt/my_plug", state)
        assert values_of(bridge, "my_plug", output, "state", "power_outage") == [expected]
    assert bridge.at(3).send("zigbee2mqtt/my_plug", {"state": 7}).rejections[0].reason == "type"
    assert bridge.at(3).send("zigbee2mqtt/my_plug", [1]).rejections[0].reason == "shape"


@pytest.mark.parametrize("on", [True, False])
def test_a_boolean_is_as_the_message_has_it_whatever_the_bridge_calls_on(session, on):
    """Contacts are "on" where they say false, that is, while the door is open."""
    contact = {
        "type": "binary",
        "name": "contact",
        "property": "contact",
        "access": 1,
        "value_on": on,
        "value_off": not on,
    }
    device = {
        "ieee_address": "0x1", "friendly_name": "door", "type": "EndDevice", "supported": True, "disabled": False,
        "definition": {"model": "C", "vendor": "V", "exposes": [contact]}, "endpoints": {},
    }  # fmt: skip
    it = session(Zigbee2MqttDriver(ZigbeeDriverPlan("z")))
    it.send("zigbee2mqtt/bridge/devices", [device], retained=True)
    sent = [it.send("zigbee2mqtt/door", {"contact": each}) for each in (True, False)]
    assert [values for each in sent for values in samples(each)] == [(True,), (False,)]


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
