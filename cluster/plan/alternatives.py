"""The plans that answer a query, reached by rules from the one that is planned without costs. Pure.

**Ways to write a part of a plan differently, which pay off for some data and not for others.**

Each yields parts that are snapshot-equivalent to the one it is given, with the same columns in the same order, and in
words what is different. Equivalences that always pay off are the rules of :mod:`cluster.plan.rewrite`.

They are numbered in the order in which they are reached, which depends on that plan alone: a number means the same
plan, whatever runs and however costs change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from msgspec.structs import replace

from cluster.expressions import nodes as expressions
from cluster.expressions.conditions import equal_sides
from cluster.operators import (
    Aggregate,
    AntiJoin,
    CountWindow,
    Distinct,
    Filter,
    Join,
    KeptExtent,
    Lookup,
    Node,
    PartitionedWindow,
    PatternMatch,
    Project,
    SemiJoin,
    Sequence,
    SessionWindow,
    Source,
    StampJoin,
    TableLookup,
    TimeWindow,
    Union,
    UntilNext,
    Zip,
)
from cluster.operators.aggregate_functions import AGGREGATE_FUNCTIONS
from cluster.operators.columns import Output, Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import (
    columns_of,
    conjunction_of,
    conjuncts_of,
    passed_on,
    plain_column,
    substituted,
)
from cluster.operators.walks import above, nodes_of, rebuilt
from cluster.plan.extents import extents_kept
from cluster.plan.history import has_own_beginning
from cluster.plan.join_orders import inner_parts, joined_by, order_words, orders_of, region_of, without_narrowing
from cluster.plan.lookups import in_order
from cluster.plan.names_read import functions_of
from cluster.plan.pane_query import pane_families
from cluster.plan.rewrite import rewrite
from cluster.planning_budget import spend

Varied = tuple[Node, str]
"""A part written differently, and what is different."""
Variation = Callable[[Node], Iterator[Varied]]

MOST_LOOKUP_ORDERS = 24


def join_orders(node: Node) -> Iterator[Varied]:
    """(A ⋈ B) ⋈ C = A ⋈ (B ⋈ C), and any other order without a product."""
    region = region_of(node)
    if region is not None:
        for tree in orders_of(region):
            yield joined_by(region, tree), f"streams are joined as {order_words(region, tree)}"


def lookup_orders(node: Node) -> Iterator[Varied]:
    """Lookups of one tuple in another order, in which each follows those whose columns it reads."""
    if not isinstance(node, Source) or len(node.lookups) < 2:  # noqa: PLR2004 - there is no order of one
        return
    sampled = frozenset(column.name for column in node.sampled)
    found = 0
    for order in permutations(node.lookups):
        if order != node.lookups and in_order(order, sampled):
            names = ", ".join(_table_name(each) for each in order)
            yield replace(node, lookups=order), f"tuples of {node.stream} are looked up in {names}, in this order"
            found += 1
            if found == MOST_LOOKUP_ORDERS:
                return


def _table_name(lookup: TableLookup) -> str:
    return "+".join(dict.fromkeys(each.name for each in lookup.table.relations))


def filter_above_join(node: Node) -> Iterator[Varied]:
    """A selection on one side of a join, behind it, as far as the join has its columns (C4)."""
    if not isinstance(node, Join):
        return
    for place, side in enumerate((node.left, node.right)):
        bare, conditions = _without_conditions(side, side.names)
        predicate = conjunction_of(conditions)
        if predicate is not None:
            left, right = (bare, node.right) if place == 0 else (node.left, bare)
            changed = Filter(Join(left, right, node.predicate), predicate)
            yield changed, f"conditions on {_streams(side)} are tested behind the join"


def filter_above_aggregate(node: Node) -> Iterator[Varied]:
    """A selection by keys behind the aggregate: groups that fail it are left out."""
    if not isinstance(node, Aggregate):
        return
    bare, conditions = _without_conditions(node.input, frozenset(node.keys))
    predicate = conjunction_of(conditions)
    if predicate is not None:
        yield Filter(replace(node, input=bare), predicate), "conditions on keys are tested behind the aggregate"


def _without_conditions(node: Node, wanted: frozenset[str]) -> tuple[Node, list[Scalar]]:
    """Return a part without its conditions over some of its columns, and these; windows of time may be above them."""
    match node:
        case Filter():
            below, found = _without_conditions(node.input, wanted)
            own = [each for each in conjuncts_of(node.predicate) if columns_of(each) and columns_of(each) <= wanted]
            rest = conjunction_of(each for each in conjuncts_of(node.predicate) if each not in own)
            return (below if rest is None else Filter(below, rest)), [*found, *own]
        case TimeWindow():
            below, found = _without_conditions(node.input, wanted)
            return above(node, (below,)), found
        case Project():
            passed = [(plain_column(each.scalar), each) for each in node.outputs if each.name in wanted]
            outer = {name: _renamed(each) for name, each in passed if name is not None}
            below, found = _without_conditions(node.input, frozenset(outer))
            moved = [each for condition in found if (each := substituted(condition, outer)) is not None]
            # A condition can be moved if it does not become too large.
            return (above(node, (below,)), moved) if len(moved) == len(found) else (node, [])
        case _:
            return node, []


def _renamed(output: Output) -> Scalar:
    return Scalar(expressions.Column(output.name), output.scalar.type)


def distinct_below(node: Node) -> Iterator[Varied]:
    """Duplicates are eliminated on both sides of a join or union, too.

    Where all columns of a join are left, they are eliminated only there (section 4.2 C3).
    """
    if not isinstance(node, Distinct):
        return
    top = node.input
    below = top.input if isinstance(top, Project) else top
    if not isinstance(below, Join | Union) or all(each.duplicate_free for each in below.inputs):
        return
    sides = tuple(each if each.duplicate_free else Distinct(each) for each in below.inputs)
    changed = above(below, sides)
    if isinstance(below, Join) and top is below:
        yield changed, "duplicates are eliminated before the join"
        return
    where = "join" if isinstance(below, Join) else "union"
    changed = changed if top is below else above(top, (changed,))
    yield Distinct(changed), f"duplicates are eliminated before the {where}, too"


def distinct_partners(node: Node) -> Iterator[Varied]:
    """A ⋉ B = A ⋉ δ(B), and so for the anti-join: whether there is a partner does not depend on how many."""
    if isinstance(node, SemiJoin | AntiJoin) and not node.right.duplicate_free:
        changed = replace(node, right=Distinct(node.right))
        yield changed, f"of equal rows of {_streams(node.right)} one is kept"


def aggregate_before_join(node: Node) -> Iterator[Varied]:
    """The aggregate of a join as the join of an aggregate: of one side, by its own keys and the columns joined.

    The condition: the join has only equalities of a column of one side and one of the other; of each, one column is a
    key; no two rows of the other side agree in these columns and its keys at any instant; and the aggregates read
    values of the one side only. Then all rows of a group of pairs have the same partner, or none.
    """
    if not isinstance(node, Aggregate) or any(not AGGREGATE_FUNCTIONS[call.function].by_value for call in node.calls):
        return
    below = without_narrowing(node.input)
    if not isinstance(below, Join) or below.predicate is None:
        return
    for place, (side, other) in enumerate(((below.left, below.right), (below.right, below.left))):
        pairs = _pairs(below.predicate, side.names, other.names)
        unique = other.unique_columns
        if pairs is None or unique is None or not unique <= {*node.keys, *(partner for _, partner in pairs)}:
            continue
        if not all(one in node.keys or partner in node.keys for one, partner in pairs):
            continue
        if not all(columns_of(scalar) <= side.names for call in node.calls for scalar in call.reads):
            continue
        keys = tuple(dict.fromkeys([*(key for key in node.keys if key in side.names), *(one for one, _ in pairs)]))
        if {call.name for call in node.calls} & (other.names | {*keys}):
            continue
        grouped = Aggregate(side, keys, node.calls)
        left, right = (grouped, other) if place == 0 else (other, grouped)
        joined = Join(left, right, below.predicate)
        yield project(joined, passed_on(node.schema)), f"{_streams(side)} is aggregated before the join"


def _pairs(predicate: Scalar, own: frozenset[str], others: frozenset[str]) -> list[tuple[str, str]] | None:
    """Return the columns that a condition equates; None if it has another part."""
    found: list[tuple[str, str]] = []
    for part in conjuncts_of(predicate):
        sides = equal_sides(part.expression)
        if sides is None:
            return None
        one, other = (each.name if isinstance(each, expressions.Column) else "" for each in sides)
        one, other = (one, other) if one in own else (other, one)
        if one not in own or other not in others:
            return None
        found.append((one, other))
    return found


def _streams(node: Node) -> str:
    return ", ".join(sorted(node.streams))


VARIATIONS: tuple[Variation, ...] = (
    join_orders,
    aggregate_before_join,
    distinct_below,
    distinct_partners,
    lookup_orders,
    filter_above_aggregate,
    filter_above_join,
    pane_families,
    extents_kept,
)
"""All of them, in the order in which plans are numbered."""


MOST = 1_000
"""Plans that are looked at of one query; there are 945 orders of six streams of which each is joined with each."""
MOST_CHANGES = 2
"""Places of a plan that are written differently at once."""
AS_PLANNED = "as planned without costs"
_Windows = CountWindow | PartitionedWindow | SessionWindow | KeptExtent
_BY_ORDER = _Windows | UntilNext | Zip | PatternMatch | StampJoin | Sequence
"""What depends on the order in which rows come, or on where they begin: parts below stay as they are."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan of a query.

    Parameters
    ----------
    node
        The plan; at every instant it has the rows of the others, with the same columns.
    changes
        What is different from the first one, place by place.
    """

    node: Node
    changes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What is different, in words."""
        return "; ".join(self.changes) or AS_PLANNED


