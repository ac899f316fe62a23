"""Extents against the plans by which COALESCE was translated before, and against themselves, kept the other way."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Extent, Node
from cluster.operators.extent import Keeping
from cluster.operators.walks import nodes_of, rebuilt
from cluster.physical.migration import Migration, MigrationRefusedError
from cluster.physical.rules.pieces import MOST_LAG_US
from cluster.plan.alternatives import alternatives
from cluster.plan.rewrite import rewrite
from cluster.plan.stored_plans import read, written
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.comparison import snapshots_of
from tests.cluster.oracle.definition import Snapshots, Streams
from tests.cluster.oracle.extents_as_groups import as_groups
from tests.cluster.oracle.running import deliveries, run_plan
from tests.examples import seeds

ALPHA = StreamSchema(
    "alpha",
    (Field("k", FieldType.INTEGER), Field("x", FieldType.INTEGER), Field("s", FieldType.TEXT)),
)
CATALOG = Catalog.of([ALPHA])
LAST, HORIZON = 30, 75
WINDOWS = ("RANGE 9 US", "RANGE 20 US SLIDE 4 US", "RANGE 2 US SLIDE 5 US", "RESET EVERY 8 US SLIDE 3 US")
COUNTED = ("ROWS 3", "PARTITION BY k ROWS 2", "ROWS 5 SLIDE 2")
CLAUSES = (
    "x BY k",
    "x, s BY k",
    "s, x TOLERANCE 1 BY k",
    "x BY k WHILE x >= PREV(x)",
    "x BY k WHILE PREV(s) = s OR x > 1",
)
ABOVE = (
    "SELECT k, x, VALID(a) AS held FROM alpha {0} AS a",
    "SELECT k, x, VALID(a) AS held FROM alpha {0} AS a WHERE k > 0 AND x > 0",
    "SELECT k, COUNT(*) AS n, MAX(DURATION(VALID(a))) AS most FROM alpha {0} AS a GROUP BY k",
    """SELECT a.k, b.x, INTERSECT(VALID(a), VALID(b)) AS both FROM alpha {0} AS a, alpha {0} AS b
    WHERE a.x < b.x AND VALID(a) OVERLAPS VALID(b)""",
)


def text_of(dice: random.Random) -> tuple[str, bool]:
    """Return a query, and whether tuples of equal stamps make it ambiguous."""
    counted = dice.random() < 0.3
    window, clause = dice.choice(COUNTED if counted else WINDOWS), dice.choice(CLAUSES)
    return dice.choice(ABOVE).format(f"WINDOW({window}) COALESCE({clause})"), counted


def samples_of(dice: random.Random, *, tied: bool) -> Streams:
    stamps = [dice.randint(0, LAST) for _ in range(dice.choice((0, 3, 12, 25)))]
    stamps = stamps if tied else list(dict.fromkeys(stamps))
    rows = [
        (t, (dice.choice((0, 1, 2, None)), dice.choice((0, 1, 2, None)), dice.choice(("a", "b", None)))) for t in stamps
    ]
    late = dice.choice((0, 3, 9))
    return {"alpha": sorted(rows, key=lambda row: row[0] + dice.random() * late)}


def kept(plan: Node, how: Keeping) -> Node:
    return rebuilt(
        plan,
        lambda each: replace(each, coalescing=replace(each.coalescing, kept=how)) if isinstance(each, Extent) else each,
    )


def answered(plan: Node, streams: Streams, dice: random.Random) -> Snapshots:
    batches = deliveries(streams, dice)
    restarts = frozenset(number for number in range(len(batches)) if dice.random() < 0.3)
    lag_us = dice.choice((0, 3, MOST_LAG_US))
    return snapshots_of(run_plan(plan, batches, restart_after=restarts, lag_us=lag_us), HORIZON)


@seeds(150)
def test_extents_have_the_rows_of_groups(seed: int) -> None:
    dice = random.Random(f"extents/{seed}")
    text, counted = text_of(dice)
    plan = translate(text, CATALOG).node
    before = read(written(as_groups(plan)))  # as a cluster of that time has it on disk
    assert not any(isinstance(each, Extent) for each in nodes_of(before))
    streams = samples_of(dice, tied=not counted)
    expected = answered(rewrite(before).node, streams, dice)
    assert answered(rewrite(kept(plan, "eager")).node, streams, dice) == expected, text
    assert answered(rewrite(kept(plan, "lazy")).node, streams, dice) == expected, text


def test_extents_kept_in_either_way_are_alternatives_of_a_query() -> None:
    plan = rewrite(translate(ABOVE[1].format("WINDOW(RANGE 9 US) COALESCE(x BY k)"), CATALOG).node).node
    first, other = alternatives(plan)
    assert (first.node, other.node) == (plan, kept(plan, "lazy"))
    assert other.words == "whole samples are kept, and coalesced as rows are due"
    back = alternatives(other.node)[1]
    assert (back.node, back.words) == (plan, "samples are coalesced as they come")


@pytest.mark.parametrize("text", [ABOVE[2], ABOVE[3]])
def test_extents_that_no_other_query_can_share_are_eager(text: str) -> None:
    plan = rewrite(translate(text.format("WINDOW(RANGE 9 US) COALESCE(x BY k)"), CATALOG).node).node
    assert not any("whole samples" in each.words for each in alternatives(plan))


def test_extents_over_windows_by_count_do_not_migrate() -> None:
    plan = rewrite(translate(ABOVE[0].format("WINDOW(ROWS 3) COALESCE(x BY k)"), CATALOG).node).node
    with pytest.raises(MigrationRefusedError, match="a window by count"):
        Migration(plan, kept(plan, "lazy"))
