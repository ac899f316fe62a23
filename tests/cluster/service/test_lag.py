"""
versions   0    1    2    3        each adds ten rows; stateful queries have read up to 1
                     ^----^        two versions and twenty rows behind, since 2 was stored
"""  # fmt: skip

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.language.translation import translate
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.rewrite import rewrite
from cluster.service.client.command import lag_text
from cluster.service.publishing.lag import Lag, Lags, greatest, lag_behind, lag_of_fragment, lag_of_stream
from cluster.spark.offsets import Offset, SparkPositions
from cluster.storage.commit_log import CommitLog
from cluster.storage.stream_tables import StreamPosition, StreamTable
from tests.cluster.service.conftest import TRAFFIC, Service, application, traffic_rows
from tests.cluster.spark.hosted_run import CATALOG
from tests.cluster.spark.test_positions import MEANS, ROWS, lay, plan

VERSIONS, EACH = 3, 10


@pytest.fixture
def table(tmp_path: Path) -> StreamTable:
    made = StreamTable(str(tmp_path / "streams" / "traffic"), TRAFFIC)
    for number in range(VERSIONS):
        append(made, number)
    return made


def append(table: StreamTable, number: int) -> None:
    rows = traffic_rows(list(range(number * EACH, (number + 1) * EACH)))
    table.append([rows], StreamPosition((number + 1) * EACH), {("p", "e"): number + 1})


@pytest.mark.parametrize(("read", "rows"), [(-1, 30), (0, 30), (1, 20), (2, 10)])
def test_rows_that_are_stored_and_not_read_are_the_lag(table: StreamTable, read: int, rows: int) -> None:
    since = CommitLog(table.root).committed_at(max(read + 1, 0))
    assert lag_behind(table, read, since + 5) == Lag(rows, 5.0)


@pytest.mark.parametrize("read", [VERSIONS, VERSIONS + 2])
def test_a_reader_of_the_newest_version_has_no_lag(table: StreamTable, read: int) -> None:
    assert lag_behind(table, read, time.time() + 60) == Lag(0, 0.0)


def test_a_clock_set_back_makes_no_negative_lag(table: StreamTable) -> None:
    assert lag_behind(table, 0, 0.0) == Lag(30, 0.0)


def test_a_reopened_table_goes_on_counting_rows(table: StreamTable) -> None:
    again = StreamTable(table.root)
    append(again, VERSIONS)
    assert lag_behind(again, 1, time.time()).rows == 30
    assert again.rows_stored(again.version) == 40


def test_each_query_has_the_lag_of_its_spark_query(tmp_path: Path, table: StreamTable) -> None:
    lay(tmp_path, Host.STATELESS, [Offset(1, {"traffic": 3})], done=1)
    lay(tmp_path, Host.STATEFUL, [Offset(1, {"traffic": 1}), Offset(1, {"traffic": 2})], done=1)
    positions = SparkPositions(tmp_path, PlanFiles(tmp_path / "plans"))
    lags = Lags(positions, lambda: {"traffic": table}, lambda: CommitLog(table.root).committed_at(2) + 7).now()
    assert lags == {("traffic", Host.STATELESS): Lag(), ("traffic", Host.STATEFUL): Lag(20, 7.0)}
    rows, means = (lower_alone(rewrite(translate(sql, CATALOG).node).node) for sql in (ROWS, MEANS))
    assert lag_of_fragment(rows, lags) == Lag()
    assert lag_of_fragment(means, lags) == Lag(20, 7.0)
    assert lag_of_stream("traffic", lags) == Lag(20, 7.0)
    assert lag_of_stream("other", lags) is None


def test_a_query_that_has_not_begun_is_behind_the_position_of_its_plan(tmp_path: Path, table: StreamTable) -> None:
    plans = PlanFiles(tmp_path / "plans")
    plans.write(plan(1, ROWS, positions={"traffic": 2}))
    lags = Lags(SparkPositions(tmp_path, plans), lambda: {"traffic": table}).now()
    assert lags["traffic", Host.STATELESS].rows == 10
    assert ("traffic", Host.STATEFUL) not in lags


def test_positions_that_cannot_be_read_leave_the_lag_out(tmp_path: Path, table: StreamTable) -> None:
    lay(tmp_path, Host.STATEFUL, [Offset(1, {"traffic": 1})], done=1)
    (tmp_path / Host.STATEFUL.value / "offsets" / "0").write_text("cut o")
    assert Lags(SparkPositions(tmp_path, PlanFiles(tmp_path / "plans")), lambda: {"traffic": table}).now() == {}


def test_the_greatest_lag_has_the_most_rows_and_the_most_seconds() -> None:
    assert greatest([Lag(3, 9.0), Lag(5, 1.0)]) == Lag(5, 9.0)
    assert greatest([]) is None


async def test_the_api_shows_the_lag_of_queries_and_streams(service: Service) -> None:
    await service.queries.add("SELECT sensor FROM traffic", "mine")
    lags = SimpleNamespace(now=lambda: {("traffic", Host.STATELESS): Lag(2_400, 1.25)})
    async with application(service.parts(lags=lags)) as api:
        assert (await api.get("/v1/queries/mine")).json()["lag"] == {"rows": 2_400, "seconds": 1.25}
        assert (await api.get("/v1/queries")).json()[0]["lag"] == {"rows": 2_400, "seconds": 1.25}
        assert (await api.get("/v1/streams")).json()[0]["lag"] == {"rows": 2_400, "seconds": 1.25}
        shown = (await api.get("/metrics")).text
    assert 'fjord_query_lag_rows{queries="stateless",stream="traffic"} 2400.0' in shown
    assert 'fjord_query_lag_seconds{queries="stateless",stream="traffic"} 1.25' in shown


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (None, "-"),
        ({"rows": 0, "seconds": 0.0}, "none"),
        ({"rows": 0, "seconds": 2.0}, "2.0s, 0 rows"),
        ({"rows": 12_345, "seconds": 71.26}, "71.3s, 12,345 rows"),
    ],
)
def test_lag_in_words(lag: dict[str, float] | None, text: str) -> None:
    assert lag_text(lag) == text
