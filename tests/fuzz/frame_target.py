"""Payloads of MQTT messages: damaged frames of every kind, in their decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from protocols.errors import FrameError
from protocols.wire import batches, catalog, demands, packets
from protocols.wire.frames import encode
from protocols.wire.streams import FieldType, StreamSchema
from tests.fuzz.drawing import NAMES, REALS, TEXTS, damaged, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from protocols.errors import FjordError
    from protocols.wire.frames import Frame, Value

KINDS: tuple[tuple[type[Frame], Callable[[bytes], object]], ...] = (
    (packets.Packet, packets.decode_packet),
    (packets.Announcement, packets.decode_announcement),
    (packets.NumberedAnnouncement, packets.decode_announcement),
    (packets.Control, packets.decode_control),
    (packets.AnsweringControl, packets.decode_control),
    (batches.Batch, batches.decode_batch),
    (batches.PackedBatch, batches.decode_batch),
    (batches.Ack, batches.decode_ack),
    (batches.Resumption, batches.decode_resumption),
    (catalog.MoteEntry, catalog.decode_mote_entry),
    (catalog.StreamOffer, catalog.decode_stream_offer),
    (catalog.Status, catalog.decode_status),
    (demands.StreamDemand, demands.decode_demand),
    (demands.StreamDemand, demands.read_head),
    (demands.DemandHead, demands.read_head),
    (demands.DemandPiece, demands.decode_demand_piece),
    (demands.DemandRequest, demands.decode_demand_request),
    (demands.DemandReport, demands.decode_demand_report),
)


class FrameTarget:
    """One payload in its decoder."""

    name = "frames"
    errors: tuple[type[FjordError], ...] = (FrameError,)
    limit_seconds = 0.25

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield the decoding of a drawn frame, and of what damages leave of it."""
        kind, decode = dice.choice(KINDS)
        payload = encode(_drawn(kind, dice))
        yield lambda: decode(payload)
        wrong = damaged(payload, dice)
        yield lambda: decode(wrong)


def _drawn(kind: type[Frame], dice: Random) -> Any:
    if kind in {batches.Batch, batches.PackedBatch}:
        batch = drawn_batch(drawn(StreamSchema, dice), dice)
        return batch if kind is batches.Batch else batches.pack_batch(batch)
    if kind is demands.DemandPiece:
        entry = demands.PieceEntry(dice.choice((0, 3, 2**63 - 1)), msgspec.Raw(_query_demand(dice)))
        return demands.DemandPiece(1, "traffic", dice.randrange(demands.PIECES), (entry,))
    return drawn(kind, dice)


def _query_demand(dice: Random) -> bytes:
    return msgspec.msgpack.encode(drawn(demands.QueryDemand, dice))


def drawn_batch(schema: StreamSchema, dice: Random, **given: object) -> batches.Batch:
    """Return a batch of a stream, with extreme values; `given` are fields of the batch."""
    rows = dice.choice((0, 1, 3, 100))
    stamps = [dice.choice((0, 1, 10**15, 2**62, -(2**62), dice.randrange(10**15))) for _ in range(rows)]
    values = {each.name: [_value_of(each.type, dice) for _ in range(rows)] for each in schema.fields}
    columns = batches.make_columns(
        schema, stamps, [dice.choice(NAMES) for _ in range(rows)], [dice.random() < 0.5 for _ in range(rows)], values
    )
    fields = {"sequence": dice.choice((1, 2, 2**62 - 1)), "watermark_us": dice.choice((0, 10**15, -(2**62), 2**62))}
    made = {"version": 1, "proxy": "p", "epoch": "e", "stream": schema.name, "sampling": True, **fields, **given}
    return batches.Batch(**made, rows=rows, columns=columns)  # type: ignore[arg-type]


def _value_of(kind: FieldType, dice: Random) -> Value:
    if dice.random() < 0.2:
        return None
    match kind:
        case FieldType.INTEGER:
            return dice.choice((0, 1, -1, 2**53, 2**63 - 1, -(2**63)))
        case FieldType.REAL:
            return dice.choice(REALS)
        case FieldType.BOOLEAN:
            return dice.random() < 0.5
        case FieldType.TEXT:
            return dice.choice(TEXTS)
