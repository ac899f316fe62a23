"""Queries that share the samples of their extents answer what they mean, whichever begin and end in between."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import polars as pl
import pytest

from cluster.fjord.batch import NEVER
from cluster.local.engine import LocalEngine
from cluster.operators import Extent
from cluster.operators.columns import STAMP
from cluster.operators.extent import Coalescing, Keeping
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.extents import with_keeping
from tests.cluster.local.changing_queries import LAST, Query, run
from tests.cluster.local.extent_plans import STAMPED, WINDOWS, extent, with_top
from tests.cluster.local.migrating import arrivals, random_batches, random_streams
from tests.cluster.local.plans_cut_apart import tables
from tests.cluster.oracle.definition import snapshots_of_plan
from tests.cluster.plan.plans import window
from tests.examples import seeds


def random_queries(dice: random.Random, batches: int) -> list[Query]:
    """Return queries of which many have the same window, and few anything else in common."""
    size, keyed = dice.choice(WINDOWS), dice.random() < 0.6
    found = []
    for number in range(dice.randint(2, 6)):
        how: Keeping = dice.choice(("eager", "lazy", "lazy"))
        plan = with_top(dice, extent(dice, size, how, keyed=keyed))
        if found and dice.random() < 0.4:
            plan = with_keeping(dice.choice(found).plan, how)
        begins = dice.choice((0, 0, dice.randrange(batches)))
        ends = dice.choice((None, None, dice.randrange(begins + 1, batches + 1)))
        found.append(Query(f"q{number}", plan, begins, ends))
    found[0].begins, found[0].ends = 0, None
    return found


@seeds(60)
def test_queries_answer_what_they_would_alone(seed: int) -> None:
    dice = random.Random(f"shared extents/{seed}")
    batches = random_batches(dice, {"a": random_streams(dice)["a"]})
    queries = random_queries(dice, len(batches) - 1)
    run(dice, queries, batches)
    for each in queries:
        if each.ends is None:
            assert each.snapshots() == snapshots_of_plan(each.plan, {"a": each.seen(batches)}, LAST), each


@pytest.mark.parametrize("first", [("y",), ("x",)])
@seeds(20)
def test_a_query_that_begins_leaves_the_order_of_equal_samples_as_it_is(seed: int, first: tuple[str]) -> None:
    dice = random.Random(f"equal stamps/{seed}")
    plans = [lazily(columns) for columns in (first, ("x",) if first == ("y",) else ("y",))]
    one, both = (Plan(n, tuple(PlannedQuery(f"q{k}", 5 * k, plans[k]) for k in range(n))) for n in (1, 2))
    engine = LocalEngine(one, tables=tables)
    seen, rows = [], []
    for number in range(8):
        samples = [(number, (dice.randrange(3), dice.randrange(3))) for _ in range(dice.randrange(4))]
        seen += samples
        answers = engine.run(arrivals({"a": (samples, number)}), plan=one if number < 4 else both).rows
        assert answers.filter(pl.col("kind") != "row").is_empty(), answers
        rows += answers.filter(pl.col("query") == "q0").select("start_us", "end_us", "row").rows()
    rows += (
        engine.run(arrivals({"a": ([], NEVER)}))
        .rows.filter(pl.col("query") == "q0")
        .select("start_us", "end_us", "row")
        .rows()
    )
    expected = snapshots_of_plan(plans[0], {"a": seen}, 30)
    for instant in range(30):
        there = Counter(tuple(msgspec.json.decode(row).values()) for start, end, row in rows if start <= instant < end)
        assert there == expected[instant]


def lazily(columns: tuple[str]) -> Extent:
    """Return an extent of single columns of a window whose samples are often of one stamp."""
    return Extent(window(STAMPED, 9, 1), (), Coalescing(columns, STAMP.name, columns, ("since", "until"), None, "lazy"))


def test_samples_are_kept_once() -> None:
    dice = random.Random("once")
    plans = [extent(dice, (9, 1), "lazy", keyed=True) for _ in range(12)]
    fragment, *others = lower(Plan(1, tuple(PlannedQuery(f"q{n}", 1, each) for n, each in enumerate(plans)))).fragments
    assert not others
    assert len(fragment.groups) == 2  # with the condition on samples, and without
    eager = tuple(PlannedQuery(f"q{n}", 1, with_keeping(each, "eager")) for n, each in enumerate(plans))
    assert len(lower(Plan(1, eager)).fragments) > 1
