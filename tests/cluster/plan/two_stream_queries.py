"""Queries over two streams of two integers each: as text, rewritten and run, against their definition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Node
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.oracle.comparison import snapshots_of
from tests.cluster.oracle.definition import Streams, snapshots_of_plan
from tests.cluster.oracle.running import deliveries, run_plan

INTEGER = FieldType.INTEGER
CATALOG = Catalog.of([StreamSchema(name, (Field("x", INTEGER), Field("y", INTEGER))) for name in ("a", "b")])
VALUES = st.one_of(st.integers(0, 2), st.none())
ROWS = st.dictionaries(st.integers(0, 24), st.tuples(VALUES, VALUES), max_size=9).map(lambda rows: list(rows.items()))
STREAMS = st.fixed_dictionaries({"a": ROWS, "b": ROWS})
"""One tuple an instant: of several the columns choose, and the rewriter drops those that nothing reads."""
MANY = st.lists(st.tuples(st.integers(0, 9), st.tuples(VALUES, VALUES)), max_size=12)
"""Several tuples an instant."""


@cache
def planned(text: str) -> tuple[Node, Node]:
    """A text's plan, as it is and rewritten."""
    node = translate(text, CATALOG).node
    better = rewrite(node).node
    check_supported(better)
    return node, better


def check_answers(text: str, streams: Streams, seed: int, instants: int) -> None:
    """Fail unless a query means the same rewritten, and answers that, cut, disordered and restarted by a seed."""
    node, better = planned(text)
    meant = snapshots_of_plan(node, streams, instants)
    assert [+bag for bag in snapshots_of_plan(better, streams, instants)] == [+bag for bag in meant]
    dice = random.Random(seed)
    batches = deliveries(streams, dice)
    restarts = frozenset(number for number in range(len(batches)) if dice.random() < 0.3)
    rows = run_plan(better, batches, restart_after=restarts)
    assert [+bag for bag in snapshots_of(rows, instants)] == [+bag for bag in meant]


def check_any_arrival(text: str, a: Sequence[Any], b: Sequence[Any], seed: int, instants: int) -> None:
    """Fail unless a query answers what it means in whichever order the tuples of a stream arrive."""
    node = rewrite(translate(text, CATALOG).node).node
    dice = random.Random(seed)
    found = []
    for _ in range(3):
        shuffled = {name: dice.sample(rows, len(rows)) for name, rows in (("a", a), ("b", b))}
        found.append([+bag for bag in snapshots_of(run_plan(node, deliveries(shuffled, dice)), instants)])
    assert found[0] == found[1] == found[2] == [+bag for bag in snapshots_of_plan(node, {"a": a, "b": b}, instants)]
