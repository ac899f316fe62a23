"""How many rows a micro-batch reads: the fewer, the more a plan may make of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.fjord.at_work import Activity
from cluster.fjord.overruns import Overrun, OverrunKind
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import Host, PhysicalPlan
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.spark.reading.live import rows_at_once
from cluster.spark.worker_watch import OverrunNotes
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.spark.reader_run import ReaderRun

NARROW = (Field("k", FieldType.INTEGER), Field("a", FieldType.REAL))
WIDE = tuple(Field(name, FieldType.REAL) for name in "abcdefgh")
CATALOG = Catalog.of([StreamSchema("readings", NARROW), StreamSchema("wide", WIDE)])
FILTER = "SELECT k, a FROM readings WHERE a > 3"
WINDOW = "SELECT k, AVG(a) AS mean FROM readings WINDOW(RANGE 60 SECONDS SLIDE 10 SECONDS) GROUP BY k"


def plan(texts: list[str], host: Host) -> PhysicalPlan:
    nodes = [rewrite(translate(text, CATALOG).node).node for text in texts]
    queries = tuple(PlannedQuery(f"q{number}", 1, node) for number, node in enumerate(nodes))
    return lower(Plan(1, queries)).hosted(host)


@pytest.mark.parametrize(
    ("texts", "host", "rows"),
    [
        pytest.param([FILTER], Host.STATELESS, 4_000, id="one filter"),
        pytest.param([FILTER, FILTER.replace("3", "4")], Host.STATELESS, 2_000, id="a row may be two answers"),
        pytest.param([FILTER] * 5, Host.STATELESS, 1_000, id="a row may be five answers"),
        pytest.param(["SELECT * FROM wide"], Host.STATELESS, 2_000, id="wide rows"),
        pytest.param([WINDOW], Host.STATEFUL, 4_000, id="one window"),
        pytest.param([WINDOW, WINDOW.replace("60", "30")] * 5, Host.STATEFUL, 4_000, id="windows that share panes"),
        pytest.param(
            ["SELECT x.k FROM readings x WINDOW(RANGE 1 SECOND), readings y WINDOW(RANGE 1 SECOND) WHERE x.k = y.k"],
            Host.STATEFUL,
            1_000,
            id="a join makes many rows of one",
        ),
        pytest.param([], Host.STATELESS, 1_000, id="nothing"),
    ],
)
def test_a_micro_batch_reads_more_rows_if_little_becomes_of_each(texts: list[str], host: Host, rows: int) -> None:
    assert rows_at_once(plan(texts, host), 1_000) == rows


def test_a_query_alone_catches_up_in_fewer_micro_batches(tmp_path: Path) -> None:
    taken = {}
    for queries in (1, 4):
        run = ReaderRun(tmp_path / str(queries), max_rows=10)
        for number in range(queries):
            run.add(f"q{number}", f"SELECT speed FROM traffic WHERE speed > {number}")
        run.drain()
        before = run.micro_batches[Host.STATELESS]
        for number in range(8):
            run.append("traffic", [(10 * number + place, "a", 1) for place in range(10)], 10 * number + 10)
        run.drain()
        taken[queries] = run.micro_batches[Host.STATELESS] - before
        assert len(run.rows["q0"]) == 80
    assert taken == {1: 2, 4: 8}


@pytest.mark.parametrize(("overran", "micro_batches"), [(None, 2), ("another", 2), ("own", 16)])
def test_after_an_overrun_what_waits_comes_in_smaller_pieces(
    overran: str | None, micro_batches: int, tmp_path: Path
) -> None:
    notes = OverrunNotes(tmp_path / "workers")
    notes.make()
    run = ReaderRun(tmp_path, max_rows=8, overruns=str(notes.folder))
    run.add("q", "SELECT speed FROM traffic WHERE speed > 0")
    run.drain()
    if overran is not None:
        (fragment,) = lower(run.plan).fragments
        fragments = (fragment.identity if overran == "own" else overran,)
        notes.note(Overrun(OverrunKind.MEMORY, Activity("stateless 1 2", "scan", None, fragments, 0), "1 GiB"))
    before = run.micro_batches[Host.STATELESS]
    for number in range(16):
        run.append("traffic", [(4 * number + place, "a", 1) for place in range(4)], 4 * number + 4)
    run.drain()
    assert run.micro_batches[Host.STATELESS] - before == micro_batches
    assert len(run.rows["q"]) == 64


def test_without_a_plan_the_bound_is_that_of_any_plan() -> None:
    assert rows_at_once(None, 1_000) == 1_000
