"""The worked examples of docs/reference/protocol.md match what the code writes and reads, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b, blake2s
from pathlib import Path

import msgpack
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.sealing.keys import MoteKeys
from protocols.sealing.seals import MoteSeal, open_sealed, seal
from protocols.wire import batches, catalog, demands, packets, topics
from protocols.wire.frames import Frame, encode
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import Field, FieldType, StreamSchema

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
SPEED = Field("speed", FieldType.REAL, "mph")
TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT, fixed=True), SPEED))

Q1 = demands.QueryDemand("q1", ("sensor", "speed"))
DIGEST = bytes.fromhex("96033f5f29aa8f3c")

WRITER = bytes.fromhex("4d1f0a67c29be583")

BATCH = batches.Batch(
    1, "roadside", "e1", "traffic", 1, 2_000_000, True, 1,
    batches.make_columns(TRAFFIC, [1_000_000], ["m1"], [True], {"sensor": ["716328"], "speed": [66.875]}),
    WRITER, bytes(8),
)  # fmt: skip

EXAMPLES: dict[str, tuple[Frame, Callable[[bytes], object]]] = {
    "packet": (
        packets.Packet(
            1, "m1", 1, 7, 1_000_020, 2_000_000, 50_000, 123_456_789, (packets.Sample(20, (66.875,)),)
        ),
        packets.decode_packet,
    ),
    "announcement": (
        packets.Announcement(1, "m1", 1, "loop", TRAFFIC, {"sensor": "716328"}, 300_000_000, 1_000_000),
        packets.decode_announcement,
    ),
    "control": (
        packets.Control(1, "m1", (packets.RunProgram(SamplingProgram(("speed",), 1_000_000), 0),)),
        packets.decode_control,
    ),
    "packed_batch": (batches.pack_batch(BATCH), batches.decode_packed_batch),
    "batch": (BATCH, batches.decode_batch),
    "ack": (batches.Ack(1, "roadside", "e1", "traffic", 1, (), "fjord/5f2c", True, WRITER), batches.decode_ack),
    "numbered_announcement": (
        packets.NumberedAnnouncement(
            1, "m1", 1, "loop", TRAFFIC, {"sensor": "716328"}, 300_000_000, 1_000_000, "telosb+seal", sequence=8
        ),
        packets.decode_announcement,
    ),
    "answering_control": (
        packets.AnsweringControl(1, "m1", (packets.SendAnnouncement(),), 1, 7),
        packets.decode_control,
    ),
    "resumption": (batches.Resumption(1, "roadside", "e1", "traffic", 8), batches.decode_resumption),
    "demand": (
        demands.StreamDemand(1, "cluster", "traffic", 3, (Q1,), TRAFFIC),
        demands.decode_demand,
    ),
    "head": (demands.DemandHead(1, "cluster", "traffic", 3, {58: DIGEST}), demands.read_head),
    "piece": (
        demands.DemandPiece(
            1, "traffic", 58,
            (demands.PieceEntry(3, msgspec.Raw(demands.encode_query_demand(Q1))),),
        ),
        demands.decode_demand_piece,
    ),
    "request": (
        demands.DemandRequest(1, "roadside", "traffic", (58,)),
        demands.decode_demand_request,
    ),
    "status": (catalog.Status(1, "roadside", catalog.Presence.ONLINE, "e1", 0), catalog.decode_status),
    "clock": (catalog.ProxyClock(1, "roadside", 1_330_560_000_000_000), catalog.decode_proxy_clock),
    "spool": (catalog.ProxySpool(1, "roadside", 3, 1_024, 10_000_000, 65_536), catalog.decode_proxy_spool),
    "waits": (
        catalog.ProxyWaits(1, "roadside", (catalog.StreamWait("traffic", "m7", 12_000_000, silent=False),)),
        catalog.decode_proxy_waits,
    ),
    "report": (
        demands.demand_report(
            "roadside", "traffic", 3, [demands.RefusedDemand("q1", "stream 'traffic' has no field 'colour'")]
        ),
        demands.decode_demand_report,
    ),
    "offer": (catalog.StreamOffer(1, "roadside", StreamSchema("traffic", (SPEED,))), catalog.decode_stream_offer),
    "entry": (
        catalog.MoteEntry(
            1, "m1", "roadside", "loop", "traffic", {"sensor": "716328"}, catalog.MoteState.SAMPLING,
            1_000_000, 300_000_000, 1_000_000, 123_456_789, 8, 0, 0, 8, 0, None, 0,
        ),
        catalog.decode_mote_entry,
    ),
    "device_entry": (
        catalog.DeviceEntry(
            1, "bell", "home", "bell", "doors", {"sensor": "bell"}, catalog.MoteState.SAMPLING,
            1, 1, 1, 123_456_789, 8, 0, 0, 8, 0, None, 0,
            driver="shed", publishes=True, counts={"not_demanded": 12},
        ),
        catalog.decode_mote_entry,
    ),
}  # fmt: skip


def documented() -> dict[str, bytes]:
    blocks = re.findall(r"```hex (\w+)\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    return {name: bytes.fromhex("".join(text.split())) for name, text in blocks}


def test_every_frame_has_an_example() -> None:
    assert set(documented()) == set(EXAMPLES) | {"sealed_packet", "sealed_ack"}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_is_what_the_code_writes_and_reads(name: str) -> None:
    frame, decode = EXAMPLES[name]
    expected = documented()[name]
    assert encode(frame).hex(" ") == expected.hex(" ")
    assert decode(expected) == frame


def test_sealed_examples_are_what_the_code_writes_and_reads() -> None:
    secret, found = bytes(range(32)), documented()
    of_mote = MoteSeal(MoteKeys(secret).secret("m1"), topics.packet("roadside", "m1"), to_mote=False)
    assert of_mote.seal(found["packet"]).hex(" ") == found["sealed_packet"].hex(" ")
    assert of_mote.open(found["sealed_packet"]) == found["packet"]
    key, topic, counter = Ed25519PrivateKey.from_private_bytes(secret), topics.acks("roadside"), 1_764_057_600 << 32 | 7
    assert seal(key, topic, counter, found["ack"]).hex(" ") == found["sealed_ack"].hex(" ")
    assert open_sealed(key.public_key(), topic, found["sealed_ack"]) == (counter, found["ack"])


def test_sealed_examples_follow_from_the_document_alone() -> None:
    """As another implementation would make them, with nothing of ours."""
    found, topic = documented(), b"fjord/v1/motes/roadside/m1/packet"
    secret = blake2b(b"1/m1", key=bytes(range(32)), digest_size=32, person=b"fjord mote").digest()
    key = blake2s(secret, person=b"fjord up").digest()
    tag = blake2s(topic + b"\0" + found["packet"], key=key, digest_size=4).digest()
    assert found["sealed_packet"] == b"\xc1" + found["packet"] + tag
    number = (1_764_057_600).to_bytes(4, "big") + (7).to_bytes(4, "big")
    digest = blake2b(b"fjord/v1/proxies/roadside/acks\0" + number + found["ack"], digest_size=32).digest()
    signature = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).sign(b"fjord sealed frame 1\0" + digest)
    assert found["sealed_ack"] == b"\xc1" + number + found["ack"] + signature


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_is_plain_messagepack(name: str) -> None:
    array = msgpack.unpackb(documented()[name], strict_map_key=False)
    assert isinstance(array, list)
    assert array[0] == 1
