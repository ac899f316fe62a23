"""CREATE and DROP of relations and functions: their contents, checked without reading the source or the module."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from cluster.expressions.user_functions import FunctionLanguage, UserFunction
from cluster.language.comparisons import Comparison, WrittenComparison, comparisons_of
from cluster.language.dialect import parse_scalar
from cluster.language.errors import FjordSqlError, masked, suggest
from cluster.language.foreign_names import INSTEAD, KEEP_ALL
from cluster.language.functions import AGGREGATE_NAMES, FUNCTION_NAMES
from cluster.language.quantities import duration_us, read_quantity, written
from cluster.language.spelling import CANONICAL_NAMES
from cluster.language.syntax import place_of
from cluster.language.typing_rules import column_type, written_type
from cluster.language.words import LANGUAGE
from cluster.operators.columns import Column, Schema
from protocols.wire.streams import RESERVED_PREFIX, FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.language.context import Context
    from cluster.language.syntax import CreateFunctionStatement, CreateRelationStatement

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


MOST_PARAMETERS = 32
LONGEST_PATH = 200
_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z]\w*)", re.ASCII)
PATH_SHAPE = "AS 'package.module:function'"


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """``CREATE FUNCTION name (types) RETURNS type [LANGUAGE l] [STRICT] AS 'package.module:function'``.

    Parameters
    ----------
    text
        The statement.
    function
        What it creates, without an identity.
    """

    text: str
    function: UserFunction
    _path_span: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.name

    def path_error(self, reason: str, hint: str | None = None) -> FjordSqlError:
        """Return an error about where the function is."""
        start, end = self._path_span
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)


@dataclass(frozen=True, slots=True)
class DropFunction:
    """``DROP FUNCTION name``."""

    text: str
    name: str


def create_function(tree: CreateFunctionStatement, context: Context) -> CreateFunction:
    """Return the contents of the statement.

    Parameters
    ----------
    tree
        Its syntax; that the name is one has been checked.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If the name is that of something built in, a type is unknown, or there are no arguments or too many.
    """
    name = tree.this.name
    if (reason := name_in_use(name)) is not None and not context.registered:
        raise context.error(tree.this, reason, "choose another name")
    if not tree.expressions:
        reason = "a function takes at least one argument"
        raise context.error(tree.this, reason, "one that takes none gives the same for every tuple: write the value")
    if len(tree.expressions) > MOST_PARAMETERS:
        raise context.error(tree.this, f"a function takes at most {MOST_PARAMETERS} arguments")
    names: list[str] = []
    types: list[FieldType] = []
    for parameter in tree.expressions:
        known = parameter.this.name if parameter.this is not None else ""
        if known and known.casefold() in {each.casefold() for each in names}:
            raise context.error(parameter.this, f"there are two arguments {known!r}")
        names.append(known)
        types.append(_type(parameter.args["kind"], context))
    module, attribute = _path(tree, context)
    function = UserFunction(
        name,
        "",
        module,
        attribute,
        tuple(types),
        _type(tree.args["returns"], context),
        tree.args.get("nulls") in ("STRICT", "RETURNS"),
        _language(tree, context),
        tuple(names) if any(names) else (),
    )
    return CreateFunction(context.text, function, place_of(tree.args["path"]))


def name_in_use(name: str) -> str | None:
    """Return why a function cannot have a name: something built in has it; None if it can.

    >>> name_in_use("round"), name_in_use("interval"), name_in_use("wear")
    ('ROUND is built in', 'INTERVAL means something in SQL', None)
    """
    word = name.upper()
    if word in CANONICAL_NAMES or word in FUNCTION_NAMES or word in AGGREGATE_NAMES:
        return f"{word} is built in"
    if word in INSTEAD or word in KEEP_ALL or word in LANGUAGE:
        return f"{word} means something in SQL"
    if name.casefold().startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX!r} are Fjord's own"
    try:
        plain = type(parse_scalar(f"{name}(x)")) is exp.Anonymous
    except (FjordSqlError, SqlglotError, TypeError):
        plain = False
    return None if plain else f"{word} means something in SQL"


def _type(kind: exp.Expr, context: Context) -> FieldType:
    """Return a type of an argument or a result."""
    if written_type(kind.name) == "TIMESTAMP":
        raise context.error(kind, "functions are not given timestamps", "types are boolean, integer, real and text")
    return column_type(kind, context)


def _path(tree: CreateFunctionStatement, context: Context) -> tuple[str, str]:
    written = tree.args["path"]
    found = _PATH.fullmatch(written.this)
    if found is None or len(written.this) > LONGEST_PATH:
        reason = "this is no path of a function: a module, a colon and a name in it were expected"
        raise context.error(written, reason, f"it is written {PATH_SHAPE}; the text of a function is not sent")
    return found["module"], found["attribute"]


def _language(tree: CreateFunctionStatement, context: Context) -> FunctionLanguage:
    written = tree.args.get("language")
    if written is None:
        return FunctionLanguage.POLARS
    known = [each.value.upper() for each in FunctionLanguage]
    if written.name.upper() not in known:
        hint = suggest(written.name, known, what="functions are given series of")
        raise context.error(written, f"there is no language {written.name!r}", hint)
    return FunctionLanguage(written.name.lower())
