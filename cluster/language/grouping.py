"""GROUP BY and aggregates: plan and expressions -> plan with an Aggregate, and expressions over its columns.

**ERROR_BOUND(aggregate): how far an aggregate may be from the exact one because of WITHIN.**

It bounds the error over all values that the seen samples may have had within the tolerance. Missing samples do not
count: COMPLETENESS() reports those. It is composed of other aggregates and constants, so it needs no operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions.nodes import Expression, bare
from cluster.expressions.reading import expression_of
from cluster.expressions.walks import columns_read, rebuilt
from cluster.language.arguments import FILTER_ELSEWHERE, called, without_distinct, wrong_number
from cluster.language.context import Context
from cluster.language.expressions import Checker
from cluster.language.functions import AGGREGATES, RANKED, UNBOUNDED_AGGREGATES
from cluster.language.grouping_sets import Masks, MatchingKeys, grouped_by
from cluster.language.scope import Scope, ScopeColumn, ScopeItem, left_out_by
from cluster.language.syntax import (
    PERCENTILE_SHAPE,
    PERCENTILES,
    QUERIES,
    Completeness,
    ErrorBound,
    Over,
    StringAgg,
    WindowBound,
    slot_for,
)
from cluster.language.typing_rules import scalar_of
from cluster.language.window_bounds import Bounds
from cluster.operators import Node, Project
from cluster.operators.columns import AggregateCall, Joining, Names, Output, Scalar
from cluster.operators.node import all_exact, error_of
from cluster.operators.scalar_expressions import passed_on, plain_column
from cluster.scalars.scalar_function import Family
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.language.operand_checks import OperandChecker
    from cluster.language.typing_rules import Typed

AS_FAR_AS_ITS_VALUES = tuple(kind for kind, row in AGGREGATES.items() if row.errs_as_its_values)
"""Aggregates whose error is at most the largest error of a value."""


def error_bound(bound: ErrorBound, node: Node, keys: tuple[str, ...], checker: Checker) -> exp.Expr:
    """Return the error bound as an expression over aggregates.

    Parameters
    ----------
    bound
        The call.
    node, keys
        The plan that is aggregated, and the columns by which it is grouped.
    checker
        A checker that knows the names of its columns.

    Raises
    ------
    FjordSqlError
        If there is no such bound, or it is not known.
    """
    context = checker.context
    arguments = bound.expressions
    if len(arguments) == 1 and isinstance(arguments[0], exp.Filter):
        reason = "ERROR_BOUND takes an aggregate without FILTER: which rows count may depend on values that may be off"
        raise context.error(arguments[0], reason, "put the condition into WHERE")
    if len(arguments) != 1 or AGGREGATES.get(type(arguments[0])) is None:
        raise context.error(bound, "ERROR_BOUND takes one aggregate", "ERROR_BOUND(AVG(speed))")
    (call,) = arguments
    name = AGGREGATES[type(call)].name.upper()
    if name == "COMPLETENESS":
        raise context.error(bound, "COMPLETENESS is counted, and never off", "leave ERROR_BOUND out")
    if not node.is_off:
        return _where_known(call, exp.Literal.number("0.0"))
    if not node.rows_are_certain or not all_exact(node, keys):
        raise context.error(
            bound,
            "how far this may be off is not known: which samples count, or in which group, depends on values for "
            "which the query allows an error",
            "allow no error on fields of conditions, of PARTITION BY and of GROUP BY",
        )
    rows = isinstance(call, exp.Count) and isinstance(call.this, exp.Star)
    error = 0.0 if rows else _error(call, node, checker)
    # How many values a field has is known, however far they may be off; whether an expression is NULL may depend on it.
    counts_values = isinstance(call, exp.Count) and not isinstance(call.this, exp.Distinct) and error is not None
    if error == 0 or counts_values:
        return _where_known(call, exp.Literal.number("0.0"))
    if error is not None and isinstance(call, AS_FAR_AS_ITS_VALUES):
        return _where_known(call, exp.Literal.number(repr(error)))
    if error is not None and isinstance(call, exp.Sum):
        many = exp.Count(this=call.this.copy())
        return _where_known(call, exp.Mul(this=exp.Literal.number(repr(error)), expression=many))
    raise context.error(
        bound,
        f"how far this {name} may be off is not known",
        "it is known for COUNT(*), and for COUNT, AVG, SUM, MIN, MAX, FIRST, LAST, MEDIAN and quantiles of a field "
        "as it is",
    )


def _where_known(call: exp.Expr, bound: exp.Expr) -> exp.Expr:
    """Return a bound that is NULL where the aggregate is NULL."""
    known = exp.Not(this=exp.Is(this=call.copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=bound)])


def _error(call: exp.Expr, node: Node, checker: Checker) -> float | None:
    """Return the allowed error of the column that an aggregate reads; None for an expression or distinct values."""
    if isinstance(call, RANKED):
        by = checker.check(call.expression)
        if by.type is not None and not _exact(scalar_of(by, by.type), node):
            return None  # another tuple may be the right one
    distinct = isinstance(call.this, exp.Distinct)
    argument = call.this.expressions[0] if distinct and len(call.this.expressions) == 1 else call.this
    typed = checker.check(argument)
    if typed.type is None:
        return 0.0
    scalar = scalar_of(typed, typed.type)
    if _exact(scalar, node):
        return 0.0
    name = plain_column(scalar)
    return None if name is None or (distinct and not isinstance(call, exp.Min | exp.Max)) else error_of(node, name)


def _exact(scalar: Scalar, node: Node) -> bool:
    """Return whether an expression over the columns of a node reads none that may be off."""
    return all_exact(node, columns_read(scalar.expression))


JOINED = ("separator", "order", "desc", "within")
"""What a call of them may have besides its argument."""
_COMMA = ","
"""What stands between texts that LISTAGG joins, unless it is given."""
OWN_VALUE = "STRING_AGG orders by the texts that it joins, so that equal ones leave no choice"


def joining_of(call: StringAgg, argument: Typed, checker: OperandChecker) -> Joining:
    """Return how a call joins its texts.

    Raises
    ------
    FjordSqlError
        If the separator is no text that is written out, or the order is not that of the texts.
    """
    context, separator, order = checker.context, call.args.get("separator"), call.args.get("order")
    name = called(call, "STRING_AGG").upper()
    if separator is None:
        if name != "LISTAGG":
            raise context.error(call, *wrong_number(name))
        separator = exp.Literal.string(_COMMA)
    literal = separator.unnest()
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        raise context.error(separator, "the separator must be written out, in quotes", f"{name}(x, ', ')")
    if len(literal.this) > LONGEST_TEXT:
        raise context.error(separator, f"a text that is computed has {LONGEST_TEXT:,} characters at most")
    if order is not None:
        by = checker.check(order)
        if by.type is not argument.type or _meaning(by) != _meaning(argument):
            if isinstance(order.unnest(), exp.Literal):
                hint = "a number is no place of a column here; leave ORDER BY out, or name the text"
                raise context.error(order, "a constant orders nothing", hint)
            raise context.error(order, OWN_VALUE, "leave ORDER BY out, or name the text; ARG_MAX goes by other values")
    return Joining(str(literal.this), descending=order is not None and bool(call.args.get("desc")))


def _meaning(typed: Typed) -> Expression:
    return rebuilt(expression_of(typed.expression), bare)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The outcome of grouping: a plan, its names, and the expressions over them."""

    node: Node
    scope: Scope
    expressions: tuple[exp.Expr, ...]


