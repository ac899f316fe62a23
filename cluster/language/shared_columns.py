"""``JOIN b USING (x)``: columns of two items of FROM that are equal, and that their name alone means as one.

The one column is the left one; of a RIGHT JOIN the right one, and of a FULL JOIN whichever is not NULL: where there is
no partner, that is the column of the tuple that is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import is_comma, slot_for
from cluster.language.typing_rules import scalar_of
from cluster.language.words import USING_SHAPE
from cluster.operators import Node, Project
from cluster.operators.columns import Output
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.unique_names import Names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cluster.language.context import Context
    from cluster.language.from_items import FromItem


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
