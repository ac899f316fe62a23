"""Random plans of a few operators over the streams of tests.cluster.local.migrating, and the same rewritten."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.operators import (
    Aggregate,
    AntiJoin,
    Difference,
    Distinct,
    Filter,
    Granularity,
    Intersection,
    Istream,
    Join,
    Node,
    Project,
    Ranked,
    SemiJoin,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Ordering, Output
from cluster.operators.scalar_expressions import column_scalar
from cluster.physical.migration import Migration
from cluster.plan.alternatives import alternatives
from cluster.plan.rewrite import rewrite
from tests.cluster.oracle.strategies import sensible
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, window

KINDS = (
    Filter, Filter, Project, Join, Join, Union, Distinct, SemiJoin, AntiJoin, Difference, Intersection, Aggregate,
    Aggregate, Ranked, Granularity, Istream, TimeWindow,
)  # fmt: skip


def plan_and_rewritten(dice: random.Random) -> tuple[Node, Node]:
    """Draw a plan that can migrate to what it is rewritten to."""
    return _pair(dice, lambda plan: (plan, rewrite(plan).node))


def two_alternatives(dice: random.Random) -> tuple[Node, Node]:
    """Draw two plans of a query that rules reach from one."""

    def drawn(plan: Node) -> tuple[Node, Node]:
        found = alternatives(rewrite(plan).node, most=60)
        one, other = dice.choice(found), dice.choice(found)
        return one.node, other.node

    return _pair(dice, drawn)


def _pair(dice: random.Random, pair_of: Callable[[Node], tuple[Node, Node]]) -> tuple[Node, Node]:
    """Draw plans until one has a pair that can migrate, either way."""
    while True:
        names = (f"c{number}" for number in count())
        plan = _drawn(dice, dice.randint(1, 4), names)
        if not sensible(plan):
            continue
        old, new = pair_of(plan)
        if old == new:
            continue
        try:
            for each in (old, new):
                check_supported(each)
            for one, other in ((old, new), (new, old)):
                Migration(one, other)
        except PlanError:
            continue
        return old, new


def _drawn(dice: random.Random, depth: int, names: Iterator[str]) -> Node:
    if depth == 0:
        return window(dice.choice((A, ALSO_A, B, C)), dice.randint(1, 9), dice.choice((1, 1, 1, 3)))
    kind = dice.choice(KINDS)
    node = _drawn(dice, depth - 1, names)
    columns = [each.name for each in node.schema]
    if kind is Filter:
        return Filter(node, condition(f"{dice.choice(columns)} {dice.choice('<>=')} {dice.randrange(4)}"))
    if kind is Project:
        chosen = dice.sample(columns, dice.randint(1, len(columns)))
        return _renamed(node, chosen, names)
    if kind is Aggregate:
        keys = dice.sample(columns, dice.randint(0, min(1, len(columns))))
        calls = (call("count"), call(dice.choice(("sum", "max")), dice.choice(columns)))
        grouped = Aggregate(node, tuple(keys), calls)
        return _renamed(grouped, [each.name for each in grouped.schema], names)
    if kind is Distinct:
        return Distinct(node)
    if kind is Granularity:
        return Granularity(node, dice.choice((2, 4)))
    if kind is Istream:
        return Istream(node)
    if kind is TimeWindow:
        return window(node if node.is_instantaneous else Istream(node), dice.randint(1, 6), dice.choice((1, 2)))
    if kind is Ranked:
        order = tuple(Ordering(each) for each in columns)
        return Ranked(node, tuple(dice.sample(columns, dice.randint(0, 1))), order, most=dice.randint(1, 2))
    right = _drawn(dice, dice.randint(0, depth - 1), names)
    return _paired(dice, kind, node, right, names)


def _paired(dice: random.Random, kind: Any, left: Node, right: Node, names: Iterator[str]) -> Node:
    if kind in (Union, Difference, Intersection):
        width = min(len(left.schema), len(right.schema))
        sides = [_renamed(each, [column.name for column in each.schema][:width], None) for each in (left, right)]
        same = Project(
            sides[1],
            tuple(
                Output(to.name, column_scalar(column))
                for to, column in zip(sides[0].schema, sides[1].schema, strict=True)
            ),
        )
        return kind(sides[0], same)
    right = _renamed(right, [each.name for each in right.schema][:2], names)
    left = _renamed(left, [each.name for each in left.schema][:3], names)
    on = f"{left.schema[0].name} = {dice.choice(right.schema).name}"
    return kind(left, right, condition(on))


def _renamed(node: Node, columns: list[str], names: Iterator[str] | None) -> Node:
    """Return some columns of a plan, under new names if there are any."""
    known = {each.name: each for each in node.schema}
    return Project(
        node,
        tuple(Output(each if names is None else next(names), column_scalar(known[each])) for each in columns),
    )
