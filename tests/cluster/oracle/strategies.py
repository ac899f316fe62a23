"""Random plans of all operators, and random streams for them.

Each operator's specimen (tests/cluster/specimens) says how it is drawn. Streams come from a drawn seed, as hundreds of
tuples would exhaust Hypothesis' entropy (:mod:`tests.cluster.oracle.proving` makes them small).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from cluster.operators import (
    Aggregate,
    CountWindow,
    Difference,
    Distinct,
    Dstream,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Project,
    SemiJoin,
    SessionWindow,
    Source,
    TimeWindow,
    UntilNext,
)
from cluster.operators.columns import AggregateCall, Output
from cluster.operators.walks import unbounded_operator
from cluster.plan.scalar_texts import read_scalar
from tests.cluster.oracle.definition import Streams
from tests.cluster.published_tuples import with_publishers
from tests.cluster.specimens import SPECIMENS
from tests.cluster.specimens.drawing import COLUMNS, INTEGER, LAST, VALUES, Drawing, Names
from tests.cluster.specimens.specimen import Specimen

KINDS: tuple[type[Node], ...] = tuple(kind for kind, specimen in SPECIMENS.items() if specimen.weight)
"""What random plans are of."""


def random_streams(dice: random.Random, *, sampled: bool = False) -> Streams:
    """Streams in order of arrival: disordered, with duplicates, equal stamps and empty stretches (or without).

    Some have rows that devices published, unless all are to be samples.
    """
    found = {}
    for name, schema in COLUMNS.items():
        count = dice.choice((0, 1, 3, 6, 9, 12))
        tied = dice.random() < 0.5
        gap = dice.choice((0, 0, 8))
        stamps = [dice.randint(0, LAST) for _ in range(count)]
        stamps = [stamp for stamp in stamps if not gap or not 6 <= stamp < 6 + gap]
        if not tied:
            stamps = list(dict.fromkeys(stamps))
        values = {column: VALUES[column.type][: dice.choice((2, 3, 5))] for column in schema}
        rows = [(stamp, tuple(dice.choice(values[column]) for column in schema)) for stamp in stamps]
        if tied and rows:
            rows += [dice.choice(rows) for _ in range(dice.choice((0, 0, 1, 3)))]
        late = dice.choice((0, 2, 6))
        arrival = [(stamp + late * dice.random(), dice.random(), (stamp, row)) for stamp, row in rows]
        found[name] = [stamped for _, _, stamped in sorted(arrival, key=lambda each: each[:2])]
    return found if sampled else with_publishers(dice, found)


@st.composite
def plans(draw: Any, depth: int = 4) -> Node:
    """A plan that may be translated from a query; some cannot be run (see UnsupportedPlanError)."""
    names = Names()
    return draw(_over_groups(names) if draw(st.integers(0, 4)) == 0 else _nodes(depth, names))


def sensible(node: Node) -> bool:
    """Return whether a plan needs bounded state only, and has a granularity nowhere but where time stays as it is."""
    return unbounded_operator(node) is None and _granules_last(node)


def _granules_last(node: Node) -> bool:
    # Above a granularity "the instant before" is the granule before; windows and changes there are of another domain.
    if isinstance(
        node, TimeWindow | CountWindow | PartitionedWindow | SessionWindow | UntilNext | Istream | Dstream
    ) and any(isinstance(each, Granularity) for each in below(node)):
        return False
    return all(_granules_last(each) for each in node.inputs)


def below(node: Node) -> list[Node]:
    """Return a plan's nodes."""
    found = [node]
    for each in node.inputs:
        found += below(each)
    return found


def _weighted() -> Iterator[Specimen[Any]]:
    for kind in KINDS:
        if kind is not Source:
            yield from [SPECIMENS[kind]] * SPECIMENS[kind].weight


_CHOICES = tuple(_weighted())


@st.composite
def _nodes(draw: Any, depth: int, names: Names) -> Node:
    specimen = draw(st.sampled_from(_CHOICES)) if depth else SPECIMENS[Source]
    return specimen.draw(Drawing(draw, _nodes, names), depth)


@st.composite
def _over_groups(draw: Any, names: Names) -> Node:
    """What remembers tuples, over the rows of groups: these end, and so come, in another order than they begin."""
    drawing = Drawing(draw, _nodes, names)
    kind = drawing.one_of((Distinct, Distinct, Difference, Intersection, SemiJoin, Join, PartitionedWindow))
    left = _counted(drawing)
    if kind is Distinct:
        return Distinct(left)
    if kind is PartitionedWindow:
        return PartitionedWindow(Istream(left), (left.schema[0].name,), drawing.whole(1, 3))
    right = _counted(drawing)
    if kind in (Difference, Intersection):
        return kind(Distinct(left), Distinct(right)) if drawing.coin() else kind(left, right)
    return kind(left, right, drawing.join_condition(left.schema, right.schema))


def _counted(drawing: Drawing) -> Node:
    """Return how many rows groups have, without saying of which group."""
    node, fresh = drawing.below(drawing.whole(0, 1)), drawing.names.fresh
    if node.is_instantaneous:
        node = TimeWindow(node, drawing.whole(2, 12))
    key = drawing.one_of([column.name for column in node.schema])
    count = AggregateCall(fresh(), "count", None, INTEGER)
    return Project(Aggregate(node, (key,), (count,)), (Output(fresh(), read_scalar(f'"{count.name}"', INTEGER)),))
