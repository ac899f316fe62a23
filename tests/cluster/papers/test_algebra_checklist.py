"""papers/pipes_algebra.md section 8: a test for every line of its checklist, named after the line.

Where a line is proven at length elsewhere, the test here is its shortest case.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.batch import NEVER, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.changes import Changes
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.operators.join import Join, SemiJoin
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.set_operations import Distinct, Union, difference, intersection
from cluster.fjord.operators.splitting import Split
from cluster.fjord.operators.time_window import Granularity, TimeWindow
from cluster.language.catalog import Catalog, CatalogError
from cluster.language.errors import FjordSqlError
from cluster.language.translation import CreateStream, parse_statement, translate, translate_derived
from cluster.operators import Filter as FilterNode
from cluster.operators import Node
from cluster.operators import TimeWindow as TimeWindowNode
from cluster.operators.columns import AggregateCall
from cluster.plan.rewrite import RULES, rewrite
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.oracle.running import fragment_alone
from tests.cluster.oracle.searching import search
from tests.cluster.papers.coalesce import Coalesce
from tests.cluster.papers.notation import Rows, answer, frame, physical, snapshots
from tests.cluster.papers.queries import catalog_of, check_answer, planned, stream

E, F = frame([]), frame([], "f")
CATALOG = catalog_of(stream("s", "k TEXT, x INT"), stream("r", "k TEXT, x INT"))
SAME = read_scalar('"e" = "f"', FieldType.BOOLEAN)
LESS = read_scalar('"e" < "f"', FieldType.BOOLEAN)
COUNT = AggregateCall("n", "count", None, FieldType.INTEGER)


def random_rows(dice: random.Random, count: int = 10) -> Rows:
    starts = sorted(dice.randint(0, 20) for _ in range(count))
    return [(start, start + dice.randint(1, 9), dice.choice("abc")) for start in starts]


# Language


def test_create_stream_with_source_and_ordered_by_keeps_the_stamp_out_of_its_columns() -> None:
    made = parse_statement("CREATE STREAM s (k TEXT, x INT, ts TIMESTAMP) SOURCE mqtt('port') ORDERED BY ts")
    assert isinstance(made, CreateStream)
    assert [column.name for column in made.stream.columns] == ["k", "x"]
    catalog = Catalog.of([made.stream])
    assert [column.name for column in translate("SELECT * FROM s", catalog).node.schema] == ["k", "x"]
    assert translate("SELECT ts FROM s", catalog).node == translate("SELECT STAMP() AS ts FROM s", catalog).node
    without = parse_statement("CREATE STREAM s (k TEXT, x INT) SOURCE mqtt()")
    assert isinstance(without, CreateStream)
    assert without.stream.stamp is None


def test_drop_stream_is_rejected_while_dependants_run() -> None:
    derived = translate_derived("CREATE STREAM busy AS SELECT k FROM s WHERE x > 1", CATALOG)
    catalog = CATALOG.with_stream(derived)
    with pytest.raises(CatalogError, match="in use by busy"):
        catalog.without("s")
    with pytest.raises(CatalogError, match="in use by q1"):
        CATALOG.without("s", used_by=["q1"])
    assert catalog.without("busy").without("s").names == ("r",)


@pytest.mark.parametrize(
    "window",
    [
        "WINDOW(RANGE 5 MINUTES) a", "a WINDOW(RANGE 5 MINUTES)", "WINDOW(ROWS 3) a", "WINDOW(RANGE UNBOUNDED) a",
        "WINDOW(ROWS UNBOUNDED) a", "WINDOW(PARTITION BY k ROWS 2) a", "WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES) a",
        "WINDOW(ROWS 10 SLIDE 5) a", "a",
    ],
)  # fmt: skip
def test_windows_of_every_kind_with_the_alias_before_or_after(window: str) -> None:
    planned(f"SELECT a.k FROM s {window}", CATALOG)


@pytest.mark.parametrize(
    "source",
    ["s", "busy", "(SELECT k FROM s WHERE x > 1) AS q", "(SELECT DISTINCT k FROM s) AS q"],
    ids=["base", "derived", "subquery", "subquery with distinct"],
)
def test_windows_on_base_and_derived_streams_and_on_subqueries(source: str) -> None:
    derived = translate_derived("CREATE STREAM busy AS SELECT k FROM s WHERE x > 1", CATALOG)
    text = f"SELECT COUNT(*) AS n FROM {source} WINDOW(RANGE 3 US)"
    check_answer(
        text, CATALOG.with_stream(derived), {"s": [(2, ("a", 5)), (4, ("b", 5))]}, [(2, 4, 1), (4, 5, 2), (5, 7, 1)]
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT k FROM s",
        "SELECT k, MIN(x), MAX(x), AVG(x), SUM(x), COUNT(*) FROM s WINDOW(RANGE 5 MINUTES) GROUP BY k",
        "SELECT k FROM s UNION ALL SELECT k FROM r",
        "SELECT k FROM s WINDOW(ROWS 3) WHERE x = (SELECT MAX(x) FROM s WINDOW(ROWS 3))",
        "SELECT k FROM s WHERE x >= ALL (SELECT x FROM r WINDOW(RANGE 5 MINUTES))",
        "SELECT ABS(x) FROM s WINDOW(RANGE 5 MINUTES) GRANULARITY(1 MINUTE)",
        "SELECT k FROM s WINDOW(RANGE MIN 1 HOUR, MAX 2 HOURS) GRANULARITY(COARSEST 2 MINUTES, FINEST 1 MINUTE)",
        "SELECT k FROM ISTREAM(s WINDOW(ROWS 3)) a",
        "SELECT k FROM DSTREAM(s WINDOW(ROWS 3)) a",
        "SELECT k FROM RSTREAM(s WINDOW(ROWS 3)) a",
    ],
)
def test_the_constructs_of_the_language(text: str) -> None:
    planned(text, CATALOG)


@pytest.mark.parametrize("window", ["RANGE UNBOUNDED", "ROWS UNBOUNDED"])
def test_a_stateful_query_over_an_unbounded_window_is_rejected(window: str) -> None:
    with pytest.raises(FjordSqlError, match="unbounded"):
        translate(f"SELECT COUNT(*) FROM s WINDOW({window})", CATALOG)
    translate(f"SELECT k FROM s WINDOW({window}) WHERE x > 1", CATALOG)


# Semantics, per snapshot


def _pairs(left: Counter[Any], right: Counter[Any], holds: Callable[[str, str], bool]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for (one,), n in left.items():
        for (other,), m in right.items():
            if holds(one, other):
                found[(one, other)] += n * m
    return found


BINARY: dict[str, tuple[Callable[[], Operator], Callable[[Counter[Any], Counter[Any]], Counter[Any]]]] = {
    "union": (lambda: Union(E), lambda left, right: left + right),
    "difference": (lambda: difference(E), lambda left, right: left - right),
    "intersection": (lambda: intersection(E), lambda left, right: left & right),
    "join": (lambda: Join(E, F, SAME), lambda left, right: _pairs(left, right, lambda a, b: a == b)),
    "theta join": (lambda: Join(E, F, LESS), lambda left, right: _pairs(left, right, lambda a, b: a < b)),
    "semi-join": (
        lambda: SemiJoin(E, F, LESS, anti=False),
        lambda left, right: Counter({a: n for a, n in left.items() if any(a < b for b in right)}),
    ),
    "anti-join": (
        lambda: SemiJoin(E, F, LESS, anti=True),
        lambda left, right: Counter({a: n for a, n in left.items() if not any(a < b for b in right)}),
    ),
}


@pytest.mark.parametrize(("make", "relational"), BINARY.values(), ids=list(BINARY))
def test_each_standard_operator_is_snapshot_reducible(
    make: Callable[[], Operator], relational: Callable[[Counter[Any], Counter[Any]], Counter[Any]]
) -> None:
    dice = random.Random(7)
    for _ in range(10):
        left, right = random_rows(dice), random_rows(dice)
        found = snapshots(answer(make(), frame(left), frame(right, "f")))
        inputs = zip(snapshots(left), snapshots(right), strict=True)
        assert found == [relational(one, other) for one, other in inputs]


def test_distinct_and_grouping_are_snapshot_reducible() -> None:
    dice = random.Random(8)
    for _ in range(10):
        rows = random_rows(dice)
        assert snapshots(answer(Distinct(E), frame(rows))) == [Counter(set(each)) for each in snapshots(rows)]
        counted = answer([PartialAggregate((), (COUNT,)), MergeAggregate((), (COUNT,))], frame(rows))
        assert snapshots(counted) == [Counter({(each.total(),): 1}) if each else Counter() for each in snapshots(rows)]


@pytest.mark.parametrize(("size", "slide"), [(1, 1), (4, 1), (4, 2), (2, 5), (7, 5)])
def test_time_windows_equal_the_formula_at_every_instant(size: int, slide: int) -> None:
    dice = random.Random(size * 10 + slide)
    rows = [(at, at + 1, dice.choice("ab")) for at in sorted(dice.choices(range(20), k=9))]
    given, found = snapshots(rows), snapshots(answer(TimeWindow(size, slide), frame(rows)))
    for instant, content in enumerate(found):
        k = (instant + 1) // slide * slide
        expected = sum(given[max(k - size, 0) : k], Counter()) if instant >= slide - 1 else Counter()
        assert content == expected
    if (size, slide) == (1, 1):
        assert found == given


@pytest.mark.parametrize(("rows_kept", "slide"), [(1, 1), (3, 1), (3, 2), (2, 3)])
def test_count_windows_equal_the_formula_at_every_instant(rows_kept: int, slide: int) -> None:
    dice = random.Random(rows_kept * 10 + slide)
    rows = [(at, at + 1, dice.choice("ab")) for at in sorted(dice.sample(range(20), 9))]
    found = snapshots(answer(CountWindow(E, rows_kept, slide), frame(rows)))
    for instant, content in enumerate(found):
        numbered = [value for start, _, value in rows if start <= instant]
        k = len(numbered) // slide * slide
        assert content == Counter((value,) for value in numbered[max(k - rows_kept, 0) : k])


def test_existence_with_inequality_keeps_the_multiplicity() -> None:
    left, right = frame(physical("b[0,5) b[0,5) z[0,5)")), frame(physical("c[1,4) d[2,3)"), "f")
    kept = snapshots(answer(SemiJoin(E, F, LESS, anti=False), left, right))
    assert kept[2] == Counter({("b",): 2}), "two partners do not make four tuples"
    gone = snapshots(answer(SemiJoin(E, F, LESS, anti=True), left, right))
    assert gone[2] == Counter({("z",): 1})
    assert gone[0] == Counter({("b",): 2, ("z",): 1})


def test_aggregation_is_silent_on_empty_snapshots() -> None:
    found = answer([PartialAggregate((), (COUNT,)), MergeAggregate((), (COUNT,))], frame(physical("a[2,4) b[7,8)")))
    assert snapshots(found)[:9] == [Counter({(1,): 1}) if at in (2, 3, 7) else Counter() for at in range(9)]


# Physical


def test_every_operators_output_is_ordered_with_no_empty_interval() -> None:
    dice = random.Random(9)
    unary = [
        Distinct(E), Split(E, 2), Coalesce(E, 5), Granularity(3),
        Changes(E, insertions=True), Changes(E, insertions=False),
    ]  # fmt: skip
    for operator in unary:
        assert answer(operator, frame(random_rows(dice)))  # `answer` checks order, watermarks and intervals
    for make, _ in BINARY.values():
        answer(make(), frame(random_rows(dice)), frame(random_rows(dice), "f"))


def test_the_corrected_algorithms() -> None:
    assert sorted(answer(Distinct(E), frame(physical("a[0,9) a[2,10) a[2,3)")))) == physical("a[0,9) a[9,10)")
    minus = answer(difference(E), frame(physical("a[0,10) a[2,4)")), frame(physical("a[1,3) a[2,5)"), "f"))
    assert snapshots(minus) == snapshots(physical("a[0,1) a[3,4) a[5,10)"))
    merged = answer(Coalesce(E, 9), frame(physical("c[10,14) c[11,13) c[14,15)")))
    assert merged == physical("c[10,15) c[11,13)")
    counted = answer(CountWindow(E, 2, 2), frame(physical("b@1 a@3 c@4 a@7 b@10")))
    assert snapshots(counted) == snapshots(physical("b[3,7) a[3,7) c[7,∞) a[7,∞)"))


def operators_of(text: str) -> list[str]:
    _, better = planned(text, CATALOG)
    return [node.operation.kind_name() for node in fragment_alone(better).nodes]


@pytest.mark.parametrize(
    ("source", "split"),
    [
        ("s", False),
        ("(SELECT k FROM s WHERE x > 1) q", False),
        ("(SELECT s.k FROM s, r WINDOW(RANGE 5 US) WHERE s.k = r.k) q", False),
        ("(SELECT k, COUNT(*) AS n FROM s GROUP BY k) q", False),
        ("ISTREAM(s WINDOW(RANGE 5 US)) q", False),
        ("(SELECT k FROM s WINDOW(RANGE 5 US)) q", True),
        ("(SELECT s.k FROM s WINDOW(RANGE 5 US), r WINDOW(RANGE 5 US) WHERE s.k = r.k) q", True),
        ("(SELECT k, COUNT(*) AS n FROM s WINDOW(RANGE 5 US) GROUP BY k) q", True),
    ],
)
def test_split_is_inserted_exactly_when_the_input_of_a_window_lasts(source: str, split: bool) -> None:
    assert ("Split" in operators_of(f"SELECT COUNT(*) AS c FROM {source} WINDOW(RANGE 3 US)")) is split


def rows_kept(operator: Operator) -> int:
    return sum(table.height for table in operator.save().values() if isinstance(table, pl.DataFrame))


def test_state_is_bounded() -> None:
    join, count = Join(E, F, SAME), CountWindow(E, 3, 1)
    merge, partial = MergeAggregate((), (COUNT,)), PartialAggregate((), (COUNT,))
    for at in range(0, 2000, 2):
        row, chronon = frame([(at, at + 10, "a")]), frame([(at, at + 1, "a")])
        for port in (0, 1):
            join.transition(port, Batch(row if port == 0 else row.rename({"e": "f"}), at))
        count.transition(0, Batch(chronon, at))
        merge.transition(0, partial.transition(0, Batch(row, at)))
        assert rows_kept(join) <= 2 * 6 + 2 * 6, "live rows of both sides, and pairs that start just now"
        assert rows_kept(count) <= 3 + 1 + 1
        assert rows_kept(merge) <= 2 * 6 - 1


def test_heartbeats_advance_purging_and_output() -> None:
    join = Join(E, F, SAME)
    assert join.transition(0, Batch(frame(physical("k[1,9)")), 1)).empty
    assert join.transition(1, Batch(frame(physical("k[2,4)"), "f"), 2)).empty
    assert join.transition(0, Batch(E, 20)).empty
    late = join.transition(1, Batch(F, 20))
    assert (late.rows.rows(), late.watermark_us) == ([(2, 4, "k", "k")], 20)
    assert rows_kept(join) == 0


def test_the_end_of_input_flushes_every_operator() -> None:
    rows = frame(physical("a[0,40) b[3,50)"))
    for operator in (Distinct(E), Split(E, 4), Coalesce(E, 100), Changes(E, insertions=False), CountWindow(E, 5, 1)):
        early = operator.transition(0, Batch(rows, 4))
        rest = operator.transition(0, Batch(E, NEVER))
        assert early.rows.height + rest.rows.height > 0
        assert early.watermark_us < NEVER
        assert rest.watermark_us == NEVER
        assert rows_kept(operator) == 0 or isinstance(operator, CountWindow), "only how many have come is known still"


def test_state_is_evicted_by_end_whatever_the_order_of_ends() -> None:
    """The list sweep area of the digest needs ends in order; ours evicts by a comparison and needs no order."""
    distinct = Distinct(E)
    distinct.transition(0, Batch(frame(physical("a[0,50) b[1,3) c[2,9)")), 10))
    kept = distinct.save()["intervals"]
    assert isinstance(kept, pl.DataFrame)
    assert kept["e"].to_list() == ["a"]


def test_positive_negative_round_trip() -> None:
    dice = random.Random(11)
    rows = random_rows(dice)
    plus = snapshots(answer(Changes(E, insertions=True), frame(rows)))
    minus = snapshots(answer(Changes(E, insertions=False), frame(rows)))
    content: Counter[Any] = Counter()
    for at, expected in enumerate(snapshots(rows)):
        content = content - (minus[at - 1] if at else Counter()) + plus[at]
        assert content == expected


# Optimiser


def below(node: Node) -> list[Node]:
    return [node, *(each for child in node.inputs for each in below(child))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k FROM s WINDOW(ROWS 3) WHERE x > 1", "a filter and a count window do not commute"),
        ("SELECT k FROM s WINDOW(PARTITION BY k ROWS 2) WHERE x > 1", "nor with a partitioned one, for any predicate"),
        ("SELECT DISTINCT k FROM s WINDOW(RANGE 5 MINUTES)", "distinct does not sink below a window"),
    ],
)
def test_none_of_the_non_rules_is_applied(text: str, why: str) -> None:
    _, better = planned(text, CATALOG)
    kinds = [type(node).__name__ for node in below(better)]
    upper, lower = ("Distinct", "TimeWindow") if "DISTINCT" in text else ("Filter", "Window")
    places = [place for place, kind in enumerate(kinds) if kind.endswith(lower)]
    assert kinds.index(upper) < places[0], why


def test_rules_are_applied_where_they_hold() -> None:
    _, better = planned("SELECT k FROM s WINDOW(RANGE 5 MINUTES) WHERE x > 1", CATALOG)
    window = next(node for node in below(better) if isinstance(node, TimeWindowNode))
    assert any(isinstance(node, FilterNode) for node in below(window)), "W2: the filter sinks below a time window"


def test_plans_before_and_after_rewriting_are_snapshot_equivalent() -> None:
    tally = search(round_seed=42, plan_count=12, stream_sets=3)
    assert tally.rewritten > 0
    assert len(RULES) >= 40


def test_q4_shares_its_windows() -> None:
    text = "SELECT k, x FROM s WINDOW(RANGE 10 US) WHERE x = (SELECT MAX(x) FROM s WINDOW(RANGE 10 US))"
    node = rewrite(translate(text, CATALOG).node).node
    windows = [each for each in below(node) if isinstance(each, TimeWindowNode)]
    assert len(windows) == 2
    assert len(set(windows)) == 1, "equal sub-plans are equal values: what runs them once can see it"


def test_a_derived_stream_must_not_hide_what_is_refused() -> None:
    with pytest.raises((FjordSqlError, PlanError)):
        translate_derived("CREATE STREAM all_of_them AS SELECT COUNT(*) AS n FROM s WINDOW(RANGE UNBOUNDED)", CATALOG)
