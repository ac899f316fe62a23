"""Planning takes work that grows no faster than a small power of the statement, or is refused: counted, not timed."""

from __future__ import annotations

import random

import pytest

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.fjord.upper_estimates import kept_by
from cluster.language.catalog import BaseStream, Catalog, DerivedStream
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate, translate_derived
from cluster.operators import Node
from cluster.operators.source import MOST_READINGS
from cluster.operators.walks import nodes_of, written_out
from cluster.physical.lowering import lower
from cluster.physical.placement import placement_of, sharing_of
from cluster.physical.text import plan_graph, plan_text
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.explain import explain
from cluster.plan.push_down import MOST_PAIRS
from cluster.plan.rewrite import Rewritten, rewrite
from cluster.planning_budget import Budget, PlanningLimitError, limited
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.definition import evaluate, horizon_of
from tests.cluster.oracle.proving import Tally, prove
from tests.cluster.oracle.running import fragment_alone
from tests.cluster.oracle.strategies import random_streams
from tests.cluster.specimens.drawing import COLUMNS, LAST

CATALOG = Catalog.of(
    [
        BaseStream(
            StreamSchema("t", (Field("v", FieldType.INTEGER), Field("k", FieldType.TEXT, fixed=True)))
        ),
        BaseStream(StreamSchema("o", (Field("total", FieldType.INTEGER),))),
        BaseStream(StreamSchema("wide", tuple(Field(f"c{n}", FieldType.INTEGER) for n in range(1_000)))),
    ]
)  # fmt: skip
WINDOW = "WINDOW(RANGE 1 SECONDS)"
TOTALS = f"SELECT total FROM o {WINDOW}"


def select(condition: str) -> str:
    return f"SELECT v FROM t {WINDOW} WHERE {condition}"


def both(count: int) -> str:
    """Conditions with OR about one subquery, joined by AND."""
    return select(" AND ".join(f"(v > {each} OR v IN ({TOTALS}))" for each in range(count)))


def either(count: int) -> str:
    return select(" OR ".join(f"(v > {each} AND v IN ({TOTALS}))" for each in range(count)))


def neither(count: int) -> str:
    return select("NOT (" + " OR ".join(f"(v > {each} AND v IN ({TOTALS}))" for each in range(count)) + ")")


def different(count: int) -> str:
    return select(" AND ".join(f"(v > {each} OR v IN ({TOTALS} WHERE total > {each}))" for each in range(count)))


def alternating(count: int) -> str:
    """AND and OR in turns, each within the other, around a subquery."""
    return select("(" * count + f"v IN ({TOTALS})" + " OR v > 1) AND v < 9" * count)


def nested(count: int) -> str:
    """Each subquery stands left of an OR within the one around it."""
    return select(f"EXISTS ({TOTALS} WHERE (" * count + f"total IN ({TOTALS})" + ") OR total > 1)" * count)


def doubling(step: str, times: int, top: str = "SELECT v FROM") -> str:
    names = "".join(f", a{each + 1} AS ({step.format(a=f'a{each}', n=each)})" for each in range(times))
    return f"WITH a0 AS (SELECT v FROM t {WINDOW}){names} {top} a{times}"


def operators(node: Node) -> int:
    return len(fragment_alone(node).behind)


def steps(text: str) -> tuple[int, Rewritten]:
    """Do everything that planning a query does; return how much work was counted, and what became of it."""
    with limited(Budget(1e9)) as budget:
        rewritten = rewrite(translate(text, CATALOG).node)
        node = rewritten.node
        check_supported(node)
        demands_of("q", node)
        plan = lower(Plan(1, (PlannedQuery("q", 1, node),)))
        list(kept_by(plan, {"t": 1.0, "o": 1.0}))
        plan_graph(plan)
        assert all([explain(node), placement_of(node), sharing_of(node, plan), plan_text(plan)])
    return budget.steps, rewritten


@pytest.mark.parametrize("shape", [both, either, neither, different, alternating])
def test_conditions_with_or_about_subqueries_take_work_in_proportion(shape) -> None:  # type: ignore[no-untyped-def]
    ten, made = steps(shape(10))
    twenty, more = steps(shape(20))
    assert twenty < 4 * ten
    assert len(more.applied) < 4 * len(made.applied) + 100
    assert sum(1 for _ in nodes_of(made.node)) < 200
    assert operators(made.node) < 200
    assert operators(more.node) < 2 * operators(made.node) + 100


