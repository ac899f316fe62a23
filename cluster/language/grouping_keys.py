"""GROUP BY: what the keys are, and by which sets of them tuples are grouped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.grouping import aggregates_in
from cluster.language.syntax import first_part, spelled
from cluster.planning_budget import spend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.language.context import Context
    from cluster.language.errors import FjordSqlError
    from cluster.language.scope import Scope

PLACE = "a number in GROUP BY is the place of a column in SELECT, from 1"
LONGEST_PLACE = 9
"""The most digits of the number of a column."""
MOST_SETS = 64
"""Grouping sets of a query: each is an aggregation of its own."""
_TOO_MANY = "each key of CUBE doubles them, and lists with a comma between them multiply: name those you need"
_INSTEAD = {
    "rollup": "write GROUP BY ROLLUP(a, b)",
    "cube": "write GROUP BY CUBE(a, b)",
    "grouping_sets": "with a comma before it, GROUP BY a, GROUPING SETS (b, ()), a is a key of every set",
    "totals": "write GROUP BY GROUPING SETS ((a), ())",
}
_Set = tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """The keys of GROUP BY, each once, and the sets of them: places among the keys, in order.

    A GROUP BY of keys alone has one set, of all of them.
    """

    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...]


def grouping_sets_of(
    select: exp.Select, scope: Scope, bodies: Sequence[exp.Expr], names: Sequence[str], context: Context
) -> GroupingSets | None:
    """Return what a SELECT groups by, or None if it has no GROUP BY.

    Parameters
    ----------
    select, scope
        The SELECT, and the names of its FROM.
    bodies, names
        The expressions of SELECT and what they are called: keys may be written as either's place or name.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If a key is none, or there are too many sets.
    """
    clause = select.args.get("group")
    if clause is None:
        return None
    if extra := [name for name, value in clause.args.items() if value and name != "expressions"]:
        at = first_part(clause.args[extra[0]], select)
        raise context.error(at, f"GROUP BY {spelled(extra[0])} is not part of FjordSQL", _INSTEAD.get(extra[0]))
    many = 1
    for element in clause.expressions:
        many *= _count(element)
        if many > MOST_SETS:
            raise context.error(element, f"GROUP BY makes more than {MOST_SETS} grouping sets", _TOO_MANY)
    keys = _Keys(scope, bodies, names, context)
    sets: list[tuple[int, ...]] = [()]
    for element in clause.expressions:
        found = [tuple(keys.place_of(key) for key in each) for each in _sets(element, context)]
        sets = [(*before, *behind) for before in sets for behind in found]
        spend(sum(map(len, sets)))
    return GroupingSets(keys.found, tuple(tuple(sorted(set(each))) for each in sets))


def _count(element: exp.Expr) -> int:
    """Return how many sets an element makes."""
    match element:
        case exp.Rollup():
            return len(element.expressions) + 1
        case exp.Cube():
            return 1 << len(element.expressions)
        case exp.GroupingSets():
            return sum(map(_count, element.expressions))
        case _:
            return 1


def _sets(element: exp.Expr, context: Context) -> list[_Set]:
    """Return the sets that an element makes, those of more keys first."""
    match element:
        case exp.Rollup():
            parts = [_part(each, context) for each in element.expressions]
            return [_joined(parts[:count]) for count in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_part(each, context) for each in element.expressions]
            chosen = (combinations(parts, count) for count in range(len(parts), -1, -1))
            return [_joined(each) for each in chain.from_iterable(chosen)]
        case exp.GroupingSets():
            return [found for each in element.expressions for found in _sets(each, context)]
        case exp.Tuple():
            return [_of_tuple(element, context)]
        case _:
            return [(element,)]


def _part(element: exp.Expr, context: Context) -> _Set:
    """Return the keys that ROLLUP and CUBE add or leave out together."""
    if isinstance(element, exp.Rollup | exp.Cube | exp.GroupingSets):
        reason = f"{_word(element)} cannot stand in ROLLUP or CUBE"
        raise context.error(element, reason, "GROUPING SETS takes lists of any kind")
    if isinstance(element, exp.Tuple) and not element.expressions:
        reason = "there is nothing in these parentheses"
        raise context.error(element, reason, "ROLLUP and CUBE have the set without keys anyway")
    return _of_tuple(element, context) if isinstance(element, exp.Tuple) else (element,)


def _of_tuple(element: exp.Tuple, context: Context) -> _Set:
    for each in element.expressions:
        if isinstance(each, exp.Tuple):
            raise context.error(each, "a set in a set is no key to group by", "write (a, b, c) for (a, (b, c))")
    return tuple(element.expressions)


def _joined(parts: Sequence[_Set]) -> _Set:
    return tuple(chain.from_iterable(parts))


def _word(element: exp.Expr) -> str:
    return "GROUPING SETS" if isinstance(element, exp.GroupingSets) else element.key.upper()


class _Keys:
    """The keys of one GROUP BY, as they are found."""

    def __init__(self, scope: Scope, bodies: Sequence[exp.Expr], names: Sequence[str], context: Context) -> None:
        self._scope = scope
        self._bodies = bodies
        self._aliased = {name.casefold(): body for body, name in zip(bodies, names, strict=True)}
        self._context = context
        self._places: dict[int, int] = {}
        self._found: list[exp.Expr] = []

    @property
    def found(self) -> tuple[exp.Expr, ...]:
        """All of them so far."""
        return tuple(self._found)

    def place_of(self, written: exp.Expr) -> int:
        """Return the place of a key among those found."""
        if id(written) not in self._places:
            self._places[id(written)] = len(self._found)
            self._found.append(self._meant(written))
        return self._places[id(written)]

    def _meant(self, written: exp.Expr) -> exp.Expr:
        key = written.unnest() if isinstance(written, exp.Paren) else written
        if isinstance(key, exp.Boolean) and not isinstance(written.parent, exp.Group):
            raise self._context.error(key, "a value is no key to group by", "name a column")
        if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
            key = self._numbered(key)
        elif isinstance(key, exp.Neg) and isinstance(key.this, exp.Literal) and not self._context.registered:
            raise self._no_such_column(key, f"-{key.this.this}")
        elif isinstance(key, exp.Column) and not key.table and not self._scope.knows(key):
            key = self._aliased.get(key.name.casefold(), key)
        if calls := aggregates_in(key):
            raise self._context.error(calls[0], "an aggregate is no key to group by")
        return key

    def _no_such_column(self, number: exp.Expr, written: str) -> FjordSqlError:
        columns = "1 column" if len(self._bodies) == 1 else f"{len(self._bodies)} columns"
        return self._context.error(number, f"there is no column {written}: SELECT has {columns}", PLACE)

    def _numbered(self, number: exp.Literal) -> exp.Expr:
        """Return the expression of SELECT that a number in GROUP BY stands for."""
        place = int(number.this) if len(number.this) <= LONGEST_PLACE else 0
        if not 1 <= place <= len(self._bodies):
            raise self._no_such_column(number, number.this)
        if isinstance(self._bodies[place - 1].unnest(), exp.Literal):
            reason = f"column {place} of SELECT is a value, and no key to group by"
            raise self._context.error(number, reason, "leave it out of GROUP BY: it is the same in every group")
        if aggregates_in(self._bodies[place - 1]):
            reason = f"column {place} of SELECT is computed by an aggregate, which is no key to group by"
            raise self._context.error(number, reason, PLACE)
        return self._bodies[place - 1]
