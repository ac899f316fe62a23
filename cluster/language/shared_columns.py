"""``JOIN b USING (x)``: columns of two items of FROM that are equal, and that their name alone means as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from cluster.language.errors import suggest
from cluster.language.syntax import is_comma, slot_for
from cluster.language.words import USING_SHAPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cluster.language.context import Context
    from cluster.language.from_items import FromItem
    from cluster.language.scope import ScopeColumn, ScopeItem


class _Place(NamedTuple):
    """Where a column is: the position of the item of FROM, which of its names, and the column's name, folded."""

    item: int
    scope: int
    name: str


class _Pair(NamedTuple):
    """A column that two items share, as USING names it."""

    left: _Place
    right: _Place
    named: exp.Expr


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
    scopes
        The names of each item; those on the right of USING know which of their columns are shared.

    Raises
    ------
    FjordSqlError
        If a side does not have a column, or has several.
    """

    def __init__(self, items: Sequence[FromItem], joins: Sequence[exp.Join], context: Context) -> None:
        self._context = context
        self._pairs: dict[int, list[_Pair]] = {}
        self.scopes = [list(item.scopes) for item in items]
        self._begins = [0]
        """By position: where the items begin that it is joined with."""
        for position, join in enumerate(joins, start=1):
            self._begins.append(position if is_comma(join) else self._begins[-1])
            if join.args.get("using"):
                self._pairs[position] = self._paired(join.args["using"], position)

    def equalities(self, position: int, scopes: Mapping[int, Sequence[ScopeItem]]) -> list[exp.Expr]:
        """Return the conditions of USING at a position, over the names in the plan."""
        return [
            exp.EQ(
                this=slot_for(_column(pair.left, scopes).internal, pair.named),
                expression=slot_for(_column(pair.right, scopes).internal, pair.named),
            )
            for pair in self._pairs.get(position, ())
        ]

    def starring(self, scopes: Mapping[int, Sequence[ScopeItem]]) -> tuple[ScopeColumn, ...] | None:
        """Return what ``*`` means: the columns of USING first, each once; None if there are none."""
        if not self._pairs:
            return None
        found: list[ScopeColumn] = []
        joined: list[ScopeColumn] = []
        for position, begin in enumerate(self._begins):
            if begin == position:
                found, joined = [*found, *joined], []
            pairs = self._pairs.get(position, ())
            first = [_column(pair.left, scopes) for pair in pairs]
            names = {pair.right for pair in pairs}
            own = [
                column
                for number, scope in enumerate(scopes[position])
                for column in scope.columns
                if _Place(position, number, column.visible.casefold()) not in names
            ]
            joined = [*first, *(column for column in joined if column not in first), *own]
        return (*found, *joined)

    def _paired(self, named: Sequence[exp.Expr], position: int) -> list[_Pair]:
        pairs: dict[str, _Pair] = {}
        for each in named:
            if not isinstance(each, exp.Column) or each.table:
                reason = "USING names columns that both sides have, with nothing before the name"
                raise self._context.error(each, reason, USING_SHAPE)
            if each.name.casefold() in pairs:
                raise self._context.error(each, f"USING names {each.name!r} twice")
            left = self._place(each, range(self._begins[position], position), "left")
            right = self._place(each, [position], "right")
            pairs[each.name.casefold()] = _Pair(left, right, each)
        own = self.scopes[position]
        for number, scope in enumerate(own):
            names = {pair.right.name for pair in pairs.values() if pair.right.scope == number}
            own[number] = replace(scope, shared=scope.shared | names)
        return list(pairs.values())

    def _place(self, named: exp.Column, positions: Iterable[int], side: str) -> _Place:
        """Return the column of a name on one side; columns that are shared already count once."""
        name = named.name.casefold()
        sides = [
            (position, number, scope) for position in positions for number, scope in enumerate(self.scopes[position])
        ]
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
        known = [column.visible for _, _, scope in sides for column in scope.columns]
        reason = f"there is no column {named.name!r} on the {side} of JOIN"
        raise self._context.error(named, reason, suggest(named.name, known, what="columns there are"))


def _column(place: _Place, scopes: Mapping[int, Sequence[ScopeItem]]) -> ScopeColumn:
    columns = scopes[place.item][place.scope].columns
    return next(column for column in columns if column.visible.casefold() == place.name)
