"""ROW_NUMBER, RANK and DENSE_RANK: the place of each row among those of its group, at every instant; and QUALIFY."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.expressions import Checker
from cluster.language.grouping import with_parts_replaced
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import RankCall, Slot, own_columns, own_parts, slot_for
from cluster.language.top_rows import Computed, checked_key, once, ordering, refuse_value, warn_of_ties
from cluster.operators import Node, Ranked
from cluster.operators.columns import Column, Ordering, Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, plain_column
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.language.context import Context


OF_ONE_STAMP = (
    "{} numbers the tuples of one instant, because this stream has no window, and they all have the same stamp: for "
    "the latest tuple of each key, write WINDOW(PARTITION BY k ROWS 1), for the first one WINDOW(RANGE UNBOUNDED)"
)


def ranks_in(expression: exp.Expr) -> list[RankCall]:
    """Return the ranks in an expression, not those of its subqueries."""
    return own_parts(expression, RankCall)


def refuse_values(expression: exp.Expr, context: Context) -> None:
    """Refuse ranks that are grouped or ordered by a value.

    Raises
    ------
    FjordSqlError
        If there is one.
    """
    for call in ranks_in(expression):
        for key in (*(call.args.get("partition") or ()), *(each.this for each in call.expressions)):
            refuse_value(key, context)


class RankedRows:
    """A plan with the ranks that the expressions of a SELECT have, each in a column.

    Parameters
    ----------
    node, scope, context
        What is ranked, and its names.
    outputs
        The columns of SELECT without ranks: rows of equal order are ordered by these, from left to right.
    expressions
        All expressions over the ranks.

    Raises
    ------
    FjordSqlError
        If an order or a group is wrong.
    """

    def __init__(
        self, node: Node, scope: Scope, context: Context, outputs: Sequence[Output], expressions: Sequence[exp.Expr]
    ) -> None:
        self._checker = Checker(scope, context)
        self._computed = Computed(outputs)
        self._moved: dict[str, str] = {}
        self._unique = node.unique_columns
        calls = list(dict.fromkeys(call for each in expressions for call in ranks_in(each)))
        read = self._passed_on(expressions, scope, context)
        keyed = [self._keyed(call) for call in calls]
        if node.is_instantaneous:
            self._warn_of_stamps(calls)
        ties = [each.name for each in outputs] + read
        ties += [name for groups, order in keyed for name in (*groups, *(each.column for each in order))]
        self.node = project(node, self._computed.outputs)
        self._ranks: dict[exp.Expr, str] = {}
        places: list[ScopeColumn] = []
        for call, (groups, order) in zip(calls, keyed, strict=True):
            function = call.args["kind"].lower()
            name = self._computed.fresh(function)
            if function == "row_number":
                self._check_ties(call, groups, order)
            whole = once((*order, *map(Ordering, ties))) if function == "row_number" else order
            self.node = Ranked(self.node, groups, whole, function, name=name)
            self._ranks[call] = name
            places.append(ScopeColumn("", name, FieldType.INTEGER, nullable=False))
        self.scope = self._moved_scope(scope, places)

    def over(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression over the columns of the plan with the ranks."""

        def replaced(part: exp.Expr) -> exp.Expr:
            if isinstance(part, RankCall):
                return slot_for(self._ranks[part], part)
            if isinstance(part, Slot) and part.this in self._moved:
                return slot_for(self._moved[part.this], part)
            return part

        return with_parts_replaced(expression, replaced)

    def _passed_on(self, expressions: Iterable[exp.Expr], scope: Scope, context: Context) -> list[str]:
        """Pass on the columns that expressions over ranks read; return what they are called."""
        # What bounds the interval of a row has no name in the text.
        bounds = {column.internal: column for item in scope.items for column in item.bounds}
        by_name = bounds | {column.internal: column for column in scope.columns}
        beside = [_without_ranks(each) for each in expressions]
        internal = [
            *(part.this for each in beside for part in each.find_all(Slot)),
            *(scope.find(part, context).internal for each in beside for part in own_columns(each)),
        ]
        for item in scope.items:
            if item.validity and not {*item.validity}.isdisjoint(internal):
                internal += item.validity  # both, whichever is read first
        for name in dict.fromkeys(internal):
            column = by_name[name]
            scalar = column_scalar(Column(name, column.type))
            self._moved[name] = self._computed.name_of(scalar, name, column.unit)
        return list(self._moved.values())

    def _moved_scope(self, scope: Scope, places: Sequence[ScopeColumn]) -> Scope:
        """Return the names of what is passed on, and the ranks."""
        items = [
            replace(item, columns=tuple(column for column in item.columns if column.internal in self._moved))
            for item in scope.items
        ]
        known = replace(scope, items=tuple(items), starring=None).renamed(self._moved)
        return replace(known, items=(*known.items, ScopeItem(None, tuple(places))))

    def _keyed(self, call: RankCall) -> tuple[tuple[str, ...], tuple[Ordering, ...]]:
        """Return the columns of a rank's groups, and its order."""
        groups = [self._column(each, "group_key") for each in call.args.get("partition") or ()]
        order = [ordering(key, self._column(key.this, "order_key")) for key in call.expressions]
        return tuple(dict.fromkeys(groups)), once(order)

    def _column(self, value: exp.Expr, wanted: str) -> str:
        return self._computed.name_of(checked_key(value, self._checker), wanted)

    def _warn_of_stamps(self, calls: Iterable[RankCall]) -> None:
        """Warn of an order by the stamp where all rows of a snapshot have the same."""
        checker = self._checker
        for call in calls:
            key = call.expressions[0].this if call.expressions else None
            if isinstance(key, exp.Column) and checker.scope.find(key, checker.context).is_stamp:
                checker.context.warn(OF_ONE_STAMP.format(call.args["kind"]))

    def _check_ties(self, call: RankCall, groups: tuple[str, ...], order: tuple[Ordering, ...]) -> None:
        names = {*groups, *(each.column for each in order)}
        known = {plain_column(each.scalar) for each in self._computed.outputs if each.name in names}
        if self._unique is None or not self._unique <= known:
            warn_of_ties(call.expressions, self._checker.context)


def _without_ranks(expression: exp.Expr) -> exp.Expr:
    return with_parts_replaced(expression, lambda part: exp.Null() if isinstance(part, RankCall) else part)
