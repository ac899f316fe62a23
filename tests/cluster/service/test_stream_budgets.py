"""
versions     1    2    3    4    5    6      each adds rows stamped at or after the watermark of the one before
read                   |                     by the slower of the two Spark queries
removed      [=== by the watermark of 3 ===]
kept                        [==============] whatever the budget
"""  # fmt: skip

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cluster.language.catalog import CatalogError
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import EVER_US, with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.service import cluster_command
from cluster.service.catalog import stream_settings
from cluster.service.catalog.stream_command import stream
from cluster.service.catalog.stream_settings import ReadProgress, StreamBudgets
from cluster.service.http.api import status_of
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer
from cluster.spark.offsets import Offset, SparkPositions
from cluster.storage.budgets import Blocked, Budget, Passed
from cluster.storage.stream_retention import Dropped, StreamRetention
from cluster.storage.stream_tables import StreamPosition, StreamTable, watermark_at
from tests.cluster.service.conftest import TRAFFIC, Service, application, traffic_rows
from tests.cluster.spark.hosted_run import CATALOG
from tests.cluster.spark.test_positions import MEANS, ROWS, lay, plan

SINCE = "SELECT speed FROM traffic SINCE 15 US AGO"
STEP_US = 10
VERSIONS = 6
EVERYTHING = Budget(age_us=1)


def store(table: StreamTable, stamps: list[int], watermark_us: int) -> None:
    table.append([traffic_rows(stamps)], StreamPosition(watermark_us), {("p", "e"): table.version + 1})


def read_up_to(folder: Path, host: Host, version: int, history: dict[int, dict[str, int]] | None = None) -> None:
    lay(folder, host, [Offset(2, {"traffic": version}, history=history or {})], done=1)


def still_read(folder: Path, *, plan: Plan | None = None) -> ReadProgress:
    positions = SparkPositions(folder, PlanFiles(folder / "plans"))
    return ReadProgress(positions, lambda: lower(plan or Plan(2)), lambda name: str(folder / "streams" / name))


@pytest.fixture
def table(tmp_path: Path) -> StreamTable:
    made = StreamTable(str(tmp_path / "streams" / "traffic"), TRAFFIC)
    for number in range(VERSIONS):
        store(made, list(range(number * STEP_US, (number + 1) * STEP_US)), (number + 1) * STEP_US)
    return made


def test_a_stream_without_readers_has_no_position_to_keep(tmp_path: Path, table: StreamTable) -> None:
    assert still_read(tmp_path)("traffic") is None


def test_the_slower_of_two_spark_queries_decides_what_is_still_read(tmp_path: Path, table: StreamTable) -> None:
    read_up_to(tmp_path, Host.STATELESS, 5)
    read_up_to(tmp_path, Host.STATEFUL, 3)
    assert still_read(tmp_path)("traffic") == Passed(30, "queries have not read it yet")


@pytest.mark.parametrize("version", [-1, 0])
def test_before_anything_is_read_nothing_is_removed(tmp_path: Path, table: StreamTable, version: int) -> None:
    read_up_to(tmp_path, Host.STATEFUL, version)
    found = still_read(tmp_path)("traffic")
    assert found is not None
    assert found.instant_us == EVER_US


def test_a_query_with_history_counts_as_far_as_it_has_come(tmp_path: Path, table: StreamTable) -> None:
    read_up_to(tmp_path, Host.STATELESS, 5, {2: {"traffic": 17}})
    assert still_read(tmp_path)("traffic") == Passed(17, "a query with SINCE still reads it")


def test_a_new_query_with_history_counts_from_its_beginning(tmp_path: Path, table: StreamTable) -> None:
    read_up_to(tmp_path, Host.STATELESS, 5)
    node = with_history_starts(rewrite(translate(SINCE, CATALOG).node).node, 3, {"traffic": 40})
    found = still_read(tmp_path, plan=Plan(3, (PlannedQuery("back", 3, node),)))("traffic")
    assert found == Passed(25, "query back is about to read it")
    begun = still_read(tmp_path, plan=Plan(3, (PlannedQuery("back", 2, node),)))("traffic")
    assert begun == Passed(50, "queries have not read it yet")


def test_a_new_query_without_history_counts_from_its_position(tmp_path: Path, table: StreamTable) -> None:
    PlanFiles(tmp_path / "plans").write(plan(1, MEANS, ROWS, positions={"traffic": 2}))
    assert still_read(tmp_path)("traffic") == Passed(20, "queries have not read it yet")


versions = st.lists(st.lists(st.integers(0, 40), max_size=4), min_size=1, max_size=7)
"""Of each version: how far behind the watermark of the one before its rows are stamped."""


