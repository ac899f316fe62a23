"""Queries from text through rewriting, edges and operators: the snapshots that the DuckDB oracle says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.fjord.running_kinds import empty_crossing
from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.translation import (
    translate,
)
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.lowering import lower
from cluster.physical.operations import Exchange
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.proving import Tally, prove
from tests.cluster.oracle.running import fragment_alone

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
    "SELECT k, FIRST(x) AS f, LAST(x) AS l FROM t WINDOW(RANGE 6 MICROSECONDS SLIDE 3 MICROSECONDS) GROUP BY k",
    "SELECT LAST(k) AS k, SUM(1) AS one, STDDEV(2) AS two FROM t WINDOW(ROWS 3)",
    ("SELECT a.k, LAST(b.x) FROM t a WINDOW(RANGE 5 US), u b WINDOW(RANGE 4 US)"
    " WHERE a.k = b.k AND a.k = b.k GROUP BY a.k"),
    "SELECT DISTINCT k AS known, x AS before FROM t WINDOW(RANGE 5 MICROSECONDS)",
    "SELECT q.count FROM (SELECT x AS count, k AS enters FROM t) q WINDOW(PARTITION BY count ROWS 2)",
    "SELECT NULLIF(LENGTH('x'), x) AS n, CASE WHEN k = 'a' THEN UPPER('b') END AS c FROM t WINDOW(RANGE 3 US)",
    "SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM t WINDOW(RANGE 3 MICROSECONDS)) q WINDOW(RANGE 4 MICROSECONDS)",
    "SELECT SUM(n) AS s FROM (SELECT COUNT(*) AS n FROM t WINDOW(RANGE 3 US)) q WINDOW(RANGE 4 US SLIDE 2 US)",
]  # fmt: skip
ROWS = st.dictionaries(
    st.integers(0, 15), st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 3)), max_size=8
).map(lambda rows: sorted(rows.items()))


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(t=ROWS, u=ROWS, dice=st.randoms(use_true_random=False))
def test_sql_means_what_it_says(text: str, t: Any, u: Any, dice: random.Random) -> None:
    node, tally = translate(text, CATALOG).node, Tally()
    prove(node, [{"t": t, "u": u}], dice, tally, last=16)
    assert tally.pairs == 1
    assert not tally.unsupported


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT FIRST(x) AS f FROM (SELECT x FROM t WINDOW(ROWS 2)) q", "the rows of a subquery have none"),
        ("SELECT FIRST(t.x + u.x) AS f FROM t WINDOW(ROWS 2), u", "this reads several"),
    ],
)
def test_first_and_last_need_the_stamps_of_one_stream(text: str, reason: str) -> None:
    with pytest.raises(FjordSqlError, match=reason):
        translate(text, CATALOG)


def test_a_window_over_what_lasts_counts_every_instant_or_is_refused_with_a_way_out() -> None:
    counted = "SELECT {} AS n FROM (SELECT k FROM t WINDOW(RANGE 5 MINUTES)) q WINDOW(RANGE 1 HOUR)"
    with pytest.raises(UnsupportedPlanError, match="once for every microsecond") as caught:
        check_supported(translate(counted.format("COUNT(*)"), CATALOG).node)
    assert "ISTREAM" in str(caught.value.hint)
    check_supported(translate(counted.format("COUNT(DISTINCT k)"), CATALOG).node)


def test_exchanges_come_left_to_right_and_have_names_of_their_own() -> None:
    fragment = fragment_alone(rewrite(translate(TEXTS[4], CATALOG).node).node)
    assert fragment.streams == ("t", "u")
    assert [each.id for each in fragment.exchanges] == ["query@1/0", "query@1/1"]
    assert not fragment.spread, "a join needs all its rows in one bucket"


def test_a_keyed_aggregate_is_spread_over_buckets() -> None:
    node = rewrite(translate(TEXTS[1], CATALOG).node).node
    (fragment,) = lower(Plan(1, (PlannedQuery("q", 1, node),))).fragments
    (exchange,) = fragment.exchanges
    assert isinstance(exchange.operation, Exchange)
    assert (exchange.operation.spread, exchange.operation.by) == ("keys", ('fjord_key("k")',))
    assert fragment.spread
    assert empty_crossing(fragment, exchange).columns[:3] == ["fjord_start_us", "fjord_end_us", 'fjord_key("k")']
    assert [column.name for column in node.schema] == ["k", "s"]
