"""The history of the plan, from its files."""

from __future__ import annotations

from pathlib import Path

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.difference import plan_history
from cluster.physical.lowering import lower
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("speed", FieldType.REAL), Field("lane", FieldType.INTEGER)))])
FAST, LANES = (
    "SELECT speed FROM traffic WHERE speed > 3",
    "SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 MINUTE) GROUP BY lane",
)


def _query(name: str, epoch: int, text: str) -> PlannedQuery:
    return PlannedQuery(name, epoch, rewrite(translate(text, CATALOG).node).node)


def _written(folder: Path, *plans: Plan) -> PlanFiles:
    files = PlanFiles(folder)
    for plan in plans:
        files.write(lower(plan))
    return PlanFiles(folder)


def test_each_epoch_shows_what_came_and_went(tmp_path: Path) -> None:
    one, other, lanes = _query("one", 1, FAST), _query("other", 2, FAST), _query("lanes", 3, LANES)
    files = _written(tmp_path, Plan(1, (one,)), Plan(2, (one, other)), Plan(3, (lanes,)), Plan(4, (lanes,)))
    steps = list(plan_history(files, 4, 20))
    assert [each.words for each in steps] == [
        "one added",
        "other added",
        "lanes added; one, other dropped",
        "no query came or went",
    ]
    assert [(each.operators_come > 0, each.operators_go > 0) for each in steps] == [
        (True, False),
        (False, False),
        (True, True),
        (False, False),
    ]


def test_the_first_epoch_says_what_it_is(tmp_path: Path) -> None:
    (step,) = plan_history(_written(tmp_path, Plan(1)), 1, 20)
    assert step.words == "first plan, without queries: Spark starts with it"


def test_only_the_last_ones_and_those_that_are_there(tmp_path: Path) -> None:
    plans = [Plan(epoch, tuple(_query(f"q{n}", n, FAST) for n in range(1, epoch + 1))) for epoch in range(1, 7)]
    files = _written(tmp_path, *plans)
    assert [each.epoch for each in plan_history(files, 6, 2)] == [5, 6]
    files.path(6).unlink()
    assert [each.epoch for each in plan_history(_written(tmp_path), 6, 20)] == [1, 2, 3, 4, 5]


def test_many_queries_are_counted(tmp_path: Path) -> None:
    files = _written(tmp_path, Plan(1, tuple(_query(f"q{n}", 1, FAST) for n in range(50))))
    (step,) = plan_history(files, 1, 20)
    assert len(step.queries_come) == 50
    assert "more added" in step.words
