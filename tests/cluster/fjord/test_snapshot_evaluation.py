"""Snapshot evaluation of plans of relations."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.snapshot_evaluation import evaluate_snapshot
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Filter,
    Intersection,
    Join,
    Lookup,
    Node,
    Project,
    Relation,
    SemiJoin,
    Union,
)
from cluster.operators.columns import AggregateCall, Column, Output
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

PLACES = Relation("places", "places@1", (Column("segment", FieldType.INTEGER),))
ONE = Project(PLACES, (Output("one", read_scalar("1", FieldType.INTEGER)),))


def _evaluated(node: Node, *segments: int) -> list[tuple[object, ...]]:
    rows = pl.DataFrame({"segment": segments}, schema={"segment": pl.Int64})
    return evaluate_snapshot(node, {PLACES: rows.lazy()}).rows()


@pytest.mark.parametrize("segments", [(), (7,), (7, 7, 8)])
def test_a_projection_of_constants_has_a_row_for_each_input_row(segments: tuple[int, ...]) -> None:
    assert _evaluated(ONE, *segments) == [(1,)] * len(segments)


def test_a_projection_of_constants_over_nothing_has_no_row() -> None:
    assert _evaluated(Distinct(ONE)) == []
    beyond = Filter(PLACES, read_scalar('"segment" > 9', FieldType.BOOLEAN))
    assert _evaluated(Project(beyond, ONE.outputs), 7, 8) == []
    assert _evaluated(Project(beyond, ONE.outputs), 10, 8) == [(1,)]


ABOVE_7 = read_scalar('"segment" > 7', FieldType.BOOLEAN)
AS_IT_IS = (Output("segment", read_scalar('"segment"', FieldType.INTEGER)),)
DOUBLE = (Output("double", read_scalar('"segment" * 2', FieldType.INTEGER)),)
COUNT = AggregateCall("count", "count", None, FieldType.INTEGER)
OTHERS = Project(PLACES, (Output("other", read_scalar('"segment"', FieldType.INTEGER)),))
EQUAL = read_scalar('"segment" = "other"', FieldType.BOOLEAN)


@pytest.mark.parametrize(("node", "expected"), [
    (Filter(PLACES, ABOVE_7), [(8,), (9,)]),
    (Project(PLACES, DOUBLE), [(14,), (14,), (16,), (18,)]),
    (Distinct(PLACES), [(7,), (8,), (9,)]),
    (Filter(Distinct(PLACES), ABOVE_7), [(8,), (9,)]),
    (Project(Distinct(PLACES), DOUBLE), [(14,), (16,), (18,)]),
    (Project(Filter(Distinct(PLACES), ABOVE_7), ONE.outputs), [(1,), (1,)]),
    (Union(PLACES, Filter(PLACES, ABOVE_7)), [(7,), (7,), (8,), (8,), (9,), (9,)]),
    (Difference(PLACES, Distinct(PLACES)), [(7,)]),
    (Intersection(PLACES, Distinct(PLACES)), [(7,), (8,), (9,)]),
    (Aggregate(PLACES, (), (COUNT,)), [(4,)]),
    (Aggregate(PLACES, ("segment",), (COUNT,)), [(7, 2), (8, 1), (9, 1)]),
    (Filter(Aggregate(PLACES, ("segment",), (COUNT,)), read_scalar('"count" > 1', FieldType.BOOLEAN)), [(7, 2)]),
    (Aggregate(Filter(PLACES, read_scalar('"segment" > 9', FieldType.BOOLEAN)), ("segment",), (COUNT,)), []),
    (Project(Join(Distinct(PLACES), OTHERS, EQUAL), AS_IT_IS), [(7,), (7,), (8,), (9,)]),
    (SemiJoin(PLACES, Filter(OTHERS, read_scalar('"other" < 8', FieldType.BOOLEAN)), EQUAL), [(7,), (7,)]),
    (AntiJoin(PLACES, Filter(OTHERS, read_scalar('"other" < 8', FieldType.BOOLEAN)), EQUAL), [(8,), (9,)]),
    (Lookup(Filter(PLACES, ABOVE_7), OTHERS, EQUAL), [(8, 8), (9, 9)]),
    (Lookup(PLACES, Filter(OTHERS, read_scalar('"other" > 8', FieldType.BOOLEAN)), EQUAL, "left"),
     [(7, None), (7, None), (8, None), (9, 9)]),
    (Lookup(PLACES, Filter(OTHERS, read_scalar('"other" > 8', FieldType.BOOLEAN)), EQUAL, "anti"), [(7,), (7,), (8,)]),
])  # fmt: skip
def test_each_kind_of_plan_has_these_rows(node: Node, expected: list[tuple[object, ...]]) -> None:
    assert sorted(_evaluated(node, 7, 9, 7, 8), key=repr) == expected