def alternatives(plan: Node, *, most: int = MOST) -> tuple[Alternative, ...]:
    """Return the plans of a query, the given one first.

    Parameters
    ----------
    plan
        The plan, rewritten.
    most
        Further ones are not looked for.

    Raises
    ------
    PlanningLimitError
        If it takes longer than planning may.
    """
    found = {plan: Alternative(plan)}
    if has_own_beginning(plan) or functions_of(plan):
        # The past is read once, and a function may fail for rows that another plan gives it.
        return tuple(found.values())
    newest = [(0, found[plan])]
    for _ in range(MOST_CHANGES):
        before, newest = newest, []
        for first, each in before:
            for rank, other in _varied(each, first):
                if other.node not in found and other.node.schema == plan.schema:
                    found[other.node] = other
                    newest.append((rank, other))
                    if len(found) >= most:
                        return tuple(found.values())
    return tuple(found.values())


def _varied(given: Alternative, first: int) -> Iterator[tuple[int, Alternative]]:
    """Yield plans that differ from one in one place, each with the place of its variation among all.

    Parameters
    ----------
    given
        The plan.
    first
        The place of the first variation to try: those before it have been tried on another plan that leads to the same.
    """
    plan = given.node
    inner, kept = inner_parts(plan), _kept(plan)
    looked_up = any(isinstance(each, Lookup) for each in nodes_of(plan))
    for rank, variation in list(enumerate(VARIATIONS))[first:]:
        if looked_up and variation is not lookup_orders:
            continue  # it matters where the rows begin that are looked up
        for node in nodes_of(plan):
            if id(node) in kept or (variation is join_orders and id(node) in inner):
                continue
            if variation in (pane_families, extents_kept) and node is not plan:
                continue  # what shares panes or extents is a whole query
            for changed, words in variation(node):
                spend()
                other = _replaced(plan, node, changed)
                tidy = rewrite(other).node if variation is aggregate_before_join else other
                # All orders of joins are reached from the first plan.
                yield max(rank, 1), Alternative(tidy, (*given.changes, words))


def _replaced(plan: Node, part: Node, changed: Node) -> Node:
    return rebuilt(plan, lambda each: changed if each is part else each)


def _kept(plan: Node) -> frozenset[int]:
    """Return the identities of the nodes below operators that depend on the order of rows, and of these operators."""
    return frozenset(id(below) for node in nodes_of(plan) if isinstance(node, _BY_ORDER) for below in nodes_of(node))
