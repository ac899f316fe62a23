"""Which nodes pass on the origins of pieces: those from cuts at watermarks up to lookups, and no others."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical import plan_json
from cluster.physical.lowering import lower_alone
from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("k", FieldType.TEXT), Field("v", FieldType.INTEGER))
CATALOG = Catalog.of(
    [
        StreamSchema("s", FIELDS),
        StreamSchema("t", FIELDS),
        StaticRelation("r", "r@1", (Column("k", FieldType.TEXT), Column("c", FieldType.INTEGER))),
    ]
)
COUNTED = "(SELECT k, COUNT(*) AS n FROM s VALID UNTIL NEXT BY k GROUP BY k)"
OF_R = "JOIN r ON r.k = z.k"


def fragment(sql: str) -> Fragment:
    return lower_alone(rewrite(translate(sql, CATALOG).node).node)


def marked(sql: str) -> dict[str, list[str]]:
    """Return the kinds of operations by what their nodes do with origins."""
    found: dict[str, list[str]] = {}
    for node in fragment(sql).nodes:
        if node.origins != "none":
            found.setdefault(node.origins, []).append(node.operation.kind_name())
    return found


def test_from_the_cut_to_the_lookup() -> None:
    assert marked(f"SELECT z.n, r.c FROM {COUNTED} AS z {OF_R}") == {
        "kept": ["UntilNext", "Project", "PartialAggregate", "MergeAggregate"],
        "dropped": ["Lookup"],
    }


def test_between_two_lookups_they_go_on() -> None:
    below = f"SELECT z.k, z.n, r.c FROM {COUNTED} AS z {OF_R}"
    found = marked(f"SELECT z.n, r.c FROM ({below} WHERE r.c > z.n) AS z {OF_R}")
    assert found["dropped"] == ["Lookup"]
    assert "Lookup" in found["kept"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT z.n FROM {COUNTED} AS z",  # nothing is looked up
        "SELECT s.v, r.c FROM s VALID UNTIL NEXT BY k AS s JOIN r ON r.k = s.k",  # nothing waits, so nothing is cut
        "SELECT z.n, r.c FROM (SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 1 SECOND) GROUP BY k) AS z " + OF_R,
    ],
)  # fmt: skip
def test_plans_without_a_lookup_above_a_cut_are_as_they_were(sql: str) -> None:
    assert marked(sql) == {}
    assert b"origins" not in plan_json.encode(PhysicalPlan(1, (fragment(sql),)))


def test_the_right_of_a_condition_on_existence_needs_none() -> None:
    chosen = (
        f"SELECT k, COUNT(*) AS m FROM t WINDOW(RANGE 1 SECOND) WHERE k IN (SELECT k FROM {COUNTED} AS x) GROUP BY k"
    )
    assert marked(f"SELECT z.k, r.c FROM ({chosen}) AS z {OF_R}") == {}


def test_plan_files_say_which() -> None:
    plan = PhysicalPlan(1, (fragment(f"SELECT z.n, r.c FROM {COUNTED} AS z {OF_R}"),))
    text = plan_json.encode(plan)
    assert plan_json.decode(text) == plan
    # Files of earlier versions lack it, and mean what they meant.
    earlier = plan_json.decode(text.replace(b',"origins":"kept"', b"").replace(b',"origins":"dropped"', b""))
    assert isinstance(earlier, PhysicalPlan)
    assert {each.origins for part in earlier.fragments for each in part.nodes} == {"none"}


def test_rows_that_are_distinct_only_in_turn_are_looked_up_by_their_origins() -> None:
    windows = "SELECT k FROM s WINDOW(RANGE 1 SECOND) UNION SELECT k FROM t WINDOW(RANGE 2 SECONDS)"
    assert marked(f"SELECT z.k, r.c FROM ({windows}) AS z {OF_R}") == {"kept": ["Distinct"], "dropped": ["Lookup"]}
    assert marked(f"SELECT z.k, r.c FROM (SELECT DISTINCT k FROM s WINDOW(RANGE 1 SECOND)) AS z {OF_R}") == {}
