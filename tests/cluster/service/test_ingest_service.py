"""The ingest's shell: accepted batches are stored before they are acknowledged; others are counted and kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from prometheus_client import generate_latest

from cluster.ingest.proxy_reports import ProxySpools
from cluster.ingest.service import Ingest
from cluster.service.http.api import status_of
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.storage.relation_versions import RelationVersions
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.batches import Ack, Batch, decode_ack, encode_batch, make_columns
from protocols.wire.catalog import ProxyClock, ProxySpool, StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import TRAFFIC

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.service.conftest import Service

NOW_US = 1_795_000_000_000_000
"""In November 2026."""


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
    assert [(ack.through, ack.packed) for ack in acks(service)] == [(2, True)]
    await service.handle(topics.batches("p"), batch(1, 10, 20, watermark=30))
    assert [ack.through for ack in acks(service)] == [2, 2]
    await writer.commit()
    assert stored(service) == [10, 20, 30]
    assert writer.table.position().watermark_us == 40


async def test_a_gap_is_answered_with_what_is_stored(service: Service) -> None:
    await service.handle(topics.batches("p"), batch(5, 10))
    assert [ack.through for ack in acks(service)] == [0]
    assert service.ingest.writers["traffic"].admission.counters.gaps == 1


async def test_a_stream_that_one_proxy_feeds_takes_no_batch_of_another(service: Service) -> None:
    own = StreamSchema("own", TRAFFIC.fields)
    service.ingest.declare(own, only_proxy="p")
    for proxy in ("p", "q"):
        await service.handle(topics.stream_offer(proxy, "own"), encode(StreamOffer(1, proxy, own)))
        await service.handle(topics.batches(proxy), batch(1, 10, schema=own, proxy=proxy))
    await service.ingest.writers["own"].commit()
    assert pl.read_delta(service.ingest.writers["own"].table.root).height == 1
    assert service.ingest.rejected == {"identity": 2}, "the offer, and the batch"


async def test_a_batch_of_another_shape_is_rejected_and_does_not_block(service: Service) -> None:
    other = StreamSchema("traffic", (Field("speed", FieldType.REAL),))
    await service.handle(topics.batches("p"), batch(1, 10, schema=other))
    await service.handle(topics.batches("p"), batch(2, 20))
    await service.ingest.writers["traffic"].commit()
    (ack,) = acks(service)
    assert ack.through == 2
    assert [(each.sequence, "columns" in each.reason) for each in ack.rejected] == [(1, True)]
    assert stored(service) == [20]
    assert service.registry.quarantine.newest()[0].kind == "batch"


async def test_late_rows_are_quarantined(service: Service) -> None:
    await service.handle(topics.batches("p"), batch(1, 10, watermark=100))
    await service.handle(topics.batches("p"), batch(2, 50, 100, watermark=200))
    await service.ingest.writers["traffic"].commit()
    assert stored(service) == [10, 100]
    assert service.ingest.writers["traffic"].admission.counters.late_rows == 1
    assert service.registry.quarantine.newest()[0].kind == "late sample"


async def test_rejected_messages_are_counted_by_reason_and_kept(service: Service) -> None:
    await service.handle(topics.batches("p"), b"\xc1")
    await service.handle(topics.batches("q"), batch(1, 10))
    await service.handle(topics.batches("p"), batch(1, 10, stream="unheard"))
    other = StreamOffer(1, "p", StreamSchema("traffic", (Field("flow", FieldType.REAL),)))
    await service.handle(topics.stream_offer("p", "traffic"), encode(other))
    assert service.ingest.rejected == {"garbled": 1, "identity": 1, "stream": 1, "schema": 1}
    assert len(service.registry.quarantine.newest()) == 4
    assert "sensor is declared as TEXT FIXED and not offered" in service.registry.quarantine.newest()[0].reason
    assert acks(service) == []


async def test_the_instant_after_all_accepted_rows_is_known_before_they_are_stored_and_after_a_restart(
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
    again = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep)
    assert again.instants() == {"traffic": 80}
    assert again.writers["traffic"].table.latest_stamp() == 30


async def test_stamps_of_2100_do_not_delay_changes_of_today(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.ingest, "_clock", lambda: NOW_US / 1e6)
    await service.handle(topics.batches("p"), batch(1, 1_000, watermark=1_000))
    assert service.ingest.instants() == {"traffic": 1_001}, "a replay has a clock of its own"
    await service.handle(topics.batches("p"), batch(2, 2 * NOW_US, watermark=2_000))
    assert service.ingest.instants() == {"traffic": NOW_US + 60_000_000}


async def test_a_relation_changes_today_although_a_mote_stamps_samples_in_2100(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.ingest, "_clock", lambda: NOW_US / 1e6)
    await service.handle(topics.batches("p"), batch(1, 2 * NOW_US, watermark=1_000))
    versions = RelationVersions(tmp_path / "relations" / "r@1")
    for row in (1, 2):
        rows = pl.DataFrame({"x": [row]})
        versions.prepare(rows)
        versions.commit(rows, service.ingest.instants())
    begins_us = versions.version(2).begins_us["traffic"]
    assert begins_us <= NOW_US + 60_000_001, "a tuple of tomorrow meets the second version"


async def test_a_proxy_whose_clock_is_wrong_is_reported_and_its_batches_are_accepted(service: Service) -> None:
    now_us = round(time.time() * 1e6)
    payload = encode(ProxyClock(1, "p", now_us + 3_600_000_000))
    await service.handle(topics.proxy_clock("p"), payload)
    assert service.ingest.proxy_clocks.faults == {"p": "ahead"}
    await service.handle(topics.batches("p"), batch(1, 10, watermark=20))
    await service.ingest.writers["traffic"].commit()
    assert stored(service) == [10]
    await service.handle(topics.proxy_status("p"), b"")
    assert service.ingest.proxy_clocks.faults == {}


async def test_the_last_report_of_each_spool_is_kept(service: Service) -> None:
    for batches, waits_us in ((3, 5_000_000), (2, 1_500_000)):
        await service.handle(topics.proxy_spool("p"), encode(ProxySpool(1, "p", batches, 1_000, waits_us)))
    await service.handle(topics.proxy_spool("r"), encode(ProxySpool(1, "r", 0, 0)))
    await service.handle(topics.proxy_spool("q"), encode(ProxySpool(1, "p", 9, 9)))
    kept = topics.proxy_spool("q")
    payload = encode(ProxySpool(1, "q", 9, 9))
    service.ingest.handle(Message(kept, payload, retain=True), topics.parse(kept))
    found = service.ingest.proxy_spools.all()
    assert {name: (each.report.batches, each.report.bytes, each.waits_seconds) for name, each in found.items()} == {
        "p": (2, 1_000, 1.5),
        "r": (0, 0, None),
    }
    assert service.ingest.rejected == {"identity": 1, "retained": 1}


def test_spools_of_proxies_beyond_the_limit_are_ignored() -> None:
    spools = ProxySpools(max_proxies=1)
    for proxy in ("p", "q", "p"):
        spools.note(ProxySpool(1, proxy, 7, 7), 0)
    assert set(spools.all()) == {"p"}


def test_status_and_metrics_show_the_spools_of_proxies(tmp_path: Path) -> None:
    server = ClusterServer(ClusterSettings(folder=tmp_path))
    try:
        server.parts.ingest.proxy_spools.note(ProxySpool(1, "p", 3, 1_024, 2_500_000, 65_536), 1_000_000)
        assert status_of(server.parts)["proxy_spools"] == {
            "p": {
                "online": False,
                "batches": 3,
                "bytes": 1_024,
                "file_bytes": 65_536,
                "waits_seconds": 2.5,
                "heard": "1970-01-01T00:00:01.000000Z",
            }
        }
        shown = generate_latest(server.metrics.registry).decode()
    finally:
        server.close()
    assert all(
        line in shown
        for line in (
            'fjord_spooled_batches{proxy="p"} 3.0',
            'fjord_spooled_bytes{proxy="p"} 1024.0',
            'fjord_spooled_seconds{proxy="p"} 2.5',
        )
    )


async def test_clocks_of_other_proxies_and_retained_ones_are_rejected(service: Service) -> None:
    payload = encode(ProxyClock(1, "q", 2**60))
    await service.handle(topics.proxy_clock("p"), payload)
    topic = topics.proxy_clock("q")
    service.ingest.handle(Message(topic, payload, retain=True), topics.parse(topic))
    assert service.ingest.rejected == {"identity": 1, "retained": 1}
    assert not service.ingest.proxy_clocks.behind_us