def aggregates_in(expression: exp.Expr) -> list[exp.Expr]:
    """Return the outermost aggregate calls in `expression`, not those of its subqueries."""
    if type(expression) in AGGREGATES or isinstance(expression, UNBOUNDED_AGGREGATES):
        return [expression]
    if isinstance(expression, exp.Filter):
        return aggregates_in(expression.this)
    if isinstance(expression, (*QUERIES, Over)):
        return []
    return [call for child in expression.iter_expressions() for call in aggregates_in(child)]


def group(
    node: Node,
    scope: Scope,
    context: Context,
    *,
    keys: Sequence[exp.Expr],
    expressions: list[exp.Expr],
    sets: Sequence[tuple[int, ...]] | None = None,
) -> Grouped:
    """Return the aggregation of `node` by `keys` that computes the aggregates in `expressions`.

    Parameters
    ----------
    node, scope, context
        What is aggregated, and its names.
    keys, expressions
        As they were written.
    sets
        The grouping sets, as places of keys; None for one set of all.

    Raises
    ------
    FjordSqlError
        If a key or an argument is wrong.
    """
    checker = Checker(scope, context)
    bounds = Bounds(node, context, Names(column.name for column in node.schema), (*keys, *expressions))
    keys, sets = bounds.without(keys, sets)
    node, named, computed = _with_keys(bounds.node, checker, keys)
    names = tuple(dict.fromkeys(named))
    chosen = [{named[place] for place in each} for each in sets] if sets is not None else [set(names)]
    named_sets = [tuple(name for name in names if name in each) for each in chosen]
    keys_of = MatchingKeys(computed, checker)
    taken = Names(column.name for column in node.schema)
    calls = _Calls(taken)
    masks = Masks(keys_of, frozenset(names), len(named_sets) > 1, checker, taken)

    def replaced(expression: exp.Expr) -> exp.Expr:
        if (name := keys_of.name_of(expression)) is not None:
            return slot_for(name, expression)
        if isinstance(expression, WindowBound):
            return bounds.value_of(expression, calls.name_of)
        if isinstance(expression, exp.Grouping):
            return masks.value_of(expression)
        if isinstance(expression, ErrorBound):
            return with_parts_replaced(error_bound(expression, node, names, checker), replaced)
        if isinstance(expression, exp.Filter):
            return slot_for(calls.name_of(aggregate_call(expression, checker)), expression)
        if isinstance(expression, Completeness) and masks.several:
            reason = "COMPLETENESS is known of groups of one kind, and not beside other grouping sets"
            raise context.error(expression, reason, "ask for it in a query of its own, with one set of keys")
        if type(expression) in AGGREGATES or isinstance(expression, UNBOUNDED_AGGREGATES):
            return slot_for(calls.name_of(aggregate_call(expression, checker)), expression)
        return expression

    rewritten = tuple(with_parts_replaced(expression, replaced) for expression in expressions)
    if not calls.calls and not all(named_sets):
        # Of no columns, there would be no rows.
        calls.name_of(AggregateCall("count", "count", None, FieldType.INTEGER))
    everywhere = frozenset(names).intersection(*chosen)
    aggregate = bounds.above(grouped_by(node, names, named_sets, calls.calls, masks.named), everywhere)
    kept = tuple(
        ScopeItem(
            item.alias,
            tuple(
                column if column.internal in everywhere else changed(column, nullable=True)
                for column in item.columns
                if column.internal in names
            ),
            item.stamp,
            shared=item.shared,
        )
        for item in scope.items
    )
    internal = frozenset(each.internal for item in kept for each in item.columns)
    never_null = calls.never_null | frozenset(masks.named.values()) | bounds.names
    slots = tuple(
        ScopeColumn("", column.name, column.type, column.unit, nullable=column.name not in never_null)
        for column in aggregate.schema
        if column.name not in internal
    )
    grouped = Scope((*kept, ScopeItem(None, slots)), scope.outer, grouped=True, before_grouping=scope)
    return Grouped(aggregate, grouped, rewritten)


