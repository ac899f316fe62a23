"""A cluster service without Spark and without a broker: what the HTTP API and the registry do on their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.ingest.service import Ingest
from cluster.physical.plan_files import PlanFiles
from cluster.service.query_service import QueryService
from cluster.service.registry.registry import Registry
from cluster.storage.stream_tables import arrow_schema
from protocols.mqtt.link import LinkError, Message
from protocols.wire import topics
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("lane", FieldType.INTEGER),
    ),
)


def traffic_rows(stamps: list[int]) -> pa.Table:
    """Return rows of :data:`TRAFFIC` as they are stored, which differ in their stamps alone."""
    count = len(stamps)
    columns = {
        "fjord_start_us": stamps,
        "fjord_mote": ["m"] * count,
        "fjord_default_rate": [True] * count,
        "sensor": ["a"] * count,
        "speed": [1.0] * count,
        "lane": [1] * count,
    }
    return arrow_schema(TRAFFIC).empty_table().from_pydict(columns, arrow_schema(TRAFFIC))


@dataclass
class FakeLink:
    """Takes what is published, or refuses it as a broker that is away does."""

    published: list[Message] = field(default_factory=list)
    away: bool = False

    async def publish(self, message: Message) -> None:
        if self.away:
            raise LinkError("not connected to the broker")
        self.published.append(message)


@dataclass
class Service:
    registry: Registry
    ingest: Ingest
    queries: QueryService
    link: FakeLink
    plans: PlanFiles
    handle: Callable[[str, bytes], Awaitable[None]]


@pytest.fixture
async def service(tmp_path: Path) -> Service:
    plans = PlanFiles(tmp_path / "plans")
    registry = Registry(tmp_path / "registry.sqlite", plans, max_queries=5)
    ingest = Ingest(tmp_path / "streams", quarantine=registry.quarantine)
    link = FakeLink()
    ingest.attach(link)  # type: ignore[arg-type]

    async def handle(topic: str, payload: bytes) -> None:
        await ingest.handle(Message(topic, payload), topics.parse(topic))

    await handle(topics.stream_offer("p", "traffic"), encode(StreamOffer(1, "p", TRAFFIC)))
    queries = QueryService("cluster", registry, ingest, link)  # type: ignore[arg-type]
    return Service(registry, ingest, queries, link, plans, handle)
