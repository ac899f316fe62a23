"""OVER and QUALIFY: tuples of a stream in the order of their stamps -> plan and expressions.

What each function computes is in over_functions.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.arguments import called
from cluster.language.expressions import Checker
from cluster.language.foreign_names import INSTEAD, SHARES
from cluster.language.grouping import with_parts_replaced
from cluster.language.over_functions import OverCalls
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.select_ends import ranks_in
from cluster.language.syntax import Over, Slot, holds_query, own_columns, own_parts
from cluster.operators import Filter, Node, Sequence, Source
from cluster.operators.columns import STAMP
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import passed_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.language.context import Context
    from cluster.language.select_ends import SelectEnd

NESTED = ("functions with OVER cannot stand inside each other", "compute the inner one in FROM (SELECT ...) AS x")


@dataclass(frozen=True, slots=True)
class Sequenced:
    """The outcome: a plan, its names, and the expressions over them."""

    node: Node
    scope: Scope
    expressions: tuple[exp.Expr, ...]


def overs_in(expression: exp.Expr) -> list[Over]:
    """Return the functions with OVER in `expression`, the outermost, not those of its subqueries."""
    return own_parts(expression, Over)


def goes_by_order(end: SelectEnd, context: Context, *, grouped: bool) -> bool:
    """Return whether a SELECT has functions with OVER that go by the order of stamps.

    Raises
    ------
    FjordSqlError
        If they stand beside groups, ranks, or a subquery in QUALIFY.
    """
    overs = [over for each in end.expressions for over in overs_in(each)]
    if not overs:
        return False
    if end.qualify is not None and holds_query(end.qualify):
        reason = "a subquery cannot stand in QUALIFY"
        raise context.error(end.qualify, reason, "put this query into FROM, and compare in WHERE")
    if grouped:
        reason = "a function with OVER is of tuples, and cannot stand beside GROUP BY and aggregates of groups"
        hint = "aggregate in a subquery, FROM Istream((SELECT ... GROUP BY ...)) AS x"
        raise context.error(overs[0], reason, hint)
    if ranks := [call for each in end.expressions for call in ranks_in(each)]:
        reason = "ranks are among the rows of one instant, and functions over tuples in order go by their stamps"
        raise context.error(ranks[0], reason, "compute one of them in a subquery, FROM (SELECT ...) AS x")
    return True


def sequenced(node: Node, scope: Scope, context: Context, expressions: list[exp.Expr]) -> Sequenced:
    """Return the plan that computes the functions with OVER in `expressions` over the tuples of `node`.

    Raises
    ------
    FjordSqlError
        If the tuples of `node` last, or something behind OVER or an argument is wrong.
    """
    overs = [over for each in expressions for over in overs_in(each)]
    _check(node, overs, context)
    checker = Checker(scope, context)
    keys = _keys(overs, checker)
    made = OverCalls(node, checker)

    def replaced(part: exp.Expr) -> exp.Expr:
        return made.value_of(part) if isinstance(part, Over) else part

    rewritten = tuple(with_parts_replaced(each, replaced) for each in expressions)
    read = {*keys, *made.read, *_read(rewritten, scope, made.names, context)}
    base = [column for column in node.schema if column.name in read or column == STAMP]
    below = project(node, (*passed_on(base), *made.arguments))
    ties = tuple(column.name for column in base if column != STAMP)  # where it decides, stamps are equal
    sequence = Sequence(below, tuple(keys), ties, made.calls)
    warning = tie_warning(sequence)
    if warning and not _of_one_sensor(sequence):
        context.warn(warning)
    slots = tuple(
        ScopeColumn("", call.name, call.type, call.unit, nullable=call.function != "count") for call in made.calls
    )
    return Sequenced(sequence, changed(scope, items=(*scope.items, ScopeItem(None, slots))), rewritten)


def tie_warning(sequence: Sequence) -> str | None:
    """Return the warning about tuples with the same stamp, None if their order does not matter."""
    if not sequence.ties or all(call.peers and call.function not in ("first", "last") for call in sequence.calls):
        return None
    return (
        "OVER takes tuples in the order of their stamps; where several of a group carry the same stamp, in the order "
        f"of their values: {', '.join(sequence.ties)}"
    )


def stream_below(sequence: Sequence) -> Source | None:
    """Return the stream whose tuples are taken in order, perhaps not all; None if they are made of others."""
    node: Node = sequence.input
    while isinstance(node, Filter):
        node = node.input
    return node if isinstance(node, Source) else None


def _of_one_sensor(sequence: Sequence) -> bool:
    """Return whether tuples are those of one sensor, as far as its properties tell: each has its own stamp."""
    stream = stream_below(sequence)
    return stream is not None and bool(stream.fixed) and set(stream.fixed) <= {*sequence.keys}


def _check(node: Node, overs: list[Over], context: Context) -> None:
    over = overs[0]
    if reads_relations_only(node):
        raise context.error(
            over, "OVER takes tuples in the order of their stamps, but the rows of a relation have none"
        )
    if not node.is_instantaneous:
        ranking = called(over.this, "").upper()
        if ranking in SHARES:
            raise context.error(over, f"{ranking} cannot stand before OVER", INSTEAD[ranking])
        raise context.error(
            over,
            "OVER takes tuples in the order of their stamps, but what is here lasts longer than an instant",
            "leave the window away, or put ISTREAM(...) around it: each tuple then is stamped where it begins",
        )
    for each in overs:
        if inner := [found for part in each.this.iter_expressions() for found in overs_in(part)]:
            raise context.error(inner[0], *NESTED)
        if holds_query(each):
            reason = "a subquery cannot stand in a function with OVER"
            raise context.error(each, reason, "compare with it in a condition, in FROM (SELECT ...) AS x")


def _keys(overs: list[Over], checker: Checker) -> dict[str, None]:
    """Return the columns of PARTITION BY, which all functions of a SELECT have in common."""
    first: dict[str, None] | None = None
    for over in overs:
        keys: dict[str, None] = {}
        for each in over.args.get("partition") or ():
            if not isinstance(each, exp.Column):
                hint = "compute it in a subquery, FROM (SELECT ... AS k FROM ...) AS x"
                raise checker.context.error(each, "PARTITION BY takes columns as they are", hint)
            keys[checker.scope.find(each, checker.context).internal] = None
        if first is not None and {*keys} != {*first}:
            at = (over.args.get("partition") or [over])[0]
            reason = "all functions with OVER of a SELECT have one PARTITION BY, and this is another one"
            raise checker.context.error(at, reason, "compute the others in a subquery, FROM (SELECT ...) AS x")
        first = keys if first is None else first
    return first or {}


def _read(
    expressions: tuple[exp.Expr, ...], scope: Scope, made: frozenset[str], context: Context
) -> Iterator[str]:  # fmt: skip
    """Yield the columns of the plan that expressions read, besides those that functions with OVER make."""
    for expression in expressions:
        yield from (
            scope.find(each, context).internal
            for each in own_columns(expression)
            if not isinstance(each.this, exp.Star) and scope.knows(each)
        )
        yield from (slot.this for slot in expression.find_all(Slot) if slot.this not in made)
