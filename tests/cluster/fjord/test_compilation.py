"""Whole plans through edges and operators: the same snapshots as the definition, for random plans and streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.fjord.compilation import check_supported
from cluster.fjord.edges import UnsupportedPlanError, edges_of
from cluster.language.algebra import Granularity, Node, inputs_of, schema_of
from cluster.language.catalog import Catalog
from cluster.language.translation import (
    CreateDerivedStream,
    CreateStream,
    SelectStatement,
    parse_statement,
    translate,
    translate_derived,
)
from cluster.plan.epoch import PlannedQuery
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from protocols.streams import Field, FieldType, StreamSchema
from tests.cluster.fjord.running import run_plan, run_rewritten
from tests.cluster.language.test_docs import EXAMPLES
from tests.cluster.plan.snapshots import evaluate
from tests.cluster.plan.test_equivalence import INSTANTS, MARGIN, STREAMS, plans

SHOWN = INSTANTS - MARGIN


def has_granularity(node: Node) -> bool:
    return isinstance(node, Granularity) or any(has_granularity(child) for child in inputs_of(node))


def snapshot(rows: list[tuple[Any, ...]], instant: int) -> Counter[tuple[Any, ...]]:
    return Counter(row[2:] for row in rows if row[0] <= instant < row[1])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans(), STREAMS, st.data())
def test_any_plan_means_what_it_says(plan: Node, streams: Any, data: st.DataObject) -> None:
    assume(not has_granularity(plan))  # exact at its multiples only; it has tests of its own
    for node, run in ((plan, run_plan), (rewrite(plan).node, run_plan)):
        try:
            check_supported(node)
        except UnsupportedPlanError:
            continue
        note(explain(node))
        rows = run(
            node,
            streams,
            cuts=data.draw(st.lists(st.integers(1, INSTANTS), max_size=3)),
            shuffle=lambda rows: data.draw(st.permutations(rows)) if data.draw(st.booleans()) else rows,
            restart=lambda: data.draw(st.booleans()),
        )
        defined = evaluate(plan, streams, INSTANTS)
        for instant in range(SHOWN):
            assert snapshot(rows, instant) == +defined[instant], f"at instant {instant}"


TRAFFIC = StreamSchema("t", (Field("k", FieldType.TEXT), Field("x", FieldType.INTEGER)))
OTHER = StreamSchema("u", (Field("k", FieldType.TEXT), Field("x", FieldType.INTEGER)))
CATALOG = Catalog.of([TRAFFIC, OTHER])
TEXTS = [
    "SELECT k, x FROM t WHERE x > 0",
    "SELECT k, SUM(x) AS s FROM t WINDOW(RANGE 4 MICROSECONDS SLIDE 2 MICROSECONDS) GROUP BY k HAVING SUM(x) > 1",
    "SELECT COUNT(DISTINCT x) AS n FROM t WINDOW(RANGE 5 MICROSECONDS)",
    "SELECT DISTINCT k FROM t WINDOW(RANGE 5 MICROSECONDS)",
    "SELECT a.k, b.x FROM t a WINDOW(RANGE 5 MICROSECONDS), u b WHERE a.k = b.k",
    "SELECT k FROM t WINDOW(RANGE 3 MICROSECONDS) UNION ALL SELECT k FROM u",
    "SELECT k FROM t WINDOW(RANGE 3 MICROSECONDS) EXCEPT ALL SELECT k FROM u WINDOW(RANGE 2 MICROSECONDS)",
    "SELECT k, x FROM t WINDOW(RANGE 4 MICROSECONDS) WHERE x = (SELECT MAX(x) FROM t WINDOW(RANGE 4 MICROSECONDS))",
    "SELECT k FROM t WHERE k IN (SELECT k FROM u WINDOW(RANGE 6 MICROSECONDS))",
    "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WINDOW(RANGE 6 MICROSECONDS) v WHERE v.k = t.k)",
    "SELECT k, x FROM t WINDOW(PARTITION BY k ROWS 2)",
]
ROWS = st.dictionaries(
    st.integers(0, 15), st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 3)), max_size=8
).map(lambda rows: sorted(rows.items()))


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sql_means_what_it_says(text: str, data: st.DataObject) -> None:
    node = translate(text, CATALOG).node
    check_supported(rewrite(node).node)
    streams = {"t": data.draw(ROWS), "u": data.draw(ROWS)}
    rows = run_rewritten(node, streams, cuts=data.draw(st.lists(st.integers(1, 16), max_size=3)))
    defined = evaluate(node, streams, 24)
    for instant in range(23):
        assert snapshot(rows, instant) == +defined[instant], f"at instant {instant}"


def test_of_the_documented_queries_all_but_two_can_be_run() -> None:
    """docs/sql.md names the exceptions: FIRST and LAST, and a window over a subquery whose rows last."""
    catalog, refused = Catalog(), []
    for kind, text in EXAMPLES:
        if kind != "sql":
            continue
        match parse_statement(text):
            case CreateStream(stream=stream):
                catalog = catalog.with_stream(stream)
            case CreateDerivedStream():
                catalog = catalog.with_stream(translate_derived(text, catalog))
            case SelectStatement():
                try:
                    check_supported(rewrite(translate(text, catalog).node).node)
                except PlanError as error:
                    refused.append(error.message)
            case _:
                pass
    assert len(refused) == 2
    assert any("FIRST cannot be evaluated yet" in reason for reason in refused)
    assert any("once for every microsecond" in reason for reason in refused)


def test_edges_come_left_to_right_and_have_names_of_their_own() -> None:
    node = rewrite(translate(TEXTS[4], CATALOG).node).node
    edges = edges_of(PlannedQuery("q", 3, node))
    assert [(edge.name, edge.stream) for edge in edges] == [("q@3/0", "t"), ("q@3/1", "u")]
    assert all(edge.partition_by == () for edge in edges), "a join needs all its rows in one bucket"


def test_a_keyed_aggregate_is_spread_over_buckets() -> None:
    node = rewrite(translate(TEXTS[1], CATALOG).node).node
    (edge,) = edges_of(PlannedQuery("q", 1, node))
    assert edge.partition_by == ("k",)
    assert edge.aggregate is not None
    assert edge.empty_rows().columns[:3] == ["fjord_start_us", "fjord_end_us", "k"]
    assert [column.name for column in schema_of(node)] == ["k", "s"]


def test_a_window_over_what_lasts_is_refused_with_a_way_out() -> None:
    text = "SELECT * FROM (SELECT k FROM t WINDOW(RANGE 5 MICROSECONDS)) q WINDOW(RANGE 5 MICROSECONDS)"
    with pytest.raises(UnsupportedPlanError, match="once for every microsecond") as caught:
        check_supported(translate(text, CATALOG).node)
    assert "ISTREAM" in str(caught.value.hint)
