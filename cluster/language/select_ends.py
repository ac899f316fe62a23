"""The end of a SELECT: ranks and QUALIFY, its columns, DISTINCT, ORDER BY and LIMIT, in the order of their meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cluster.language.expressions import Checker
from cluster.language.ranks import RankedRows, ranks_in
from cluster.language.syntax import BEFORE_OVER
from cluster.language.top_rows import Key, top_of_columns, top_rows
from cluster.language.typing_rules import scalar_of
from cluster.language.words import DISTINCT_ON
from cluster.operators import Distinct, Node
from cluster.operators.columns import Column, Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from cluster.language.context import Context
    from cluster.language.scope import Scope


@dataclass(frozen=True, slots=True)
class SelectEnd:
    """What is left of a SELECT once its rows are joined, filtered and grouped.

    Parameters
    ----------
    select
        The SELECT.
    names
        What its columns are called.
    bodies
        Their expressions.
    qualify
        The condition of QUALIFY, if there is one.
    keys
        What ORDER BY orders by.
    """

    select: exp.Select
    names: tuple[str, ...]
    bodies: tuple[exp.Expr, ...]
    qualify: exp.Expr | None = None
    keys: tuple[Key, ...] = ()

    @property
    def expressions(self) -> list[exp.Expr]:
        """All expressions over the rows."""
        own = [key.meant for key in self.keys if key.meant is not None]
        return [*self.bodies, *([self.qualify] if self.qualify is not None else []), *own]

    def over(self, expressions: list[exp.Expr]) -> SelectEnd:
        """Return the same end with other expressions in place of its own, in their order."""
        count = len(self.bodies)
        left = expressions[count:]
        qualify = left.pop(0) if self.qualify is not None else None
        keys = [replace(key, meant=None if key.meant is None else left.pop(0)) for key in self.keys]
        return replace(self, bodies=tuple(expressions[:count]), qualify=qualify, keys=tuple(keys))


def ended(
    end: SelectEnd, node: Node, scope: Scope, context: Context, restrict: Callable[[Node, Scope, list[exp.Expr]], Node]
) -> Node:
    """Return the plan of a SELECT.

    Parameters
    ----------
    end
        What is left of it.
    node, scope
        Its rows, and their names.
    context
        For errors and warnings.
    restrict
        Returns the rows that meet conditions.

    Raises
    ------
    FjordSqlError
        If an expression is wrong.
    """
    select = end.select
    distinct, top = select.args.get("distinct"), select.args.get("top")
    if distinct is not None and distinct.args.get("on"):
        raise context.error(distinct, *DISTINCT_ON)
    plain = {place: each for place, each in enumerate(end.bodies) if not ranks_in(each)}
    outputs = _outputs(plain, end, Checker(scope, context))
    ranked = [each for each in end.expressions if ranks_in(each)]
    if end.qualify is not None and not ranked:
        if end.qualify.find(*BEFORE_OVER):
            Checker(scope, context).check(end.qualify)  # that OVER is missing is a better reason
        reason = "QUALIFY is a condition on places such as ROW_NUMBER() OVER (ORDER BY speed), and this query has none"
        raise context.error(end.qualify, reason, "conditions on rows belong into WHERE, those on groups into HAVING")
    if ranked:
        over_ranks = [each for place, each in enumerate(end.expressions) if place not in plain]
        rows = RankedRows(node, scope, context, list(outputs.values()), over_ranks)
        node, scope = rows.node, rows.scope
        end = end.over([each if place in plain else rows.over(each) for place, each in enumerate(end.expressions)])
        if end.qualify is not None:
            node = restrict(node, scope, [end.qualify])
        passed = {place: _passed_on(output) for place, output in outputs.items()}
        others = {place: each for place, each in enumerate(end.bodies) if place not in plain}
        outputs = {**passed, **_outputs(others, end, Checker(scope, context))}
    columns = [outputs[place] for place in range(len(end.bodies))]
    if distinct is None and top is not None:
        return top_rows(node, columns, end.keys, Checker(scope, context), top)
    node = project(node, columns)
    if distinct is not None:
        node = Distinct(node)
    return node if top is None else top_of_columns(node, top, context)


def _passed_on(output: Output) -> Output:
    """Return the output that passes on the column of another one."""
    return Output(output.name, column_scalar(Column(output.name, output.scalar.type)), output.unit)


def _outputs(bodies: dict[int, exp.Expr], end: SelectEnd, checker: Checker) -> dict[int, Output]:
    found: dict[int, Output] = {}
    for place, body in bodies.items():
        typed = checker.check(body)
        if typed.type is None:
            raise checker.context.error(body, "NULL has no type here", "write CAST(NULL AS real)")
        found[place] = Output(end.names[place], scalar_of(typed, typed.type), typed.unit)
    return found
