"""The items of FROM combined: products, outer joins, and lookups of streams in relations.

    FROM a, b LEFT JOIN c ON ... JOIN d ON ..., e         a x ((b LEFT JOIN c) JOIN d) x e

A comma separates what is joined on its own, as in the standard. That makes a difference only where an outer join keeps
tuples by whether a stream has a partner; all else is one product, with its conditions above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from cluster.language.context import Context
from cluster.language.expressions import Checker
from cluster.language.from_items import FromItem
from cluster.language.outer_joins import check_outer, keeps_left, keeps_right, outer_join, side_of
from cluster.language.scope import Scope, ScopeItem
from cluster.language.shared_columns import SharedColumns
from cluster.language.syntax import conjuncts, own_columns
from cluster.language.typing_rules import conjunction
from cluster.operators import Join, Node
from cluster.operators.columns import Scalar
from cluster.operators.projections import reads_relations_only, renamed_apart
from cluster.scalars.scalar_function import Family

Restrict = Callable[[Node, Scope, list[exp.Expr]], Node]
"""Returns the tuples of a plan for which all conditions are true."""
Scopes = dict[int, list[ScopeItem]]
"""The names of each item, by its position in FROM."""


def join_items(
    items: list[FromItem], joins: Sequence[exp.Join], context: Context, restrict: Restrict
) -> tuple[Node, Scope, list[exp.Expr]]:
    """Return the items joined, and the conditions under which their tuples are joined that are not yet applied.

    Columns whose name is taken get a number.

    Parameters
    ----------
    items
        The items of FROM, in order.
    joins
        The connection of each item but the first with those before it.
    context
        For errors.
    restrict
        Applies the conditions of inner joins that stand before an outer one.

    Raises
    ------
    FjordSqlError
        If an outer join has relations only, its condition makes no sense, or USING names a column that one
        of its sides does not have.
    """
    return _Joining(items, joins, context, restrict).joined()


@dataclass(frozen=True, slots=True)
class _Unit:
    """What has been joined already: an item, or several between commas."""

    node: Node
    scopes: Scopes

    @property
    def static(self) -> bool:
        return reads_relations_only(self.node)


class _Joining:
    """Joins the items of one FROM."""

    def __init__(self, items: list[FromItem], joins: Sequence[exp.Join], context: Context, restrict: Restrict) -> None:
        self._items = items
        self._joins = dict(enumerate(joins, start=1))
        self._context = context
        self._restrict = restrict
        self._shared = SharedColumns(items, joins, context)
        self._waiting = [position for position, join in self._joins.items() if not side_of(join)]
        """Positions of inner joins whose conditions are not yet applied."""

    def joined(self) -> tuple[Node, Scope, list[exp.Expr]]:
        """Return the plan, its names, and the conditions that are left."""
        units: list[_Unit] = []
        for group in self._groups():
            for position in group:
                self._check(position, group.start)
            if any(self._between_streams(position, group.start) for position in group):
                units.append(self._one_after_the_other(group))
            else:
                units += [_Unit(self._items[each].node, {each: self._shared.scopes[each]}) for each in group]
        # Streams first: the tuples that are joined with a relation do not depend on the relation's place in FROM.
        first, *others = sorted(units, key=lambda unit: unit.static)
        node, scopes = first.node, dict(first.scopes)
        for unit in others:
            node = self._with_unit(node, scopes, unit)
        on = [condition for position in self._waiting for condition in self._own_conditions(position)]
        on += [equality for position in self._waiting for equality in self._shared.equalities(position, scopes)]
        in_order = tuple(scope for position in range(len(self._items)) for scope in scopes[position])
        return node, Scope(in_order, starring=self._shared.starring(scopes)), on

    def _groups(self) -> list[range]:
        """Return the positions between commas."""
        begins = self._shared.begins
        starts = [position for position, begin in enumerate(begins) if position == begin]
        return [range(start, end) for start, end in zip(starts, [*starts[1:], len(begins)], strict=True)]

    def _static(self, positions: range) -> bool:
        return all(self._items[each].static for each in positions)

    def _check(self, position: int, begin: int) -> None:
        join = self._joins.get(position)
        if position > begin and join is not None and side_of(join):
            left, right = self._static(range(begin, position)), self._items[position].static
            check_outer(join, self._context, left_static=left, right_static=right)

    def _between_streams(self, position: int, begin: int) -> bool:
        """Return whether an outer join is more than the lookup of all tuples before it in a relation."""
        side = side_of(self._joins[position]) if position > begin else None
        return side is not None and (keeps_right(side) or not self._items[position].static)

    def _own_conditions(self, position: int) -> list[exp.Expr]:
        on = self._joins[position].args.get("on")
        return [on] if on else []

    def _with_unit(self, node: Node, scopes: Scopes, unit: _Unit) -> Node:
        right, names = renamed_apart(unit.node, [column.name for column in node.schema])
        scopes |= {each: [scope.renamed(names) for scope in known] for each, known in unit.scopes.items()}
        position = min(unit.scopes)
        join = self._joins.get(position)
        if len(unit.scopes) > 1 or join is None or not side_of(join):
            return Join(node, right, None)
        known = [scope for each in range(position + 1) for scope in scopes[each]]
        return self._outer(node, right, position, known, scopes)

    def _one_after_the_other(self, group: range) -> _Unit:
        """Return what stands between commas, joined from left to right."""
        node = self._items[group.start].node
        scopes: Scopes = {group.start: self._shared.scopes[group.start]}
        for position in group[1:]:
            right, names = renamed_apart(self._items[position].node, [column.name for column in node.schema])
            if side_of(self._joins[position]):
                node = self._with_waiting(node, scopes)
            scopes[position] = [scope.renamed(names) for scope in self._shared.scopes[position]]
            if side_of(self._joins[position]):
                known = [scope for each in scopes.values() for scope in each]
                node = self._outer(node, right, position, known, scopes)
            else:
                node = Join(node, right, None)
        return _Unit(node, scopes)

    def _with_waiting(self, node: Node, scopes: Scopes) -> Node:
        """Return a plan with the conditions of its inner joins applied: what they drop is no partner of anything."""
        scope = Scope(tuple(each for known in scopes.values() for each in known))
        for position in [each for each in self._waiting if each in scopes]:
            conditions = self._own_conditions(position)
            self._check_names(conditions, scope, position)
            conditions += self._shared.equalities(position, scopes)
            if conditions:
                node = self._restrict(node, scope, conditions)
                self._waiting.remove(position)
        return node

    def _outer(self, left: Node, right: Node, position: int, known: list[ScopeItem], scopes: Scopes) -> Node:
        """Return an outer join; from then on, columns of a side that may have no partner may be NULL."""
        join = self._joins[position]
        side = side_of(join)
        assert side is not None  # noqa: S101 - callers ask first
        scope = Scope(tuple(known))
        if not self._items[position].static or keeps_right(side):
            self._check_names(self._own_conditions(position), scope, position)
        conditions = self._shared.equalities(position, scopes) or conjuncts(join.args["on"])
        node = outer_join(left, right, _condition(conditions, scope, self._context), side)
        if keeps_left(side):
            scopes[position] = [with_nulls(each) for each in scopes[position]]
        if keeps_right(side):
            before = [each for each in scopes if each < position]
            scopes |= {each: [with_nulls(scope) for scope in scopes[each]] for each in before}
        return self._shared.as_one(node, position, scopes)

    def _check_names(self, conditions: list[exp.Expr], scope: Scope, position: int) -> None:
        """Refuse names of items beyond a comma: their tuples are not yet there where an outer join is made."""
        beyond = [scope for each in range(self._shared.begins[position]) for scope in self._shared.scopes[each]]
        others = Scope(tuple(beyond))
        for condition in conditions:
            for column in own_columns(condition):
                if others.knows(column) and not scope.knows(column):
                    reason = f"{column.sql()} is beyond a comma, which separates what is joined on its own"
                    raise self._context.error(column, reason, "write CROSS JOIN in place of the comma")


def _condition(conditions: Sequence[exp.Expr], scope: Scope, context: Context) -> Scalar:
    checker = Checker(scope, context)
    return conjunction([checker.check_as(each, Family.BOOLEAN).expression for each in conditions])


def with_nulls(item: ScopeItem) -> ScopeItem:
    """Return an item whose columns may all be NULL because it has no partner."""
    return replace(item, columns=tuple(replace(column, nullable=True) for column in item.columns))
