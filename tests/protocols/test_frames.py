"""Frames that are refused, and why. Hypothesis draws bytes for every decoder."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import FrameError, UnsupportedVersionError
from protocols.wire.batches import decode_ack, decode_batch
from protocols.wire.catalog import decode_mote_entry, decode_status, decode_stream_offer
from protocols.wire.demands import decode_demand
from protocols.wire.frames import FrameDecoder, encode
from protocols.wire.packets import Packet, Sample, decode_announcement, decode_control, decode_packet
from tests.protocols.test_protocol_document import EXAMPLES

DECODERS: list[FrameDecoder[Any]] = [
    decode_ack, decode_announcement, decode_batch, decode_control, decode_demand,
    decode_mote_entry, decode_packet, decode_status, decode_stream_offer,
]  # fmt: skip
PACKET = Packet(1, "m1", 0, 0, 10, 20, 0, 0, (Sample(0, (1.5, None, "x", True)),))


def changed(place: int, value: object) -> bytes:
    array = msgpack.unpackb(encode(PACKET))
    array[place] = value
    return bytes(msgpack.packb(array))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "garbled"),
        (b"\xc1", "garbled"),
        (encode(PACKET)[:-1], "garbled"),
        (encode(PACKET) + b"\x00", "garbled"),
        (b"\x91\x01", "shape"),
        (b"\x80", "shape"),
        (changed(0, 2), "version"),
        (changed(1, "no/slash"), "shape"),
        (changed(1, ""), "shape"),
        (changed(2, -1), "shape"),
        (changed(3, 2**64 - 1), "shape"),
        (changed(4, "now"), "shape"),
        (changed(6, 60_000_001), "shape"),
        (changed(7, 2**32), "shape"),
        (changed(8, [[7, 1, []]]), "shape"),
        (changed(8, [[0, -1, [1]]]), "shape"),
        (b"\x91" * 20_000, "shape"),
        (b"\x00" * 70_000, "size"),
    ],
)
def test_bad_packet_is_refused_with_a_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_packet(payload)
    assert caught.value.reason == reason


def test_other_version_is_named_even_if_its_shape_differs() -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_packet(msgpack.packb([9, "whatever"]))
    assert (caught.value.found, caught.value.supported) == (9, 1)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_frame_error(payload: bytes) -> None:
    for decode in DECODERS:
        try:
            frame = decode(payload)
        except FrameError as error:
            assert error.reason in {"garbled", "shape", "size", "version"}
        else:
            assert encode(frame)


@given(st.data())
def test_a_flipped_byte_never_raises_anything_but_a_frame_error(data: st.DataObject) -> None:
    frame, decode = EXAMPLES[data.draw(st.sampled_from(sorted(EXAMPLES)))]
    payload = bytearray(encode(frame))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    try:
        assert encode(decode(bytes(payload)))
    except FrameError as error:
        assert error.message


def test_a_name_that_ends_in_a_line_break_is_refused() -> None:
    with pytest.raises(FrameError, match="fit"):
        decode_packet(changed(1, "m1\n"))