def assert_kept(ahead: list[list[int]], stateless: int, stateful: int, since: int | None) -> None:
    """Remove all rows that may be removed, and check that the others remain."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reading = still_read(folder)
        retention = StreamRetention(lambda: EVERYTHING, lambda: reading("traffic"))
        table = StreamTable(str(folder / "streams" / "traffic"), TRAFFIC, retention=retention)
        added: list[list[int]] = [[]]
        for number, each in enumerate(ahead):
            added.append([number * STEP_US + behind for behind in each])
            store(table, added[-1], (number + 1) * STEP_US)
        read = [min(position, table.version) for position in (stateless, stateful)]
        read_up_to(folder, Host.STATELESS, read[0], None if since is None else {2: {"traffic": since}})
        read_up_to(folder, Host.STATEFUL, read[1])
        table._drop_old(table.position().watermark_us, 0)
        left = pl.read_delta(table.root)["fjord_start_us"].to_list()
        for version in range(min(read) + 1, len(added)):
            for stamp in added[version]:
                assert stamp in left, f"version {version} is removed, and read up to {min(read)}"
        watermark_us = watermark_at(table.log, max(read[0], 0)) or EVER_US
        for stamp in (stamp for each in added for stamp in each):
            if stamp >= watermark_us or (since is not None and stamp >= since):
                assert stamp in left, f"{stamp} is removed, and the stateless queries have passed {watermark_us}"


@settings(max_examples=12, deadline=None)
@given(versions, st.integers(-1, 7), st.integers(-1, 7), st.none() | st.integers(0, 70))
def test_no_row_is_removed_that_a_query_still_has_to_read(
    ahead: list[list[int]], stateless: int, stateful: int, since: int | None
) -> None:
    assert_kept(ahead, stateless, stateful, since)


def test_removing_a_version_too_early_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [[0, 5]] * VERSIONS
    assert_kept(ahead, 3, 3, None)
    monkeypatch.setattr(stream_settings, "watermark_at", lambda log, version: watermark_at(log, version + 1))
    with pytest.raises(AssertionError, match="version 4 is removed"):
        assert_kept(ahead, 3, 3, None)


def test_budgets_of_single_streams_are_remembered(service: Service) -> None:
    budgets = StreamBudgets(service.registry, Budget(bytes=7))
    assert budgets.of("traffic") == Budget(bytes=7)
    budgets.set("traffic", Budget(age_us=5), service.ingest.writers)
    again = StreamBudgets(service.registry, Budget(bytes=7))
    assert (again.of("traffic"), again.of("other")) == (Budget(age_us=5), Budget(bytes=7))
    again.set("traffic", None, service.ingest.writers)
    assert StreamBudgets(service.registry, Budget()).of("traffic") == Budget()
    with pytest.raises(CatalogError, match="no stream 'gone'"):
        again.set("gone", Budget(), service.ingest.writers)


async def test_a_dropped_stream_takes_its_budget_with_it(tmp_path: Path) -> None:
    server = ClusterServer(ClusterSettings(folder=tmp_path))
    try:
        for _ in range(2):  # created again, it has the default budget
            await server.parts.queries.streams.execute("CREATE STREAM loops (speed REAL) SOURCE mqtt()")
            assert server.parts.budgets.of("loops") == Budget()
            server.parts.budgets.set("loops", Budget(age_us=5), server.parts.ingest.writers)
            await server.parts.queries.streams.drop("loops")
        assert StreamBudgets(server.parts.registry, Budget()).of("loops") == Budget()
    finally:
        server.close()


async def test_a_query_is_warned_if_its_history_has_been_removed(service: Service) -> None:
    writer = service.ingest.writers["traffic"]
    store(writer.table, [30, 40], 50)
    writer.table.retention.dropped = Dropped(3, 25)
    warning = "traffic is kept since 1970-01-01T00:00:00.000025Z only: older rows have been removed"
    for since in ("SINCE BEGINNING", "SINCE 1 SECOND AGO"):
        _, warnings = await service.queries.add(f"SELECT sensor FROM traffic {since}")
        assert warnings == (warning,)
        assert warning in await service.queries.explain(f"SELECT sensor FROM traffic {since}")
    _, warnings = await service.queries.add("SELECT sensor FROM traffic SINCE 20 US AGO")
    assert warnings == ()


def test_a_cluster_keeps_its_streams_within_their_budgets(tmp_path: Path) -> None:
    server = ClusterServer(ClusterSettings(folder=tmp_path, stream_age_us=20))
    try:
        server.parts.ingest.declare(TRAFFIC)
        table = server.parts.ingest.writers["traffic"].table
        read_up_to(tmp_path / f"checkpoint-{server.parts.registry.engine_id}", Host.STATEFUL, 2)
        for number in range(VERSIONS):
            store(table, [number * STEP_US], (number + 1) * STEP_US)
        table._drop_old(VERSIONS * STEP_US, VERSIONS)
        assert pl.read_delta(table.root)["fjord_start_us"].sort().to_list() == [20, 30, 40, 50]
        assert (table.retention.dropped.rows, table.retention.blocked.rows) == (2, 2)
        assert "queries have not read it yet" in status_of(server.parts)["storage"]["over_budget"]["streams/traffic"]
    finally:
        server.close()


@pytest.fixture
async def api(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    parts = service.parts()
    service.ingest.writers["traffic"].table.retention._budget = lambda: parts.budgets.of("traffic")
    async with application(parts) as client:
        yield client


async def test_the_api_sets_and_shows_what_is_kept(api: httpx.AsyncClient, service: Service) -> None:
    path = "/v1/streams/traffic/budget"
    assert (await api.put(path, json={"age_seconds": 60, "bytes": 10**9})).status_code == 204
    retention = service.ingest.writers["traffic"].table.retention
    retention.dropped, retention.blocked = Dropped(1_234, 5), Blocked(10, 2_048, "queries have not read it yet")
    (shown,) = (await api.get("/v1/streams")).json()
    assert shown["retention"] == {
        "age_seconds": 60.0,
        "bytes": 10**9,
        "dropped_rows": 1_234,
        "kept_since": "1970-01-01T00:00:00.000005Z",
        "over": {"rows": 10, "bytes": 2_048, "reason": "queries have not read it yet"},
    }
    text = (await api.get("/metrics")).text
    assert 'fjord_table_dropped_rows_total{table="streams/traffic"} 1234.0' in text
    assert 'fjord_table_over_budget_bytes{table="streams/traffic"} 2048.0' in text
    assert (await api.delete(path)).status_code == 204
    (shown,) = (await api.get("/v1/streams")).json()
    assert (shown["retention"]["age_seconds"], shown["retention"]["bytes"]) == (None, None)


@pytest.mark.parametrize(
    "body", [{"age_seconds": 0}, {"age_seconds": -1}, {"bytes": 0}, {"age_seconds": 1e300}, {"bytes": "many"}, []]
)
async def test_odd_budgets_are_refused(api: httpx.AsyncClient, body: object) -> None:
    assert (await api.put("/v1/streams/traffic/budget", json=body)).status_code == 422
    assert (await api.put("/v1/streams/gone/budget", json={})).status_code == 409


def test_the_command_sets_and_lists_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def keep_stream(self, name: str, *, age_seconds: float | None, size: int | None) -> None:
            calls.append((name, age_seconds, size))

        def keep_stream_as_others(self, name: str) -> None:
            calls.append((name,))

        def status(self) -> dict[str, Any]:
            return {}

        def streams(self) -> list[dict[str, Any]]:
            over = {"rows": 10, "bytes": 2_048, "reason": "queries have not read it yet"}
            retention = {"dropped_rows": 1_234, "kept_since": "1970", "over": over}
            return [{"name": "traffic", "kind": "base", "fields": [], "lag": None, "retention": retention}]

    monkeypatch.setattr("cluster.service.catalog.stream_command.make_client", lambda _: Client())
    run = CliRunner().invoke
    assert run(stream, ["keep", "traffic", "--retention", "7d", "--size", "10GiB"]).exit_code == 0
    assert run(stream, ["keep", "traffic", "--size", "1MiB"]).exit_code == 0
    assert run(stream, ["keep", "traffic", "--as-others"]).exit_code == 0
    assert run(stream, ["keep", "traffic", "--as-others", "--size", "1MiB"]).exit_code == 2
    assert calls == [("traffic", 7 * 86_400.0, 10 * 1024**3), ("traffic", None, 1024**2), ("traffic",)]
    shown = run(stream, ["list"]).output
    assert "1,234 rows of stream traffic have been removed because they were too old or too many" in shown
    assert "stream traffic exceeds its budget by 2.0 KiB: queries have not read it yet" in shown


def test_results_are_bounded_unless_another_bound_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[ClusterSettings] = []
    monkeypatch.setattr(cluster_command, "_run", lambda settings, *_: started.append(settings))
    for options in ([], ["--results-size", "20GiB"]):
        CliRunner().invoke(cluster_command.cluster, ["--data", str(tmp_path), *options], catch_exceptions=False)
    assert [each.results_bytes for each in started] == [ClusterSettings().results_bytes, 20 * 1024**3]
    assert ClusterSettings().results_bytes == 16 * 1024**3
