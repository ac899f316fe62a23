"""Conditions, with subqueries in them, as filters, semi-joins and anti-joins (papers/pipes_algebra.md section 2.4).

:meth:`Conditions.select` keeps the tuples for which a condition is true, :meth:`Conditions.reject` the others, for
which it is false or unknown; between them AND and OR need no further operator than union.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.reading import expression_of
from cluster.language.calls import unsupported
from cluster.language.expressions import COMPARISONS, Checker, grouped
from cluster.language.nesting import balanced
from cluster.language.subqueries import AGGREGATE_IT, SEVERAL_ROWS, test_of_rows_in, with_values
from cluster.language.syntax import QUERIES, conjuncts, holds_query
from cluster.language.typing_rules import conjunction
from cluster.operators import AntiJoin, Filter, Node, SemiJoin, Union
from cluster.operators.columns import Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.planning_budget import spend
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.scope import Scope
    from cluster.language.subqueries import Operand, Subqueries
    from cluster.language.typing_rules import Typed

NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE, exp.LTE: exp.GT,
}  # fmt: skip
SWAPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


def _wrapped(connector: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return connector(this=exp.Paren(this=left), expression=exp.Paren(this=right))


def without_not(condition: exp.Expr) -> exp.Expr:
    """Return `condition` with NOT pushed down to parts without subqueries, or into a subquery's own operator."""
    if isinstance(condition, exp.Paren):
        return without_not(condition.this)
    if not isinstance(condition, exp.Not):
        return condition
    inner = condition.this.unnest() if isinstance(condition.this, exp.Paren) else condition.this
    if not holds_query(inner):
        return condition
    match inner:
        case exp.Not():
            return without_not(inner.this)
        case exp.And() | exp.Or():
            other = exp.Or if isinstance(inner, exp.And) else exp.And
            sides = (exp.Not(this=exp.Paren(this=each)) for each in (inner.this, inner.expression))
            return _wrapped(other, *sides)
        case _ if isinstance(inner, COMPARISONS):
            right = inner.expression
            if isinstance(right, exp.All | exp.Any):
                right = (exp.Any if isinstance(right, exp.All) else exp.All)(this=right.this)
            return NEGATED[type(inner)](this=inner.this, expression=right)
        case _:
            return condition


