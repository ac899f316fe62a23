"""Grouping sets, a union of an aggregation for each; and which parts of SELECT and HAVING are keys, however written.

**Grouping sets: the union of an aggregation for each, with NULL for keys that a set does not have.**

All aggregate the same plan, so what is below runs once (docs/decisions/0042-grouping-sets-are-a-union.md). Above the
union, HAVING and SELECT stand once: to them, GROUPING is a column, which is constant on each side.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import JsonExtract, JsonExtractString, JsonValue, RegexMatches
from cluster.expressions.nodes import Expression, Literal, bare
from cluster.expressions.walks import rebuilt
from cluster.language.arguments import wrong_number
from cluster.language.errors import FjordSqlError
from cluster.language.expressions import Checker
from cluster.language.syntax import QUERIES, FoldedMatch, JsonArrow, JsonTextArrow, Match, Slot, Stamp, Within, slot_for
from cluster.language.typing_rules import scalar_of
from cluster.operators import Aggregate, Distinct, Node, Union
from cluster.operators.columns import AggregateCall, Column, Output, Scalar
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import column_scalar, null_scalar, passed_on, plain_column
from cluster.planning_budget import spend
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.operators.columns import Names

MOST_ARGUMENTS = 31
"""Arguments of GROUPING, as in PostgreSQL: each is a bit of its result."""
GROUPING_SHAPE = "GROUPING(a, b) of keys of GROUP BY"

Keys = tuple[str, ...]


@dataclass(slots=True)
class Masks:
    """The calls of GROUPING in one SELECT: a column for each list of keys.

    Parameters
    ----------
    keys
        The keys that are more than a column.
    names
        All keys, as the plan calls them.
    several
        Whether there are several grouping sets.
    checker
        A checker that knows the names that keys may use.
    taken
        Names of columns of the plan.
    """

    keys: MatchingKeys
    names: frozenset[str]
    several: bool
    checker: Checker
    taken: Names
    named: dict[Keys, str] = field(default_factory=dict)

    def value_of(self, call: exp.Grouping) -> exp.Expr:
        """Return what stands for a call: a column, or 0 where there is only one set, which has all keys.

        Raises
        ------
        FjordSqlError
            If an argument is no key.
        """
        context = self.checker.context
        if not 1 <= len(call.expressions) <= MOST_ARGUMENTS:
            raise context.error(call, *wrong_number("GROUPING"))
        keys = tuple(self._key_of(each) for each in call.expressions)
        if keys not in self.named:
            self.named[keys] = self.taken.unique(f"grouping({', '.join(keys)})")
        slot = slot_for(self.named[keys], call)
        if self.several:
            return slot
        nothing = exp.Literal.number(0)
        nothing.meta.update(slot.meta)
        return nothing

    def _key_of(self, argument: exp.Expr) -> str:
        if (name := self.keys.name_of(argument)) is not None:
            return name
        typed = self.checker.check(argument)
        name = None if typed.type is None else plain_column(scalar_of(typed, typed.type))
        if name is None or name not in self.names:
            written = self.checker.context.source_text(argument)
            raise self.checker.context.error(argument, f"{written} is no key of this GROUP BY", GROUPING_SHAPE)
        return name


def grouped_by(
    node: Node, keys: Keys, sets: Sequence[Keys], calls: tuple[AggregateCall, ...], masks: dict[Keys, str]
) -> Node:
    """Return the aggregation of `node` by each set of `keys`: all keys, the calls, and the masks if there are several.

    >>> from cluster.operators import Source
    >>> from cluster.operators.columns import Column
    >>> source = Source("traffic", (Column("lane", FieldType.INTEGER),))
    >>> counted = AggregateCall("count", "count", None, FieldType.INTEGER)
    >>> union = grouped_by(source, ("lane",), (("lane",), ()), (counted,), {})
    >>> [output.scalar.sql for output in union.right.outputs]
    ['CAST(NULL AS INTEGER)', '"count"']
    """
    if len(sets) == 1:
        return _aggregate(node, sets[0], calls)
    columns = {column.name: column for column in node.schema}
    sides: dict[Keys, Node] = {}
    for each in sets:
        if each not in sides:
            spend(len(keys) + len(calls))
            aggregated = _aggregate(node, each, calls)
            shown = [_shown(columns[key], known=key in each) for key in keys]
            computed = passed_on(Column(call.name, call.type, call.unit) for call in calls)
            marks = [_mark(name, wanted, each) for wanted, name in masks.items()]
            sides[each] = project(aggregated, (*shown, *computed, *marks))
    return reduce(Union, (sides[each] for each in sets))


def _aggregate(node: Node, keys: Keys, calls: tuple[AggregateCall, ...]) -> Node:
    if calls:
        return Aggregate(node, keys, calls)
    # Groups of which only the keys are used.
    columns = {column.name: column for column in node.schema}
    return Distinct(project(node, passed_on(columns[key] for key in keys)))


def _shown(column: Column, *, known: bool) -> Output:
    return Output(column.name, column_scalar(column) if known else null_scalar(column), column.unit)


def _mark(name: str, keys: Keys, known: Keys) -> Output:
    """Return the value of GROUPING of some keys in a set: a bit for each key, set where the set lacks it."""
    mask = 0
    for key in keys:
        mask = 2 * mask + (key not in known)
    return Output(name, Scalar(Literal(FieldType.INTEGER, str(mask)), FieldType.INTEGER))


_LEAVES = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.DataType, Slot, Within)
"""Leaves for the size of an expression; an error allowed on a column is not part of its meaning."""
_ALIKE: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.If: exp.Case,
    Stamp: exp.Column,
    **dict.fromkeys((Match, FoldedMatch), RegexMatches),
    JsonArrow: JsonExtract,
    JsonTextArrow: JsonExtractString,
}
"""Other ways to write a kind of expression."""


class MatchingKeys:
    """Keys that are computed. A part is a key if both mean the same once names are resolved.

    ``t.g % 2``, ``(G) % 2`` and ``g WITHIN 1 % 2`` do if the stream t has the only column g; ``2 % g`` is another.

    Parameters
    ----------
    computed
        Keys as they were written, and the columns that hold them.
    checker
        A checker that knows the names that keys may use.
    """

    def __init__(self, computed: Sequence[tuple[exp.Expr, Output]], checker: Checker) -> None:
        self._names = {_meaning(output.scalar): output.name for _, output in computed}
        # Only parts that can be a key are checked, so no part of a long expression is checked more than once per key.
        self._shapes = {_shape(key) for key, _ in computed}
        self._checker = Checker(checker.scope, replace(checker.context, warnings=[]))
        self._sizes: dict[int, tuple[exp.Expr, int]] = {}

    def name_of(self, part: exp.Expr) -> str | None:
        """Return the column that holds the key equal to a part; None if the part is not a key."""
        if not self._names or _is_piece(part) or (_kind(part), self._size(part)) not in self._shapes:
            return None
        try:
            typed = self._checker.check(part)
        except FjordSqlError:  # an aggregate, for instance; its translation reports the error
            return None
        return None if typed.type is None else self._names.get(_meaning(scalar_of(typed, typed.type)))

    def _size(self, part: exp.Expr) -> int:
        if id(part) not in self._sizes:
            self._sizes |= _sizes(part)
        return self._sizes[id(part)][1]


def _meaning(scalar: Scalar) -> tuple[Expression, FieldType]:
    """Return the expression without parentheses, which its tree expresses anyway, and each real written in one way."""
    return rebuilt(scalar.expression, _plain), scalar.type


def _plain(part: Expression) -> Expression:
    if isinstance(part, Literal) and part.kind is FieldType.REAL:
        return Literal(part.kind, repr(float(part.text)))
    return bare(part)


def _is_piece(part: exp.Expr) -> bool:
    """Return whether a part is not an expression of its own here, though it could be one elsewhere."""
    return isinstance(part.parent, exp.Escape) or (isinstance(part.parent, exp.Case) and part.arg_key == "ifs")


def _shape(key: exp.Expr) -> tuple[type[exp.Expr], int]:
    return _kind(key), _sizes(key)[id(key)][1]


def _kind(part: exp.Expr) -> type[exp.Expr]:
    """Return the kind of a part, without parentheses and allowed errors; IF counts as a CASE, ``~`` as its function."""
    bare = part.unnest() if isinstance(part, exp.Paren) else part
    bare = bare.this if isinstance(bare, Within) else bare
    if isinstance(bare, JsonValue) and bare.args.get("returning"):
        return exp.Cast
    return _ALIKE.get(type(bare), type(bare))


def _inner(part: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return what a part consists of; keys behind each other, ``-> 'a' -> 'b'``, are one path."""
    if not isinstance(part, JsonArrow | JsonTextArrow):
        return tuple(part.iter_expressions())
    document = part.this.unnest()
    while isinstance(document, JsonArrow):
        document = document.this.unnest()
    return (document, part.expression)


def _sizes(root: exp.Expr) -> dict[int, tuple[exp.Expr, int]]:
    """Return the number of leaves of each part of an expression, by its identity."""
    found: dict[int, tuple[exp.Expr, int]] = {}
    waiting = [(root, False)]
    while waiting:
        part, ready = waiting.pop()
        inner = () if isinstance(part, (*_LEAVES, *QUERIES)) else _inner(part)
        if ready or not inner:
            found[id(part)] = part, sum(found[id(each)][1] for each in inner) or 1
        else:
            waiting.append((part, True))
            waiting += [(each, False) for each in inner]
    return found
