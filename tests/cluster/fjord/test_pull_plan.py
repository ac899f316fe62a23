"""Plans of relations, pulled."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.pull_plan import pulled
from cluster.language.algebra import Column, Distinct, Filter, Node, Output, Project, Relation, Scalar
from protocols.streams import FieldType

PLACES = Relation("places", "places@1", (Column("segment", FieldType.INTEGER),))
ONE = Project(PLACES, (Output("one", Scalar("1", FieldType.INTEGER)),))


def _pulled(node: Node, *segments: int) -> list[tuple[object, ...]]:
    rows = pl.DataFrame({"segment": segments}, schema={"segment": pl.Int64})
    return pulled(node, {PLACES: rows.lazy()}).rows()


@pytest.mark.parametrize("segments", [(), (7,), (7, 7, 8)])
def test_constants_are_there_once_for_each_row(segments: tuple[int, ...]) -> None:
    assert _pulled(ONE, *segments) == [(1,)] * len(segments)


def test_and_never_without_a_row() -> None:
    assert _pulled(Distinct(ONE)) == []
    beyond = Filter(PLACES, Scalar('"segment" > 9', FieldType.BOOLEAN))
    assert _pulled(Project(beyond, ONE.outputs), 7, 8) == []
    assert _pulled(Project(beyond, ONE.outputs), 10, 8) == [(1,)]
