"""The plan of a query with ranges at one choice of sizes, and the quality that its rows have."""

from __future__ import annotations

import pytest

from cluster.language.translation import translate
from cluster.operators import Node
from cluster.operators.size_ranges import SizeRange, ranges_of, with_sizes
from cluster.physical.lowering import lower, lower_alone
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized
from cluster.testing.query_run import answers
from cluster.testing.sources import ScriptedSource
from tests.cluster.language.example_catalog import CATALOG

HOUR, MINUTE = 3_600_000_000, 60_000_000


def plan_of(text: str) -> Node:
    return translate(text, CATALOG).node


def test_rows_of_queries_with_ranges_have_their_quality() -> None:
    script = [(f"2026-01-01T0{hour}:30:00Z", {"speed": 1.0}) for hour in range(3)]
    text = "SELECT COUNT(*) AS cars FROM traffic WINDOW(RANGE {} SLIDE 1 HOUR)"
    found = answers(text.format("MIN 1 HOUR, MAX 2 HOURS"), {"traffic": ScriptedSource({"speed": float}, script)})
    same = answers(text.format("2 HOURS"), {"traffic": ScriptedSource({"speed": float}, script)})
    assert [each.row for each in found] == [{**each.row, "quality": "window 2h"} for each in same]
    assert all("quality" not in each.row for each in same)


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR)",
    "SELECT COUNT(*) AS n FROM traffic WINDOW(ROWS MIN 1, MAX 5)",
])  # fmt: skip
def test_queries_without_ranges_have_none(text: str) -> None:
    assert sized(plan_of(text)) == plan_of(text)


def test_the_quality_has_all_sizes_and_a_name_of_its_own() -> None:
    node = plan_of(
        """SELECT COUNT(*) AS quality FROM traffic WINDOW(RANGE MIN 1 HOUR, MAX 12 HOURS) AS a
           JOIN weather WINDOW(RANGE MIN 10 MINUTES, MAX 1 HOUR) GRANULARITY(COARSEST 1 MINUTE, FINEST 10 SECONDS) AS b
           ON a.sensor = b.sensor"""
    )
    names = [column.name for column in sized(node).schema]
    assert (names[0], len(names), names[1] != "quality") == ("quality", 2, True)
    (window, *_) = ranges_of(node)
    assert "window 5h, window 1h, granularity 10s" in repr(sized(node, {window: 5 * HOUR}))


def test_a_quality_shares_panes_with_queries_of_other_sizes() -> None:
    text = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE {} SLIDE 1 HOUR) GROUP BY sensor"
    ranged = plan_of(text.format("MIN 1 HOUR, MAX 12 HOURS"))
    window = SizeRange("window", HOUR, 12 * HOUR, HOUR)
    nodes = [sized(ranged), sized(ranged, {window: 5 * HOUR}), plan_of(text.format("3 HOURS"))]
    queries = tuple(PlannedQuery(f"q{place}", 1, rewrite(node).node) for place, node in enumerate(nodes))
    assert len(lower(Plan(1, queries)).fragments) == 1


@pytest.mark.parametrize("text", [
    "SELECT lane FROM traffic WINDOW(RANGE {})",
    "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE {})",
    "SELECT DISTINCT lane FROM traffic WINDOW(RANGE {})",
    "SELECT lane, COUNT(*) AS n FROM traffic WINDOW(RANGE {}) GROUP BY lane ORDER BY n DESC LIMIT 3",
    "SELECT a.lane FROM traffic WINDOW(RANGE {0}) AS a JOIN weather WINDOW(RANGE {0}) AS b ON a.sensor = b.sensor",
])  # fmt: skip
def test_what_runs_but_for_the_quality_is_the_plan_of_the_size(text: str) -> None:
    window = SizeRange("window", HOUR, 12 * HOUR, HOUR)
    node = plan_of(text.format("MIN 1 HOUR, MAX 12 HOURS"))
    chosen = rewrite(sized(node, {window: 5 * HOUR})).node
    meant = rewrite(plan_of(text.format("5 HOURS"))).node
    assert with_sizes(node, {window: 5 * HOUR}) == plan_of(text.format("5 HOURS"))
    kinds = [[each.operation.kind_name() for each in lower_alone(plan).nodes] for plan in (chosen, meant)]
    assert [each for each in kinds[0] if each != "Project"] == [each for each in kinds[1] if each != "Project"]