def test_subqueries_within_subqueries_are_translated_once() -> None:
    four, _ = steps(nested(4))
    eight, made = steps(nested(8))
    assert eight < 4 * four
    assert operators(made.node) < 200


def test_subqueries_in_from_within_subqueries_are_translated_once() -> None:
    def deep(count: int) -> str:
        inner = f"EXISTS (SELECT total FROM (SELECT total FROM o {WINDOW} WHERE "
        return select(inner * count + "total > 1" + ") q)" * count)

    assert translate(deep(20), CATALOG).readings == 21
    four, _ = steps(deep(4))
    eight, _ = steps(deep(8))
    assert eight < 4 * four


def test_forty_conditions_with_or_are_planned_with_few_operators() -> None:
    _, made = steps(both(40))
    assert written_out(made.node) > 2**40
    assert operators(made.node) < 500


BEFORE = "SELECT before FROM beta WINDOW(RANGE 3 US)"
COLUMN_CATALOG = Catalog.of(
    [
        BaseStream(StreamSchema(name, tuple(Field(each.name, each.type) for each in columns)))
        for name, columns in COLUMNS.items()
    ]
)


@pytest.mark.parametrize(
    ("complicated", "simple"),
    [
        (
            " AND ".join(f"(k > {each % 3} OR k IN ({BEFORE}))" for each in range(5)),
            f"k > 2 OR k IN ({BEFORE})",
        ),
        (
            "NOT ("
            + " OR ".join(
                f"(k > {each % 3} AND k IN (SELECT before FROM beta WINDOW(RANGE 3 US)))" for each in range(5)
            )
            + ")",
            "NOT (k > 0 AND k IN (SELECT before FROM beta WINDOW(RANGE 3 US)))",
        ),
    ],
)
def test_shared_parts_mean_what_they_meant(complicated: str, simple: str) -> None:
    node, plain = (
        translate(f"SELECT k, s FROM alpha WINDOW(RANGE 4 US) WHERE {each}", COLUMN_CATALOG).node
        for each in (complicated, simple)
    )
    dice = random.Random(12)
    runs = [random_streams(dice) for _ in range(6)]
    tally = Tally()
    prove(node, runs, dice, tally)
    assert tally.pairs >= 4
    better = rewrite(node).node
    instants = max(horizon_of(each, LAST) for each in (node, plain, better))
    assert evaluate(better, runs, instants).snapshots == evaluate(plain, runs, instants).snapshots


@pytest.mark.parametrize(
    "step",
    [
        "SELECT v FROM {a} UNION ALL SELECT v FROM {a}",
        "SELECT v FROM {a} UNION ALL SELECT v + {n} AS v FROM {a}",
        "SELECT v FROM {a} EXCEPT SELECT v + 1 AS v FROM {a}",
        "SELECT x.v AS v FROM {a} x, {a} y WHERE x.v = y.v",
        "SELECT v FROM {a} WHERE v IN (SELECT v + 1 AS v FROM {a})",
    ],
)
def test_what_doubles_with_every_name_is_refused_at_once(step: str) -> None:
    with (
        limited(Budget(1e9)) as budget,
        pytest.raises(FjordSqlError, match=f"at most {MOST_READINGS:,} are possible") as caught,
    ):
        translate(doubling(step, 20), CATALOG)
    assert caught.value.offending.startswith("a")
    assert budget.steps < 5_000
    few, _ = steps(doubling(step, 4))
    many, _ = steps(doubling(step, 8))
    assert many < 20 * few


def test_derived_streams_count_with_all_they_read() -> None:
    catalog = CATALOG
    for each in range(9):
        below = f"a{each}" if each else "t"
        text = f"CREATE STREAM a{each + 1} AS SELECT v FROM {below} UNION ALL SELECT v FROM {below}"
        catalog = catalog.with_stream(translate_derived(text, catalog))
    last = catalog.find("a9")
    assert isinstance(last, DerivedStream)
    assert last.readings == 512
    assert translate("SELECT v FROM a9", catalog).readings == 512
    with pytest.raises(FjordSqlError, match="1,024 times"):
        translate_derived("CREATE STREAM a10 AS SELECT v FROM a9 UNION ALL SELECT v FROM a9", catalog)


