"""The catalog of sensors as a built-in relation."""

from __future__ import annotations

import polars as pl
import pytest
from structlog.testing import capture_logs

from cluster.language.catalog import CatalogError
from cluster.operators.columns import Column
from cluster.relations.source import Limits
from cluster.service.catalog.relation_store import SensorsSource
from cluster.service.catalog.sensor_catalog import Connected, EntryPublished, SensorCatalog, sensors_relation
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.wire.streams import FieldType
from tests.cluster.service.energy_cases import entry
from tests.cluster.service.relation_cases import Relations

QUERY = "SELECT t.speed, s.segment FROM traffic AS t, sensors AS s WHERE t.sensor = s.sensor AND s.battery < 0.2"


class Motes:
    """The content of the catalog."""

    def __init__(self):
        self.table = pl.DataFrame({"sensor": ["a"], "battery": [0.1]})
        self.source = SensorsSource(lambda: self.table)

    def gain(self, **columns):
        self.table = self.table.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


@pytest.fixture
def motes():
    return Motes()


@pytest.fixture
def relations(service, tmp_path, motes):
    return Relations(service, tmp_path / "relations", sensors=motes.source)


async def test_the_relation_is_built_in_and_cannot_be_dropped(relations, motes):
    motes.gain(segment=[3])
    await relations.passes(0)
    (shown,) = relations.queries.relations.all()
    assert (shown["name"], shown["source"], shown["rows"], shown["text"]) == ("sensors", "catalog:sensors", 1, None)
    with pytest.raises(CatalogError, match="is built in"):
        await relations.queries.relations.drop("sensors")
    with pytest.raises(CatalogError, match="already a relation 'sensors'"):
        await relations.create("CREATE RELATION Sensors FROM 'a.csv' REFRESH EVERY 5 SECONDS")


async def test_a_query_of_the_relation_begins_with_the_present_sensors(relations, motes):
    motes.gain(segment=[3])
    await relations.passes(0)
    motes.gain(segment=[4])
    query, _ = await relations.queries.add(QUERY)
    assert isinstance(query, RegisteredQuery)
    sensors = relations.store.find("sensors")
    assert pl.read_parquet(sensors.versions.snapshot(sensors.last.number))["segment"].to_list() == [4]


async def test_versions_are_made_only_while_a_query_reads_the_relation(relations, motes):
    motes.gain(segment=[3])
    await relations.passes(0)
    for value in range(5):
        motes.gain(segment=[value])
        await relations.passes(30)
    assert relations.store.find("sensors").last.number == 1
    await relations.queries.add(QUERY)
    for value in range(10, 13):
        motes.gain(segment=[value])
        await relations.passes(30)
    assert relations.store.find("sensors").last.number == 5


async def test_properties_become_columns_that_are_never_removed(relations, motes):
    await relations.passes(0)
    motes.gain(segment=[3])
    await relations.passes(30)
    await relations.queries.add(QUERY)
    motes.table = pl.DataFrame({"sensor": ["a"], "battery": [0.1], "color": ["red"]})
    await relations.passes(30)
    sensors = relations.store.find("sensors")
    assert [column.name for column in sensors.columns] == ["sensor", "battery", "segment", "color"]
    assert sensors.source.rows(sensors.columns).rows() == [("a", 0.1, None, "red")]
    relations.sensors = SensorsSource(lambda: motes.table.select("sensor"))
    relations.start()
    again = relations.store.find("sensors")
    assert [column.name for column in again.columns] == ["sensor", "battery", "segment", "color"]


def test_a_property_keeps_its_first_type(motes):
    motes.gain(segment=[3])
    assert motes.source.schema()[2] == Column("segment", FieldType.INTEGER)
    motes.gain(segment=["4"])
    assert motes.source.rows(motes.source.schema())["segment"].to_list() == [4]
    motes.gain(segment=["north"])
    assert motes.source.rows(motes.source.schema())["segment"].to_list() == [None]


async def test_after_a_restart_sensors_do_not_seem_removed(service, tmp_path):
    catalog, now = SensorCatalog(), [100.0]
    source = SensorsSource(
        lambda: sensors_relation(*catalog.snapshot()),
        connected_at=lambda: catalog.connected_at,
        clock=lambda: (catalog.connected_at or 0.0) + now[0],
    )
    relations = Relations(service, tmp_path / "relations", sensors=source)
    catalog.apply(EntryPublished(entry("a")))
    query, _ = await relations.queries.add(QUERY.replace("s.segment", "s.type"), "low")
    assert relations.queries.waiting.state(query).startswith(
        "waiting for relation sensors (the cluster has just connected"
    )
    catalog.apply(Connected())
    catalog.apply(EntryPublished(entry("a")))
    await relations.passes(30)
    assert relations.queries.waiting.all() == []
    now[0] = 3.0
    catalog.apply(Connected())
    await relations.passes(30)
    shown = relations.queries.relations.describe(relations.store.find("sensors"))
    assert (shown["rows"], shown["state"]) == (1, "stale")
    now[0] = 11.0
    await relations.passes(30)
    assert relations.store.find("sensors").last.rows == 0


async def test_a_settling_catalog_is_logged_as_information_and_a_failure_as_a_warning(service, tmp_path, motes):
    connected_at, limits = [None], Limits(max_rows=0)
    source = SensorsSource(lambda: motes.table, limits=limits, connected_at=lambda: connected_at[0], clock=lambda: 11.0)
    relations = Relations(service, tmp_path / "relations", sensors=source)
    with capture_logs() as logs:
        await relations.passes(30)
        connected_at[0] = 10.0
        await relations.passes(30)
    assert [each["log_level"] for each in logs] == ["info"]
    connected_at[0] = 0.0
    with capture_logs() as logs:
        await relations.passes(30)
        await relations.passes(30)
    assert [each["log_level"] for each in logs] == ["warning"]


async def test_a_stream_of_the_same_name_keeps_it(relations, service):
    from protocols.wire.streams import Field, StreamSchema

    service.ingest.declare(StreamSchema("sensors", (Field("a", FieldType.REAL),)))
    await relations.passes(0)
    query, _ = await relations.queries.add("SELECT a FROM sensors")
    assert isinstance(query, RegisteredQuery)


async def test_the_catalog_can_be_a_relation_of_another_name_too(service, tmp_path, motes):
    from cluster.service.catalog.relation_store import RelationStore

    store = RelationStore(service.registry.relations, tmp_path / "relations", sensors=motes.source)
    queries = service.started(store)
    shown = await queries.relations.execute("CREATE RELATION weak FROM 'catalog:sensors' REFRESH EVERY 5 SECONDS")
    assert ([column["name"] for column in shown["columns"]], shown["rows"]) == (["sensor", "battery"], 1)
