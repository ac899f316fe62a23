"""Every frame has an identity, and nothing that may arrive is without one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.event_format import add_stimulus
from protocols.mqtt.link import Message
from protocols.stimulus import HANDLED, cause, stimulus
from protocols.wire import topics
from protocols.wire.batches import Ack, Batch, Resumption
from protocols.wire.catalog import Presence, ProxyClock, Status
from protocols.wire.demands import DemandHead, DemandRequest, StreamDemand, encode_piece
from protocols.wire.frames import VERSION, encode
from protocols.wire.packets import AdjustClock, Control, Packet, SendAnnouncement
from protocols.wire.stimuli import stimulus_of

NAMED = {
    "packet m1/2/7": (topics.packet("p", "m1"), Packet(VERSION, "m1", 2, 7, 0, 0, 0, 0, ())),
    "batch p/e/traffic/3": (topics.batches("p"), Batch(VERSION, "p", "e", "traffic", 3, 0, True, 0, ())),
    "ack p/e/traffic/3": (topics.acks("p"), Ack(VERSION, "p", "e", "traffic", 3)),
    "resumption p/e/traffic/4": (topics.resumptions("p"), Resumption(VERSION, "p", "e", "traffic", 4)),
    "demand traffic@9": (topics.demand("traffic"), DemandHead(VERSION, "c", "traffic", 9, {})),
    "demand traffic@8": (topics.demand("traffic"), StreamDemand(VERSION, "c", "traffic", 8, ())),
    "request p/traffic: 1 2": (topics.demand_request("p", "traffic"), DemandRequest(VERSION, "p", "traffic", (1, 2))),
    "control m1: announce, clock -5us": (
        topics.control("p", "m1"),
        Control(VERSION, "m1", (SendAnnouncement(), AdjustClock(-5))),
    ),
    "status p online since 5": (topics.proxy_status("p"), Status(VERSION, "p", Presence.ONLINE, "e", 5)),
    "clock p 7": (topics.proxy_clock("p"), ProxyClock(VERSION, "p", 7)),
}


@pytest.mark.parametrize("name", NAMED)
def test_frames_are_named_by_their_numbers(name):
    topic, frame = NAMED[name]
    assert stimulus_of(topic, encode(frame)) == name


def test_a_piece_is_named_by_its_digest():
    payload = encode_piece(VERSION, "traffic", 3, [])
    assert stimulus_of(topics.demand_piece("traffic", 3), payload).startswith("piece traffic/3 ")


@given(st.one_of(st.text(), st.sampled_from([topic for topic, _ in NAMED.values()])), st.binary())
def test_anything_has_a_name(topic, payload):
    assert stimulus_of(topic, payload)


def test_what_happens_while_a_message_is_handled_names_it():
    topic, frame = NAMED["packet m1/2/7"]
    assert stimulus() is None
    assert add_stimulus(None, "", {"event": "x"}) == {"event": "x"}
    token = HANDLED.set(Message(topic, encode(frame)))
    try:
        assert cause() == "packet m1/2/7"
        assert add_stimulus(None, "", {"event": "x"}) == {"event": "x", "stimulus": "packet m1/2/7"}
    finally:
        HANDLED.reset(token)


async def test_what_happens_by_itself_names_its_task():
    assert cause().startswith("task ")