def test_what_is_defined_and_not_read_costs_nothing() -> None:
    text = doubling("SELECT v FROM {a} UNION ALL SELECT v FROM {a}", 9, "SELECT v FROM a1 UNION ALL SELECT v FROM")
    assert translate(text, CATALOG).readings == 514 <= MOST_READINGS


BIG = {
    "values": "SELECT v FROM t WHERE v IN ({})".format(", ".join(map(str, range(10_000)))),
    "texts": "SELECT v FROM t WHERE k IN ({})".format(", ".join(f"'{each}'" for each in range(9_000))),
    "branches": "SELECT CASE {} END AS c FROM t".format(" ".join(f"WHEN v = {n} THEN {n}" for n in range(3_000))),
    "conditions": "SELECT v FROM t WHERE {}".format(" AND ".join(f"v <> {each}" for each in range(5_000))),
    "alternatives": "SELECT v FROM t WHERE {}".format(" OR ".join(f"v = {each}" for each in range(5_000))),
    "columns": "SELECT {} FROM wide".format(", ".join(f"c{each}" for each in range(1_000))),
    "sums": "SELECT {} FROM wide WINDOW(RANGE 5 SECONDS SLIDE 1 SECONDS)".format(
        ", ".join(f"SUM(c{each}) AS s{each}" for each in range(1_000))
    ),
    "unions": "SELECT v + 1 AS w FROM ({}) u WHERE v > 3".format(
        " UNION ALL ".join(f"SELECT v FROM t WHERE v = {each}" for each in range(500))
    ),
    "names": doubling("SELECT v + 1 AS v FROM {a} WHERE v > {n}", 200),
    "joins": "SELECT a0.v FROM {} WHERE {}".format(
        ", ".join(f"t {WINDOW} a{each}" for each in range(64)),
        " AND ".join(f"a{each}.v = a{each + 1}.v" for each in range(63)),
    ),
    "subqueries": select(" AND ".join(f"v IN ({TOTALS} WHERE total > {each})" for each in range(300))),
    "alternative subqueries": select(" OR ".join(f"v IN ({TOTALS} WHERE total > {each})" for each in range(300))),
}


@pytest.mark.parametrize("kind", BIG)
def test_large_queries_take_steps_in_proportion_to_their_text(kind: str) -> None:
    counted, made = steps(BIG[kind])
    assert counted < 60 * len(BIG[kind])
    assert len(made.applied) < 5_000


@pytest.mark.parametrize("kind", ["values", "texts"])
def test_a_long_list_takes_few_steps_for_each_of_its_values(kind: str) -> None:
    counted, _ = steps(BIG[kind])
    assert counted < 4 * BIG[kind].count(",")


def test_semicolons_at_the_end_take_no_steps() -> None:
    one, _ = steps("SELECT v FROM t;")
    many, _ = steps("SELECT v FROM t" + ";" * 90_000)
    assert many == one


def test_what_leaves_many_intervals_is_not_taken_apart_further() -> None:
    (demand,) = demands_of("q", rewrite(translate(BIG["conditions"], CATALOG).node).node)["t"]
    assert 1 < len(demand.bands) <= MOST_PAIRS


def test_a_clock_ends_what_takes_too_long() -> None:
    ticks = iter(range(10**9))
    with (
        limited(Budget(1_000, clock=lambda: float(next(ticks)))) as budget,
        pytest.raises(PlanningLimitError, match="longer than the 1000 s") as caught,
    ):
        rewrite(translate(BIG["joins"], CATALOG).node)
    assert isinstance(caught.value, PlanError)
    assert "--planning-seconds" in (caught.value.hint or "")
    assert budget.steps <= 1_001
    translate("SELECT v FROM t", CATALOG)  # outside there is no limit


def test_work_without_a_waiting_request_stops() -> None:
    with limited(Budget(1e9)) as budget:
        budget.cancel()
        with pytest.raises(PlanningLimitError):
            translate("SELECT v FROM t", CATALOG)


def test_building_the_operators_of_a_query_stops_too_when_no_request_waits() -> None:
    sums = ", ".join(f"SUM(v + {number}) AS s{number}" for number in range(10))
    node = rewrite(translate(f"SELECT {sums} FROM t WINDOW(RANGE 1 HOUR) GROUP BY CUBE(v, k)", CATALOG).node).node
    check_supported(node)  # what is remembered of a plan takes no steps again
    with limited(Budget(1e9)) as budget:
        budget.cancel()
        with pytest.raises(PlanningLimitError):
            check_supported(node)
