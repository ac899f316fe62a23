"""The local engine: answers depend on what came, not on buckets, parts, restarts, or where rows are kept."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.answers import Answered
from cluster.fjord.batch import NEVER, START
from cluster.fjord.stream_scan import RowsInFile, RowsInMemory, StoredRows
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.operators.columns import Column
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("speed", FieldType.INTEGER)))
PLACES = StaticRelation("places", "places@1", (Column("sensor", FieldType.TEXT), Column("km", FieldType.INTEGER)))
CATALOG = Catalog.of([TRAFFIC, PLACES])
QUERIES = {
    "slow": "SELECT sensor, speed FROM traffic WHERE speed < 3",
    "totals": "SELECT sensor, SUM(speed) AS total FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY sensor",
    "pairs": "SELECT a.speed, b.speed AS other FROM traffic WINDOW(RANGE 4 US) AS a, traffic WINDOW(RANGE 3 US) AS b "
    "WHERE a.sensor = b.sensor AND a.speed < b.speed",
    "places": "SELECT t.sensor, p.km FROM traffic AS t, places AS p WHERE t.sensor = p.sensor",
    "distinct": "SELECT DISTINCT speed FROM traffic WINDOW(RANGE 7 US)",
    "last": "SELECT sensor, MAX(speed) AS most FROM traffic WINDOW(PARTITION BY sensor ROWS 2) GROUP BY sensor",
}
ROWS = [(at * 7 % 60, "abc"[at % 3], at * 5 % 7) for at in range(60)]
BOUNDS = (0, 13, 14, 37, 60)
Answers = dict[str, list[tuple[int, int, dict[str, Any]]]]


def planned(*names: str, epoch: int = 1) -> Plan:
    queries = [PlannedQuery(each, 1, rewrite(translate(QUERIES[each], CATALOG).node).node) for each in names]
    return Plan(epoch, tuple(queries))


def frame(rows: list[tuple[int, str, int]]) -> pl.DataFrame:
    schema = {START: pl.Int64, "sensor": pl.String, "speed": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))


def tables() -> MemoryTables:
    rows = pl.DataFrame({"sensor": ["a", "b"], "km": [1, 2]})
    return MemoryTables({"places@1": [RelationRows(rows), RelationRows(rows.head(1), {"traffic": 30})]})


def arrivals(folder: Path | None = None) -> list[dict[str, Arrival]]:
    """A micro-batch for each stretch of time, in which odd speeds of the next one have come already; then the end."""
    found, came = [], set[tuple[int, str, int]]()
    for number, (low, high) in enumerate(pairwise(BOUNDS)):
        following = BOUNDS[min(number + 2, len(BOUNDS) - 1)]
        own = [row for row in ROWS if low <= row[0] < high and row not in came]
        ahead = [row for row in ROWS if high <= row[0] < following and row[2] % 2]
        came |= {*own, *ahead}
        pieces: list[StoredRows] = [RowsInMemory(frame(own)), RowsInMemory(frame(ahead))]
        if folder is not None:
            for part, rows in enumerate((own, ahead)):
                frame(rows).write_parquet(folder / f"{number}-{part}.parquet")
            pieces = [RowsInFile(str(folder / f"{number}-{part}.parquet")) for part in range(2)]
        found.append({"traffic": Arrival(tuple(pieces), high)})
    return [*found, {"traffic": Arrival((), NEVER)}]


def add(answers: Answers, answered: Answered) -> None:
    assert set(answered.rows["kind"]) <= {"row"}, answered.rows
    for query, start, end, _, row in answered.rows.iter_rows():
        answers.setdefault(query, []).append((start, end, msgspec.json.decode(row)))


def run(plan: Plan, *, buckets: int = 1, parts: int = 1, folder: Path | None = None, **more: Any) -> Answers:
    engine = LocalEngine(plan, buckets=buckets, tables=tables, **more)
    answers: Answers = {}
    for each in arrivals(folder):
        add(answers, engine.run(each, parts=parts))
    return answers


def in_any_order(answers: Answers) -> dict[str, list[str]]:
    return {query: sorted(map(repr, rows)) for query, rows in answers.items()}


def test_it_answers_by_definition() -> None:
    answers = run(planned("slow", "totals", "places"))
    assert [start for start, _, _ in answers["slow"]] == sorted(at for at, _, speed in ROWS if speed < 3)
    assert {(start, end) for start, end, _ in answers["totals"]} == {(at - 1, at + 9) for at in range(10, 71, 10)}
    first = {each["sensor"]: each["total"] for start, _, each in answers["totals"] if start == 19}
    assert first == {
        name: sum(speed for at, sensor, speed in ROWS if at < 20 and sensor == name) for name in ("a", "b", "c")
    }
    near = [(at, sensor, 1) for at, sensor, _ in ROWS if sensor == "a"]
    far = [(at, sensor, 2) for at, sensor, _ in ROWS if sensor == "b" and at < 30]
    assert sorted((at, row["sensor"], row["km"]) for at, _, row in answers["places"]) == sorted(near + far)


@pytest.mark.parametrize(("buckets", "parts"), [(1, 2), (3, 1), (5, 3)])
def test_answers_do_not_depend_on_buckets_and_parts(buckets: int, parts: int) -> None:
    plan = planned(*QUERIES)
    assert in_any_order(run(plan, buckets=buckets, parts=parts)) == in_any_order(run(plan))


def test_answers_do_not_depend_on_where_rows_are_or_whether_state_is_kept(tmp_path: Path) -> None:
    plan = planned(*QUERIES)
    alone = run(plan)
    assert run(plan, folder=tmp_path) == alone
    assert run(plan, keeps_state=False) == alone


def test_a_micro_batch_that_is_lost_is_run_again_from_a_checkpoint() -> None:
    plan = planned(*QUERIES)
    engine, answers = LocalEngine(plan, buckets=2, tables=tables), Answers()
    for number, each in enumerate(arrivals()):
        before = engine.checkpoint()
        engine.run(each)
        engine.restore(before)
        if number % 2:
            engine.forget()
        elif number:
            other = LocalEngine(plan, buckets=2, tables=tables)
            other.restore(before)
            engine = other
        add(answers, engine.run(each))
    assert in_any_order(answers) == in_any_order(run(plan, buckets=2))


def test_queries_come_and_go() -> None:
    engine, answers = LocalEngine(planned("totals"), tables=tables), Answers()
    first, second, *others = arrivals()
    add(answers, engine.run(first))
    add(answers, engine.run(second, plan=planned("totals", "slow", "distinct", epoch=2)))
    assert "distinct" in answers
    for each in others:
        add(answers, engine.run(each, plan=planned("slow", epoch=3)))
    alone = run(planned("slow"))["slow"]
    assert answers["slow"] == [row for row in alone if row[0] >= BOUNDS[1]], "from the watermark on"
    assert not any(name for store in engine.stores for name in store if name), "the state of dropped queries is gone"


def test_the_plan_of_an_engine_without_state_cannot_change() -> None:
    engine = LocalEngine(planned("totals"), keeps_state=False)
    with pytest.raises(PlanError, match="cannot change"):
        engine.run({}, plan=planned("slow", epoch=2))


def test_a_query_whose_operator_fails_reports_it_and_the_others_go_on() -> None:
    engine = LocalEngine(planned("places", "slow"))
    answered = engine.run(arrivals()[0])
    errors = answered.rows.filter(pl.col("kind") == "error")
    assert errors["query"].to_list() == ["places"]
    assert "relation places has not been read yet" in errors["row"][0]
    assert "slow" in answered.rows["query"]


def test_an_error_is_repeated_once_a_minute_of_the_given_clock() -> None:
    now = [0.0]
    engine = LocalEngine(planned("places"), clock=lambda: now[0])
    reported = []
    for at, each in enumerate(arrivals()[:4]):
        now[0] = 40.0 * at
        reported.append(engine.run(each).rows.filter(pl.col("kind") == "error").height)
    assert reported == [1, 0, 1, 0]
