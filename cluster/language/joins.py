"""The items of FROM combined: products, outer joins, ``USING``, and lookups of streams in relations.

    FROM a, b LEFT JOIN c ON ... JOIN d ON ..., e         a x ((b LEFT JOIN c) JOIN d) x e

A comma separates what is joined on its own, as in the standard. That makes a difference only where an outer join keeps
tuples by whether a stream has a partner; all else is one product, with its conditions above it.

**LEFT, RIGHT and FULL JOIN as operators: pairs, and with NULLs what has no partner at an instant.**

    a LEFT JOIN b ON c   =   (a JOIN b ON c) UNION ALL (a without a partner in b, with NULLs for the columns of b)

A tuple is without a partner at the instants at which no tuple of the other side satisfies the condition: an anti-join,
so tuples keep their multiplicity, and a condition that is NULL is no match. The tuples of the other side are looked up
in a relation, unless its own rows are kept: then they flow, as they are at each instant (:class:`Held`).

**``JOIN b USING (x)``: columns of two items of FROM that are equal, and that their name alone means as one.**

The one column is the left one; of a RIGHT JOIN the right one, and of a FULL JOIN whichever is not NULL: where there is
no partner, that is the column of the tuple that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from sqlglot import exp

from cluster.language.context import Context
from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.from_items import FromItem
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import conjuncts, holds_query, is_comma, own_columns, slot_for
from cluster.language.typing_rules import conjunction, scalar_of
from cluster.language.words import USING_SHAPE
from cluster.operators import AntiJoin, Held, Join, Lookup, Node, Project, Union
from cluster.operators.columns import Names, Output, Scalar
from cluster.operators.projections import project, reads_relations_only, renamed_apart
from cluster.operators.scalar_expressions import null_scalar, passed_on
from cluster.scalars.scalar_function import Family

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cluster.operators.columns import Schema

Side = Literal["LEFT", "RIGHT", "FULL"]
KEPT_RELATION = (
    "{side} JOIN of relations alone is not part of FjordSQL: without a stream there is no time in which a row "
    "has no partner"
)
LOOKED_UP = "write LEFT JOIN with the relations exchanged, or join each with the stream"


def side_of(join: exp.Expr) -> Side | None:
    """Return the side that an outer join keeps; None of any other join."""
    side: Side | None = join.args.get("side") or None
    return side


def keeps_left(side: Side | None) -> bool:
    """Return whether tuples of the left stay that have no partner."""
    return side in ("LEFT", "FULL")


def keeps_right(side: Side | None) -> bool:
    """Return whether tuples of the right stay that have no partner."""
    return side in ("RIGHT", "FULL")


def check_outer(join: exp.Expr, context: Context, *, left_static: bool, right_static: bool) -> None:
    """Refuse an outer join that has no meaning here, or none that can be planned.

    Parameters
    ----------
    join
        Its syntax.
    context
        For errors.
    left_static, right_static
        Whether a side consists of relations only.

    Raises
    ------
    FjordSqlError
        If it would keep rows of relations only, or its condition is missing or has a subquery.
    """
    side = side_of(join)
    # Rows of a relation beside another relation are part of what the tuples of a stream are looked up in.
    if left_static and right_static and side != "LEFT":
        raise context.error(join.this, KEPT_RELATION.format(side=side), LOOKED_UP)
    on = join.args.get("on")
    if not on and not join.args.get("using"):
        raise context.error(join.this, f"{side} JOIN needs a condition", f"write {side} JOIN ... ON a.x = b.x")
    if on and holds_query(on):
        reason = f"a subquery cannot stand in the condition of {side} JOIN"
        raise context.error(on, reason, "put it into FROM, or its condition into a subquery there")


def outer_join(left: Node, right: Node, predicate: Scalar, side: Side) -> Node:
    """Return the outer join of two plans, columns of the left first unless one side is a relation.

    Parameters
    ----------
    left, right
        The sides; no column of one has the name of one of the other.
    predicate
        The condition.
    side
        Which tuples stay that have no partner.
    """
    static = reads_relations_only(left), reads_relations_only(right)
    if static[1] and not (keeps_right(side) and not static[0]):
        return Lookup(left, right, predicate, "left")
    if static[0] and not keeps_left(side):
        return Lookup(right, left, predicate, "left")
    before, behind = left.schema, right.schema
    lefts, rights = (Held(right, left) if static[0] else left), (Held(left, right) if static[1] else right)
    found: Node = Join(lefts, rights, predicate)
    if keeps_left(side):
        alone = AntiJoin(lefts, rights, predicate)
        found = Union(found, project(alone, (*passed_on(before), *_nulls(behind))))
    if keeps_right(side):
        alone = AntiJoin(rights, lefts, predicate)
        found = Union(found, project(alone, (*_nulls(before), *passed_on(behind))))
    return found


def _nulls(columns: Schema) -> list[Output]:
    return [Output(column.name, null_scalar(column), column.unit) for column in columns]


class _Place(NamedTuple):
    """Where a column is: the position of the item of FROM, which of its names, and the column's name, folded."""

    item: int
    scope: int
    name: str


