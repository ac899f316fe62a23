"""Differences between two plans, as operators and in words."""

from __future__ import annotations

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.difference import diff
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("lane", FieldType.INTEGER), Field("speed", FieldType.REAL)))])
SLOW = "SELECT speed FROM traffic WHERE speed < {}"
PANES = "SELECT lane, {}(speed) AS v FROM traffic WINDOW(RANGE {} MINUTES SLIDE {} MINUTES) GROUP BY lane"


def query(number: int, text: str) -> PlannedQuery:
    return PlannedQuery(f"q{number}", number, rewrite(translate(text, CATALOG).node).node)


ONE, TWO, THREE = query(1, SLOW.format(10)), query(2, PANES.format("AVG", 10, 5)), query(3, SLOW.format(20))
FOUR = query(4, PANES.format("MAX", 4, 2))


def test_a_query_with_a_known_template_changes_no_operator() -> None:
    found = diff(lower(Plan(2, (ONE, TWO))), lower(Plan(3, (ONE, TWO, THREE))))
    assert found.come == found.go == ()
    (change,) = found.change
    assert (change.come, change.go, change.queries_come, change.queries_go) == ((), (), ("q3@3",), ())
    assert len(found.stay) == 1
    assert found.counts["operators_come"] == found.counts["operators_go"] == 0
    assert found.words.splitlines() == [
        "from epoch 2 to 3:",
        f"  changes {change.identity}: q3 comes, 6 operators stay",
        "  stays   1 other fragment",
    ]


def test_narrower_panes_and_more_aggregates_are_other_operators_with_the_same_state() -> None:
    found = diff(lower(Plan(3, (ONE, TWO))), lower(Plan(4, (ONE, TWO, FOUR))))
    (change,) = found.change
    name = change.identity
    assert set(change.come) == set(change.go)
    assert {each.split()[-1] for each in change.come} == {"Panes", "PartialAggregate", "PaneAggregate"}
    assert f"{name}/0 PaneAggregate" in change.come
    assert f"{name}/0" in change.stay, "the exchange keeps its id"


def test_fragments_come_and_go_with_their_queries() -> None:
    found = diff(lower(Plan(3, (ONE, TWO, THREE))), lower(Plan(4, (TWO,))))
    assert [each.subscribers[0].query for each in found.go] == ["q1"]
    assert "goes    fold-" in found.words
    assert "for 2 queries: q1, q3" in found.words
    back = diff(lower(Plan(4, (TWO,))), lower(Plan(5, (TWO, ONE))))
    assert [each.host for each in back.come] == [each.host for each in found.go]


def test_equal_plans_do_not_differ() -> None:
    plan = lower(Plan(2, (ONE, TWO)))
    assert diff(plan, plan).words == "from epoch 2 to 2:\n  stays   2 other fragments"
