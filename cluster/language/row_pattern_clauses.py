"""MATCH_RECOGNIZE: the matches of a pattern in the rows of each partition -> plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.errors import suggest
from cluster.language.quantities import duration_us, read_quantity
from cluster.language.row_expressions import RowExpressions
from cluster.language.row_pattern_syntax import PATTERN_SHAPE, SKIP_SHAPES, WITHIN_SHAPE, RowPatternClause, SkipClause
from cluster.language.scope import Scope, ScopeItem
from cluster.language.select_names import check_column_name
from cluster.language.stream_item import reshaping
from cluster.language.typing_rules import scalar_of
from cluster.operators import Node, PatternMatch
from cluster.operators.columns import Output
from cluster.operators.pattern_match import INSTANT, Definition, PatternElement, RowPattern, Skip, SkipKind
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.unique_names import Names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.language.context import Context

MOST_ROWS = 1_000
"""Most rows that a match has at least."""


def match_pattern(clause: RowPatternClause, node: Node, scope: ScopeItem, context: Context) -> Node:
    """Return the plan of a pattern over an item of FROM.

    Parameters
    ----------
    clause
        Its syntax.
    node, scope
        The plan of the item, and its names.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If the rows have no order, a name is unknown, an expression makes no sense, or the pattern is without bounds.
    """
    _check_rows(clause, node, context)
    _check_order(clause, scope, context)
    elements: tuple[PatternElement, ...] = clause.args["pattern"].meta["elements"]
    variables = {element.variable.casefold(): element.variable for element in elements}
    elements = tuple(_renamed(element, variables) for element in elements)
    within_us = _within(clause, elements, context)
    keys = _keys(clause, scope, context)
    expressions = RowExpressions(Scope((replace(scope, sampled_at=INSTANT),)), variables, context)
    definitions = _definitions(clause, variables, expressions, context)
    measures = _measures(clause, keys, expressions, context)
    read = {*keys, *expressions.read}
    columns = [column for column in node.schema if column.name in read]
    pattern = RowPattern(
        elements=elements,
        definitions=definitions,
        measures=measures,
        lags=expressions.lags,
        reaches=expressions.reaches,
        ties=tuple(column.name for column in columns),
        within_us=within_us,
        skip=_skip(clause.args.get("skip"), elements, variables, context),
    )
    return PatternMatch(project(node, passed_on(columns)), keys, pattern)


def _renamed(element: PatternElement, variables: Mapping[str, str]) -> PatternElement:
    """Return an element with the first spelling of its variable: names have no case."""
    name = variables[element.variable.casefold()]
    return PatternElement(name, element.least, element.most, element.reluctant)


def _check_rows(clause: RowPatternClause, node: Node, context: Context) -> None:
    if reads_relations_only(node):
        reason = "a pattern is found in the order of stamps, and the rows of a relation have none"
        raise context.error(clause.this, reason, "join the relation with a stream in a subquery of FROM")
    if window := reshaping(clause.this):
        reason = "a pattern is found in tuples as they come: what it reads has no window"
        raise context.error(window, reason, "put the window behind MATCH_RECOGNIZE(...), where it is about matches")
    if not node.is_instantaneous:
        reason = "a pattern is found in the order of stamps, but the rows of this last longer than an instant"
        raise context.error(clause.this, reason, "put ISTREAM(...) around it: each row is then stamped where it begins")


def _check_order(clause: RowPatternClause, scope: ScopeItem, context: Context) -> None:
    words = [name.name for name in clause.args["order"] if name.name.upper() != "ASC"]
    if words[0].upper() == "STAMP" and words[1:] == ["(", ")"]:
        return
    name, qualifier = words[-1], words[0] if len(words) > 1 else ""
    is_stamp = scope.stamp is not None and name.casefold() == scope.stamp.casefold()
    if not is_stamp or (qualifier and qualifier.casefold() != (scope.alias or "").casefold()):
        reason = "the rows of a pattern are in the order of their stamps, and this is not the stamp"
        raise context.error(clause.args["order"][0], reason, "ORDER BY STAMP()")


def _within(clause: RowPatternClause, elements: tuple[PatternElement, ...], context: Context) -> int | None:
    pattern, within = clause.args["pattern"], clause.args.get("within")
    least = sum(element.least for element in elements)
    if not least:
        reason = "this pattern would match no rows at all, everywhere"
        raise context.error(pattern, reason, f"let a variable take at least one row: {PATTERN_SHAPE}")
    if least > MOST_ROWS:
        raise context.error(pattern, f"a match of this pattern has at least {least:,} rows; {MOST_ROWS:,} are possible")
    if within is not None:
        return read_quantity(within, duration_us, context, meant="MINUTES")
    if any(element.most != element.least for element in elements):
        reason = "without WITHIN, whether this pattern goes on might stay unknown for ever, and all rows would be kept"
        raise context.error(pattern, reason, f"bound the time from first to last row: {WITHIN_SHAPE}")
    return None


def _keys(clause: RowPatternClause, scope: ScopeItem, context: Context) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for key in clause.args.get("partition") or ():
        if not isinstance(key, exp.Column) or isinstance(key.this, exp.Star):
            hint = "compute it in a subquery of FROM"
            raise context.error(key, "PARTITION BY takes columns as they are", hint)
        names[Scope((scope,)).find(key, context).internal] = None
    return tuple(names)


def _definitions(
    clause: RowPatternClause, variables: Mapping[str, str], expressions: RowExpressions, context: Context
) -> tuple[Definition, ...]:
    found: dict[str, Definition] = {}
    for each in clause.args.get("definitions") or ():
        variable = _variable(each.this, variables, context)
        if variable in found:
            raise context.error(each.this, f"{variable} has two definitions", "join the conditions by AND")
        row, reaching = expressions.condition(each.expression, variable)
        found[variable] = Definition(variable, row, reaching)
    return tuple(found.values())


def _variable(name: exp.Expr, variables: Mapping[str, str], context: Context) -> str:
    found = variables.get(name.name.casefold())
    if found is None:
        hint = suggest(name.name, variables.values(), what="it has")
        raise context.error(name, f"PATTERN has no variable {name.name!r}", hint)
    return found


def _measures(
    clause: RowPatternClause, keys: tuple[str, ...], expressions: RowExpressions, context: Context
) -> tuple[Output, ...]:
    taken = Names(keys)
    outputs = []
    for each in clause.args["measures"]:
        check_column_name(each.args["alias"], context)
        if each.alias in taken:
            reason = f"two columns are called {each.alias!r}"
            raise context.error(each.args["alias"], reason, "the columns of PARTITION BY are there without MEASURES")
        taken.add(each.alias)
        typed = expressions.measure(each.this)
        if typed.type is None:
            raise context.error(each.this, "NULL has no type here", "write CAST(NULL AS real)")
        outputs.append(Output(each.alias, scalar_of(typed, typed.type), typed.unit))
    return tuple(outputs)


_SKIPS: dict[str, SkipKind] = {
    "PAST LAST ROW": "past last row",
    "TO NEXT ROW": "to next row",
    "TO FIRST": "to first",
    "TO LAST": "to last",
    "TO": "to last",
}


def _skip(
    clause: SkipClause | None, elements: tuple[PatternElement, ...], variables: Mapping[str, str], context: Context
) -> Skip:
    if clause is None:
        return Skip()
    kind = _SKIPS[clause.args["kind"]]
    if clause.this is None:
        return Skip(kind)
    variable = _variable(clause.this, variables, context)
    mine = [place for place, element in enumerate(elements) if element.variable == variable and element.least]
    if not mine:
        reason = f"a match may be without a row of {variable}, and there would be nowhere to go on"
        raise context.error(clause.this, reason, SKIP_SHAPES)
    before = sum(element.least for element in elements[: mine[0]])
    if kind == "to first":
        before = sum(element.least for element in elements[: _first(elements, variable)])
    elif not before:
        before = sum(element.least for element in elements[: mine[-1] + 1]) - 1
    if not before:
        reason = f"the search would begin at the first row of the match again, and never end: it may be {variable}'s"
        raise context.error(clause.this, reason, "name a variable behind one that takes at least one row")
    return Skip(kind, variable)


def _first(elements: tuple[PatternElement, ...], variable: str) -> int:
    return next(place for place, element in enumerate(elements) if element.variable == variable)