class _Pair(NamedTuple):
    """A column that two items share, as USING names it; `one` is what the name alone means."""

    left: _Place
    right: _Place
    one: _Place
    named: exp.Expr

    @property
    def hidden(self) -> set[_Place]:
        """Those of both sides that the name alone does not mean."""
        return {self.left, self.right} - {self.one}


class SharedColumns:
    """The columns that the joins of a FROM name behind USING.

    Left of a JOIN is what stands there as far as a comma, as in the standard.

    Parameters
    ----------
    items, joins
        As :func:`cluster.language.joins.join_items` gets them.
    context
        For errors.

    Attributes
    ----------
    begins
        By position: where the items begin that it is joined with.
    scopes
        The names of each item before it is joined; those on the right of USING know which of their columns are hidden.

    Raises
    ------
    FjordSqlError
        If a side does not have a column, or has several.
    """

    def __init__(self, items: Sequence[FromItem], joins: Sequence[exp.Join], context: Context) -> None:
        self._context = context
        self._pairs: dict[int, list[_Pair]] = {}
        self.scopes = [list(item.scopes) for item in items]
        self.begins = [0]
        known = dict(enumerate(self.scopes))
        for position, join in enumerate(joins, start=1):
            self.begins.append(position if is_comma(join) else self.begins[-1])
            if not join.args.get("using"):
                continue
            pairs = self._pairs[position] = self._paired(join, position, known)
            gone = {place for pair in pairs for place in pair.hidden}
            self.scopes[position] = _without(gone, position, self.scopes[position])
            known = {each: _without(gone, each, scopes) for each, scopes in known.items()}
            if made := [_column(pair.left, known) for pair in pairs if _is_made(pair)]:
                known[position].append(ScopeItem(None, tuple(made)))

    def equalities(self, position: int, scopes: Mapping[int, Sequence[ScopeItem]]) -> list[exp.Expr]:
        """Return the conditions of USING at a position, over the names in the plan."""
        return [
            exp.EQ(
                this=slot_for(_column(pair.left, scopes).internal, pair.named),
                expression=slot_for(_column(pair.right, scopes).internal, pair.named),
            )
            for pair in self._pairs.get(position, ())
        ]

    def as_one(self, node: Node, position: int, scopes: dict[int, list[ScopeItem]]) -> Node:
        """Return an outer join with the columns that its USING makes, and change what names mean behind it.

        Parameters
        ----------
        node
            The join.
        position
            Of the item on its right.
        scopes
            All names up to there.
        """
        pairs = self._pairs.get(position, ())
        gone = {place for pair in pairs for place in pair.hidden}
        scopes |= {each: _without(gone, each, known) for each, known in scopes.items()}
        outputs = [*passed_on(node.schema)]
        taken = Names(output.name for output in outputs)
        checker = Checker(Scope(tuple(scope for known in scopes.values() for scope in known)), self._context)
        made: list[ScopeColumn] = []
        for pair in filter(_is_made, pairs):
            left, right = (_column(each, scopes) for each in (pair.left, pair.right))
            sides = [slot_for(each.internal, pair.named) for each in (left, right)]
            typed = checker.check(exp.Coalesce(this=sides[0], expressions=sides[1:]))
            assert typed.type is not None  # noqa: S101 - columns have types
            made.append(ScopeColumn(left.visible, taken.unique(left.internal), typed.type, typed.unit))
            outputs.append(Output(made[-1].internal, scalar_of(typed, typed.type), typed.unit))
        if not made:
            return node
        scopes[position] = [*scopes[position], ScopeItem(None, tuple(made))]
        return Project(node, tuple(outputs))

    def starring(self, scopes: Mapping[int, Sequence[ScopeItem]]) -> tuple[ScopeColumn, ...] | None:
        """Return what ``*`` means: the columns of USING first, each once; None if there are none."""
        if not self._pairs:
            return None
        found: list[ScopeColumn] = []
        joined: list[ScopeColumn] = []
        for position, begin in enumerate(self.begins):
            if begin == position:
                found, joined = [*found, *joined], []
            pairs = self._pairs.get(position, ())
            left = [_column(pair.left, scopes) for pair in pairs]
            first = {pair.one: _column(pair.one, scopes) for pair in pairs}
            gone = {pair.right for pair in pairs} | set(first)
            own = [
                column
                for number, scope in enumerate(scopes[position])
                for column in scope.columns
                if _Place(position, number, column.visible.casefold()) not in gone
            ]
            joined = [*first.values(), *(column for column in joined if column not in left), *own]
        return (*found, *joined)

    def _paired(
        self, join: exp.Join, position: int, known: Mapping[int, Sequence[ScopeItem]]
    ) -> list[_Pair]:  # fmt: skip
        pairs: dict[str, _Pair] = {}
        for each in join.args["using"]:
            if not isinstance(each, exp.Column) or each.table:
                reason = "USING names columns that both sides have, with nothing before the name"
                raise self._context.error(each, reason, USING_SHAPE)
            name = each.name.casefold()
            if name in pairs:
                raise self._context.error(each, f"USING names {each.name!r} twice")
            left = self._place(each, range(self.begins[position], position), known, "left")
            right = self._place(each, [position], known, "right")
            made = _Place(position, len(known[position]), name)
            one = {"RIGHT": right, "FULL": made}.get(join.args.get("side") or "", left)
            pairs[name] = _Pair(left, right, one, each)
        return list(pairs.values())

    def _place(
        self, named: exp.Column, positions: Iterable[int], known: Mapping[int, Sequence[ScopeItem]], side: str
    ) -> _Place:
        """Return the column of a name on one side; columns that are shared already count once."""
        name = named.name.casefold()
        sides = [(position, number, scope) for position in positions for number, scope in enumerate(known[position])]
        found = [
            _Place(position, number, name)
            for position, number, scope in sides
            if name not in scope.shared and scope.matches(name)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            reason = f"{named.name!r} is ambiguous: several streams on the {side} of JOIN have it"
            raise self._context.error(named, reason, "write JOIN ... ON a.x = b.x")
        visible = [column.visible for _, _, scope in sides for column in scope.columns]
        reason = f"there is no column {named.name!r} on the {side} of JOIN"
        raise self._context.error(named, reason, suggest(named.name, visible, what="columns there are"))


def _is_made(pair: _Pair) -> bool:
    """Return whether the one column is made of both: of a FULL JOIN."""
    return pair.one not in (pair.left, pair.right)


def _column(place: _Place, scopes: Mapping[int, Sequence[ScopeItem]]) -> ScopeColumn:
    columns = scopes[place.item][place.scope].columns
    return next(column for column in columns if column.visible.casefold() == place.name)


def _without(gone: Collection[_Place], position: int, scopes: Sequence[ScopeItem]) -> list[ScopeItem]:
    """Return the names of an item without those of hidden columns alone."""
    return [
        replace(scope, shared=scope.shared | {each.name for each in gone if each[:2] == (position, number)})
        for number, scope in enumerate(scopes)
    ]


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
