"""Native motes, push-down, and names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.frames import encode
from protocols.packets import RunProgram, SendAnnouncement, decode_control
from protocols.programs import SLEEP, Band, DeadBand, Panes, SamplingProgram, SendOnChange
from protocols.topics import check_name
from proxy.drivers.driver import EVERYTHING, PASSIVE
from proxy.drivers.names import NameBook
from proxy.drivers.native import NativeDriver
from proxy.drivers.push_down import push_down
from proxy.drivers.zigbee_reporting import REPORTING

S = 1_000_000
PACKETS = "fjord/v1/motes/p/m1/packet"
CHANGES = SendOnChange((DeadBand("a", 1.0),), 60 * S)


def test_frames_of_native_motes_pass_as_they_are(frames, session):
    it = session(NativeDriver("p"))
    packet, announcement = frames.packet(0, (0, 1.0), listen=S), frames.announcement()
    assert it.say(PACKETS, encode(packet)).frames == (packet,)
    assert it.say("fjord/v1/motes/p/m1/announcement", encode(announcement)).frames == (announcement,)
    assert it.say("fjord/v1/motes/p/m2/packet", encode(packet)).refusals[0].reason == "mote"
    assert it.say(PACKETS, b"\x00").refusals[0].reason in {"shape", "garbled"}
    assert it.say(PACKETS, encode(packet), retained=True).refusals[0].reason == "retained"
    assert it.say("fjord/v1/motes/other/m1/packet", encode(packet)).frames == ()
    assert it.say("tele/m/SENSOR", b"{}").frames == ()


def test_a_native_mote_is_spoken_to_in_its_window_only(frames, session):
    it = session(NativeDriver("p"))
    assert it.run("m1", SLEEP).refusals[0].reason == "not_listening"
    it.say(PACKETS, encode(frames.packet(0, listen=S)))
    (message,) = it.at(0.5).run("m1", SLEEP, not_before_us=7).publications
    assert (message.topic, message.qos, message.before_radio_us) == ("fjord/v1/motes/p/m1/control", 0, S)
    assert decode_control(message.payload).instructions == (RunProgram(SLEEP, 7),)
    (asked,) = it.driver.announce("m1", **it.times).publications
    assert decode_control(asked.payload).instructions == (SendAnnouncement(),)
    assert it.at(1).run("m1", SLEEP).refusals[0].reason == "not_listening"


def test_each_does_what_it_can():
    program = SamplingProgram(("a",), 10 * S, report=CHANGES)
    banded = SamplingProgram(("a",), 10 * S, bands=(Band("a", low=0.0),), report=CHANGES)
    panes = SamplingProgram(("a",), S // 2, report=Panes(S))
    plain = SamplingProgram(("a",), 10 * S)
    table = [
        (program, EVERYTHING, program, program, 0),
        (program, REPORTING, program, program, 0),
        (program, PASSIVE, program, plain, 2),
        (banded, REPORTING, banded, plain, 2),
        (banded, PASSIVE, banded, plain, 3),
        (panes, EVERYTHING, panes, panes, 0),
        (panes, REPORTING, SamplingProgram(("a",), S // 2), SamplingProgram(("a",), S // 2), 2),
        (SLEEP, PASSIVE, SLEEP, SLEEP, 0),
    ]
    for asked, capabilities, taken, device, left in table:
        found = push_down(asked, capabilities)
        assert (found.taken, found.device, len(found.left)) == (taken, device, left)


@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=20))
def test_names_are_allowed_unique_and_the_same_in_any_order(foreign):
    one, other = NameBook(), NameBook()
    names = {each: one.name_of(each) for each in foreign}
    assert len(set(names.values())) == len(foreign)
    assert {each: other.name_of(each) for each in reversed(foreign)} == names
    for name in names.values():
        assert check_name(name) == name
        assert one.foreign_of(name) is not None


def test_a_name_that_looks_like_anothers_hash():
    names = NameBook()
    first = names.name_of("a b")
    assert names.name_of(first) not in {first, "a b"}
