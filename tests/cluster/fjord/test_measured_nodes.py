"""What operators do, beside the nodes of the plan whose work they do."""

from __future__ import annotations

from cluster.fjord.measured_plans import measured_nodes
from cluster.fjord.operator_statistics import NONE_YET, Rates
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Aggregate, Filter, Join, Node, Project, TimeWindow
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment
from cluster.physical.operations import GroupedFilter, MergeAggregate, PartialAggregate
from cluster.physical.operations import Join as JoinOperation
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("speed", FieldType.REAL), Field("lane", FieldType.INTEGER))
CATALOG = Catalog.of([StreamSchema("traffic", FIELDS), StreamSchema("weather", FIELDS)])


def _running(text: str) -> tuple[Node, Fragment]:
    node = rewrite(translate(text, CATALOG).node).node
    (fragment,) = lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
    return node, fragment


def _named(fragment: Fragment, kind: type, place: int = 0) -> str:
    return [each.id for each in fragment.nodes if isinstance(each.operation, kind)][place]


def test_both_halves_of_an_aggregate_are_one_node() -> None:
    node, fragment = _running("SELECT lane, AVG(speed) AS m FROM traffic WINDOW(RANGE 1 MINUTE) GROUP BY lane")
    known = {
        _named(fragment, PartialAggregate): Rates(100, 60, 0.25),
        _named(fragment, MergeAggregate): Rates(60, 30, 0.5),
    }
    found = measured_nodes(node, fragment, lambda name: known.get(name, NONE_YET))
    assert {type(each): rates for each, rates in found.items()} == {Aggregate: Rates(100, 30, 0.75)}


def test_each_side_of_a_join_is_measured_by_itself() -> None:
    node, fragment = _running(
        "SELECT a.speed, b.speed AS other FROM traffic a WINDOW(RANGE 1 MINUTE), weather b WINDOW(RANGE 1 SECOND) "
        "WHERE a.lane = b.lane AND b.speed > 3"
    )
    known = {
        _named(fragment, GroupedFilter, 1): Rates(7, 2, 0.1),
        _named(fragment, JoinOperation): Rates(9, 1, 0.2),
    }
    found = measured_nodes(node, fragment, lambda name: known.get(name, NONE_YET))
    assert {type(each): rates for each, rates in found.items()} == {Filter: Rates(7, 2, 0.1), Join: Rates(9, 1, 0.2)}
    windows = [each.id for each in fragment.nodes if each.operation.kind_name() == "TimeWindow"]
    sides = measured_nodes(node, fragment, lambda name: Rates(windows.index(name) + 1) if name in windows else NONE_YET)
    assert [
        (each.size_us, rates.rows_in_per_second) for each, rates in sides.items() if isinstance(each, TimeWindow)
    ] == [
        (60_000_000, 1),
        (1_000_000, 2),
    ]


def test_what_cannot_be_assigned_is_left_out() -> None:
    node, fragment = _running("SELECT speed + 1 AS s FROM traffic")
    assert Project in map(type, measured_nodes(node, fragment, lambda _: Rates(1, 1, 1)))
    assert measured_nodes(node, fragment, lambda _: NONE_YET) == {}
    other, _ = _running("SELECT lane FROM (SELECT speed + lane AS lane FROM traffic WHERE speed > 2) WHERE lane < 3")
    assert Filter not in map(type, measured_nodes(other, fragment, lambda _: Rates(1, 1, 1)))
