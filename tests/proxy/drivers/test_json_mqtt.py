"""JSON devices: their values become samples on the grid of the program, and none violates the low watermark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.packets import Announcement, Packet
from protocols.wire.programs import Band, DeadBand, Panes, SamplingProgram, SendOnChange, program_number
from proxy.drivers.payloads import MAX_PAYLOAD_BYTES
from proxy.drivers.settings import read_drivers
from proxy.fleet.fleet import Fleet
from proxy.fleet.fleet_instructions import ForMote
from proxy.fleet.fleet_members import FleetLimits
from proxy.motes.mote_events import TuplesAccepted

S = 1_000_000
NOW = 1_700_000_000 * S
PROGRAM = SamplingProgram(("temperature",), 10 * S)
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
    def start(program=PROGRAM, **changes):
        it = session(driver(**changes))
        it.send("tele/m/SENSOR", {"t": 1.0, **({"at": NOW / S} if "time" in changes else {})})
        it.run("m", program)
        return it

    return start


def test_a_new_device_announces_itself_and_opens_a_listen_window(session):
    output = session(driver()).send("tele/m/SENSOR", {"t": 20})
    announcement, packet = output.frames
    assert isinstance(announcement, Announcement)
    assert (announcement.mote, announcement.boot, announcement.stream.name) == ("m", 1, "climate")
    assert (packet.sequence, packet.records, packet.program) == (0, (), 0)
    assert packet.listen_us > 0


# slots of 10 s:   |0         |10        |20
# messages:         ^  ^       ^           ^
def test_the_first_value_of_a_slot_is_its_sample(running):
    it = running()
    found = [
        stamps(it.at(second).send("tele/m/SENSOR", {"t": value}))
        for second, value in ((1, 1), (4, 2), (11, 3), (22, 4))
    ]
    assert found == [[(0, 1.0)], [], [(10 * S, 3.0)], [(20 * S, 4.0)]]


def test_empty_packets_keep_a_quiet_device_from_holding_the_watermark(running):
    it = running(silence_after="1m")
    (packet,) = it.at(35).tick().frames
    assert (packet.records, packet.promise_us, packet.program) == ((), NOW + 30 * S, program_number(PROGRAM))
    assert it.at(36).tick().frames == ()
    assert it.at(61).tick().frames == ()  # away


def test_samples_begin_no_sooner_than_demanded(session):
    it = session(driver())
    it.send("tele/m/SENSOR", {"t": 1})
    it.run("m", PROGRAM, not_before_us=NOW + 20 * S)
    assert stamps(it.at(11).send("tele/m/SENSOR", {"t": 1})) == []
    assert stamps(it.at(21).send("tele/m/SENSOR", {"t": 2})) == [(20 * S, 2.0)]


def test_running_the_same_program_again_does_nothing(running):
    it = running()
    assert it.run("m", PROGRAM).frames == ()
    assert reasons(it.run("m", SamplingProgram(("temperature",), S, report=Panes(S)))) == ["program"]
    assert reasons(it.run("other", PROGRAM)) == ["unknown_mote"]


def test_bands_and_dead_bands_are_left_to_the_proxy(running):
    report = SendOnChange((DeadBand("temperature", 1.0),), 40 * S)
    it = running(SamplingProgram(("temperature",), 10 * S, bands=(Band("temperature", low=0.0),), report=report))
    values = (5.0, 5.5, -3.0, 6.5, 6.5, 6.5, 6.5, 6.5)
    found = [stamps(it.at(10 * slot).send("tele/m/SENSOR", {"t": value})) for slot, value in enumerate(values)]
    assert [bool(each) for each in found] == [True, False, False, True, False, False, False, True]


TIME = {"time": {"path": "at", "form": "seconds", "max_delay": "30s"}}


def test_the_low_watermark_waits_for_late_values_and_later_ones_are_rejected(running):
    it = running(**TIME)
    at = NOW / S
    first = it.at(100).send("tele/m/SENSOR", {"t": 1, "at": at + 95})
    assert stamps(first) == [(90 * S, 1.0)]
    assert first.frames[-1].promise_us == NOW + 70 * S
    assert stamps(it.send("tele/m/SENSOR", {"t": 2, "at": at + 75})) == [(70 * S, 2.0)]
    assert stamps(it.send("tele/m/SENSOR", {"t": 3, "at": at + 79})) == []  # the slot has its sample
    assert reasons(it.send("tele/m/SENSOR", {"t": 4, "at": at + 69})) == ["late"]
    assert reasons(it.send("tele/m/SENSOR", {"t": 5, "at": at + 200})) == ["clock"]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("seconds", 1_700_000_000.25),
        ("milliseconds", 1_700_000_000_250),
        ("iso8601", "2023-11-14T22:13:20.25Z"),
        ("iso8601", "2023-11-14T23:13:20.250000"),  # in the zone of the configuration
    ],
)
def test_time_stamps_are_read_in_every_configured_form(session, form, written):
    it = session(driver(time={"path": "now", "form": form, "zone": "+01:00", "max_delay": "1s"}))
    it.send("tele/m/SENSOR", {"t": 1, "now": written})
    it.run("m", SamplingProgram(("temperature",), S // 4))
    assert stamps(it.at(0.5).send("tele/m/SENSOR", {"t": 1, "now": written})) == [(S // 4, 1.0)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "garbled"),
        (b"23,4", "garbled"),
        (b'{"t": NaN}', "garbled"),
        (b'"\xff"', "garbled"),
        (b"[" * 60_000, "depth"),
        (b"[" * 40 + b"]" * 40, "depth"),
        (b'{"t": "' + b"x" * MAX_PAYLOAD_BYTES + b'"}', "size"),
        (b'{"u": 1}', "missing"),
        (b"[1]", "missing"),
        (b'{"t": "warm"}', "type"),
        (b'{"t": true}', "type"),
        (b'{"t": 1' + b"0" * 400 + b"}", "type"),
        (b'{"t": 1e999}', "garbled"),
        (b'{"t": {"t": 1}}', "type"),
    ],
    ids=range(14),
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
    assert announced == [{"line": "north", "floor": 1}, {"line": "north", "floor": 2}]
    it.run("a", SamplingProgram(("on", "kelvin"), S))
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
        st.integers(-3, 40),  # seconds since the event before; clocks step back, too
        st.sampled_from(["send", "tick", "run", "sleep"]),
        st.integers(-60, 70),  # the device's clock against the proxy's
        st.sampled_from([S // 2, S, 3 * S, 10 * S]),
    ),
    max_size=60,
)


@given(EVENTS, st.booleans())
def test_no_sample_is_stamped_before_an_earlier_low_watermark(events, device_time):
    it = driver(**(TIME if device_time else {}))
    radio_us, received_us, frames = 0, NOW, []
    for step, what, ahead, period_us in events:
        received_us += step * S
        radio_us += max(0, step) * S
        times = {"radio_us": radio_us, "received_us": received_us}
        if what == "send":
            payload = json.dumps({"t": 1, "at": received_us / S + ahead}).encode()
            frames += it.received("tele/m/SENSOR", payload, **times).frames
        elif what == "tick":
            frames += it.time_passed(**times).frames
        elif it.owns("m"):
            program = SamplingProgram(("temperature",), period_us) if what == "run" else SamplingProgram()
            frames += it.run("m", program, **times).frames
    packets = [each for each in frames if isinstance(each, Packet)]
    assert [each.sequence for each in packets] == list(range(len(packets)))
    guaranteed, seen = None, set()
    for packet in packets:
        for sample in packet.samples:
            start_us = packet.clock_us - sample.age_us
            assert sample.age_us >= 0
            assert guaranteed is None or start_us >= guaranteed
            assert start_us not in seen
            seen.add(start_us)
        assert guaranteed is None or packet.promise_us >= guaranteed
        guaranteed = packet.promise_us


def test_the_fleet_handles_a_driven_device_like_a_mote(session, frames):
    fleet = Fleet("p", FleetLimits(), now_us=0)
    it = session(driver())

    def deliver(output):
        found = []
        for frame in output.frames:
            receive = fleet.receive_announcement if isinstance(frame, Announcement) else fleet.receive_packet
            found += [each.instruction for each in receive(frame, **it.times) if isinstance(each, ForMote)]
        return found

    fleet.receive_demand("climate", frames.demand(("q", ["temperature"], 10 * S), stream="climate"), radio_us=0)
    controls = [each for each in deliver(it.send("tele/m/SENSOR", {"t": 1})) if hasattr(each, "control")]
    (order,) = controls[0].control.instructions
    deliver(it.run("m", order.program, not_before_us=order.not_before_us))
    accepted = [
        each for each in deliver(it.at(11).send("tele/m/SENSOR", {"t": 21.5})) if isinstance(each, TuplesAccepted)
    ]
    (row,) = accepted[0].tuples
    assert (row.start_us, row.values, row.at_default_rate) == (NOW + 10 * S, (21.5,), True)
