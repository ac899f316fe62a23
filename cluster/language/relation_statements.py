"""CREATE RELATION and DROP RELATION: their contents, checked without reading the source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cluster.language.comparisons import Comparison, WrittenComparison, comparisons_of
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.quantities import duration_us, read_quantity, written
from cluster.language.secrets import masked
from cluster.language.syntax import place_of
from cluster.language.type_words import column_type
from cluster.operators.columns import Column, Schema
from protocols.wire.streams import RESERVED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from cluster.language.context import Context
    from cluster.language.syntax import CreateRelationStatement

SHORTEST_REFRESH_US = 1_000_000
MOST_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """``CREATE RELATION name [(columns)] FROM 'source' [QUERY 'text' | TABLE name] [WHERE c] REFRESH EVERY d ...``.

    Parameters
    ----------
    text
        The statement. It may hold a password.
    name
        The relation's name.
    columns
        The declared columns; none to use those of the source.
    source
        The source's address, as written.
    query, table
        The part of a database to read; the table's name has a part per dot. At most one of the two is given.
    where
        Conditions on the rows; a row has to fulfil all of them.
    refresh_us
        How often the source is read.
    stale_us
        How long its last rows stay in use while the source is away; None for ever.
    """

    text: str = field(repr=False)
    name: str
    columns: Schema
    source: str = field(repr=False)
    query: str | None
    table: tuple[str, ...] | None
    where: tuple[WrittenComparison, ...]
    refresh_us: int
    stale_us: int | None
    _spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    warnings: tuple[str, ...] = ()
    """Warnings for its author."""

    def error(self, reason: str, hint: str | None = None, *, at: str = "source") -> FjordSqlError:
        """Return an error about a part of the text: a column by its name, or ``source``, ``query``, ``table``."""
        return self._error_at(self._spans.get(at.casefold(), self._spans["source"]), reason, hint)

    def condition_on(self, columns: Schema) -> tuple[Comparison, ...]:
        """Return the conditions on rows, given the relation's columns.

        Raises
        ------
        FjordSqlError
            If it has no such column, or one of another type.
        """
        found = []
        for written_one in self.where:
            given = written_one.comparison
            column = next((each for each in columns if each.name.casefold() == given.column.casefold()), None)
            if column is None:
                hint = suggest(given.column, [each.name for each in columns], what="columns are")
                raise self._error_at(written_one.span, f"the relation has no column {given.column!r}", hint)
            objection = given.objection(column.type)
            if objection is not None:
                raise self._error_at(written_one.span, objection, None)
            found.append(replace(given, column=column.name))
        return tuple(found)

    def _error_at(self, span: tuple[int, int], reason: str, hint: str | None) -> FjordSqlError:
        start, end = span
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)

    @property
    def shown(self) -> str:
        """The text without passwords."""
        return masked(self.text)


@dataclass(frozen=True, slots=True)
class DropRelation:
    """``DROP RELATION name``."""

    text: str
    name: str


def create_relation(tree: CreateRelationStatement, context: Context) -> CreateRelation:
    """Return the contents of the statement.

    Parameters
    ----------
    tree
        Its syntax; the name has been checked.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If a column has no type or no name of its own, or a duration is missing or too short.
    """
    spans = {part: place_of(found) for part in ("source", "query", "table") if (found := tree.args.get(part))}
    columns: list[Column] = []
    # Each column is compared with those before it.
    if len(tree.args.get("expressions") or ()) > MOST_COLUMNS:
        raise context.error(tree.this, f"a relation has at most {MOST_COLUMNS} columns")
    for column in tree.args.get("expressions") or ():
        columns.append(_column(column, columns, context))
        spans[f"column {column.this.name.casefold()}"] = place_of(column.this)
    refresh_us = read_quantity(tree.args["refresh"], duration_us, context)
    if refresh_us < SHORTEST_REFRESH_US:
        reason = f"a relation is refreshed once in {written(SHORTEST_REFRESH_US)} at most"
        raise context.error(tree.args["refresh"], reason)
    stale: exp.Expr | None = tree.args.get("stale")
    stale_us = read_quantity(tree.args["stale"], duration_us, context, meant="MINUTES") if stale is not None else None
    if stale is not None and stale_us is not None and stale_us < refresh_us:
        reason = f"this is shorter than the time between two refreshes, {written(refresh_us)}"
        raise context.error(stale, reason, "a relation that is refreshed on time is never stale")
    query, table, where = (tree.args.get(part) for part in ("query", "table", "where"))
    return CreateRelation(
        context.text,
        tree.this.name,
        tuple(columns),
        tree.args["source"].this,
        query.this if query is not None else None,
        tuple(part.name for part in table.expressions) if table is not None else None,
        tuple(comparisons_of(where.this, context)) if where is not None else (),
        refresh_us,
        stale_us,
        spans,
        tuple(context.warnings),
    )


def _column(column: exp.Expr, before: list[Column], context: Context) -> Column:
    name, type_ = column.this.name, column_type(column.args["kind"], context)
    if column.args.get("fixed"):
        raise context.error(column.this, "only a column of a stream is FIXED", "a relation belongs to no sensor")
    if name.casefold().startswith(RESERVED_PREFIX):
        raise context.error(column.this, f"names that begin with {RESERVED_PREFIX!r} are Fjord's own")
    if any(name.casefold() == each.name.casefold() for each in before):
        raise context.error(column.this, f"there are two columns {name!r}")
    unit = column.args.get("unit")
    return Column(name, type_, unit.this if unit is not None else "")