def with_parts_replaced(expression: exp.Expr, replaced: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return a copy of `expression` with parts replaced from the top; subqueries have groups of their own and stay."""
    holder = exp.Paren(this=expression.copy())

    def visit(part: exp.Expr) -> None:
        if isinstance(part, QUERIES):
            return
        new = replaced(part)
        if new is not part:
            part.replace(new)
            return
        # What stands behind IS is a word, not a value: in GROUP BY TRUE it is no key.
        for child in [part.this] if isinstance(part, exp.Is) else list(part.iter_expressions()):
            visit(child)

    visit(holder.this)
    found: exp.Expr = holder.this
    return found


class _Calls:
    """Aggregate calls, each once. They are compared by what they compute; their names are for readers."""

    def __init__(self, taken: Names) -> None:
        self._taken = taken
        self._named: dict[AggregateCall, AggregateCall] = {}

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        """All of them, under their names."""
        return tuple(self._named.values())

    @property
    def never_null(self) -> frozenset[str]:
        """The names of the aggregates that are never NULL."""
        return frozenset(call.name for call in self.calls if call.function == "count")

    def name_of(self, call: AggregateCall) -> str:
        """Return the name of a call: the proposed one unless another call has it."""
        anonymous = replace(call, name="")
        if anonymous not in self._named:
            name = self._taken.unique(call.name)
            self._named[anonymous] = replace(call, name=name)
        return self._named[anonymous].name


def _with_keys(
    node: Node, checker: Checker, keys: Sequence[exp.Expr]
) -> tuple[Node, list[str], list[tuple[exp.Expr, Output]]]:
    """Return the plan that computes the keys, the column of each, and those that are more than a column."""
    names: list[str] = []
    added: list[Output] = []
    computed: list[tuple[exp.Expr, Output]] = []
    taken = Names(column.name for column in node.schema)
    known: dict[Scalar, str] = {}
    for key in keys:
        if isinstance(key, exp.Literal):
            reason, hint = "a value is no key to group by", "name a column, or write its place in SELECT: GROUP BY 1"
            raise checker.context.error(key, reason, hint)
        typed = checker.check(key)
        if typed.type is None:
            raise checker.context.error(key, "NULL is no key to group by")
        scalar = scalar_of(typed, typed.type)
        name = plain_column(scalar) or known.get(scalar)
        if name is None:
            name = known[scalar] = taken.unique(_readable(scalar))
            added.append(Output(name, scalar, typed.unit))
            computed.append((key, added[-1]))
        names.append(name)
    if added:
        node = Project(node, (*passed_on(node.schema), *added))
    return node, names, computed


def aggregate_call(call: exp.Expr, checker: Checker) -> AggregateCall:
    """Return the aggregate that is written, with FILTER or without.

    Raises
    ------
    FjordSqlError
        If an argument is wrong.
    """
    return _filtered(call, checker) if isinstance(call, exp.Filter) else _call(call, checker)


def _filtered(filtered: exp.Filter, checker: Checker) -> AggregateCall:
    """Return the call of an aggregate with FILTER: its argument is NULL where the condition is not true."""
    context, call, condition = checker.context, filtered.this, filtered.expression.this
    if type(call) not in AGGREGATES and not isinstance(call, UNBOUNDED_AGGREGATES):
        raise context.error(filtered, *FILTER_ELSEWHERE)
    if isinstance(call, Completeness):
        reason = "COMPLETENESS counts the samples that are due, and it is not known for which of them a condition holds"
        raise context.error(filtered, reason, "leave FILTER out, and give the condition to the other aggregates")
    if calls := aggregates_in(condition):
        raise context.error(
            calls[0], "the condition of FILTER is about single rows", "conditions on aggregates belong into HAVING"
        )
    checker.check_as(condition, Family.BOOLEAN)
    return _call(call, checker, condition)


def _call(call: exp.Expr, checker: Checker, condition: exp.Expr | None = None) -> AggregateCall:
    context = checker.context
    function = AGGREGATES.get(type(call))
    if function is None:
        checker.check(call)  # raises, with the reason
        raise context.error(call, "this aggregate is not part of FjordSQL")
    if isinstance(call, Completeness):
        if call.expressions:
            raise context.error(call, "COMPLETENESS takes no argument", "write COMPLETENESS()")
        return AggregateCall(function.name, function.name, None, FieldType.REAL)
    argument, distinct = _argument(call, context)
    read = [each for each in (argument, call.args.get("expression")) if each is not None]
    for inner in (found for each in read for found in each.find_all(*AGGREGATES)):
        raise context.error(inner, "an aggregate cannot stand inside another", "aggregate a subquery in FROM")
    parameter = _share(call, context) if "quantile" in call.arg_types else None
    if argument is None:
        if condition is None:
            return AggregateCall("count", "count", None, FieldType.INTEGER)
        argument = exp.Literal.number("1")
    typed = checker.check_as(argument, function.parameter)
    if typed.type is None:
        raise context.error(argument, "NULL is nothing to aggregate")
    scalar = scalar_of(typed, typed.type)
    order = _sampled_at(call, scalar, checker) if isinstance(call, exp.First | exp.Last) else None
    if condition is not None:
        chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=argument.copy())])
        scalar = scalar_of(checker.check(chosen), typed.type)
    computed = function.computed_as or function.name
    by = _ranked_by(call, checker)
    joining = joining_of(call, typed, checker) if isinstance(call, StringAgg) else msgspec.UNSET
    joined = "" if joining is msgspec.UNSET else joining.words
    return AggregateCall(
        name=_call_name(computed, scalar, parameter, by, joined, distinct=distinct),
        function=computed,
        argument=scalar,
        type=function.result if isinstance(function.result, FieldType) else typed.type,
        distinct=distinct,
        parameter=parameter,
        unit=typed.unit if function.keeps_unit else "",
        order=order,
        by=by,
        joining=joining,
    )


def _ranked_by(call: exp.Expr, checker: Checker) -> Scalar | msgspec.UnsetType:
    """Return what ARG_MIN and ARG_MAX compare; unset for other aggregates."""
    if not isinstance(call, RANKED):
        return msgspec.UNSET
    typed = checker.check(call.expression)
    if typed.type is None:
        raise checker.context.error(call, "NULL is nothing to compare")
    return scalar_of(typed, typed.type)


def _sampled_at(call: exp.Expr, argument: Scalar, checker: Checker) -> str:
    """Return the column with the stamps that FIRST and LAST order by: those of the stream that the argument reads."""
    context, scope = checker.context, checker.scope
    sources = [item for item in scope.items if not item.holds_values]
    read = columns_read(argument.expression)
    items = [item for item in sources if any(column.internal in read for column in (*item.columns, *item.stamps))]
    items = items or sources  # such as LAST('x'), or LAST of the value of a subquery
    if len(items) != 1:
        raise context.error(call, f"{function_name(call)} goes by the stamps of one stream, but this reads several")
    if items[0].sampled_at is None:
        raise context.error(
            call,
            f"{function_name(call)} goes by when tuples were sampled, and the rows of a subquery have none",
            f"take {function_name(call)} where the stream itself is read",
        )
    return items[0].sampled_at


def _argument(call: exp.Expr, context: Context) -> tuple[exp.Expr | None, bool]:
    argument = call.this
    if isinstance(call, exp.Count) and isinstance(argument, exp.Star):
        if left_out := left_out_by(argument):
            raise context.error(left_out[0], "COUNT(*) counts rows, whatever their columns", "COUNT(*)")
        return None, False
    distinct = isinstance(argument, exp.Distinct)
    if distinct:
        if len(argument.expressions) != 1 or argument.args.get("on"):
            hint = "count the rows of a subquery: FROM (SELECT DISTINCT a, b FROM ...) AS x"
            raise context.error(call, "DISTINCT takes one expression here", hint)
        if not AGGREGATES[type(call)].distinct:
            raise context.error(call, *without_distinct(called(call, function_name(call))))
        argument = argument.expressions[0]
    ranked, joins = isinstance(call, RANKED), isinstance(call, StringAgg)
    known = ("this", "quantile", "big_int", *(["expression"] if ranked else []), *(JOINED if joins else ()))
    extra = [name for name, value in call.args.items() if name not in known and value]
    if argument is None or extra or (ranked and call.args.get("expression") is None):
        raise context.error(call, *wrong_number(called(call, function_name(call)), too_many=argument is not None))
    return argument, distinct


def _share(call: exp.Expr, context: Context) -> float:
    share = call.args.get("quantile")
    if not isinstance(share, exp.Literal) or share.is_string or not 0 <= float(share.this) <= 1:
        name = AGGREGATES[type(call)].name.upper()
        shape = PERCENTILE_SHAPE.format(name) if type(call) in PERCENTILES.values() else "APPROX_QUANTILE(speed, 0.95)"
        raise context.error(share or call, "a quantile needs a share from 0 to 1", shape)
    return float(share.this)


def function_name(call: exp.Expr) -> str:
    """Return the name of an aggregate as messages write it."""
    function = AGGREGATES.get(type(call))
    return called(call, function.name).upper() if function else "this aggregate"


def _readable(scalar: Scalar) -> str:
    return scalar.sql.replace('"', "")


def _call_name(
    function: str,
    argument: Scalar,
    parameter: float | None,
    by: Scalar | msgspec.UnsetType,
    joined: str,
    *,
    distinct: bool,
) -> str:
    share = "" if parameter is None else f", {parameter:g}"
    compared = "" if by is msgspec.UNSET else f", {_readable(by)}"
    return f"{function}({'distinct ' if distinct else ''}{_readable(argument)}{compared}{share}{joined})"
