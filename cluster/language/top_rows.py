"""ORDER BY ... LIMIT ... OFFSET: the first rows of every snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.expressions import Checker
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import OrderKey, TopClause
from cluster.language.typing_rules import scalar_of
from cluster.operators import Node, Project, Ranked
from cluster.operators.columns import Ordering, Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on, plain_column
from cluster.operators.unique_names import Names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.language.context import Context
    from cluster.operators.columns import Scalar

MOST_ROWS = 2**60
"""The largest number of rows."""
_PLACE = "a number in ORDER BY is the place of a column in SELECT, from 1"
_VALUE = "a value is no key to order by", "name a column, or write its place in SELECT"
_LONGEST_PLACE = 9
"""The most digits of the number of a column."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of ORDER BY: the place of a column of the output from 0, or what it means otherwise."""

    written: OrderKey
    place: int | None = None
    meant: exp.Expr | None = None


def order_keys(keys: Iterable[OrderKey], names: Sequence[str], context: Context) -> list[Key]:
    """Return the keys of ORDER BY at the end of a query whose columns have these names.

    Raises
    ------
    FjordSqlError
        If a key is a value, or the place of no column.
    """
    places = {name.casefold(): place for place, name in reversed(list(enumerate(names)))}
    found: list[Key] = []
    for key in keys:
        value = key.this.unnest() if isinstance(key.this, exp.Paren) else key.this
        if isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit():
            found.append(Key(key, _numbered(value, len(names), context)))
        elif isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not context.registered:
            hint = f"{_PLACE}; DESC behind it reverses the order"
            raise context.error(value, f"there is no column -{value.this.this}", hint)
        elif isinstance(value, exp.Column) and not value.table and value.name.casefold() in places:
            found.append(Key(key, places[value.name.casefold()]))
        else:
            refuse_value(key.this, context)
            found.append(Key(key, meant=key.this))
    return found


def _numbered(number: exp.Literal, columns: int, context: Context) -> int:
    place = int(number.this) if len(number.this) <= _LONGEST_PLACE else 0
    if not 1 <= place <= columns:
        many = "1 column" if columns == 1 else f"{columns} columns"
        raise context.error(number, f"there is no column {number.this}: SELECT has {many}", _PLACE)
    return place - 1


def top_of_columns(node: Node, top: TopClause, context: Context) -> Node:
    """Return the first rows of a plan, ordered by its columns.

    Raises
    ------
    FjordSqlError
        If a key or a number of the clause is wrong.
    """
    schema = node.schema
    columns = tuple(ScopeColumn(each.name, each.name, each.type, each.unit) for each in schema)
    keys = order_keys(top.expressions, [each.name for each in schema], context)
    checker = Checker(Scope((ScopeItem(None, columns),)), context)
    return top_rows(node, passed_on(schema), keys, checker, top)


def top_rows(node: Node, outputs: Sequence[Output], keys: Iterable[Key], checker: Checker, top: TopClause) -> Node:
    """Return the first rows of a projection.

    Parameters
    ----------
    node, outputs
        The plan that is projected, and the columns. Rows with equal keys are ordered by these, from left to right.
    keys
        What rows are ordered by.
    checker
        A checker that knows the names of the plan, for keys that are expressions.
    top
        The clause.

    Raises
    ------
    FjordSqlError
        If a key or a number of the clause is wrong.
    """
    context = checker.context
    computed = Computed(outputs)
    order: list[Ordering] = []
    for key in keys:
        name = outputs[key.place].name if key.place is not None else computed.name_of(checked_key(key.meant, checker))
        order.append(ordering(key.written, name))
    names = {each.column for each in order}
    everything = {each.name for each in outputs} <= names
    known = {plain_column(each.scalar) for each in computed.outputs if each.name in names}
    unique = node.unique_columns
    if not everything and (unique is None or not unique <= known):
        warn_of_ties(top.expressions, context)
    offset, limit = (_count(top, part, context) for part in ("offset", "limit"))
    if limit == 0:
        context.warn("LIMIT 0 keeps no row: this query has no answers")
    above = offset or 0
    most = None if limit is None else min(above + limit, MOST_ROWS)
    below = project(node, computed.outputs)
    found = Ranked(below, (), once((*order, *map(_ascending, outputs))), above=above, most=most)
    return project(found, passed_on(Project(node, tuple(outputs)).schema))


class Computed:
    """The outputs of a projection, and others that are added where an expression is not among them."""

    def __init__(self, outputs: Iterable[Output]) -> None:
        self.outputs = list(outputs)
        self._taken = Names(each.name for each in self.outputs)
        self._names: dict[Scalar, str] = {}
        for each in self.outputs:
            self._names.setdefault(each.scalar, each.name)

    def name_of(self, scalar: Scalar, wanted: str = "order_key", unit: str = "") -> str:
        """Return the column with the value of an expression."""
        if scalar not in self._names:
            self._names[scalar] = name = self.fresh(wanted)
            self.outputs.append(Output(name, scalar, unit))
        return self._names[scalar]

    def fresh(self, wanted: str) -> str:
        """Return a name that no column has."""
        return self._taken.unique(wanted)


def refuse_value(key: exp.Expr, context: Context) -> None:
    """Refuse what is the same for all rows as a key to group or order by.

    Raises
    ------
    FjordSqlError
        If it is a value.
    """
    if isinstance(key.unnest() if isinstance(key, exp.Paren) else key, exp.Literal | exp.Boolean | exp.Null):
        raise context.error(key, *_VALUE)


def checked_key(value: exp.Expr | None, checker: Checker) -> Scalar:
    """Return what rows are ordered or grouped by, as plans hold it.

    Raises
    ------
    FjordSqlError
        If it is NULL, or no expression over the columns there are.
    """
    assert value is not None  # noqa: S101 - a key without a place has an expression
    typed = checker.check(value)
    if typed.type is None:
        raise checker.context.error(value, *_VALUE)
    return scalar_of(typed, typed.type)


def ordering(written: OrderKey, column: str) -> Ordering:
    """Return how a key orders rows by its column."""
    return Ordering(column, bool(written.args.get("desc")), bool(written.args.get("nulls_first")))


def once(order: Iterable[Ordering]) -> tuple[Ordering, ...]:
    """Return an order without columns that an earlier key has settled."""
    found: dict[str, Ordering] = {}
    for each in order:
        found.setdefault(each.column, each)
    return tuple(found.values())


def warn_of_ties(keys: Sequence[OrderKey], context: Context) -> None:
    """Warn that several rows may be equal in all keys of an order."""
    written = ", ".join(context.source_text(key) for key in keys)
    context.warn(
        f"rows that are equal in ORDER BY {written} are ordered by the columns of SELECT, from left to right: add keys "
        "that no two rows have in common if another order is meant"
    )


def _ascending(output: Output) -> Ordering:
    return Ordering(output.name)


def _count(top: TopClause, part: str, context: Context) -> int | None:
    """Return the number of LIMIT or OFFSET."""
    number = top.args.get(part)
    if number is None:
        return None
    if not number.this.isdigit():
        reason = f"{part.upper()} takes a whole number of rows, and {number.this} is none"
        raise context.error(number, reason, "write 10, for example")
    return min(int(number.this), MOST_ROWS)
