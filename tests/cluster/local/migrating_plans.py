"""Plans of a query, and others with which it could go on: those that random migrations are about."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from cluster.operators import Distinct, Filter, Granularity, Join, Node, Project, SemiJoin, Union, UntilNext
from cluster.operators.scalar_expressions import passed_on
from cluster.plan.extents import with_keeping
from cluster.plan.pane_query import families_of, with_family
from tests.cluster.local.extent_plans import WINDOWS, extent, with_top
from tests.cluster.local.plans_cut_apart import PAIRS, renamed
from tests.cluster.local.random_plans import plan_and_rewritten, two_alternatives
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, grouped, window


@dataclass(frozen=True)
class Case:
    """A query and two of its plans.

    Parameters
    ----------
    old, new
        The plans.
    changes
        True if they answer differently: the window changes.
    """

    old: Node
    new: Node
    changes: bool = False


def _windows(dice: random.Random, slide: int) -> list[Node]:
    return [window(each, dice.randint(1, 12), slide) for each in (A, B, C)]


def _join(left: Node, right: Node, on: str | None) -> Join:
    return Join(left, right, None if on is None else condition(on))


def join_orders(dice: random.Random) -> Case:
    """((A x B) x C) and A x (B x C), or C first."""
    a, b, c = _windows(dice, dice.choice((1, 1, 3)))
    old = _join(_join(a, b, "x = u"), c, "u = p")
    other = _join(a, _join(b, c, "u = p"), "x = u") if dice.random() < 0.5 else _join(c, _join(b, a, "x = u"), "u = p")
    return _either(dice, old, renamed(other, old))


def filters(dice: random.Random) -> Case:
    """A filter above and below a join."""
    a, b, _ = _windows(dice, dice.choice((1, 1, 4)))
    old: Node = Filter(_join(a, b, "x = u"), condition("y < 3 AND v > 0"))
    new: Node = _join(Filter(a, condition("y < 3")), Filter(b, condition("v > 0")), "x = u")
    return _either(dice, old, new)


def stateless(dice: random.Random) -> Case:
    """Filters and projections of a plan that keeps no state."""
    a = A if dice.random() < 0.5 else window(A, dice.randint(1, 9), dice.choice((1, 5)))
    old: Node = Project(Filter(Filter(a, condition("x < 3")), condition("y > 0")), passed_on(a.schema[:1]))
    new: Node = Project(Filter(a, condition("y > 0 AND x < 3")), passed_on(a.schema[:1]))
    return _either(dice, old, new)


def window_places(dice: random.Random) -> Case:
    """A window above and below a filter and a union."""
    size, slide = dice.randint(1, 10), dice.choice((1, 1, 3))
    old = window(Filter(Union(A, ALSO_A), condition("x < 3")), size, slide)
    new = Union(*(window(Filter(each, condition("x < 3")), size, slide) for each in (A, ALSO_A)))
    top = dice.choice((lambda node: node, lambda node: grouped(node, "x", call("sum", "y"), call("count"))))
    return _either(dice, top(old), top(new))


def distincts(dice: random.Random) -> Case:
    """Duplicates eliminated above and below a join."""
    a, b, _ = _windows(dice, 1)
    a, b = (Project(each, passed_on(each.schema[:1])) for each in (a, b))
    return _either(dice, Distinct(_join(a, b, "x = u")), _join(Distinct(a), Distinct(b), "x = u"))


def distinct_unions(dice: random.Random) -> Case:
    """Duplicates eliminated above a union, and above and below it."""
    a, also = (Project(window(each, dice.randint(1, 9)), passed_on(each.schema[:1])) for each in (A, ALSO_A))
    return _either(dice, Distinct(Union(a, also)), Distinct(Union(Distinct(a), Distinct(also))))


def distributed(dice: random.Random) -> Case:
    """A join of a union, and a union of joins."""
    size, (_, b, _) = dice.randint(1, 8), _windows(dice, 1)
    a, also = window(A, size), window(ALSO_A, dice.randint(1, 8))
    old = Filter(_join(Union(a, also), b, "x = u"), condition("y < 4"))
    new = Union(*(_join(Filter(each, condition("y < 4")), b, "x = u") for each in (a, also)))
    return _either(dice, old, new)


def aggregates(dice: random.Random) -> Case:
    """Groups over joins in another order."""
    a, b, _ = _windows(dice, dice.choice((1, 1, 3)))
    keys = dice.choice(("x", "", "xv"))
    calls = call("count"), call("sum", "y"), call("max", "v")
    old = grouped(_join(a, b, "x = u"), keys, *calls)
    return _either(dice, old, renamed(grouped(_join(b, a, "x = u"), keys, *calls), old))


def having(dice: random.Random) -> Case:
    """A condition on groups above them, and on their keys below."""
    a = window(A, dice.randint(2, 12), dice.choice((1, 2, 4)))
    old = Filter(grouped(a, "x", call("sum", "y"), call("count")), condition("x > 0"))
    new = grouped(Filter(a, condition("x > 0")), "x", call("sum", "y"), call("count"))
    return _either(dice, old, new)


def pane_families(dice: random.Random) -> Case:
    """A window whose panes are shared with others, in a family or another one."""
    tuples = Filter(A, condition("x < 3")) if dice.random() < 0.5 else A
    a = window(tuples, 2 * dice.randint(1, 6), 2 * dice.randint(1, 3))
    top: Node = grouped(a, dice.choice(("x", "", "xy")), call("count"), call("sum", "y"), call("max", "x"))
    if dice.random() < 0.3:
        top = Filter(top, condition("count > 1"))
    one, other = dice.sample([top, *(with_family(top, each) for each in families_of(top))], 2)
    return Case(one, other)


def until_next(dice: random.Random) -> Case:
    """A condition on the keys of tuples that hold until the next one, above and below."""
    longest = dice.randint(1, 12)
    bounds = ("since", "until") if dice.random() < 0.5 else None
    old = Filter(UntilNext(A, ("x",), longest, bounds), condition("x < 3"))
    new = UntilNext(Filter(A, condition("x < 3")), ("x",), longest, bounds)
    return _either(dice, old, new)


def extents(dice: random.Random) -> Case:
    """Samples that are compared as they come, and whenever the window changes."""
    plan = with_top(dice, extent(dice, dice.choice(WINDOWS), "eager", keyed=dice.random() < 0.6))
    return _either(dice, plan, with_keeping(plan, "lazy"))


def early_groups(dice: random.Random) -> Case:
    """Groups of a join, and a join of groups with what it is joined with, of which each key has one row."""
    a = window(A, dice.randint(1, 9))
    b = Distinct(Project(window(B, dice.randint(1, 9)), passed_on(B.schema[:1])))
    old = grouped(_join(a, b, "x = u"), "x", call("sum", "y"))
    new = Project(_join(grouped(a, "x", call("sum", "y")), b, "x = u"), passed_on(old.schema))
    return _either(dice, old, new)


def semi_joins(dice: random.Random) -> Case:
    """A semi-join, and a join with distinct tuples."""
    a, b, _ = _windows(dice, 1)
    old = SemiJoin(a, b, condition("x = u"))
    pairs = _join(a, Distinct(Project(b, passed_on(b.schema[:1]))), "x = u")
    return _either(dice, old, Project(pairs, passed_on(old.schema)))


def window_sizes(dice: random.Random) -> Case:
    """A window that gets another size."""
    slide = dice.choice((1, 1, 3, 4))
    sizes = dice.sample(range(1, 13), 2)
    top: Callable[[Node], Node] = dice.choice(
        (
            lambda node: Granularity(node, 2),
            lambda node: grouped(node, "x", call("sum", "y"), call("count")),
            lambda node: grouped(node, "", call("count")),
            lambda node: _join(node, window(B, 5), "x = u"),
            Distinct,
        )
    )
    old, new = (top(window(A, size, slide)) for size in sizes)
    return Case(old, new, changes=True)


def granules(dice: random.Random) -> Case:
    """A granularity that gets finer, or coarser."""
    old, new = (Granularity(window(A, 9), each) for each in dice.sample((1, 2, 4, 8), 2))
    return Case(old, new, changes=True)


def rewritten(dice: random.Random) -> Case:
    """A random plan, and what it is rewritten to."""
    return _either(dice, *plan_and_rewritten(dice))


def cut_apart(dice: random.Random) -> Case:
    """Plans that answer the same by rows that are cut elsewhere."""
    return _either(dice, *dice.choice(PAIRS)(dice))


def reached(dice: random.Random) -> Case:
    """Two plans of a random query that rules reach (cluster/plan/alternatives.py)."""
    return Case(*two_alternatives(dice))


def _either(dice: random.Random, one: Node, other: Node) -> Case:
    return Case(one, other) if dice.random() < 0.5 else Case(other, one)


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    join_orders,
    filters,
    stateless,
    window_places,
    distincts,
    distinct_unions,
    distributed,
    aggregates,
    having,
    pane_families,
    until_next,
    extents,
    extents,
    early_groups,
    semi_joins,
    window_sizes,
    granules,
    *[cut_apart] * 6,
    rewritten,
    rewritten,
    rewritten,
    reached,
    reached,
    reached,
    reached,
)
