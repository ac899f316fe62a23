"""Marks of rows stand where those of the other side of a set operation do: columns match by position."""

from __future__ import annotations

import pytest

from cluster.language.algebra import Aggregate, Difference, Intersection, Project, Source, Union, inputs_of, schema_of
from cluster.language.columns import QUERY_GROUP, AggregateCall, Column
from cluster.physical.rules.marks import marked, passed_on
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
    sides = (Project(GROUPS, passed_on(schema_of(GROUPS))), GROUPS)
    left, right = inputs_of(marked(kind(*(sides[::-1] if swapped else sides)), (QUERY_GROUP,)))
    assert [each.name for each in schema_of(left)] == [each.name for each in schema_of(right)]
    assert [each.name for each in schema_of(left)] == ["lane", "name", QUERY_GROUP.name]


def test_two_sides_of_one_shape_stay_as_they_are() -> None:
    left, right = inputs_of(marked(Union(GROUPS, GROUPS), (QUERY_GROUP,)))
    assert isinstance(left, Aggregate)
    assert left == right
