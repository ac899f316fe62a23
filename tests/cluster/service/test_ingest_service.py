"""The ingest's shell: what is taken is stored before it is acknowledged; what is not is refused, counted and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from cluster.ingest.service import Ingest
from protocols import topics
from protocols.batches import Ack, Batch, decode_ack, encode_batch, make_columns
from protocols.catalog import StreamOffer
from protocols.frames import encode
from protocols.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import TRAFFIC

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.service.conftest import Service


def batch(sequence: int, *starts: int, watermark: int = 0, proxy: str = "p", **changes: Any) -> bytes:
    schema = changes.get("schema", TRAFFIC)
    count = len(starts)
    columns = make_columns(schema, list(starts), ["m"] * count, [True] * count, {"speed": [1.0] * count})
    stream = changes.get("stream", schema.name)
    return encode_batch(Batch(1, proxy, "e", stream, sequence, watermark, True, count, columns))


def acks(service: Service) -> list[Ack]:
    return [decode_ack(message.payload) for message in service.link.published if message.topic == topics.acks("p")]


def stored(service: Service) -> list[int]:
    rows = pl.read_delta(service.ingest.writers["traffic"].table.root)
    return sorted(rows["fjord_start_us"].to_list())


async def test_a_batch_is_stored_once_and_then_acknowledged(service: Service) -> None:
    writer = service.ingest.writers["traffic"]
    await service.handle(topics.batches("p"), batch(1, 10, 20, watermark=30))
    await service.handle(topics.batches("p"), batch(2, 30, watermark=40))
    assert acks(service) == []
    await writer.commit()
    assert [ack.through for ack in acks(service)] == [2]
    await service.handle(topics.batches("p"), batch(1, 10, 20, watermark=30))
    assert [ack.through for ack in acks(service)] == [2, 2]
    await writer.commit()
    assert stored(service) == [10, 20, 30]
    assert writer.table.position().watermark_us == 40


async def test_a_gap_is_answered_with_what_is_stored(service: Service) -> None:
    await service.handle(topics.batches("p"), batch(5, 10))
    assert [ack.through for ack in acks(service)] == [0]
    assert service.ingest.writers["traffic"].admission.counters.gaps == 1


async def test_a_batch_of_another_shape_is_rejected_and_does_not_block(service: Service) -> None:
    other = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
    await service.handle(topics.batches("p"), batch(1, 10, schema=other))
    await service.handle(topics.batches("p"), batch(2, 20))
    await service.ingest.writers["traffic"].commit()
    (ack,) = acks(service)
    assert ack.through == 2
    assert [(each.sequence, "columns" in each.reason) for each in ack.rejected] == [(1, True)]
    assert stored(service) == [20]
    assert service.registry.quarantined()[0].kind == "batch"


async def test_late_rows_are_set_aside(service: Service) -> None:
    await service.handle(topics.batches("p"), batch(1, 10, watermark=100))
    await service.handle(topics.batches("p"), batch(2, 50, 100, watermark=200))
    await service.ingest.writers["traffic"].commit()
    assert stored(service) == [10, 100]
    assert service.ingest.writers["traffic"].admission.counters.late_rows == 1
    assert service.registry.quarantined()[0].kind == "late sample"


async def test_refused_messages_are_counted_by_reason_and_kept(service: Service) -> None:
    await service.handle(topics.batches("p"), b"\xc1")
    await service.handle(topics.batches("q"), batch(1, 10))
    await service.handle(topics.batches("p"), batch(1, 10, stream="unheard"))
    other = StreamOffer(1, "p", StreamSchema("traffic", (Field("flow", FieldType.REAL),)))
    await service.handle(topics.stream_offer("p", "traffic"), encode(other))
    assert service.ingest.refused == {"garbled": 1, "identity": 1, "stream": 1, "schema": 1}
    assert len(service.registry.quarantined()) == 4
    assert "sensor is declared as TEXT FIXED and not offered" in service.registry.quarantined()[0].reason
    assert acks(service) == []


async def test_an_instant_after_all_that_is_taken_is_known_before_it_is_stored_and_after_a_restart(
    service: Service, tmp_path: Path
) -> None:
    writer = service.ingest.writers["traffic"]
    assert service.ingest.instants() == {}
    await service.handle(topics.batches("p"), batch(1, 10, 25, watermark=12))
    assert service.ingest.instants() == {"traffic": 26}
    await writer.commit()
    await service.handle(topics.batches("p"), batch(2, 11, 30, watermark=80))
    assert service.ingest.instants() == {"traffic": 80}
    await writer.commit()
    again = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine)
    assert again.instants() == {"traffic": 80}
    assert again.writers["traffic"].table.latest_stamp() == 30
