"""Random plans with extents over a stream of whole numbers, in windows that several of them may share."""

from __future__ import annotations

import random

from msgspec.structs import replace

from cluster.operators import Extent, Filter, Node, Project
from cluster.operators.columns import STAMP, Scalar
from cluster.operators.extent import Coalescing, Keeping, Link
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.plan.plans import A, call, condition, grouped, window

STAMPED = replace(A, columns=(*A.columns, STAMP))
WINDOWS = ((9, 1), (12, 4), (7, 3))
_NO_LESS: Scalar = read_scalar('"y" >= "before"', FieldType.BOOLEAN)


def extent(dice: random.Random, size: tuple[int, int], kept: Keeping, *, keyed: bool) -> Extent:
    """Return an extent over a window with some columns, a condition on samples or none, and some link."""
    below: Node = Filter(STAMPED, condition("x < 2")) if dice.random() < 0.3 else STAMPED
    below = window(below, *size)
    columns = dice.choice((("y",), ("y", "x"), ("x", "y"))) if not keyed else ("y",)
    link = Link(_NO_LESS, (("before", "y"),)) if dice.random() < 0.4 else None
    if dice.random() < 0.5:
        wanted = {*columns, "y", *(("x",) if keyed else ()), STAMP.name}
        below = project(below, passed_on(column for column in below.schema if column.name in wanted))
    ties = tuple(dict.fromkeys((*columns, *(("y",) if link else ()))))
    how = Coalescing(columns, STAMP.name, ties, ("since", "until"), link, kept)
    return Extent(below, ("x",) if keyed else (), how)


def with_top(dice: random.Random, plan: Node) -> Node:
    """Return a plan with conditions on rows, fewer columns, or groups above an extent."""
    match dice.randrange(5):
        case 0:
            return Filter(plan, condition("y > 0"))
        case 1:
            return Project(Filter(plan, condition("since < until")), passed_on(plan.schema[:2]))
        case 2:
            return grouped(plan, "y", call("count"), call("max", "until"))
        case _:
            return plan
