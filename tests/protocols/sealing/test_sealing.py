"""Sealed frames: what was changed, moved, cut off or made with another key does not open."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import FrameError
from protocols.sealing.seals import (
    MARK,
    MOTE_SEAL_BYTES,
    PART_SEAL_BYTES,
    WILL,
    MoteSeal,
    SeenCounters,
    SentCounter,
    open_sealed,
    seal,
)

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([each]) * 32) for each in (1, 2))
TOPIC, MOVED = "fjord/v1/proxies/p/batches", "fjord/v1/proxies/q/batches"
UP = MoteSeal(b"s" * 32, "fjord/v1/motes/p/m/packet", to_mote=False)


def reason(open_it, *arguments):
    with pytest.raises(FrameError) as caught:
        open_it(*arguments)
    return caught.value.reason


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_what_is_sealed_opens_and_is_longer_by_its_seal(frame, counter):
    sealed = seal(KEY, TOPIC, counter, frame)
    assert open_sealed(KEY.public_key(), TOPIC, sealed) == (counter, frame)
    assert UP.open(UP.seal(frame)) == frame
    assert (len(sealed) - len(frame), len(UP.seal(frame)) - len(frame)) == (PART_SEAL_BYTES, MOTE_SEAL_BYTES) == (73, 5)
    assert sealed[0] == UP.seal(frame)[0] == MARK == 0xC1


@given(st.binary(max_size=40), st.data())
def test_one_changed_bit_anywhere_is_forged_or_unsealed(frame, data):
    for sealed, open_it in ((seal(KEY, TOPIC, 7, frame), lambda it: open_sealed(KEY.public_key(), TOPIC, it)),
                            (UP.seal(frame), UP.open)):  # fmt: skip
        at = data.draw(st.integers(0, 8 * len(sealed) - 1))
        changed = bytearray(sealed)
        changed[at // 8] ^= 1 << at % 8
        assert reason(open_it, bytes(changed)) == ("unsealed" if at < 8 else "forged")


@given(st.binary(max_size=200))
def test_what_was_never_sealed_does_not_open(payload):
    for open_it in (lambda it: open_sealed(KEY.public_key(), TOPIC, it), UP.open):
        assert reason(open_it, payload) == ("forged" if payload[:1] == b"\xc1" else "unsealed")


@pytest.mark.parametrize("left", [0, 1, 4, 5, 8, 9, 40, 72, 73, 74])
def test_a_seal_that_is_cut_off_does_not_open(left):
    payload = seal(KEY, TOPIC, 7, b"a frame")[:left]
    assert reason(open_sealed, KEY.public_key(), TOPIC, payload) == ("forged" if left else "unsealed")
    assert reason(UP.open, UP.seal(b"a frame")[: left % 12]) == ("forged" if left % 12 else "unsealed")


def test_a_frame_is_of_one_key_one_topic_and_one_direction():
    payload = seal(KEY, TOPIC, 7, b"frame")
    assert reason(open_sealed, OTHER.public_key(), TOPIC, payload) == "forged"
    assert reason(open_sealed, KEY.public_key(), MOVED, payload) == "forged"
    topic = "fjord/v1/motes/p/m/packet"
    for secret, where, to_mote in (
        (b"t" * 32, topic, False),
        (b"s" * 32, "fjord/v1/motes/p/n/packet", False),
        (b"s" * 32, "fjord/v1/motes/q/m/packet", False),
        (b"s" * 32, "fjord/v1/motes/p/m/announcement", False),
        (b"s" * 32, topic, True),
    ):
        assert reason(UP.open, MoteSeal(secret, where, to_mote=to_mote).seal(b"frame")) == "forged"


@given(st.lists(st.integers(0, 40), max_size=30))
def test_counters_of_a_topic_are_accepted_once_and_ascending(counters):
    seen, accepted = SeenCounters(), []
    for each in counters:
        try:
            seen.accept("a", each, retained=False)
        except FrameError as error:
            assert (error.reason, each <= max(accepted)) == ("replayed", True)
        else:
            accepted.append(each)
    assert accepted == sorted(set(accepted))
    assert seen.seen.get("a", -1) == max(counters, default=-1)


def test_topics_are_remembered_as_far_as_their_bound_goes():
    seen = SeenCounters({"a1": 7}, bound_of=lambda topic: (topic[0], 2))
    seen.accept("a2", 1, retained=False)
    seen.accept("b1", 1, retained=False)
    assert reason(lambda: seen.accept("a3", 1, retained=False)) == "too_many_topics"
    seen.accept("a1", 8, retained=False)
    assert seen.seen == {"a1": 8, "a2": 1, "b1": 1}


def test_the_broker_sends_what_it_retains_again_but_nothing_older():
    seen = SeenCounters({"a": 7})
    seen.accept("a", 7, retained=True)
    seen.accept("b", 1, retained=False)
    assert reason(lambda: seen.accept("a", 7, retained=False)) == "replayed"
    assert reason(lambda: seen.accept("a", 6, retained=True)) == "replayed"


@pytest.mark.parametrize(("stored", "clock", "connection"), [(0, 50, 50), (49, 50, 50), (50, 50, 51), (90, 50, 91)])
def test_connections_ascend_whatever_the_clock_shows_and_the_will_comes_last(stored, clock, connection):
    sent = SentCounter(stored)
    sent.connect(clock)
    assert sent.connection == connection
    first, second, will = sent.next(), sent.next(), sent.of_will()
    assert (first >> 32, second - first, will & WILL) == (connection, 1, WILL)
    assert first < second < will
    sent.connect(clock)
    assert sent.next() > will
