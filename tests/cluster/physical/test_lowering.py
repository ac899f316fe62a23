"""Lowering: reusing the previous plan gives the same plan as starting anew, at the cost of the change."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower, with_query
from cluster.physical.nodes import NOTHING
from cluster.physical.operations import Panes
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of(
    [
        StreamSchema(
            "traffic",
            (
                Field("sensor", FieldType.TEXT, fixed=True),
                Field("lane", FieldType.INTEGER),
                Field("speed", FieldType.REAL),
            ),
        )
    ]
)
TEMPLATES = [
    "SELECT speed FROM traffic WHERE speed < {}",
    "SELECT lane, AVG(speed) AS v FROM traffic WINDOW(RANGE {} MINUTES SLIDE 1 MINUTE) GROUP BY lane",
    "SELECT sensor, MAX(speed) AS v FROM traffic WINDOW(RANGE 10 MINUTES SLIDE {} SECONDS) GROUP BY sensor",
    "SELECT a.speed FROM traffic a WINDOW(RANGE 1 MINUTE), traffic b WHERE a.lane = b.lane AND b.speed > {}",
    "SELECT DISTINCT lane FROM traffic WINDOW(RANGE 1 MINUTE) WHERE speed > {}",
]
NODES = [[rewrite(translate(text.format(n), CATALOG).node).node for n in (2, 3, 5)] for text in TEMPLATES]
KINDS = st.tuples(st.integers(0, len(TEMPLATES) - 1), st.integers(0, 2))


@given(st.lists(st.one_of(KINDS, st.none()), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_step_by_step_is_all_at_once(steps: list[tuple[int, int] | None], dice: random.Random) -> None:
    queries: tuple[PlannedQuery, ...] = ()
    running = NOTHING
    for epoch, step in enumerate(steps, 1):
        if step is None:
            gone = dice.randrange(len(queries)) if queries else 0
            queries = queries[:gone] + queries[gone + 1 :]
            running = lower(Plan(epoch, queries), running)
        else:
            added = PlannedQuery(f"q{epoch}", epoch, NODES[step[0]][step[1]])
            queries = (*queries, added)
            joined = with_query(running, added)
            running = lower(Plan(epoch, queries), running)
            assert joined == running
        assert running == lower(Plan(epoch, queries))


def test_unchanged_fragments_are_reused() -> None:
    queries = tuple(PlannedQuery(f"q{n}", n, NODES[n % 5][n % 3]) for n in range(1, 11))
    before = lower(Plan(10, queries))
    after = lower(Plan(11, (*queries, PlannedQuery("q11", 11, NODES[0][0]))), before)
    changed = [each.identity for each in after.fragments if each is not before.by_identity.get(each.identity)]
    assert changed == [after.by_query["q11@11"].identity]
    kept = [each for each in after.by_query["q11@11"].subscribers if each.query != "q11"]
    assert all(each is before.subscribers[each.identity] for each in kept)


@pytest.mark.parametrize(("minutes", "widths"), [((10, 5), {60_000_000}), ((10,), {60_000_000})])
def test_panes_are_as_wide_as_all_windows_allow(minutes: tuple[int, ...], widths: set[int]) -> None:
    texts = [TEMPLATES[1].format(each) for each in minutes]
    nodes = [rewrite(translate(text, CATALOG).node).node for text in texts]
    plan = lower(Plan(1, tuple(PlannedQuery(f"q{n}", n, node) for n, node in enumerate(nodes))))
    (fragment,) = plan.fragments
    assert {node.operation.width_us for node in fragment.nodes if isinstance(node.operation, Panes)} == widths
