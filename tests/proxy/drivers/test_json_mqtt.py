"""JSON devices: their values become samples on the grid of the program, and none violates the low watermark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.packets import Announcement, Packet
from protocols.wire.programs import (
    Band,
    DeadBand,
    SamplingProgram,
    SendOnChange,
    program_number,
    publishing_program,
)
from proxy.drivers.driver import NOTHING
from proxy.drivers.payloads import MAX_PAYLOAD_BYTES
from proxy.drivers.settings import read_drivers

S = 1_000_000
NOW = 1_700_000_000 * S
PROGRAM = SamplingProgram(("temperature",), 10 * S)
CHANGES = SendOnChange((DeadBand("temperature", 1.0),), 40 * S)
REAL = {"name": "temperature", "path": "t", "type": "real", "unit": "degC"}


def driver(**changes):
    entry = {
        "kind": "json",
        "name": "d",
        "topic": "tele/{mote}/SENSOR",
        "stream": "climate",
        "field": [REAL],
        **changes,
    }
    return read_drivers({"driver": [entry]}, "test")[0]


def stamps(output):
    return [
        (packet.clock_us - sample.age_us - NOW, *sample.values)
        for packet in output.frames
        if isinstance(packet, Packet)
        for sample in packet.samples
    ]


def reasons(output):
    return [each.reason for each in output.rejections]


@pytest.fixture
def running(session):
    def start(**changes):
        it = session(driver(**changes))
        it.send("tele/m/SENSOR", {"t": 1.0, **({"at": NOW / S} if "time" in changes else {})})
        return it

    return start


def test_a_new_device_announces_itself_and_its_first_message_is_a_tuple(session):
    output = session(driver()).send("tele/m/SENSOR", {"t": 20})
    announcement, packet = output.frames
    assert isinstance(announcement, Announcement)
    assert (announcement.mote, announcement.boot, announcement.stream.name) == ("m", 1, "climate")
    assert announcement.properties == {"sensor": "m"}
    assert (packet.sequence, packet.promise_us, packet.boot) == (0, NOW, 1)
    assert packet.program == program_number(publishing_program(announcement.stream))
    assert stamps(output) == [(0, 20.0)]


# seconds:          0  1  4       11          22
# messages:         ^  ^  ^       ^           ^     each is a tuple, whatever queries run
def test_each_message_is_a_tuple_with_its_own_stamp(running):
    it = running()
    found = []
    for second, value in ((1, 1), (4.25, 2), (4.250001, 3), (22, 4)):
        it.at(second).run("m", PROGRAM)
        found += stamps(it.send("tele/m/SENSOR", {"t": value}))
    assert found == [(S, 1.0), (4_250_000, 2.0), (4_250_001, 3.0), (22 * S, 4.0)]


def test_programs_do_nothing_to_a_device_that_publishes(running):
    it = running()
    banded = SamplingProgram(("temperature",), 10 * S, bands=(Band("temperature", low=100.0),), report=CHANGES)
    for program in (PROGRAM, banded, SamplingProgram()):
        assert it.run("m", program) == NOTHING
        assert len(stamps(it.at(it.radio_us / S + 1).send("tele/m/SENSOR", {"t": 2.0}))) == 1
    assert reasons(it.run("other", PROGRAM)) == ["unknown_mote"]


def test_empty_packets_keep_a_quiet_device_from_holding_the_watermark(running):
    it = running(silence_after="1m")
    (packet,) = it.at(35).tick().frames
    assert (packet.records, packet.promise_us) == ((), NOW + 35 * S)
    assert it.at(36).tick().frames == ()
    assert it.at(61).tick().frames == ()  # away


def test_a_clock_that_goes_back_a_little_loses_nothing(running):
    it = running()
    it.at(100).send("tele/m/SENSOR", {"t": 1.0})
    back = {"radio_us": 101 * S, "received_us": NOW + 70 * S}
    payload = b'{"t": 2.0}'
    assert stamps(it.driver.received("tele/m/SENSOR", payload, **back)) == [(100 * S, 2.0)]
    far = {"radio_us": 102 * S, "received_us": NOW + 30 * S}
    assert reasons(it.driver.received("tele/m/SENSOR", payload, **far)) == ["clock"]
    assert it.driver.counts_of("m") == {"clock_back": 1, "clock": 1}


TIME = {"time": {"path": "at", "form": "seconds", "max_delay": "30s"}}


def test_the_low_watermark_waits_for_late_values_and_later_ones_are_rejected(running):
    it = running(**TIME)
    at = NOW / S
    first = it.at(100).send("tele/m/SENSOR", {"t": 1, "at": at + 95})
    assert stamps(first) == [(95 * S, 1.0)]
    assert first.frames[-1].promise_us == NOW + 70 * S
    assert stamps(it.send("tele/m/SENSOR", {"t": 2, "at": at + 75})) == [(75 * S, 2.0)]
    assert stamps(it.send("tele/m/SENSOR", {"t": 3, "at": at + 75})) == [(75 * S, 3.0)]
    assert reasons(it.send("tele/m/SENSOR", {"t": 4, "at": at + 69})) == ["late"]
    assert reasons(it.send("tele/m/SENSOR", {"t": 5, "at": at + 200})) == ["clock"]
    assert it.driver.counts_of("m") == {"late": 1, "clock": 1}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "garbled"),
        (b"23,4", "garbled"),
        (b'{"t": NaN}', "type"),
        (b'{"t": -inf, "u": "nan"}', "type"),
        (b'{"t": nano}', "garbled"),
        (b'"\xff"', "garbled"),
        (b"[" * 60_000, "depth"),
        (b"[" * 40 + b"]" * 40, "depth"),
        (b'{"t": "' + b"x" * MAX_PAYLOAD_BYTES + b'"}', "size"),
        (b'{"u": 1}', "missing"),
        (b"[1]", "missing"),
        (b'{"t": "warm"}', "type"),
        (b'{"t": true}', "type"),
        (b'{"t": 1' + b"0" * 400 + b"}", "type"),
        (b'{"t": 1e999}', "type"),
        (b'{"t": {"t": 1}}', "type"),
    ],
    ids=range(16),
)
def test_payloads_that_do_not_fit_are_rejected_by_reason(running, payload, reason):
    assert reasons(running().send("tele/m/SENSOR", payload)) == [reason]


def test_old_values_other_topics_and_too_many_devices(session):
    it = session(driver(max_motes=2))
    assert reasons(it.send("tele/a/SENSOR", {"t": 1}, retained=True)) == ["retained"]
    assert it.send("stat/a/RESULT", {"t": 1}).frames == ()
    assert [reasons(it.send(f"tele/{name}/SENSOR", {"t": 1})) for name in "abca"] == [[], [], ["too_many_motes"], []]


def test_booleans_scales_and_properties(session):
    fields = [
        {"name": "on", "path": "s", "type": "boolean", "true": "ON", "false": "OFF"},
        {"name": "kelvin", "path": "c", "type": "real", "offset": 273.15, "scale": 2.0, "optional": True},
    ]
    properties = [
        {"name": "line", "part": "line"},
        {"name": "floor", "type": "integer", "value": 1, "values": {"b": 2}},
    ]
    it = session(driver(topic="f/{line}/{mote}", field=fields, property=properties))
    announced = [it.send(f"f/north/{name}", {"s": "ON"}).frames[0].properties for name in "ab"]
    assert announced == [
        {"sensor": "a", "line": "north", "floor": 1},
        {"sensor": "b", "line": "north", "floor": 2},
    ]
    assert stamps(it.at(1).send("f/north/a", {"s": "OFF", "c": 10})) == [(S, False, 293.15)]
    assert stamps(it.at(2).send("f/north/a", {"s": "ON"})) == [(2 * S, True, None)]
    assert reasons(it.at(3).send("f/north/a", {"s": True})) == ["type"]


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.integers()
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["t", "at", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda each: json.dumps(each).encode()),
    st.sampled_from(["seconds", "milliseconds", "iso8601"]),
)
def test_garbage_never_raises(payload, form):
    it = driver(time={"path": "at", "form": form})
    times = {"radio_us": 0, "received_us": NOW}
    it.received("tele/m/SENSOR", payload, **times)
    if it.owns("m"):
        it.run("m", PROGRAM, **times)
    it.received("tele/m/SENSOR", payload, **times)
    it.time_passed(**times)


EVENTS = st.lists(
    st.tuples(
        st.integers(-3, 40),  # tenths of seconds since the event before; clocks step back, too
        st.sampled_from(["send", "tick", "half"]),
        st.integers(-60, 70),  # the device's clock against the proxy's
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(EVENTS, st.booleans(), st.sampled_from([None, "100ms", "10s", "2m"]), st.sampled_from([None, "1s"]))
def test_each_message_is_a_tuple_or_counted_and_none_is_before_a_promise(events, device_time, merge, same):
    bounds = {name: each for name, each in (("merge_within", merge), ("same_within", same)) if each}
    fields = [{**REAL, "optional": True}, {**REAL, "name": "u", "path": "u", "optional": True}]
    it = driver(**(TIME if device_time else {}), **bounds, field=fields)
    radio_us, received_us, frames, sent, rejected = 0, NOW, [], 0, 0
    for step, what, ahead, value in events:
        received_us += step * S // 10
        radio_us += max(0, step) * S // 10
        times = {"radio_us": radio_us, "received_us": received_us}
        if what == "tick":
            frames += it.time_passed(**times).frames
            continue
        payload = {"t" if what == "send" else "u": value, "at": received_us / S + ahead}
        output = it.received("tele/m/SENSOR", json.dumps(payload).encode(), **times)
        frames += output.frames
        sent, rejected = sent + 1, rejected + len(output.rejections)
    frames += it.time_passed(radio_us=radio_us + 200 * S, received_us=received_us + 200 * S).frames
    packets = [each for each in frames if isinstance(each, Packet)]
    assert [each.sequence for each in packets] == list(range(len(packets)))
    promised, tuples = None, 0
    for packet in packets:
        for sample in packet.samples:
            assert sample.age_us >= 0
            assert promised is None or packet.clock_us - sample.age_us >= promised
            tuples += 1
        assert promised is None or packet.promise_us >= promised
        promised = packet.promise_us
    counts = it.counts_of("m")
    assert tuples + rejected + counts.get("merged", 0) + counts.get("duplicate", 0) == sent


def test_bad_messages_on_ever_new_topics_leave_nothing_behind():
    it = driver(property=[{"name": "floor", "type": "integer", "path": "floor"}])
    payloads = (b"{", b'{"t": "warm"}', b'{"u": 1}', b'{"t": 1, "floor": "x"}', b"[" * 40 + b"]" * 40)
    times = {"radio_us": 0, "received_us": NOW}
    for number in range(2_000):
        output = it.received(f"tele/{number}/SENSOR", payloads[number % len(payloads)], **times)
        assert len(output.rejections) == 1
    assert (len(it._motes), len(it._names._given), len(it._names._used)) == (0, 0, 0)
    it.received("tele/m/SENSOR", b'{"t": 1}', **times)
    for number in range(2_000):
        it.received("tele/m/SENSOR", payloads[number % len(payloads)], **times)
    assert sum(it.counts_of("m").values()) == 2_000
    assert len(it.counts_of("m")) == 4
