"""Queries are added and dropped: plans, positions and demands follow."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import polars as pl
import pytest

from cluster.fjord.acceptance import RowLimitError, RowLimits, TextLimitError
from cluster.fjord.upper_estimates import StateLimitError
from cluster.language.errors import FjordSqlError
from cluster.physical.errors import UnsupportedPlanError
from cluster.service.registry.query_names import QueryExistsError, TooManyQueriesError, UnknownQueryError
from cluster.storage.stream_tables import StreamPosition, arrow_schema
from protocols.errors import TopicError
from protocols.wire import topics
from protocols.wire.demands import decode_demand
from protocols.wire.programs import Measure
from tests.cluster.service.conftest import traffic_rows

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

AVERAGE = "SELECT sensor, AVG(speed) AS speed FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY sensor"


async def test_a_query_becomes_a_plan_and_a_demand(service: Service) -> None:
    before = service.registry.plan.epoch
    query, warnings = await service.queries.add(AVERAGE, "mean")
    assert (query.name, warnings) == ("mean", ())
    plan = service.plans.read(before + 1)
    assert list(plan.subscribers) == [f"mean@{before + 1}"]
    assert plan.positions == {"traffic": 0}
    (message,) = service.link.published
    assert (message.topic, message.retain) == (topics.demand("traffic"), True)
    (demand,) = decode_demand(message.payload).demands
    assert demand.panes is not None
    assert (demand.query, demand.fields, demand.panes.pane_us) == ("mean", ("speed",), 60_000_000)
    assert demand.panes.measures == (Measure.COUNT, Measure.SUM)


async def test_generated_names_are_never_used_twice(service: Service) -> None:
    assert [(await service.queries.add(AVERAGE))[0].name for _ in range(2)] == ["q1", "q2"]
    await service.queries.drop("q2")
    assert (await service.queries.add(AVERAGE))[0].name == "q3"
    with pytest.raises(QueryExistsError, match="'q1' already"):
        await service.queries.add(AVERAGE, "q1")
    with pytest.raises(TopicError, match="query name"):
        await service.queries.add(AVERAGE, "a/b")


async def test_dropping_the_last_query_leaves_an_empty_demand(service: Service) -> None:
    await service.queries.add(AVERAGE, "mean")
    await service.queries.drop("mean")
    assert decode_demand(service.link.published[-1].payload).demands == ()
    assert service.registry.plan.queries == ()
    with pytest.raises(UnknownQueryError, match="no query 'mean'"):
        await service.queries.drop("mean")


@pytest.mark.parametrize(
    ("sql", "column", "offending", "hint"),
    [
        ("SELECT sensor FROM trafic", 20, "trafic", "traffic"),
        ("SELECT sped FROM traffic", 8, "sped", "speed"),
        ("SELECT speed FROM traffic ORDER BY speed", 27, None, None),
        ("SELEC speed FROM traffic", 1, None, None),
        ("SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 FORTNIGHT)", 47, "FORTNIGHT", None),
    ],
)
async def test_bad_sql_names_its_place_and_changes_nothing(
    service: Service, sql: str, column: int, offending: str | None, hint: str | None
) -> None:
    epoch = service.registry.plan.epoch
    with pytest.raises(FjordSqlError) as caught:
        await service.queries.add(sql)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert offending is None or caught.value.offending == offending
    assert hint is None or hint in str(caught.value.hint)
    assert "^" in caught.value.underlined()
    assert service.registry.plan.epoch == epoch


async def test_an_unsupported_plan_is_refused_before_it_is_registered(service: Service) -> None:
    """The language is ahead of the operators: nothing it accepts may reach a running Fjord that cannot run it."""
    epoch = service.registry.plan.epoch
    with pytest.raises(UnsupportedPlanError, match="once for every microsecond") as caught:
        await service.queries.add(
            "SELECT * FROM (SELECT speed FROM traffic WINDOW(RANGE 1 MINUTE)) q WINDOW(RANGE 1 MINUTE)"
        )
    assert caught.value.hint is not None
    assert service.registry.plan.epoch == epoch


async def test_too_many_queries_are_refused_with_the_figures(service: Service) -> None:
    for _ in range(5):
        await service.queries.add(AVERAGE)
    with pytest.raises(TooManyQueriesError, match="5 queries are running, the limit is 5"):
        await service.queries.add(AVERAGE)


def store_fifty_a_second(service: Service) -> None:
    """Store some seconds of a stream, so that it has a rate."""
    table = service.ingest.writers["traffic"].table
    for second in range(1, 4):
        rows = pl.DataFrame(
            {
                "fjord_start_us": [second * 1_000_000 + place for place in range(50)],
                "fjord_mote": ["m"] * 50,
                "fjord_default_rate": [True] * 50,
                "sensor": ["m"] * 50,
                "speed": [1.0] * 50,
                "lane": [1] * 50,
            }
        )
        position = StreamPosition((second + 1) * 1_000_000, {})
        table.append([rows.to_arrow().cast(arrow_schema(table.schema))], position, {})
    assert table.tuples_per_second() == pytest.approx(50)


async def test_a_query_that_would_keep_too_much_state_is_refused_with_the_figures(service: Service) -> None:
    store_fifty_a_second(service)
    queries = service.started(max_state_bytes=10 * 1024**2)
    await queries.add("SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 MINUTE)")
    with pytest.raises(StateLimitError, match=r"for this query alone .traffic brings 50 tuples.*limit is 10.0 MiB"):
        await queries.add("SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 DAY)")
    assert len(service.registry.plan.queries) == 1


PRODUCT = "SELECT a.speed FROM traffic a WINDOW(RANGE {0}), traffic b WINDOW(RANGE {0}), traffic c WINDOW(RANGE {0})"


async def test_a_product_is_refused_by_the_figures_of_its_explanation(service: Service) -> None:
    store_fifty_a_second(service)
    service.queries = service.started(row_limits=RowLimits(answers_per_second=10**9))
    wide, narrow = PRODUCT.format("10 SECONDS"), PRODUCT.format("1 SECOND")
    explained = await service.queries.explain(wide)
    assert "37,500,000" in explained  # rows of its product: 3 * 50 * 500 * 500
    (bound,) = (line for line in explained.splitlines() if line.startswith("  at most: "))
    assert bound.startswith("  at most: 37,499,")  # without what streams bring
    assert "all queries may make 2,000,000 and keep " in bound
    with pytest.raises(RowLimitError, match=r"37,499,\d\d\d of them for this query alone"):
        await service.queries.add(wide)
    await service.queries.add(narrow, "narrow")
    (running,) = (
        line for line in (await service.queries.estimates.running("narrow")).splitlines() if "at most: " in line
    )
    assert running == next(line for line in (await service.queries.explain(narrow)).splitlines() if "at most" in line)


async def test_what_runs_is_kept_at_a_start_with_which_it_would_be_refused(service: Service) -> None:
    store_fifty_a_second(service)
    queries = service.started(row_limits=RowLimits(per_second=10**9, answers_per_second=10**9))
    await queries.add(PRODUCT.format("10 SECONDS"), "wide")
    later = service.started()
    assert [each.name for each in service.registry.plan.queries] == ["wide"]
    await later.add("SELECT sensor FROM traffic WHERE speed > 3", "more")
    with pytest.raises(RowLimitError, match="37,"):
        await later.add(PRODUCT.format("1 SECOND"))


async def test_texts_of_all_queries_are_bounded_and_what_runs_is_kept_at_a_start_with_less(service: Service) -> None:
    store_fifty_a_second(service)
    text = "SELECT sensor FROM traffic WHERE LENGTH(LPAD(sensor, {})) > 5"
    queries = service.started(row_limits=RowLimits(characters_per_second=2 * 50 * 9_100))
    for length in (9_000, 9_100):
        await queries.add(text.format(length))
    with pytest.raises(TextLimitError, match=r"4\d\d,\d\d\d of them for this query alone"):
        await queries.add(text.format(8_999))
    later = service.started(row_limits=RowLimits(characters_per_second=1_000))
    assert len(service.registry.plan.queries) == 2
    await later.add("SELECT sensor FROM traffic WHERE speed > 3")


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR SLIDE 2 US)",
    "SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY SLIDE 100 MS) GROUP BY lane",
])  # fmt: skip
async def test_a_query_that_would_make_too_many_rows_of_a_tuple_is_refused(service: Service, text: str) -> None:
    with pytest.raises(RowLimitError, match="one tuple would make up to"):
        await service.queries.add(text)
    limits = RowLimits(per_tuple=2_000_000_000)
    queries = service.started(row_limits=limits)
    await queries.add(text)
    assert len(service.registry.plan.queries) == 1


async def test_a_demand_waits_for_a_broker_that_is_away(service: Service) -> None:
    service.link.away = True
    await service.queries.add(AVERAGE, "mean")
    assert service.link.published == []
    service.link.away = False
    await service.queries.publish_all_demands()
    assert [each.query for each in decode_demand(service.link.published[-1].payload).demands] == ["mean"]


async def test_explain_shows_the_plan_and_runs_nothing(service: Service) -> None:
    text = await service.queries.explain(AVERAGE)
    assert "traffic" in text
    assert "1 minute" in text or "1m" in text
    assert service.registry.plan.queries == ()


async def test_explain_shows_what_a_query_would_share(service: Service) -> None:
    assert "nothing: no running query" in await service.queries.explain(AVERAGE)
    await service.queries.add(AVERAGE, "mean")
    await service.queries.add("SELECT sensor FROM traffic WHERE speed < 20", "slow")
    finest = "SELECT sensor, MAX(speed) AS m FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 10 SECONDS) GROUP BY sensor"
    explained = await service.queries.explain(finest)
    assert "panes of 10s with 1 query: mean" in explained
    assert "the scan of traffic with 1 query: mean" in explained, "queries without state have scans of their own"
    explained = await service.queries.explain("SELECT sensor FROM traffic WHERE lane = 1")
    assert "all but its conditions with 1 query: slow" in explained
    assert len(service.registry.plan.queries) == 2


def store(service: Service, stamps: list[int], watermark_us: int) -> None:
    """Store samples of one sensor."""
    table = service.ingest.writers["traffic"].table
    table.append([traffic_rows(stamps)], StreamPosition(watermark_us, {}), {})


BACK = "SELECT sensor, speed FROM traffic SINCE 2 HOURS AGO"
HOUR_US = 3_600_000_000


async def test_the_history_of_a_query_is_fixed_when_it_begins(service: Service) -> None:
    now_us = 1_330_560_000_000_000  # 2012-03-01 00:00
    store(service, [now_us - hour * HOUR_US for hour in range(5, 0, -1)], now_us)
    query, warnings = await service.queries.add(BACK)
    assert warnings == ()
    store(service, [now_us], now_us + HOUR_US)
    (read,) = service.queries.history(query.node)
    assert (read.begins_us, read.stored_us) == (now_us - 2 * HOUR_US, now_us - 5 * HOUR_US)
    assert read.as_json()["since"] == "2012-02-29T22:00:00.000000Z"
    assert query.node == service.registry.query(query.name).node
    ((subscriber, beginnings),) = service.plans.read(query.since_epoch).with_history
    assert (subscriber.query, beginnings) == (query.name, {"traffic": read.begins_us})
    again, _ = await service.queries.add(BACK)
    assert again.node != query.node
    assert next(iter(service.queries.history(again.node))).begins_us == now_us - HOUR_US


async def test_a_query_is_warned_if_its_history_is_not_stored(service: Service) -> None:
    _, warnings = await service.queries.add(BACK)
    assert warnings == ("nothing is stored of traffic yet: there is no history to read",)
    store(service, [HOUR_US], 2 * HOUR_US)
    _, warnings = await service.queries.add(BACK)
    assert warnings == ("traffic is stored since 1970-01-01T01:00:00.000000Z only: there is no more history",)
    _, warnings = await service.queries.add("SELECT sensor FROM traffic SINCE BEGINNING")
    assert warnings == ()


async def test_explain_shows_the_history_that_is_read_first(service: Service) -> None:
    store(service, [hour * HOUR_US for hour in range(5)], 5 * HOUR_US)
    store(service, [7 * HOUR_US, 8 * HOUR_US], 9 * HOUR_US)
    explained = await service.queries.explain(BACK)
    assert "stream traffic, since 2h ago" in explained
    assert (
        "It would first read\n  traffic since 1970-01-01T07:00:00.000000Z: about 2 rows in 1 file\n\nIt would run"
        in explained
    )
    assert "It would first read" not in await service.queries.explain("SELECT sensor FROM traffic")
    service.queries._history_rows = 3
    everything = await service.queries.explain("SELECT sensor FROM traffic SINCE BEGINNING")
    assert "traffic from the beginning: about 7 rows in 2 files" in everything
    assert "about 3 rows at once, while other queries go on" in everything


async def test_what_is_rejected_last_is_stored_a_second_later(service: Service) -> None:
    quarantine = service.registry.quarantine
    running = asyncio.create_task(service.queries.run())
    try:
        for number in range(3):
            quarantine.keep("late sample", f"reason {number}", "p", b"x")
        async with asyncio.timeout(60):
            while quarantine.waiting:  # noqa: ASYNC110 - time makes it so
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
