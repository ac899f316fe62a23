"""Pairs of random plans that answer the same by rows that are cut elsewhere: a migration has to cut them, too."""

from __future__ import annotations

import random
from collections.abc import Callable

from cluster.local.engine import MemoryTables
from cluster.operators import (
    AntiJoin,
    Distinct,
    Filter,
    Join,
    Lookup,
    LookupKind,
    Node,
    Project,
    Ranked,
    Relation,
    SemiJoin,
    TimeWindow,
    Union,
    WindowBounds,
)
from cluster.operators.columns import Column, Ordering, Output
from cluster.operators.scalar_expressions import column_scalar
from cluster.operators.window_shapes import Grid, Span
from cluster.testing.sources import ScriptedRelation
from protocols.wire.streams import FieldType
from tests.cluster.plan.plans import A, B, C, call, condition, grouped, pick, where, window

Pair = tuple[Node, Node]
RELATION = Relation("r", "r@1", (Column("k", FieldType.INTEGER), Column("w", FieldType.INTEGER)))
_CHANGES = range(4, 90, 9)


def renamed(node: Node, like: Node) -> Node:
    """Return a plan with its columns in the order of another one."""
    return Project(node, tuple(Output(each.name, column_scalar(each)) for each in like.schema))


def tables() -> MemoryTables:
    """Return what plans look up: a relation in which every row changes every few instants."""
    changes = {at: [{"k": k, "w": at + k} for k in range(5)] for at in _CHANGES}
    relation = ScriptedRelation({"k": int, "w": int}, [{"k": k, "w": k} for k in range(5)], changes)
    return MemoryTables({"r@1": relation.versions(("a", "b", "c", "also_a"))})


def conditions_of_groups(dice: random.Random) -> Pair:
    """WHERE and HAVING: only one of the aggregates gets to see the tuples that change nothing."""
    a = window(A, dice.randint(3, 15), dice.choice((1, 1, 2)))
    function = call("max", "y")
    below = grouped(where(a, "y > 1"), "x", function)
    return below, where(grouped(a, "x", function), '"max(y)" > 1')


def overlapping_matches(dice: random.Random) -> Pair:
    """IN and EXISTS with several matches at once, that come in another order; and a condition above or below."""
    a, b, c = (window(each, dice.randint(2, 14)) for each in (A, B, C))
    one, other = pick(b, k="u"), pick(c, k="p")
    kind = dice.choice((SemiJoin, SemiJoin, AntiJoin))
    on = condition("x = k")
    old, reversed_right = kind(a, Union(one, other), on), Union(other, one)
    if dice.random() < 0.5:
        return where(old, "y < 3"), kind(where(a, "y < 3"), reversed_right, on)
    return old, kind(a, reversed_right, on)


def existing_pairs(dice: random.Random) -> Pair:
    """EXISTS of a join, in either order."""
    a, b, c = (window(each, dice.randint(2, 14)) for each in (A, B, C))
    on, matching = condition("u = p"), condition("x = u")
    return SemiJoin(a, Join(b, c, on), matching), SemiJoin(a, Join(c, b, on), matching)


def first_places(dice: random.Random) -> Pair:
    """LIMIT in a subquery, as one side of a join, or in groups; or places that are not shown."""
    a, b = window(A, dice.randint(4, 20)), window(B, dice.randint(1, 9))
    order = Ordering("y", descending=True), Ordering("x")
    most = dice.choice((1, 2, 3))
    top = Ranked(a, (), order, most=most)
    form = dice.randrange(3)
    if form == 0:
        old = Join(top, b, condition("x = u"))
        return old, renamed(Join(b, top, condition("x = u")), old)
    if form == 1:
        alike = Ranked(where(a, "y >= 0"), (), order, most=most)
        return grouped(top, "x", call("max", "y")), grouped(alike, "x", call("max", "y"))
    shown = Filter(Ranked(a, (), order, name="place"), condition(f"place <= {most}"))
    return top, pick(shown, x="x", y="y")


def window_bounds(dice: random.Random) -> Pair:
    """Groups, and groups with the bounds of their windows, which are not selected."""
    slide = dice.choice((3, 5))
    grid = Grid(Span("us", slide), dice.randrange(slide), size=Span("us", 4 * slide))
    groups = grouped(TimeWindow(A, grid.size_us, slide, grid=grid), "x", call("max", "y"))
    return groups, pick(WindowBounds(groups, grid, "ws", "we"), x="x", **{"max(y)": '"max(y)"'})


def lasting_lookups(dice: random.Random) -> Pair:
    """Groups with what a relation has when they begin, in a join, or without duplicates."""
    a, b = window(A, dice.randint(3, 20)), window(B, dice.randint(1, 9))
    kind: LookupKind = dice.choice(("inner", "left", "semi", "anti"))
    on = condition("x = k" if kind in ("inner", "left") else "x = k AND w % 2 = 0")
    looked_up = Lookup(grouped(a, "x", call("count")), RELATION, on, kind)
    if dice.random() < 0.5:
        return looked_up, Distinct(looked_up)
    old = Join(looked_up, b, condition("x = u"))
    return old, renamed(Join(b, looked_up, condition("x = u")), old)


PAIRS: tuple[Callable[[random.Random], Pair], ...] = (
    conditions_of_groups, overlapping_matches, existing_pairs, first_places, window_bounds, lasting_lookups,
)  # fmt: skip
