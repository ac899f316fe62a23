"""What devices do that they should not: declared, counted, and kept from other fields and messages."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.wire.packets import Announcement, Packet
from protocols.wire.streams import FIELD_TYPES, Field, FieldType, StreamSchema
from proxy.drivers.device import Counters, CounterState, DeviceState, decode_state, encode_state, merge_columns
from proxy.drivers.device_feed import MOST_REMEMBERED, RecentMessages
from proxy.drivers.driver import KnownDevice, VersionRange, read_version
from proxy.drivers.driver_registry import DriverRegistry
from proxy.drivers.field_mapping import FieldMapping, TimeForm, TimeMapping, parse_zone, read_fields
from proxy.drivers.payloads import MAX_DEPTH, MISSING, NOT_A_NUMBER, PayloadError, finder, read_json
from proxy.drivers.settings import read_drivers
from tests.proxy.drivers.conftest import NOW, S

T = {"name": "t", "path": "t", "type": "real", "optional": True}
U = {**T, "name": "u", "path": "u"}


def driver(*fields, **changes):
    entry = {"kind": "json", "name": "d", "topic": "a/{mote}", "stream": "s", "field": list(fields or (T,)), **changes}
    return read_drivers({"driver": [entry]}, "test")[0]


def rows(*outputs):
    return [
        (packet.clock_us - sample.age_us - NOW, *sample.values)
        for output in outputs
        for packet in output.frames
        if isinstance(packet, Packet)
        for sample in packet.samples
    ]


def values(*outputs):
    return [each[1:] for each in rows(*outputs)]


@pytest.mark.parametrize(
    ("rules", "sent", "value", "count"),
    [
        ({"valid": [-40, 125]}, 125, 125.0, None),
        ({"valid": [-40, 125]}, 125.1, None, "field_out_of_range"),
        ({"valid": [-40, 125]}, -41, None, "field_out_of_range"),
        ({"no_value": [6553.5, -327.68, 85.0]}, 6553.5, None, "field_no_value"),
        ({"no_value": [6553.5, -327.68, 85.0]}, 85, None, "field_no_value"),
        ({"no_value": [6553.5, -327.68, 85.0]}, 84.9, 84.9, None),
        ({"no_value": [32_767], "scale": 0.1}, 32_767, None, "field_no_value"),
        ({"valid": [0, 1000], "scale": 0.5}, 1000, 500.0, None),
        ({"scale": 1e300}, 1e300, None, "field_out_of_range"),
        ({}, "21.5", 21.5, None),
        ({}, " -3e2 ", -300.0, None),
        ({}, "21,5", None, "field_broken"),
        ({}, "0x10", None, "field_broken"),
        ({}, "9" * 65, None, "field_broken"),
        ({}, "nan", None, "field_broken"),
        ({}, {"t": 1}, None, "field_broken"),
        ({}, True, None, "field_broken"),
        ({}, None, None, None),
        ({"type": "integer"}, "12", 12, None),
        ({"type": "integer"}, "1.5", None, "field_broken"),
        ({"type": "integer"}, 2**63, None, "field_broken"),
        ({"type": "text"}, "x" * 1_025, None, "field_broken"),
        ({"type": "text"}, NOT_A_NUMBER, None, "field_broken"),
    ],
)
def test_a_value_that_cannot_be_used_costs_its_field(session, rules, sent, value, count):
    it = session(driver({**T, **rules}, U))
    assert values(it.send("a/b", {"t": sent, "u": 7})) == [(value, 7.0)]
    assert it.driver.counts_of("b") == ({} if count is None else {count: 1})


def test_the_log_has_the_first_broken_field_only(session):
    it = session(driver(T, U))
    notices = [it.send("a/b", {"t": "warm", "u": number}).notices for number in range(3)]
    assert [len(each) for each in notices] == [1, 0, 0]
    assert "warm" in notices[0][0].text


@pytest.mark.parametrize(
    ("written", "value"),
    [("21,5", 21.5), ("1.013,2", 1013.2), ("-3,25", -3.25), ("998", 998.0), ("21.5", None), ("1.01,2", None)],
)
def test_decimal_commas(session, written, value):
    it = session(driver(T, U, decimal=","))
    assert values(it.send("a/b", {"t": written, "u": "1,0"})) == [(value, 1.0)]


def test_a_payload_that_is_a_number_with_a_comma(session):
    bare = {**T, "path": ""}
    assert values(session(driver(bare, decimal=",")).send("a/b", b"23,4\n")) == [(23.4,)]
    assert session(driver(bare)).send("a/b", b"23,4").rejections[0].reason == "garbled"


def test_absent_keys_have_defaults_and_null_has_none(session):
    it = session(driver({**T, "optional": False, "default": 10, "scale": 0.5}, U))
    assert values(it.send("a/b", {"u": 1}), it.send("a/b", {"t": None, "u": 1})) == [(5.0, 1.0), (None, 1.0)]


COUNTER = {**T, "kind": "counter", "type": "integer"}


@pytest.mark.parametrize(
    ("modulus", "sent", "unwrapped", "count"),
    [
        (None, [5, 9, 2, 3, 0], [5, 9, 11, 12, 12], ("counter_reset", 2)),
        (10, [5, 9, 2, 3, 0], [5, 9, 12, 13, 20], ("counter_wrap", 2)),
        (10, [5, 10, 6], [5, None, 6], ("field_out_of_range", 1)),
        (None, [5, None, "x", 6], [5, None, None, 6], ("field_broken", 1)),
        (None, [2**62, 0, 2**62, 3, 2**62, 7], [2**62, 2**62, None, 2**62 + 3, None, 2**62 + 7], None),
    ],
)
def test_counters_go_on(session, modulus, sent, unwrapped, count):
    it = session(driver({**COUNTER, **({"modulus": modulus} if modulus else {})}, U))
    outputs = [it.at(place).send("a/b", {"t": number, "u": 0}) for place, number in enumerate(sent)]
    assert [each[0] for each in values(*outputs)] == unwrapped
    if count is not None:
        assert it.driver.counts_of("b")[count[0]] == count[1]


def test_counters_go_on_after_a_restart_and_are_scaled(session):
    entry = {**COUNTER, "type": "real", "scale": 0.1}
    it = session(driver(entry))
    sent = [it.at(place).send("a/b", {"t": number}) for place, number in enumerate((50, 90, 20))]
    assert values(*sent) == [(5.0,), (9.0,), (11.0,)]
    announcement = it.driver.announce("b", **it.times).frames[0]
    known = KnownDevice("b", it.driver.device_of("b"), 2, announcement, it.driver.state_of("b"))
    again = session(driver(entry)).at(10)
    again.driver.restore([known], **again.times)
    assert values(again.send("a/b", {"t": 30}), again.at(11).send("a/b", {"t": 10})) == [(12.0,), (13.0,)]
    assert again.driver.counts_of("b") == {"counter_reset": 1}
    broken = session(driver(entry))
    output = broken.driver.restore([KnownDevice("b", "b", 3, announcement, b"\xc1")], **broken.times)
    assert broken.driver.counts_of("b") == {"state_unreadable": 1}
    assert "begin anew" in output.notices[0].text


# time:      1    2    3(reset)  2 again    3 again    4
# number:    5    9    1         9          0          3
def test_messages_that_come_again_are_no_resets(session):
    it = session(driver(COUNTER, time={"path": "at", "form": "seconds", "max_delay": "1m"}))
    messages = [(1, 5), (2, 9), (3, 1), (2, 9), (3, 0), (4, 3)]
    outputs = [it.send("a/b", {"t": number, "at": NOW // S + at}) for at, number in messages]
    assert [each[0] for each in values(*outputs)] == [5, 9, 10, 9, 9, 12]
    assert it.driver.counts_of("b") == {"counter_reset": 1, "counter_behind": 2}


def test_what_is_kept_of_a_counter_is_that_of_the_tuples_that_were_made(session):
    it = session(driver(COUNTER, U, merge_within="1s"))
    it.send("a/b", {"t": 5})
    assert it.driver.state_of("b") == b"", "its tuple waits"
    it.at(2).tick()
    first = it.driver.state_of("b")
    assert decode_state(first).counters["t"].number == 5
    it.at(3).send("a/b", {"t": 7})
    assert it.driver.state_of("b") == first
    it.at(5).send("a/b", {"t": 9})
    assert decode_state(it.driver.state_of("b")).counters["t"].number == 7


@given(st.binary(max_size=60) | st.just(b"\x93\x01\x80\xc4\x00"))
def test_any_bytes_are_a_state_or_none(content):
    state = decode_state(content)
    assert state is None or decode_state(encode_state(state)) == state or not content


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=30), st.sampled_from([None, 100]))
def test_a_counter_in_order_never_falls(steps, modulus):
    counters, stamp_us, last = Counters({"n": modulus}), 0, None
    for number, after_us in steps:
        stamp_us += after_us
        found = {"n": number}
        counters.unwrap(found, stamp_us)
        assert last is None or found["n"] >= last
        last = found["n"]
    restored = decode_state(encode_state(DeviceState(counters=counters.states)))
    assert restored.counters == counters.states


def test_a_counter_out_of_order_has_the_value_of_its_time():
    state = CounterState(3, base=10, before=0, stamp_us=9)
    assert (state.next(8, 5, None), state.value(8), state.value(2)) == (state, 8, 12)


def test_a_number_from_after_a_reset_with_a_stamp_that_is_a_little_off_is_no_old_one():
    counters, found = Counters({"n": None}), []
    for number, stamp_us in ((500, 1), (502, 2), (0, 10), (1, 7), (501, 1), (2, 8), (5, 11)):
        values = {"n": number}
        counters.unwrap(values, stamp_us)
        found.append(values["n"])
    assert found == [500, 502, 502, 503, 501, 504, 507]


def test_numbers_that_are_stamped_on_arrival_are_in_order_whatever_the_clock_does():
    counters, found = Counters({"n": 100}), []
    for number in (15, 20, 95, 5, 10, 15):
        values = {"n": number}
        counters.unwrap(values, 1, in_order=True)
        found.append(values["n"])
    assert found == [15, 20, 95, 105, 110, 115]


def test_the_arrival_of_a_counter_is_its_order(session):
    counter = {"name": "n", "path": "n", "type": "integer", "kind": "counter", "modulus": 100}
    it = session(driver(field=[counter]))
    it.at(100).send("a/b", {"n": 95})
    it.radio_us -= 10 * S  # the system's clock is set back
    found = [rows(it.send("a/b", {"n": number}))[0][1] for number in (5, 10)]
    assert found == [105, 110]


@pytest.mark.parametrize("number", [b"1e100", b"2.5E200", b"1e+100", b"-1e300", b"1e308"])
def test_a_value_that_is_no_number_costs_no_large_one_beside_it(number):
    assert read_json(b'{"v": %b, "w": nan}' % number) == {"v": float(number), "w": NOT_A_NUMBER}
    assert read_json(b'{"v": 1e309, "w": %b}' % number) == {"v": NOT_A_NUMBER, "w": float(number)}


FORMS = [
    ("seconds", 1_700_000_000.25, "+00:00"),
    ("seconds", "1700000000.25", "+00:00"),
    ("milliseconds", 1_700_000_000_250, "+00:00"),
    ("milliseconds", "1700000000250", "+00:00"),
    ("microseconds", 1_700_000_000_250_000, "+00:00"),
    ("iso8601", "2023-11-14T22:13:20.25Z", "+00:00"),
    ("iso8601", "2023-11-14T23:13:20.250000", "+01:00"),
    ("iso8601", "2023-11-14 23:13:20.25", "Europe/Berlin"),
    ("time_of_day", "23:13:20.25", "Europe/Berlin"),
    *(("auto", each, "+00:00") for each in (1_700_000_000.25, 1_700_000_000_250, "1700000000250000")),
    *(("auto", each, "+00:00") for each in ("2023-11-14T22:13:20.25Z", "22:13:20.25")),
]


@pytest.mark.parametrize(("form", "written", "zone"), FORMS)
def test_instants_are_read_in_every_form(session, form, written, zone):
    it = session(driver(time={"path": "at", "form": form, "zone": zone, "max_delay": "1s"}))
    assert rows(it.at(0.5).send("a/b", {"t": 1, "at": written})) == [(S // 4, 1.0)]


@pytest.mark.parametrize(
    ("received", "written", "instant"),
    [
        ("2026-03-02T00:00:05Z", "23:59:58", "2026-03-01T23:59:58Z"),  # yesterday's
        ("2026-03-01T23:59:58Z", "0:00:05", "2026-03-02T00:00:05Z"),  # its clock is ahead
        ("2026-10-25T00:31:00Z", "02:30:00", "2026-10-25T00:30:00Z"),  # the first of two
        ("2026-10-25T01:31:00Z", "02:30:00", "2026-10-25T01:30:00Z"),  # the second
    ],
)
def test_a_time_of_day_is_the_nearest_to_its_receipt(received, written, instant):
    read = TimeMapping(("at",), TimeForm.ISO8601).instant_us
    zone = "Europe/Berlin" if written.startswith("02") else "+00:00"
    found = TimeMapping(("at",), TimeForm.TIME_OF_DAY, parse_zone(zone))
    assert found.instant_us({"at": written}, read({"at": received}, 0)) == read({"at": instant}, 0)


BAD = [
    ({}, "missing"),
    ({"at": None}, "missing"),
    ({"at": "soon"}, "time"),
    ({"at": True}, "time"),
    ({"at": [1]}, "time"),
    ({"at": "1" * 100}, "time"),
    ({"at": "0001-01-01T00:00:00"}, "implausible"),
    ({"at": "1970-01-01T00:00:09Z"}, "implausible"),
    ({"at": "2023-11-15T22:13:20Z"}, "clock"),
    ({"at": "2023-11-16T22:13:21Z"}, "implausible"),
    ({"at": 12}, "time"),
    ({"at": 1e300}, "time"),
]


@pytest.mark.parametrize(("content", "reason"), BAD)
def test_instants_that_cannot_be_believed(session, content, reason):
    time = {"path": "at", "form": "auto", "plausible_for": "1d"}
    rejected = session(driver(time=time)).send("a/b", {"t": 1, **content})
    assert ([each.reason for each in rejected.rejections], rejected.frames) == ([reason], ())
    it = session(driver(time={**time, "implausible": "receipt"}))
    assert rows(it.at(1).send("a/b", {"t": 1, **content})) == [(S, 1.0)]
    assert it.driver.counts_of("b") == {"receipt_time": 1}


@given(st.text(max_size=30) | st.floats() | st.integers(), st.sampled_from(TimeForm), st.integers(-(2**62), 2**62))
def test_no_instant_raises_anything_else(written, form, received_us):
    for zone in ("+01:00", "Europe/Berlin"):
        try:
            found = TimeMapping(("at",), form, parse_zone(zone)).instant_us({"at": written}, received_us)
        except PayloadError:
            continue
        assert isinstance(found, int)


def test_copies_by_several_gateways_are_one_tuple(session):
    it = session(driver(T, U, same_within="5s"))
    first = [it.at(second).send("a/b", {"t": 1, "u": 2}) for second in (0, 1, 5, 11)]
    assert [len(rows(each)) for each in first] == [1, 0, 0, 1]
    assert len(rows(it.send("a/b", {"t": 1, "u": 3}))) == 1
    assert it.driver.counts_of("b") == {"duplicate": 2}
    named = session(driver(T, U, same_within="5s", message_id="id"))
    sent = [{"t": 1, "id": 7}, {"t": 2, "id": 7}, {"t": 1, "id": 8}, {"t": 1}, {"t": 1}, {"t": 1, "id": [10**30]}]
    assert [len(rows(named.send("a/b", each))) for each in sent] == [1, 0, 1, 1, 1, 1]


def test_what_is_remembered_of_messages_is_bounded():
    recent = RecentMessages(10 * S)
    for number in range(10_000):
        assert not recent.is_copy(number, number)
    assert len(recent._received) == MOST_REMEMBERED
    assert recent.is_copy(9_999, 10_000)


# seconds:    0       0.1     0.2              0.4
# open:       false   -       true             -
# lux:        -       3       -                -        an event with another value begins the next tuple
def test_an_event_is_not_merged_away(session):
    door = {"name": "open", "path": "open", "type": "boolean", "kind": "event", "optional": True}
    it = session(driver(door, U, merge_within="300ms"))
    outputs = [
        it.send("a/b", {"open": False}),
        it.at(0.1).send("a/b", {"u": 3}),
        it.at(0.2).send("a/b", {"open": True}),
        it.at(0.3).send("a/b", {"open": None, "u": 4}),
        it.at(0.4).send("a/b", {"u": 5}),
        it.at(1).tick(),
    ]
    assert rows(*outputs) == [(0, False, 3.0), (200_000, True, 4.0), (400_000, None, 5.0)]
    assert it.driver.counts_of("b") == {"merged": 2}
    assert it.driver.capabilities_of("b").event_fields == ("open",)


@pytest.mark.parametrize(
    ("payload", "value"),
    [(b"ON", True), (b" OFF\n", False), (b'"ON"', True), (b"on", None), (b"x" * 256, None), (b"true", None)],
)
def test_a_word_that_is_the_whole_payload_is_a_value(session, payload, value):
    state = {"name": "on", "path": "", "type": "boolean", "true": "ON", "false": "OFF"}
    it = session(driver(state))
    output = it.send("a/b", payload)
    assert values(output) == ([] if value is None else [(value,)])
    assert [each.reason for each in output.rejections] == ([] if value is not None else ["type"])


@pytest.mark.parametrize("payload", [b'{"on": tru', b"[1", b'"ON', b"\xff\xfe", b"", b"\0", b"x" * 257])
def test_damaged_json_is_no_word(session, payload):
    it = session(driver({"name": "state", "path": "", "type": "text"}))
    assert [each.reason for each in it.send("a/b", payload).rejections] == ["garbled"]


def test_a_rejection_has_the_name_that_the_device_would_have(session):
    it = session(driver(prefix="motion-"))
    for topic, mote in (("a/esp", "motion-esp"), ("a/é", "motion-9b604e8a")):
        assert [each.mote for each in it.send(topic, b"{").rejections] == [mote]
        it.send(topic, {"t": 1})
        assert it.driver.owns(mote)


# A proxy that was stopped for a while reads all of it at once, and the broker reports nothing.
def test_pairs_of_halves_that_come_all_at_once_are_not_mixed(session):
    n = {"name": "n", "path": "n", "type": "real", "optional": True}
    it = session(driver(T, U, n, merge_within="300ms"))
    pairs = [it.send("a/b", half) for number in range(6) for half in ({"t": number, "n": number}, {"u": number})]
    pairs += [it.send("a/b", {"t": 9, "n": 1}), it.send("a/b", {"t": 9, "n": 1}), it.send("a/b", {"u": 9, "n": 2})]
    assert values(*pairs, it.at(1).tick()) == [*((t, t, t) for t in map(float, range(6))), (9.0, 9.0, 2.0)]
    assert it.driver.counts_of("b") == {"merged": 8, "field_overwritten": 1}


def test_the_promise_stays_before_a_tuple_that_waits(session):
    it = session(driver(T, U, merge_within="10s"))
    assert [type(each) for each in it.send("a/b", {"t": 1}).frames] == [Announcement]
    promises = [each.promise_us - NOW for second in (3, 6) for each in it.at(second).tick().frames]
    assert promises == [0, 0]
    tuples, beat = it.at(10).tick().frames[0], it.at(13).tick().frames[0]
    assert (rows(type("O", (), {"frames": (tuples,)})), tuples.promise_us - NOW) == ([(0, 1.0, None)], 10 * S)
    assert beat.promise_us - NOW == 13 * S


def test_capabilities_are_as_configured(session):
    bold = driver(store="always", expected_every="5m", power="mains").capabilities_of("b")
    plain = driver().capabilities_of("b")
    assert (bold.publishes, bold.stored_always, bold.expected_every_us, bold.mains) == (True, True, 300 * S, True)
    assert (plain.publishes, plain.stored_always, plain.expected_every_us, plain.mains) == (True, False, None, False)


def test_properties_of_messages_are_announced_when_they_change(session):
    tags = {"name": "tags", "path": "tags"}
    it = session(driver(T, property=[{"name": "place", "path": "place"}, tags, {"name": "sensor", "value": "own"}]))
    announced = []
    for second, content in (
        (0, {"place": "hall", "tags": ["a", 1]}),
        (1, {}),
        (2, {"place": "attic"}),
        (3, {"place": "cellar"}),
        (63, {"place": "cellar"}),
        (64, {"place": 7}),
    ):
        output = it.at(second).send("a/b", {"t": 1, **content})
        announced += [(second, each.properties["place"]) for each in output.frames if isinstance(each, Announcement)]
        if second == 0:
            assert output.frames[0].properties == {"place": "hall", "tags": '["a",1]', "sensor": "own"}
        if second == 3:
            assert "too often" in it.driver.trouble_of("b")
    assert announced == [(0, "hall"), (2, "attic"), (63, "cellar")]
    assert it.driver.counts_of("b") == {"property_delayed": 1, "type": 1}
    assert it.driver.trouble_of("b") == ""


# received at     0 s   100 s   101 s                 102 s   103 s
# own time         0     100      12 (10 s too late)    95      103
def test_older_messages_do_not_set_properties_back(session):
    time = {"path": "at", "form": "seconds", "max_delay": "10s"}
    it = session(driver(T, property=[{"name": "place", "path": "place"}], time=time))
    announced = []
    for second, at, place in (
        (0, 0, "hall"),
        (100, 100, "attic"),
        (101, 12, "hall"),
        (102, 95, "hall"),
        (103, 103, "attic"),
    ):
        output = it.at(second).send("a/b", {"t": 1, "at": NOW // S + at, "place": place})
        announced += [(second, each.properties["place"]) for each in output.frames if isinstance(each, Announcement)]
    assert announced == [(0, "hall"), (100, "attic")]
    assert it.driver.counts_of("b") == {"late": 1}
    assert it.driver.trouble_of("b") == ""


def known(it, mote, boot=2, **changes):
    announcement = it.driver.announce(mote, **it.times).frames[0]
    return KnownDevice(mote, it.driver.device_of(mote), boot, announcement, it.driver.state_of(mote), **changes)


def restored(session, before, *fields, second=10, **changes):
    again = session(driver(*fields, **changes)).at(second)
    again.first = again.driver.restore([before], **again.times)
    return again


def test_devices_come_back_with_promises_boots_and_properties(session):
    it = session(driver(T, topic="a/{line}/{mote}", property=[{"name": "line", "part": "line"}]))
    it.send("a/north/b", {"t": 1})
    before = known(it, "b", boot=7, low_watermark_us=NOW + 20 * S)
    again = restored(
        session, before, T, topic="a/{line}/{mote}", property=[{"name": "line", "part": "line"}], prefix=""
    )
    announcement, promise = again.first.frames
    assert (announcement, promise.boot, promise.sequence) == (
        type(announcement)(
            *[getattr(before.announcement, name) if name != "boot" else 7 for name in announcement.__struct_fields__]
        ),
        7,
        0,
    )
    assert promise.promise_us == NOW + 20 * S, "nothing is stamped before what was promised"
    (only,) = again.send("a/north/b", {"t": 2}).frames
    assert (only.sequence, again.driver.counts_of("b")) == (1, {"clock_back": 1})
    moved = again.send("a/south/b", {"t": 2}).frames[0]
    assert (moved.boot, moved.properties["line"]) == (7, "south")


def test_a_device_of_another_prefix_is_not_driven_and_its_boot_is_kept(session):
    it = session(driver(T))
    it.send("a/b", {"t": 1})
    again = restored(session, known(it, "b", boot=9), T, prefix="x-")
    assert (again.first.frames, len(again.first.notices)) == ((), 1)
    assert again.send("a/b", {"t": 1}).frames[0].mote == "x-b"


def test_columns_that_a_file_adds_are_announced(session):
    it = session(driver(T, property=[{"name": "sensor", "value": "x"}]))
    it.send("a/b", {"t": 1})
    before = known(it, "b")
    again = restored(session, before, {**T, "unit": "degC"}, U, property=[{"name": "sensor", "value": "x"}])
    fields = again.first.frames[0].stream.fields
    assert [(each.name, each.unit) for each in fields] == [("sensor", ""), ("t", "degC"), ("u", "")]
    assert values(again.send("a/b", {"t": 1, "u": 2})) == [(1.0, 2.0)]
    assert again.driver.trouble_of("b") == ""


def test_columns_that_a_file_leaves_out_stay_and_are_null(session):
    it = session(driver(T, U))
    it.send("a/b", {"t": 1})
    again = restored(session, known(it, "b"), U)
    assert values(again.send("a/b", {"t": 1, "u": 2})) == [(None, 2.0)]
    assert "NULL: t" in again.first.notices[0].text


@pytest.mark.parametrize("change", [{"type": "integer"}, {"unit": "degF"}])
def test_columns_that_a_file_changes_are_refused_with_the_way_out(session, change):
    it = session(driver({**T, "unit": "degC"}, U))
    it.send("a/b", {"t": 1})
    before = known(it, "b")
    again = restored(session, before, {**T, "unit": "degC", **change}, U)
    assert again.first.frames[0].stream == before.announcement.stream
    assert [each.reason for each in again.first.rejections] == ["mismatch"]
    for words in ("t REAL UNIT 'degC'", "other names"):
        assert words in again.driver.trouble_of("b")
    assert values(again.send("a/b", {"t": 1, "u": 2})) == [(None, 2.0)]
    assert again.driver.counts_of("b") == {"field_mismatch": 1}


COLUMNS = st.lists(
    st.builds(
        Field,
        st.sampled_from("abcABC"),
        st.sampled_from([FieldType.REAL, FieldType.TEXT]),
        st.sampled_from(["", "m", "s"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda field: field.name.casefold(),
).map(lambda fields: StreamSchema("s", tuple(fields)))


@given(COLUMNS, COLUMNS, st.booleans())
def test_merging_columns_keeps_those_that_there_are(one, other, units_may_come):
    merged = merge_columns(one, other, units_may_come=units_may_come)
    kept = merged.schema.fields[: len(one.fields)]
    assert [(each.name, each.type, each.fixed) for each in kept] == [
        (each.name, each.type, each.fixed) for each in one.fields
    ]
    assert set(merged.names) | set(merged.mismatches) == {each.name for each in other.fields}
    again = merge_columns(merged.schema, other, units_may_come=units_may_come)
    assert (again.schema, again.names, again.mismatches) == (merged.schema, merged.names, merged.mismatches)


@pytest.mark.parametrize(
    ("versions", "version", "included"),
    [
        ("<2", "1.42.0", True),
        ("<2", "2", False),
        ("<2", "2.0.0-dev", False),
        (">=1.30,<2", "1.9", False),
        ("==2", "2.0.0", True),
        ("!=2.1", "2.1", False),
        (">2.9", "2.10", True),
        ("<=2", "2.0.1", False),
    ],
)
def test_versions(versions, version, included):
    assert VersionRange.parse(versions).includes(read_version(version)) is included


@given(st.text(max_size=40) | st.integers() | st.none() | st.lists(st.integers(), max_size=2))
def test_any_version_is_read_or_not(found):
    version = read_version(found)
    assert version is None or len(version) <= 8


NUMBERS = st.sampled_from(["nan", "NaN", "-inf", "Infinity", "-Infinity", "1e400"])
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.just("nan") | st.just('a "nan" \\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, NUMBERS)
def test_what_json_has_not_changes_nothing_else(content, number):
    payload = f'{{"x": {number}, "content": {json.dumps(content)}, "y": [{number}]}}'
    assert read_json(payload.encode()) == {"x": NOT_A_NUMBER, "content": content, "y": [NOT_A_NUMBER]}


@pytest.mark.parametrize("piece", [b'"', b'\\"', b'"\\', b"nan", b"-", b"9", b"1e9", b"{", b'"\\"nan'])
def test_the_work_of_reading_leniently_is_linear(piece):
    payload = (piece * 65_536)[:65_536]
    for content in (payload, b'{"t": ' + payload[:60_000], b"[nan, " + payload[:60_000] + b"]"):
        with pytest.raises(PayloadError):
            read_json(content)


def _depth(content):
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=-1)


@given(st.integers(MAX_DEPTH - 4, MAX_DEPTH + 4), st.sampled_from([[], {}, 1, "[[{", [[], 1]]), st.randoms())
def test_a_payload_is_nested_no_deeper_than_allowed_however_many_brackets_it_has(levels, inner, dice):
    content = inner
    for _ in range(levels):
        content = dice.choice([[content], {"a": content}, [1, content], [content, [[]], {}]])
    payload = json.dumps([content, "[{" * 40] if dice.random() < 0.3 else content).encode()
    if _depth(json.loads(payload)) < MAX_DEPTH:
        assert read_json(payload) == json.loads(payload)
    else:
        with pytest.raises(PayloadError, match="nested deeper"):
            read_json(payload)


@pytest.mark.parametrize(
    ("payload", "allowed"),
    [
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, True),
        (b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1), True),
        (b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, False),
        (b'{"a":' * MAX_DEPTH + b"{}" + b"}" * MAX_DEPTH, False),
        (b"[" + b"{}," * 1_000 + b"1]", True),
    ],
    ids=range(5),
)
def test_the_deepest_payload(payload, allowed):
    if allowed:
        assert read_json(payload) == json.loads(payload)
    else:
        with pytest.raises(PayloadError, match="nested deeper"):
            read_json(payload)


def _at(content, path):
    """Follow a path from its end: what the look-up of a payload means."""
    if not path:
        return content
    around, last = _at(content, path[:-1]), path[-1]
    if isinstance(around, dict):
        return around.get(last, MISSING)
    if isinstance(around, list) and last.isdigit() and int(last) < len(around):
        return around[int(last)]
    return MISSING


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["on", "12", " -1.5e3 ", "1,5", "x" * 1024, "x" * 1025, NOT_A_NUMBER, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(NESTED, st.lists(st.sampled_from("ab01"), max_size=4).map(tuple))
@example({"a": [1]}, ("a", "0"))
@example([{"a": 1}], ("0", "a"))
@example([1], ("0",))
@example({"a": 1}, ("a", "b"))
@example({"a": {"0": [{"b": None}]}}, ("a", "0", "0", "b"))
def test_what_is_found_is_what_is_at_the_path(content, path):
    assert finder(path)(content) is _at(content, path)


def _means(kind, found):
    """Return the value that JSON means for a field without further rules, None and why not."""
    if isinstance(found, str) and kind in {FieldType.REAL, FieldType.INTEGER}:
        shape = r"[-+]?\d+" if kind is FieldType.INTEGER else r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?"
        found = float(found) if re.fullmatch(shape, found.strip()) else []
        found = int(found) if kind is FieldType.INTEGER and found != [] else found
    allowed = {
        FieldType.REAL: not isinstance(found, bool) and isinstance(found, int | float) and math.isfinite(float(found)),
        FieldType.INTEGER: type(found) is int and abs(found + 0.5) < 2**63,
        FieldType.BOOLEAN: isinstance(found, bool),
        FieldType.TEXT: isinstance(found, str) and len(found) <= 1024 and found != NOT_A_NUMBER,
    }[kind]
    if found is None or not allowed:
        return None, found is not None
    return float(found) if kind is FieldType.REAL else found, False


@given(NESTED, st.lists(st.tuples(st.sampled_from(FIELD_TYPES), st.sampled_from(["", "a", "a.b", "0"])), max_size=4))
def test_values_are_those_that_their_fields_mean(content, fields):
    mappings = [
        FieldMapping(Field(f"f{place}", kind), tuple(path.split(".")) if path else (), optional=True)
        for place, (kind, path) in enumerate(fields)
    ]
    meant = {
        each.field.name: _means(each.field.type, found)
        for each in mappings
        if (found := _at(content, each.path)) is not MISSING
    }
    broken = [name for name, (_, faulty) in meant.items() if faulty]
    if broken and all(value is None for value, _ in meant.values()):
        with pytest.raises(PayloadError, match=broken[0]):
            read_fields(mappings, content)
        return
    reading = read_fields(mappings, content)
    assert [(name, repr(value)) for name, value in reading.values.items()] == [
        (name, repr(value)) for name, (value, _) in meant.items()
    ]
    assert [each.detail.split("'")[1] for each in reading.faults] == broken


@given(
    st.sampled_from([(TimeForm.SECONDS, S), (TimeForm.MILLISECONDS, 1_000), (TimeForm.MICROSECONDS, 1)]),
    st.integers(-5, 5) | st.integers(-1_000, 1_000),
    st.integers(0, 500),
    st.integers(0, 1_000),
)
def test_whole_numbers_are_believed_within_their_bounds(form, away, ahead, plausible):
    kind, unit_us = form
    times = TimeMapping(("at",), kind, plausible_us=plausible * unit_us, max_ahead_us=ahead * unit_us)
    sent = NOW // unit_us + away
    if abs(away) > plausible or away > ahead:
        with pytest.raises(PayloadError) as raised:
            times.stamp_us({"at": sent}, NOW)
        assert raised.value.reason == ("implausible" if abs(away) > plausible else "clock")
    else:
        assert times.stamp_us({"at": sent}, NOW) == sent * unit_us


def test_topics_of_devices_are_remembered_only_where_each_has_one(session):
    one, many = session(driver(topic="a/{mote}")), session(driver(topic="{line}/{mote}"))
    for it in (one, many):
        for line in ("a", "b", "c"):
            for mote in ("m", "n"):
                it.send(f"{line}/{mote}", {"t": 1})
                it.send(f"{line}/{mote}", {"t": 1})
    assert len(one.driver._of_topics) == 2
    assert not many.driver._of_topics


LEVELS = st.lists(st.sampled_from(["a", "b", "a.", "", "$x"]), min_size=1, max_size=4)


class Reader:
    def __init__(self, filters):
        self.name, self.subscriptions = "d", filters


def _matches(wanted, levels):
    if wanted[:1] == ["#"]:
        return True
    if not wanted or not levels:
        return not levels and (not wanted or wanted == ["#"])
    return wanted[0] in {"+", levels[0]} and _matches(wanted[1:], levels[1:])


FILTERS = st.lists(
    st.tuples(st.lists(st.sampled_from(["a", "b", "+", "a.", "$x"]), min_size=1, max_size=3), st.booleans()), max_size=4
)


@given(FILTERS, LEVELS)
def test_a_driver_reads_the_topics_of_its_filters(wanted, levels):
    filters = [[*each, "#"] if rest else each for each, rest in wanted]
    registry = DriverRegistry([Reader(["/".join(each) for each in filters])])
    assert bool(registry.reading("/".join(levels))) == any(_matches(each, levels) for each in filters)


def _examples(levels):
    """Return topics of a filter; another one that matches these matches all, as none here names a level `?`."""
    named = ["?" if each == "+" else each for each in levels]
    return [named[:-1], [*named[:-1], *"????"]] if named[-1] == "#" else [named]


@example([(["a", "+"], False), (["a"], True)], ["a", "b"])
@example([(["+", "a"], False), (["$x", "a"], False)], ["$x", "a"])
@given(FILTERS, LEVELS)
def test_drivers_subscribe_to_all_their_topics_and_to_none_in_a_filter_that_another_covers(wanted, levels):
    filters = [[*each, "#"] if rest else each for each, rest in wanted]
    found = [each.split("/") for each in DriverRegistry([Reader(["/".join(each)]) for each in filters]).subscriptions]
    own = levels[0].startswith("$")  # of the broker itself: a wildcard does not match it

    def reads(each):
        return _matches(each, levels) and not (own and each[0] in {"+", "#"})

    assert any(map(reads, found)) == any(map(reads, filters))
    for wide in found:
        others = [each for each in found if each != wide and each[0][:1] != "$"]
        assert not [each for each in others if all(_matches(wide, topic) for topic in _examples(each))]


@pytest.mark.parametrize("sent", [{"t": None}, {"t": 999}, {"t": None, "u": None}, {"t": "warm", "u": 1}])
def test_a_device_is_met_by_any_of_its_fields(session, sent):
    found = session(driver({**T, "valid": [-40, 125]}, U)).send("a/m", sent)
    assert [type(each) for each in found.frames] == [Announcement, Packet]


@pytest.mark.parametrize("sent", [{}, {"x": {"y": 1}}, {"T": 1}, []])
def test_a_message_with_none_of_the_fields_is_no_new_device(session, sent):
    it = session(driver({**T, "valid": [-40, 125]}, U, max_motes=2))
    for number in range(5):
        found = it.send(f"a/new{number}", sent)
        assert [each.reason for each in found.rejections] == ["missing"]
        assert not found.frames
    met = [it.send(f"a/m{number}", {"t": "warm", "u": 1.5}) for number in range(3)]
    assert values(*met) == [(None, 1.5)] * 2, "a broken value beside a good one costs its field only"
    assert [each.reason for each in met[2].rejections] == ["too_many_motes"]
    assert values(it.send("a/m0", sent)) == [(None, None)], "a device that is known has a tuple of each message"
