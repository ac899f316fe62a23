"""Streams are declared before a proxy offers them, derived, and dropped when nothing uses them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.errors import StorageError
from cluster.language.catalog import CatalogError
from cluster.language.errors import FjordSqlError
from cluster.service.catalog.stream_service import StreamService
from cluster.storage.stream_tables import open_stream_tables
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.service.conftest import Service

BUSY = "CREATE STREAM busy AS SELECT sensor, COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor"
WEATHER = "CREATE STREAM weather (sensor TEXT FIXED, wind REAL UNIT 'mph', ts TIMESTAMP) SOURCE mqtt() ORDERED BY ts"
WEATHER_SCHEMA = StreamSchema(
    "weather", (Field("sensor", FieldType.TEXT, fixed=True), Field("wind", FieldType.REAL, "mph"))
)


def streams(service: Service) -> StreamService:
    return service.queries.streams


def restarted(service: Service) -> StreamService:
    return service.started().streams


async def test_a_derived_stream_means_its_text(service: Service) -> None:
    assert await streams(service).execute(BUSY) == "busy"
    derived, _ = await service.queries.add("SELECT sensor FROM busy WHERE cars > 100")
    written_out, _ = await service.queries.add(
        "SELECT sensor FROM (SELECT sensor, COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor) b "
        "WHERE cars > 100"
    )
    assert derived.node == written_out.node
    assert derived.reads >= {"busy"}


async def test_a_stream_in_use_is_not_dropped(service: Service) -> None:
    await streams(service).execute(BUSY)
    await streams(service).execute("CREATE STREAM busiest AS SELECT MAX(cars) AS cars FROM busy")
    query, _ = await service.queries.add("SELECT cars FROM busiest")
    with pytest.raises(CatalogError, match=f"'busiest' is in use by {query.name}"):
        await streams(service).execute("DROP STREAM busiest")
    with pytest.raises(CatalogError, match="'busy' is in use by busiest"):
        await streams(service).execute("DROP STREAM Busy")
    with pytest.raises(CatalogError, match="'traffic' is in use by busy, q1"):
        await streams(service).drop("traffic")
    await service.queries.drop(query.name)
    assert await streams(service).execute("DROP STREAM busiest") == "busiest"
    assert await streams(service).execute("DROP STREAM busy") == "busy"
    assert streams(service).derived == []


async def test_a_stream_is_known_before_any_proxy_offers_it(service: Service) -> None:
    await streams(service).execute(WEATHER)
    await service.queries.add("SELECT wind FROM weather WHERE wind > 20", "windy")
    stamped, _ = await service.queries.add("SELECT ts, wind FROM weather", "stamped")
    assert stamped.name == "stamped"
    await service.handle(topics.stream_offer("p", "weather"), encode(StreamOffer(1, "p", WEATHER_SCHEMA)))
    assert service.ingest.rejected == {}
    assert service.ingest.schemas["weather"] == WEATHER_SCHEMA


async def test_an_offer_that_does_not_fit_is_rejected_and_kept(service: Service) -> None:
    await streams(service).execute(WEATHER)
    other = StreamSchema("weather", (Field("sensor", FieldType.TEXT, fixed=True), Field("wind", FieldType.TEXT)))
    await service.handle(topics.stream_offer("p", "weather"), encode(StreamOffer(1, "p", other)))
    assert service.ingest.rejected == {"schema": 1}
    assert service.registry.quarantine.newest()[0].kind == "stream_offer"
    assert service.ingest.schemas["weather"] == WEATHER_SCHEMA


async def test_only_the_named_proxy_feeds_a_stream(service: Service) -> None:
    await streams(service).execute(WEATHER.replace("mqtt()", "mqtt('harbour')"))
    await service.handle(topics.stream_offer("p", "weather"), encode(StreamOffer(1, "p", WEATHER_SCHEMA)))
    assert service.ingest.rejected == {"identity": 1}
    await service.handle(topics.stream_offer("harbour", "weather"), encode(StreamOffer(1, "harbour", WEATHER_SCHEMA)))
    assert service.ingest.rejected == {"identity": 1}


async def test_a_base_stream_is_dropped_with_its_table_once_no_proxy_feeds_it(service: Service, tmp_path: Path) -> None:
    online = encode(Status(1, "p", Presence.ONLINE, "e", 0))
    offline = encode(Status(1, "p", Presence.OFFLINE, "e", 0))
    await service.handle(topics.proxy_status("p"), online)
    assert "traffic" in open_stream_tables(tmp_path / "streams")
    with pytest.raises(CatalogError, match="fed by proxy p") as caught:
        await streams(service).drop("traffic")
    assert "stop the proxy" in str(caught.value.hint)
    await service.handle(topics.proxy_status("p"), offline)
    await streams(service).drop("traffic")
    assert "traffic" not in service.ingest.schemas
    assert "traffic" not in open_stream_tables(tmp_path / "streams")
    with pytest.raises(CatalogError, match="no stream 'traffic' to drop"):
        await streams(service).drop("traffic")


async def test_created_streams_outlive_a_restart(service: Service) -> None:
    for text in (WEATHER, BUSY, "CREATE STREAM calm AS SELECT sensor FROM weather WHERE wind < 5"):
        await streams(service).execute(text)
    await streams(service).execute("DROP STREAM busy")
    again = restarted(service)
    assert sorted(again.catalog().names) == ["calm", "traffic", "weather"]
    with pytest.raises(CatalogError, match="already a stream 'calm'"):
        await again.execute("CREATE STREAM Calm AS SELECT sensor FROM traffic")


@pytest.mark.parametrize(
    ("text", "offending", "column"),
    [
        ("CREATE STREAM kafka (x REAL) SOURCE kafka()", "kafka", 37),
        ("CREATE STREAM a (x REAL) SOURCE mqtt('a', 'b')", "mqtt('a', 'b'", 33),
    ],
)
async def test_a_bad_source_is_underlined_where_it_stands(
    service: Service, text: str, offending: str, column: int
) -> None:
    with pytest.raises(FjordSqlError) as caught:
        await streams(service).execute(text)
    assert (caught.value.offending, caught.value.column) == (offending, column)


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("SELECT sensor FROM traffic", "a declaration was expected", "fjord query add"),
        ("CREATE STREAM a (x REAL) SOURCE kafka()", "no source 'kafka'", "mqtt"),
        ("CREATE STREAM a (x REAL) SOURCE mqtt(1)", "at most the name of the proxy", "roadside"),
        ("CREATE STREAM a AS SELECT x FROM nowhere", "no stream 'nowhere'", "traffic"),
        ("CREATE STREAM a AS SELECT sped FROM traffic", "no column 'sped'", "speed"),
    ],
)
async def test_a_bad_declaration_is_refused_with_the_reason_and_changes_nothing(
    service: Service, text: str, reason: str, hint: str
) -> None:
    before = streams(service).catalog().names
    with pytest.raises(FjordSqlError, match=reason) as caught:
        await streams(service).execute(text)
    assert hint in str(caught.value.hint)
    assert streams(service).catalog().names == before
    assert service.registry.streams.statements() == {}


async def test_a_name_can_be_used_only_once(service: Service) -> None:
    with pytest.raises(CatalogError, match="already a stream 'traffic'"):
        await streams(service).execute("CREATE STREAM TRAFFIC (x REAL) SOURCE mqtt()")
    with pytest.raises(StorageError, match="other fields"):
        service.ingest.declare(StreamSchema("traffic", (Field("x", FieldType.REAL),)))


async def test_a_declaration_is_no_query(service: Service) -> None:
    with pytest.raises(FjordSqlError, match="not a declaration") as caught:
        await service.queries.add(BUSY)
    assert "fjord stream create" in str(caught.value.hint)
