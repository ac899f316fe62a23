"""Marks of rows stand where those of the other side of a set operation do: columns match by position."""

from __future__ import annotations

import pytest

from cluster.operators import Aggregate, Difference, Intersection, Project, Source, Union
from cluster.operators.columns import QUERY_GROUP, AggregateCall, Column
from cluster.operators.scalar_expressions import passed_on
from cluster.physical.rules.folding import marked
from protocols.wire.streams import FieldType

SOURCE = Source("traffic", (Column("lane", FieldType.INTEGER), Column("name", FieldType.TEXT)))
GROUPS = Aggregate(
    SOURCE, ("lane",), (AggregateCall("name", "max", passed_on(SOURCE.columns)[1].scalar, FieldType.TEXT),)
)


@pytest.mark.parametrize("kind", [Union, Difference, Intersection])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_aggregate_beside_tuples_has_its_mark_where_they_have_theirs(
    kind: type[Union | Difference | Intersection], swapped: bool
) -> None:
    sides = (Project(GROUPS, passed_on(GROUPS.schema)), GROUPS)
    left, right = marked(kind(*(sides[::-1] if swapped else sides)), (QUERY_GROUP,)).inputs
    assert [each.name for each in left.schema] == [each.name for each in right.schema]
    assert [each.name for each in left.schema] == ["lane", "name", QUERY_GROUP.name]


def test_two_sides_of_one_shape_stay_as_they_are() -> None:
    left, right = marked(Union(GROUPS, GROUPS), (QUERY_GROUP,)).inputs
    assert isinstance(left, Aggregate)
    assert left == right