@dataclass(frozen=True, slots=True)
class Conditions:
    """Turns conditions into operators over one plan and its scope. Neither changes the plan's columns."""

    scope: Scope
    context: Context
    subqueries: Subqueries
    answers: dict[tuple[int, int, bool], tuple[exp.Expr, Node, Node]] = field(default_factory=dict)
    """Results by identity of condition and plan; both are kept with the result, so that these identities stay valid.

    Each part of a condition filters only one plan, but often: the tuples that an OR rejects go on to its right."""

    pushed: dict[int, tuple[exp.Expr, exp.Expr]] = field(default_factory=dict)
    """Conditions with NOT pushed down, by identity."""

    parts: dict[int, tuple[exp.Expr, list[exp.Expr]]] = field(default_factory=dict)
    """Conditions connected by AND, by identity of the whole."""

    def select(self, node: Node, condition: exp.Expr) -> Node:
        """Return the tuples of `node` for which `condition` is true.

        Raises
        ------
        FjordSqlError
            If the condition is not a boolean, or a subquery in it cannot be used so.
        """
        for part in self._parts_of(condition):
            node = self._once(node, part, wanted=True)
        return node

    def reject(self, node: Node, condition: exp.Expr) -> Node:
        """Return the tuples of `node` for which `condition` is false or unknown."""
        return self._once(node, condition, wanted=False)

    def _once(self, node: Node, condition: exp.Expr, *, wanted: bool) -> Node:
        key = (id(condition), id(node), wanted)
        if key not in self.answers:
            spend()
            pushed = self._without_not(condition)
            found = self._select_with_query(node, pushed) if wanted else self._reject(node, pushed)
            self.answers[key] = (condition, node, found)
        return self.answers[key][-1]

    def _without_not(self, condition: exp.Expr) -> exp.Expr:
        """Return :func:`without_not` of a condition, always as the same object, so that its parts are found again."""
        if id(condition) not in self.pushed:
            self.pushed[id(condition)] = (condition, without_not(condition))
        return self.pushed[id(condition)][-1]

    def _reject(self, node: Node, condition: exp.Expr) -> Node:
        if not holds_query(condition):
            checked = Checker(self.scope, self.context).check_as(condition, Family.BOOLEAN)
            negated: exp.Expr = exp.Not(this=grouped(checked.expression))
            if checked.nullable:
                negated = exp.Coalesce(this=negated, expressions=[exp.Boolean(this=True)])
            return Filter(node, Scalar(expression_of(negated), FieldType.BOOLEAN))
        match condition:
            case exp.And():
                first, *others = self._parts_of(condition)
                rejected = self.reject(node, first)
                for part, before in zip(others, (first, *others), strict=False):
                    node = self._once(node, before, wanted=True)
                    rejected = Union(rejected, self.reject(node, part))
                return rejected
            case exp.Or():
                return self.reject(self.reject(node, condition.this), condition.expression)
            case _:
                return self._existence(node, condition, wanted=False)

    def _parts_of(self, condition: exp.Expr) -> list[exp.Expr]:
        """Return the conditions connected by AND: those without subqueries as one, first; always the same objects."""
        if id(condition) not in self.parts:
            every = [each for each in conjuncts(condition) if id(each) not in self.context.temporal]
            plain = [each for each in every if not holds_query(each)]
            together = [_all_of(plain)] if plain else []
            self.parts[id(condition)] = (condition, [*together, *(each for each in every if holds_query(each))])
        return self.parts[id(condition)][-1]

    def _select_with_query(self, node: Node, condition: exp.Expr) -> Node:
        if not holds_query(condition):
            return Filter(node, self._boolean(conjuncts(condition)))
        match condition:
            case exp.And():
                return self.select(node, condition)
            case exp.Or():
                left = self.select(node, condition.this)
                return Union(left, self.select(self.reject(node, condition.this), condition.expression))
            case _:
                return self._existence(node, condition, wanted=True)

    def _boolean(self, conditions: list[exp.Expr]) -> Scalar:
        checker = Checker(self.scope, self.context)
        parts = [checker.check_as(each, Family.BOOLEAN).expression for each in conditions]
        return conjunction(parts)

    def _existence(self, node: Node, condition: exp.Expr, *, wanted: bool) -> Node:
        negated = isinstance(condition, exp.Not)
        inner = condition.this.unnest() if negated else condition
        match inner:
            case exp.Exists():
                operand = self.subqueries.operand(inner.this, node, self.scope, value=False)
                return self._join(node, operand, None, keep=wanted != negated)
            case exp.In(this=exp.Tuple() as row) if inner.args.get("query"):
                hint = "write EXISTS (SELECT * FROM ... WHERE a = x AND b = y)"
                raise self.context.error(row, "a query selects one column, so it has no rows to look this up in", hint)
            case exp.In() if inner.args.get("query") and not holds_query(inner.this):
                operand = self.subqueries.operand(inner.args["query"], node, self.scope, value=True)
                predicate = self._comparison(inner, inner.this, operand, exp.EQ, unknown_too=negated)
                return self._join(node, operand, predicate, keep=wanted != negated)
            case _ if isinstance(inner, COMPARISONS) and not negated:
                return self._compared(node, inner, wanted=wanted)
            case exp.Anonymous() if not self._is_declared(inner):
                raise unsupported(self.context, inner)
            case _:
                return self._with_values(node, condition, wanted=wanted)

    def _is_declared(self, call: exp.Anonymous) -> bool:
        """Return whether a call is of a function of users, which takes subqueries as values."""
        return call.name.casefold() in self.context.catalog.functions

    def _with_values(self, node: Node, condition: exp.Expr, *, wanted: bool) -> Node:
        """Return the tuples for which a condition over values of subqueries is true, or those for which it is not."""
        valued = with_values(node, self.scope, [condition], self.subqueries)
        (plain,) = valued.expressions
        if valued.node is node:
            bare = next((each for each in condition.find_all(*QUERIES) if isinstance(each.parent, exp.Anonymous)), None)
            raise unsupported(self.context, test_of_rows_in(condition) or bare or condition)
        inner = Conditions(valued.scope, self.context, self.subqueries)
        kept = inner.select(valued.node, plain) if wanted else inner.reject(valued.node, plain)
        return project(kept, passed_on(node.schema))

    def _compared(self, node: Node, comparison: exp.Expr, *, wanted: bool) -> Node:
        left, right, operator = comparison.this, comparison.expression, type(comparison)
        if isinstance(right, exp.Anonymous) and not self._is_declared(right):
            raise unsupported(self.context, right)
        if not _is_query(right) and _is_query(left):
            left, right, operator = right, left, SWAPPED[operator]
        for_all = isinstance(right, exp.All)
        quantified = isinstance(right, exp.All | exp.Any)
        query = right.this if quantified else right
        if holds_query(left) or not _is_query(right):
            return self._with_values(node, comparison, wanted=wanted)
        operand = self.subqueries.operand(query, node, self.scope, value=True)
        if not quantified and not operand.single:
            raise self.context.error(query, SEVERAL_ROWS, AGGREGATE_IT)
        predicate = self._comparison(
            comparison, left, operand, NEGATED[operator] if for_all else operator, unknown_too=for_all
        )
        return self._join(node, operand, predicate, keep=wanted != for_all)

    def _comparison(
        self, at: exp.Expr, left: exp.Expr, operand: Operand, operator: type[exp.Expr], *, unknown_too: bool
    ) -> exp.Expr:
        checker = Checker(self.scope, self.context)
        value, other = checker.check(left), operand.value
        assert other is not None  # noqa: S101 - called with value=True
        checker.common(at, [value, other], action="compare")
        parts: list[exp.Expr] = [operator(this=grouped(value.expression), expression=grouped(other.expression))]
        if unknown_too:
            parts += [_is_null(each) for each in (value, other) if each.nullable]
        built = parts[0]
        for part in parts[1:]:
            built = exp.Or(this=built, expression=part)
        return built if len(parts) == 1 else exp.Paren(this=built)

    def _join(self, node: Node, operand: Operand, predicate: exp.Expr | None, *, keep: bool) -> Node:
        parts = [*operand.correlation, *([predicate] if predicate is not None else [])]
        scalar = conjunction(parts) if parts else None
        return SemiJoin(node, operand.node, scalar) if keep else AntiJoin(node, operand.node, scalar)


def _is_query(side: exp.Expr) -> bool:
    """Return whether a side of a comparison is a subquery, or all or any rows of one."""
    return isinstance(side.this if isinstance(side, exp.All | exp.Any) else side.unnest(), QUERIES)


def _all_of(conditions: list[exp.Expr]) -> exp.Expr:
    if len(conditions) == 1:
        return conditions[0]
    built: exp.Expr | None = None
    for each in conditions:
        copied = each.copy()  # what is put into another tree would leave its own
        safe = exp.Paren(this=copied) if isinstance(copied, exp.Or) else copied
        built = safe if built is None else exp.And(this=built, expression=safe)
    assert built is not None  # noqa: S101 - callers have at least one
    return balanced(built) or built


def _is_null(typed: Typed) -> exp.Expr:
    return exp.Is(this=grouped(typed.expression), expression=exp.Null())
