"""Plans whose parts are shared: as trees they would have more nodes than could ever be visited."""

from __future__ import annotations

import msgspec

from cluster.operators import Filter, Node, Relation, Source, Union
from cluster.operators.columns import Column
from cluster.operators.projections import reads_relations_only
from cluster.operators.walks import (
    above,
    from_below,
    levels,
    nodes_of,
    parts_shared,
    rebuilt,
    unbounded_operator,
    written_out,
)
from cluster.plan import stored_plans
from cluster.plan.scalar_texts import read_scalar
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

COLUMNS = (Column("x", FieldType.INTEGER),)
LEVELS = 200


def doubled(times: int = LEVELS) -> Node:
    node: Node = Source("a", COLUMNS)
    for _ in range(times):
        node = Union(node, node)
    return node


def test_equal_plans_are_equal_however_often_their_parts_stand_in_them() -> None:
    one, other = doubled(), doubled()
    assert one is not other
    assert one == other
    assert not one != other  # noqa: SIM202 - both operators are defined
    assert hash(one) == hash(other)
    assert one != doubled(LEVELS - 1)
    assert one != Union(other, doubled(LEVELS - 1))
    assert doubled(0) != "a"


def test_a_plan_that_is_shown_in_an_error_is_no_longer_than_its_parts() -> None:
    assert len(repr(doubled())) < 20_000
    assert repr(doubled(1)) == f"Union(left={doubled(0)!r}, right=Source(...))"
    assert "stream='a'" in repr(doubled(0))


def test_what_is_remembered_of_a_node_is_computed_once() -> None:
    asked: list[Node] = []

    @remembered
    def depth(node: Node) -> int:
        asked.append(node)
        return 1 + max((depth(each) for each in (node.left, node.right)), default=0) if isinstance(node, Union) else 1

    plan = doubled()
    assert (depth(plan), depth(plan)) == (LEVELS + 1, LEVELS + 1)
    assert len(asked) == LEVELS + 1


def test_what_is_remembered_of_a_node_is_neither_stored_nor_copied() -> None:
    one = doubled(2)
    assert one.schema
    again = stored_plans.read(stored_plans.written(one))
    assert again == one
    assert not msgspec.structs.replace(one, right=one.left).__dict__


def test_walks_visit_each_object_once() -> None:
    plan = doubled()
    assert sum(1 for _ in nodes_of(plan)) == LEVELS + 1
    down = list(nodes_of(plan))
    assert list(from_below(plan)) == down[::-1]
    assert written_out(plan) == 2 ** (LEVELS + 1) - 1
    assert levels(plan) == LEVELS + 1
    assert len(parts_shared(plan)) == LEVELS - 1  # the source has no inputs
    assert plan.schema == COLUMNS
    assert plan.is_instantaneous
    assert plan.never_null == frozenset()
    assert not reads_relations_only(plan)
    assert unbounded_operator(plan) is None


def test_what_is_not_changed_stays_the_same_object() -> None:
    plan = doubled()
    assert rebuilt(plan, lambda node: node) is plan
    assert isinstance(plan, Union)
    assert above(plan, (plan.left, plan.right)) is plan


def test_what_is_changed_is_changed_once() -> None:
    changed: list[Node] = []

    def other_stream(node: Node) -> Node:
        changed.append(node)
        return Source("b", COLUMNS) if isinstance(node, Source) else node

    found = rebuilt(doubled(), other_stream)
    assert len(changed) == LEVELS + 1
    assert [each.stream for each in nodes_of(found) if isinstance(each, Source)] == ["b"]


def test_what_is_below_some_nodes_can_be_left_out() -> None:
    condition = read_scalar('"x" > 1', FieldType.BOOLEAN)
    plan = Union(Filter(Source("a", COLUMNS), condition), Relation("r", "r@1", COLUMNS))
    names = [type(each).__name__ for each in nodes_of(plan, within=lambda node: not isinstance(node, Filter))]
    assert names == ["Union", "Filter", "Relation"]
