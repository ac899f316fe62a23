"""Offers of proxies against declarations: which proxies feed a stream, and where mismatches are shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import msgpack
import polars as pl
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from cluster.ingest.offers import Declaration, Offers
from cluster.ingest.service import Ingest
from cluster.language.catalog import CatalogError
from cluster.service.billing.energy_report import RefusedPart
from cluster.service.catalog.sensor_catalog import Connected, EntryPublished, EntryRemoved, ProxyChanged
from cluster.service.catalog.sensors_command import app as sensors_command
from cluster.service.catalog.stream_command import stream as stream_command
from cluster.service.client.api_client import ApiClient
from cluster.service.http.metrics import ClusterMetrics
from cluster.service.http.query_routes import energy_answer
from cluster.service.query_command import query
from protocols.errors import FrameError
from protocols.wire import topics
from protocols.wire.batches import Ack, Batch, Resumption, decode_ack, decode_batch, encode_batch, make_columns
from protocols.wire.catalog import Presence, Status, StreamOffer
from protocols.wire.demands import decode_demand
from protocols.wire.frames import encode
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.conftest import application
from tests.cluster.service.driven_devices import device
from tests.cluster.service.energy_cases import entry

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
SENSOR = Field("sensor", TEXT, fixed=True)
LANE, OCC, SPEED = Field("lane", INTEGER), Field("occ", REAL), Field("speed", REAL, "mph")
ROADS = "CREATE STREAM roads (sensor TEXT FIXED, lane INTEGER, occ REAL, speed REAL) SOURCE mqtt()"
WRONG = ROADS.replace("lane INTEGER", "lane REAL")
ANNOUNCED = StreamSchema("roads", (SENSOR, SPEED, LANE, OCC))
VALUES: dict[str, Any] = {"sensor": "s", "speed": 66.5, "lane": 3, "occ": 0.25}
REASON = "lane is declared as REAL and offered as INTEGER"


def schema_of(*fields):
    return StreamSchema("roads", fields)


async def offer(service, schema=ANNOUNCED, proxy="north"):
    await service.handle(topics.stream_offer(proxy, schema.name), encode(StreamOffer(1, proxy, schema)))


async def presence(service, proxy, state=Presence.ONLINE):
    service.sensors.apply(ProxyChanged(proxy, online=state is Presence.ONLINE))
    await service.handle(topics.proxy_status(proxy), encode(Status(1, proxy, state, "e", 0)))


def batch(sequence, *starts, schema=ANNOUNCED, proxy="north", watermark=0, sampling=True):
    count = len(starts)
    values = {field.name: [VALUES.get(field.name.lower())] * count for field in schema.fields}
    columns = make_columns(schema, list(starts), ["m"] * count, [True] * count, values)
    return encode_batch(Batch(1, proxy, "e", schema.name, sequence, watermark, sampling, count, columns))


async def send(service, *args, **options):
    await service.handle(topics.batches(options.get("proxy", "north")), batch(*args, **options))


async def commit(service):
    await service.ingest.writers["roads"].commit()


def acks(service, proxy="north") -> list[Ack]:
    return [decode_ack(each.payload) for each in service.link.published if each.topic == topics.acks(proxy)]


def stored(service) -> list[dict[str, Any]]:
    rows = pl.read_delta(service.ingest.writers["roads"].table.root).sort("fjord_start_us")
    return rows.select(pl.exclude("fjord_mote", "fjord_default_rate")).to_dicts()


def counters(service):
    return service.ingest.writers["roads"].admission.counters


async def declared(service, text=ROADS):
    assert await service.queries.streams.execute(text) == "roads"


def demand(service):
    published = [each.payload for each in service.link.published if each.topic == topics.demand("roads")]
    return decode_demand(published[-1])


# --- columns match by name ---


async def test_samples_of_columns_in_another_order_are_stored_under_their_names(service):
    await declared(service)
    await offer(service)
    await send(service, 1, 10, 20, watermark=30)
    await commit(service)
    assert [(each.through, each.rejected) for each in acks(service)] == [(1, ())]
    assert stored(service) == [{"fjord_start_us": start, **VALUES} for start in (10, 20)]
    assert service.ingest.rejected == {}


async def test_columns_that_are_not_declared_are_not_stored(service):
    await declared(service, "CREATE STREAM roads (SPEED REAL) SOURCE mqtt()")
    await offer(service)
    await send(service, 1, 10)
    await commit(service)
    assert stored(service) == [{"fjord_start_us": 10, "SPEED": 66.5}]
    (found,) = service.ingest.offers.of("roads")
    assert (found.fits, found.ignored) == (True, ("sensor", "lane", "occ"))


async def test_a_demand_carries_the_declaration_of_its_stream(service):
    await declared(service, ROADS.replace("mqtt()", "mqtt('north')"))
    await service.queries.add("SELECT speed FROM roads", "q")
    found = demand(service)
    assert found.declared == service.ingest.schemas["roads"]
    assert found.declared.field_names == ("sensor", "lane", "occ", "speed")
    assert (found.only, [each.fields for each in found.demands]) == ("north", [("speed",)])


async def test_a_second_proxy_may_offer_more_and_in_another_order(service):
    await offer(service)
    await offer(service, schema_of(OCC, Field("weather", TEXT), LANE, Field("speed", REAL), SENSOR), "south")
    assert [each.fits for each in service.ingest.offers.of("roads")] == [True, True]
    assert service.ingest.schemas["roads"] == ANNOUNCED


# --- a mismatch ---


async def test_a_mismatch_concerns_its_proxy_only_and_its_samples_wait_until_it_is_corrected(service):
    await declared(service, WRONG)
    await offer(service)
    right = schema_of(SENSOR, Field("lane", REAL), OCC, SPEED)
    await offer(service, right, "south")
    for sequence in (1, 2, 3, 1):
        await send(service, sequence, 10 * sequence)
    await send(service, 1, 5, schema=right, proxy="south")
    await commit(service)
    assert acks(service) == []
    assert [each.through for each in acks(service, "south")] == [1]
    assert [each["fjord_start_us"] for each in stored(service)] == [5]
    assert (counters(service).held, counters(service).gaps, counters(service).rejected) == (4, 0, 0)
    assert service.ingest.rejected == {"schema": 1}
    kinds = [(each.kind, REASON in each.reason) for each in service.registry.quarantine.newest()]
    assert kinds == [("batch", True), ("stream_offer", True)], "once, however often it is sent"


async def test_a_batch_that_only_moves_the_watermark_is_accepted_from_any_proxy(service):
    await declared(service, WRONG)
    await offer(service)
    await send(service, 1, watermark=70, sampling=False)
    await commit(service)
    assert [each.through for each in acks(service)] == [1]
    assert service.ingest.writers["roads"].admission.watermark_us == 70


async def test_a_proxy_whose_samples_wait_does_not_hold_back_the_watermark(service):
    admission = (await fed_by_two(service)).admission
    assert admission.watermark_us == 100
    await offer(service, schema_of(SENSOR, Field("lane", TEXT), OCC, SPEED))
    await send(service, 2, 200, schema=schema_of(SENSOR, Field("lane", TEXT), OCC, SPEED), watermark=300)
    admission.time_passed({"north", "south"}, 1e9, counted_seconds=1.0)
    await send(service, 2, proxy="south", watermark=500)
    assert admission.watermark_us == 500


async def fed_by_two(service):
    await declared(service)
    for proxy in ("north", "south"):
        await offer(service, proxy=proxy)
        await send(service, 1, 50, proxy=proxy, watermark=100)
    await commit(service)
    return service.ingest.writers["roads"]


async def test_samples_of_an_older_offer_are_matched_by_their_own_columns(service):
    """The proxy wrote two batches, then its motes announced other columns, then the cluster was restarted."""
    await declared(service)
    await offer(service, schema_of(SENSOR, SPEED, Field("lane", TEXT), OCC))
    await send(service, 1, 10)
    await send(service, 2, 20, schema=schema_of(OCC, LANE, SPEED, SENSOR))
    await commit(service)
    assert [each.through for each in acks(service)] == [2]
    assert stored(service) == [{"fjord_start_us": start, **VALUES} for start in (10, 20)]


async def test_samples_in_another_unit_are_recognised_by_the_batch(service):
    await declared(service, ROADS.replace("speed REAL", "speed REAL UNIT 'mph'"))
    metric = schema_of(SENSOR, Field("speed", REAL, "km/h"), LANE, OCC)
    await offer(service, metric)
    await send(service, 1, 10)
    await send(service, 2, 20, schema=metric)
    await commit(service)
    assert [each.through for each in acks(service)] == [1]
    assert [each["fjord_start_us"] for each in stored(service)] == [10]


async def test_once_the_offer_is_corrected_batches_that_never_fit_are_rejected(service):
    wrong = schema_of(SENSOR, SPEED, Field("lane", TEXT), OCC)
    await declared(service)
    await offer(service, wrong)
    await send(service, 1, 10, 11, schema=wrong)
    await offer(service)
    for sequence in (1, 2):
        await send(service, sequence, 10 * sequence, schema=wrong if sequence == 1 else ANNOUNCED)
    await commit(service)
    (ack,) = acks(service)
    assert ack.through == 2
    (rejected,) = ack.rejected
    assert "lane is declared as INTEGER and offered as TEXT" in rejected.reason
    assert [each["fjord_start_us"] for each in stored(service)] == [20]
    assert (counters(service).rejected, counters(service).rejected_rows) == (1, 1)


async def test_once_the_declaration_is_corrected_waiting_samples_are_stored(service):
    await declared(service, WRONG)
    await offer(service)
    await presence(service, "north")
    await send(service, 1, 10)
    await service.queries.streams.execute("DROP STREAM roads")
    assert service.ingest.offers.mismatches == {}
    await declared(service)
    assert [each.fits for each in service.ingest.offers.of("roads")] == [True], "the offer is kept"
    await send(service, 1, 10)
    await commit(service)
    assert [each.through for each in acks(service)] == [1]
    assert [each["fjord_start_us"] for each in stored(service)] == [10]


async def test_a_stream_that_is_created_again_goes_on_with_its_proxies_sequence_numbers(service, tmp_path):
    """Proxies have deleted the batches that were stored before the stream was dropped: they never come again."""
    await declared(service)
    await offer(service)
    await send(service, 1, 10)
    await send(service, 2, 20)
    await commit(service)
    await service.queries.streams.drop("roads")
    await service.queries.streams.execute("CREATE STREAM roads (speed REAL) SOURCE mqtt()")
    await send(service, 3, 30)
    await commit(service)
    assert [each.through for each in acks(service)] == [2, 3]
    assert stored(service) == [{"fjord_start_us": 30, "speed": 66.5}]
    # Also after a second drop, with a restart of the cluster in between.
    await service.queries.streams.drop("roads")
    again = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep)
    again.declare(schema_of(SPEED))
    assert again.writers["roads"].table.last_sequence("north", "e") == 3
    assert Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep).writers[
        "roads"
    ].table.sequences() == {("north", "e"): 3}


async def test_a_stream_can_be_dropped_while_only_mismatching_proxies_are_online(service):
    await declared(service, WRONG)
    await offer(service)
    await presence(service, "north")
    assert service.ingest.feeding("roads") == set()
    await service.queries.streams.drop("roads")
    await declared(service)
    with pytest.raises(CatalogError, match="fed by proxy north"):
        await service.queries.streams.drop("roads")


async def test_a_withdrawn_offer_is_not_a_mismatch(service):
    await declared(service, WRONG)
    await offer(service)
    await service.handle(topics.stream_offer("north", "roads"), b"")
    assert (service.ingest.offers.of("roads"), service.ingest.offers.mismatches) == ((), {})


async def test_a_restarted_cluster_checks_offers_against_declarations(service, tmp_path):
    await declared(service, WRONG)
    again = Ingest(tmp_path / "streams", quarantine=service.registry.quarantine.keep)
    judged = again.offers.put(StreamOffer(1, "north", ANNOUNCED))
    assert judged is not None
    assert judged.reason == REASON


# --- other rejections ---


async def test_only_batches_of_the_named_proxy_are_stored(service):
    await declared(service, ROADS.replace("mqtt()", "mqtt('harbour')"))
    await offer(service)
    await send(service, 1, 10)
    await commit(service)
    assert service.ingest.rejected == {"identity": 2}
    assert stored(service) == []
    assert acks(service) == []
    assert service.ingest.offers.mismatches == {("north", "roads"): "it was created to be fed by proxy harbour only"}


async def test_a_name_that_differs_in_case_is_one_name_for_queries_and_two_for_topics(service):
    assert await service.queries.streams.execute(ROADS.replace("roads", "Roads")) == "Roads"
    await offer(service)
    assert service.ingest.schemas.keys() == {"traffic", "Roads"}
    assert service.ingest.rejected == {"schema": 1}
    (found,) = service.ingest.offers.of("Roads")
    assert "declared as Roads and offered as roads" in found.reason
    query, _ = await service.queries.add("SELECT speed FROM roads")
    assert query.reads == {"Roads"}


async def test_a_proxy_cannot_take_the_name_of_a_derived_stream(service):
    await service.queries.streams.execute("CREATE STREAM busy AS SELECT sensor FROM traffic WHERE speed > 1")
    for name in ("busy", "Busy"):
        await offer(service, StreamSchema(name, (SPEED,)))
    assert service.ingest.rejected == {"identity": 2}
    assert "derived stream 'Busy'" in service.registry.quarantine.newest()[0].reason
    await service.queries.add("SELECT sensor FROM busy")


def raw_offer(*fields):
    return msgpack.packb([1, "north", ["roads", list(fields)]])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (raw_offer(["speed", "real", "", False], ["speed", "real", "", False]), "two fields named 'speed'"),
        (raw_offer(["speed", "real", "", False], ["Speed", "text", "", False]), "two fields named 'Speed'"),
        (raw_offer(["fjord_speed", "real", "", False]), "reserved name"),
        (raw_offer(["FJORD_x", "real", "", False]), "reserved name"),
        (raw_offer(["tempo-1", "real", "", False]), "matching regex"),
        (raw_offer(["x" * 65, "real", "", False]), "length <= 64"),
        (raw_offer(["speed", "decimal", "", False]), "decimal"),
        (raw_offer(["speed", "real", "m" * 33, False]), "length <= 32"),
        (raw_offer(), "length >= 1"),
        (raw_offer(*([f"c{n}", "real", "", False] for n in range(257))), "length <= 256"),
        (raw_offer(*([f"column_{n}", "real", "mph", False] for n in range(10_000))), "the limit is 65,536"),
    ],
)
async def test_a_malformed_offer_is_counted_and_quarantined(service, payload, reason):
    await service.handle(topics.stream_offer("north", "roads"), payload)
    assert sum(service.ingest.rejected.values()) == 1
    assert reason in service.registry.quarantine.newest()[0].reason
    assert "roads" not in service.ingest.schemas


def raw_batch(change):
    """A good batch as proxies of earlier versions send it, changed on the wire."""
    frame = msgpack.unpackb(encode(decode_batch(batch(1, 10, 20))))
    change(next(each for each in frame if isinstance(each, list)))
    return msgpack.packb(frame)


def raw_packed_batch(change):
    """A good batch whose description is changed on the wire, and with it what its buffer holds."""
    frame = msgpack.unpackb(batch(1, 10, 20))
    columns = msgpack.unpackb(frame[8])
    change(columns)
    frame[8] = msgpack.packb(columns)
    return msgpack.packb(frame)


def named(place, name):
    return lambda columns: columns[place].__setitem__(0, name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (named(4, "tempo-1"), "no column can have this name"),
        (named(4, "x" * 97), "length <= 96"),
        (lambda columns: columns[4].__setitem__(1, "decimal"), "decimal"),
        (lambda columns: columns[4].__setitem__(5 if len(columns[4]) == 6 else 2, "m" * 33), "length <= 32"),
        (lambda columns: columns.extend([["c", "real"]] * 10_000), "length <= 1600"),
    ],
)
@pytest.mark.parametrize("raw", [raw_batch, raw_packed_batch])
async def test_a_batch_that_cannot_be_decoded_is_counted_and_left_to_its_proxy(service, change, reason, raw):
    await declared(service)
    await offer(service)
    await service.handle(topics.batches("north"), raw(change))
    assert service.ingest.rejected == {"shape": 1}
    assert reason in service.registry.quarantine.newest()[0].reason
    assert acks(service) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (named(4, "LANE"), "two columns 'lane'"),
        (named(4, "fjord_speed"), "a column 'fjord_speed' that no stream has"),
        (named(0, "fjord_begin"), "a column 'fjord_begin' that no stream has"),
        (lambda columns: columns.pop(1), "should have a column 'fjord_mote' of text and has none"),
        (lambda columns: columns[2].__setitem__(2, b"\0\1"), "a sample without fjord_default_rate"),
    ],
)
@pytest.mark.parametrize("offered", [True, False])
async def test_a_batch_that_can_never_fit_is_rejected_with_the_reason_and_counted(service, change, reason, offered):
    await declared(service)
    if offered:
        await offer(service)
    await service.handle(topics.batches("north"), raw_batch(change))
    await send(service, 2, 30)
    await commit(service)
    (ack,) = acks(service)
    assert ack.through == 2
    assert [(each.sequence, reason in each.reason) for each in ack.rejected] == [(1, True)]
    assert (counters(service).rejected, counters(service).rejected_rows) == (1, 2)
    assert reason in service.registry.quarantine.newest()[0].reason
    assert [each["fjord_start_us"] for each in stored(service)] == [30]


async def test_a_batch_without_units_is_checked_by_names_and_types(service):
    await declared(service, ROADS.replace("speed REAL", "speed REAL UNIT 'km/h'"))
    await offer(service)
    await service.handle(topics.batches("north"), raw_batch(lambda columns: [column.pop() for column in columns]))
    await commit(service)
    assert [each["speed"] for each in stored(service)] == [66.5, 66.5]


async def test_offers_are_bounded():
    offers = Offers(most=2)
    offers.declare(Declaration(ANNOUNCED))
    for proxy in ("a", "b", "b"):
        offers.put(StreamOffer(1, proxy, ANNOUNCED))
    with pytest.raises(FrameError, match="2 streams already"):
        offers.put(StreamOffer(1, "c", ANNOUNCED))
    offers.withdraw("a", "roads")
    offers.put(StreamOffer(1, "c", ANNOUNCED))
    assert [each.proxy for each in offers.of("ROADS")] == ["b", "c"]


# --- where mismatches are shown ---


@pytest.fixture
async def parts(service):
    await declared(service, WRONG)
    await offer(service)
    await presence(service, "north")
    service.sensors.apply(EntryPublished(entry("m1", stream="roads")))
    return service.parts()


@pytest.fixture
async def run(parts, monkeypatch):
    """The commands, each in a thread of its own, with this cluster."""
    loop = asyncio.get_running_loop()

    async def send(request):
        async with application(parts) as client_of_api:
            sent = {"content": request.content, "headers": request.headers}
            answered = await client_of_api.request(request.method, request.url, **sent)
            return httpx.Response(answered.status_code, content=answered.content, headers=answered.headers)

    def answer(request):
        return asyncio.run_coroutine_threadsafe(send(request), loop).result()

    def in_process(client, address, *, token=None, tls=None):
        client._address = address
        client._http = httpx.Client(base_url=address, transport=httpx.MockTransport(answer))

    monkeypatch.setattr(ApiClient, "__init__", in_process)
    monkeypatch.setenv("COLUMNS", "250")
    return lambda command, *arguments: asyncio.to_thread(CliRunner().invoke, command, list(arguments))


SENTENCE = f"proxy north does not feed stream roads, and its sensors are not asked: {REASON}"


async def test_adding_and_showing_a_query_names_proxies_that_do_not_feed_it(run, service):
    added = await run(query, "add", "SELECT speed FROM roads", "--name", "q")
    assert (added.exit_code, added.stderr.strip()) == (0, f"warning: {SENTENCE}")
    assert added.stdout.splitlines()[-1] == "q  fjord/v1/results/q"
    shown = await run(query, "show", "q")
    assert shown.stdout.splitlines()[-1] == f"mismatch  {SENTENCE}"
    (found,) = json.loads((await run(query, "show", "q", "--json")).stdout)["mismatches"]
    assert found == {"stream": "roads", "proxy": "north", "online": True, "reasons": [REASON]}
    await presence(service, "north", Presence.OFFLINE)
    assert "proxy north (offline) does not feed" in (await run(query, "show", "q")).stdout
    other = await run(query, "add", "SELECT speed FROM traffic", "--name", "other")
    assert other.stderr == ""


async def test_a_query_over_a_derived_stream_names_them_too(run, service):
    await service.queries.streams.execute("CREATE STREAM fast AS SELECT speed FROM roads WHERE speed > 50")
    assert SENTENCE in (await run(query, "add", "SELECT COUNT(*) FROM fast WINDOW(RANGE 1 MINUTE)")).stderr


async def test_streams_are_listed_with_mismatching_offers_and_rejected_samples(run, service):
    await send(service, 1, 10)
    listed = (await run(stream_command, "list")).stdout
    assert SENTENCE in listed
    assert "proxy north keeps samples that do not fit stream roads in its spool" in listed
    found = {each["name"]: each for each in json.loads((await run(stream_command, "list", "--json")).stdout)}
    assert found["roads"]["offers"] == [
        {"proxy": "north", "online": True, "fits": False, "reasons": [REASON], "ignored": [], "held": True}
    ]
    assert found["roads"]["rejected"] == {"batches": 0, "samples": 0, "reason": None}
    assert [each["fits"] for each in found["traffic"]["offers"]] == [True]
    await offer(service, schema_of(SENSOR, Field("lane", REAL), OCC, SPEED))
    await send(service, 1, 10, 11)
    listed = (await run(stream_command, "list")).stdout
    assert "2 samples of stream roads were rejected; the last: proxy 'north' sends stream 'roads' with" in listed
    assert SENTENCE not in listed
    await service.handle(topics.resumptions("north"), encode(Resumption(1, "north", "e", "traffic", 8)))
    await service.ingest.writers["traffic"].commit()
    assert "7 batches of stream traffic were stored and are lost" in (await run(stream_command, "list")).stdout


async def test_sensors_show_why_they_are_not_asked_for_samples(run, service):
    shown = (await run(sensors_command)).stdout
    assert "mismatch" in shown.splitlines()[0]
    assert REASON in shown.splitlines()[1]
    found = await run(sensors_command, "--sql", "SELECT sensor FROM sensors WHERE mismatch LIKE '%lane%'")
    assert found.stdout.split() == ["sensor", "m1"]
    await offer(service, schema_of(SENSOR, Field("lane", REAL), OCC, SPEED))
    assert "mismatch" not in (await run(sensors_command)).stdout


async def test_metrics_count_mismatches_held_batches_and_rejected_rows(parts, service):
    await send(service, 1, 10)
    registry = CollectorRegistry()
    ClusterMetrics(parts, registry)
    text = generate_latest(registry).decode()
    assert 'fjord_ingest_mismatches{stream="roads"} 1.0' in text
    assert 'fjord_ingest_mismatches{stream="traffic"} 0.0' in text
    assert 'fjord_ingest_batches_total{outcome="held",stream="roads"} 1.0' in text
    assert 'fjord_ingest_rejected_rows_total{stream="roads"} 0.0' in text


def explained(parts, sql):
    return energy_answer(sql, parts.queries, parts.ingest, parts.billing)


async def test_explain_energy_names_a_proxy_that_does_not_feed_the_stream(parts, service):
    text = "SELECT speed FROM roads SAMPLE EVERY 1 SECOND"
    answer = await explained(parts, text)
    assert answer.lines == ()
    assert answer.refused == (RefusedPart("roads", f"proxy north does not feed it: {REASON}"),)
    await offer(service, schema_of(SENSOR, Field("lane", REAL), OCC, SPEED))
    (line,) = (await explained(parts, text)).lines
    assert line.motes == 1


async def test_a_property_is_found_whatever_the_case_of_its_name(parts, service):
    await offer(service, schema_of(Field("SENSOR", TEXT, fixed=True), Field("lane", REAL), OCC, SPEED))
    parts.sensors.apply(EntryPublished(entry("m1", stream="roads", properties={"SENSOR": "s"})))
    text = "SELECT speed FROM roads SAMPLE EVERY 1 SECOND WHERE sensor = '{}'"
    assert len((await explained(parts, text.format("s"))).lines) == 1
    assert (await explained(parts, text.format("other"))).lines == ()


KNOWN = StreamSchema("air", (SENSOR, Field("pressure", REAL, "hPa")))


async def test_a_known_stream_whose_column_gets_another_unit_is_named_wherever_its_owner_looks(run, service):
    await offer(service, KNOWN)
    service.sensors.apply(EntryPublished(entry("m2", stream="air")))
    await run(query, "add", "SELECT pressure FROM air", "--name", "q")
    with capture_logs() as logged:
        await offer(service, StreamSchema("air", (SENSOR, Field("pressure", REAL, "kPa"))))
    reason = "pressure is declared as REAL UNIT 'hPa' and offered as REAL UNIT 'kPa'"
    assert any(reason in str(each) for each in logged)
    assert (
        f"mismatch  proxy north does not feed stream air, and its sensors are not asked: {reason}"
        in (await run(query, "show", "q")).stdout
    )
    assert reason in (await run(stream_command, "list")).stdout
    assert reason in (await run(sensors_command, "--where", "sensor = 'm2'")).stdout


async def test_what_keeps_messages_of_devices_from_their_stream_is_named_wherever_its_owner_looks(run, service):
    trouble = "temperature is offered in F by bridge 2.0, and was in C"
    with capture_logs() as logged:
        for _ in range(2):
            for mote in ("bell", "door", "gate", "well"):
                service.sensors.apply(EntryPublished(device(mote, stream="roads", trouble=trouble)))
    assert [each["device"] for each in logged] == ["bell", "door", "gate", "well"]
    assert {each["reason"] for each in logged} == {trouble}
    sentence = f"messages of 4 devices of proxy north (bell, door, gate, ...) do not get to stream roads: {trouble}"
    added = await run(query, "add", "SELECT speed FROM roads", "--name", "q")
    assert f"warning: {sentence}" in added.stderr
    assert f"trouble   {sentence}" in (await run(query, "show", "q")).stdout
    assert sentence in (await run(stream_command, "list")).stdout
    assert trouble in (await run(sensors_command)).stdout
    await run(query, "add", "SELECT speed FROM traffic", "--name", "other")
    assert "trouble" not in (await run(query, "show", "other")).stdout
    service.sensors.apply(EntryRemoved("north", "door"))
    service.sensors.apply(EntryPublished(device("bell", stream="roads")))
    service.sensors.apply(EntryPublished(device("gate", stream="traffic", trouble=trouble)))
    shown = (await run(query, "show", "q")).stdout
    assert "messages of 1 device of proxy north (well) do not get to stream roads" in shown
    service.sensors.apply(Connected())
    assert "trouble" not in (await run(query, "show", "q")).stdout


async def test_a_query_shows_the_rejected_samples_of_its_streams(run, service):
    await run(query, "add", "SELECT speed FROM roads", "--name", "q")
    assert "rejected" not in (await run(query, "show", "q")).stdout
    await offer(service, schema_of(SENSOR, Field("lane", REAL), OCC, SPEED))
    await send(service, 1, 10, 11)
    assert (
        "rejected  2 samples of stream roads were rejected; the last: proxy" in (await run(query, "show", "q")).stdout
    )
