"""FjordSQL text -> resolved, typed logical algebra: the entry to this folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.acquisition import refuse_lifetimes_without_streams
from cluster.language.catalog import BaseStream, Catalog, DerivedStream
from cluster.language.comparisons import value_of
from cluster.language.context import Context
from cluster.language.declarations import (
    CreateFunction,
    CreateRelation,
    DropFunction,
    DropRelation,
    create_function,
    create_relation,
)
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.ignored_syntax import refuse_ignored_syntax
from cluster.language.nesting import FLATTER, TOO_DEEP
from cluster.language.scope import check_letters
from cluster.language.select_ends import unparenthesised, warn_of_hidden_quality, with_rank_bounds
from cluster.language.selects import Translator
from cluster.language.statement_texts import without_comments
from cluster.language.statement_trees import EARLY_MARK, implied, statement_tree, with_parentheses
from cluster.language.syntax import (
    CreateDerived,
    CreateFunctionStatement,
    CreateRelationStatement,
    CreateSource,
    DropStatement,
    StreamWindow,
    place_of,
)
from cluster.language.tokens import readable
from cluster.language.typing_rules import column_type
from cluster.language.validities import with_own_functions
from cluster.operators import Aggregate, Distinct, Ranked
from cluster.operators.projections import reads_relations_only, shown
from cluster.operators.walks import levels, unbounded_operator
from protocols.errors import FjordError
from protocols.wire.streams import LONGEST_UNIT, MOST_FIELDS, Field, FieldType, StreamSchema

if TYPE_CHECKING:
    from cluster.operators import Node
    from cluster.operators.columns import Schema


@dataclass(frozen=True, slots=True)
class Query:
    """A translated query.

    Parameters
    ----------
    node
        Its plan, exactly as written; :func:`cluster.plan.rewrite.rewrite` makes it cheaper.
    text
        The text it came from.
    warnings
        Messages for its author, in the order in which they were found.
    reads
        Names of the streams in the text: the catalog must keep them while the query runs.
    columns
        Those of its rows, with the types that they have before timestamps and intervals are shown as texts.
    """

    node: Node
    text: str
    warnings: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    readings: int = 1
    """How many streams it reads, with every name expanded."""
    early: bool | None = None
    """True for EMIT EARLY_MARK, False for EMIT FINAL, None for neither."""
    columns: Schema = ()


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A query, not yet translated."""

    text: str


@dataclass(frozen=True, slots=True)
class CreateStream:
    """``CREATE STREAM name (columns) SOURCE source(arguments) [ORDERED BY stamp]``.

    Parameters
    ----------
    stream
        The entry for the catalog: the schema without the stamp, and the stamp.
    source
        The source that feeds it.
    arguments
        Arguments of the source, as written: numbers and texts.
    """

    text: str
    stream: BaseStream
    source: str
    arguments: tuple[int | float | str, ...] = ()
    _span: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.stream.schema.name

    def source_error(self, reason: str, hint: str | None = None) -> FjordSqlError:
        """Return an error about the source."""
        start, end = self._span
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)


@dataclass(frozen=True, slots=True)
class CreateDerivedStream:
    """``CREATE STREAM name AS query``; `query` is the query's text. See :func:`translate_derived`."""

    text: str
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class DropStream:
    """``DROP STREAM name``."""

    text: str
    name: str


_NO_STREAMS = Catalog()
FORMERLY = "IS was stronger than comparisons when this was added, and still is in it; add it anew with parentheses"
_FIRST_WORDS = re.compile(r"\w+\s+\w+")

DEEPEST_PLAN = 1_200
"""Most operators one above the other; functions on plans are recursive."""

Statement = (
    SelectStatement
    | CreateStream
    | CreateDerivedStream
    | CreateRelation
    | CreateFunction
    | DropStream
    | DropRelation
    | DropFunction
)
_DECLARED = (CreateSource, CreateRelationStatement, CreateFunctionStatement, DropStatement)


def translate(text: str, catalog: Catalog, *, registered: bool = False) -> Query:
    """Return the plan of the query `text`.

    Parameters
    ----------
    text
        One query, with or without a semicolon.
    catalog
        The streams it may name.
    registered
        True for a text that was accepted before, perhaps by an earlier version: syntax that is an error now keeps its
        meaning, with a warning.

    Raises
    ------
    FjordSqlError
        If it cannot be read, resolved or typed, or is refused; the error has the place and what to write instead.
    """
    text = readable(text)
    tree = statement_tree(text, registered=registered)
    if isinstance(tree, (CreateDerived, *_DECLARED)):
        reason, kind = "a query was expected here, not a declaration", _kind_declared(tree)
        hint = f"{kind}s are made with `fjord {kind} create`"
        start, end = next(_FIRST_WORDS.finditer(without_comments(text))).span()
        raise FjordSqlError(reason, text=text, start=start, end=end, hint=hint)
    return _translated(tree, tree, Context(text, catalog, registered=registered))


def translate_derived(text: str, catalog: Catalog, *, registered: bool = False) -> DerivedStream:
    """Return the stream that ``CREATE STREAM name AS query`` defines, to be added to `catalog`.

    `registered` is that of :func:`translate`.

    Raises
    ------
    FjordSqlError
        If it is another statement, or its query cannot be translated; positions are those in the whole statement.
    """
    text = readable(text)
    tree = statement_tree(text, registered=registered)
    if not isinstance(tree, CreateDerived):
        raise FjordSqlError("CREATE STREAM name AS query was expected here", text=text, start=0, end=len(text))
    _check_name(tree.this, Context(text, catalog))
    query = _translated(tree.expression, tree, Context(text, catalog, registered=registered), shows=False)
    return DerivedStream(tree.this.name, query.node, query.text, query.warnings, query.reads, query.readings)


def _translated(tree: exp.Expr, statement: exp.Expr, context: Context, *, shows: bool = True) -> Query:
    try:
        tree = with_own_functions(tree, context)
        context.outermost = unparenthesised(tree) if shows else None
        node = with_rank_bounds(Translator(context).query(tree))
        warn_of_hidden_quality(node, context)
        columns = node.schema
        node = shown(node) if shows else node
        deepest = levels(node)
    except RecursionError:
        raise FjordSqlError(TOO_DEEP, text=context.text, start=0, end=len(context.text), hint=FLATTER) from None
    if deepest > DEEPEST_PLAN:
        reason = f"the plan of this query is {deepest:,} operators deep; at most {DEEPEST_PLAN:,} are possible"
        raise context.error(tree, reason, "make several queries of it")
    if reads_relations_only(node):
        raise context.error(
            tree,
            "this query reads no stream: its answer would never come",
            "join the relation with a stream; `fjord sensors --sql` queries the catalog once",
        )
    _refuse_unbounded(node, tree, context)
    refuse_lifetimes_without_streams(tree, context)
    _check_ignored(statement, context)
    reads = frozenset(name for name in context.reads if context.catalog.find(name) is not None)
    early = statement.meta.get(EARLY_MARK)
    text = context.text if context.registered else with_parentheses(context.text, statement, context.spelled)
    if context.registered and implied(statement):
        context.warn(FORMERLY)
    return Query(node, text, tuple(context.warnings), reads, context.readings.count, early, columns)


def _check_ignored(statement: exp.Expr, context: Context) -> None:
    """Refuse syntax that would be ignored; in registered texts, it stays ignored."""
    try:
        refuse_ignored_syntax(statement, context)
    except FjordSqlError as error:
        if not context.registered:
            raise
        context.warn(f"{error.message}, and is ignored")


def parse_statement(text: str, *, registered: bool = False) -> Statement:
    """Return the statement in `text`, its names not yet resolved: see :func:`translate`, also for `registered`.

    Raises
    ------
    FjordSqlError
        If it is not a statement of FjordSQL.
    """
    text = readable(text)
    tree = statement_tree(text, registered=registered)
    context = Context(text, _NO_STREAMS, registered)
    if isinstance(tree, CreateDerived):
        _check_name(tree.this, context)
        if not registered:
            text = with_parentheses(text, tree)
        start = place_of(tree.this)[1]
        words = without_comments(text).rstrip("; \t\r\n")
        behind_name = len(words) - len(words[start:].lstrip())
        body = text[behind_name + len("AS") : len(words)].strip()
        return CreateDerivedStream(text, tree.this.name, body)
    if not isinstance(tree, _DECLARED):
        return SelectStatement(text)
    statement = _declaration(tree, context)
    _check_ignored(tree, context)
    return statement


def _kind_declared(tree: exp.Expr) -> str:
    """Return what a declaration is about: a stream, a relation or a function."""
    match tree:
        case CreateRelationStatement():
            return "relation"
        case CreateFunctionStatement():
            return "function"
        case _:
            return str(tree.args.get("kind") or "stream").lower()


def _declaration(tree: exp.Expr, context: Context) -> Statement:
    match tree:
        case CreateSource():
            return _create_stream(tree, context)
        case CreateRelationStatement():
            _check_name(tree.this, context, "relation")
            return create_relation(tree, context)
        case CreateFunctionStatement():
            _check_name(tree.this, context, "function")
            return create_function(tree, context)
        case _ if tree.args["kind"] == "FUNCTION":
            return DropFunction(context.text, tree.this.name)
        case _:
            drop = DropRelation if tree.args["kind"] == "RELATION" else DropStream
            return drop(context.text, tree.this.name)


def _refuse_unbounded(node: Node, tree: exp.Expr, context: Context) -> None:
    operator = unbounded_operator(node)
    if operator is None:
        return
    if operator == Distinct.written_as and tree.find(exp.Distinct) is None:
        several = tree.find(exp.SetOperation) is not None
        operator = "UNION, EXCEPT or INTERSECT without ALL" if several else "a subquery in a condition"
    window = next((each for each in tree.find_all(StreamWindow) if each.args.get("this") is None), None)
    hint = "give the window a size, for example RANGE 1 DAY"
    if operator == Aggregate.written_as:
        hint += ", or let it begin anew: WINDOW(RESET EVERY 1 DAY); SUM(x) OVER (ORDER BY STAMP()) is a running sum"
    if operator == Ranked.written_as:
        hint += ", or keep the first rows only: LIMIT 3, or a condition on ROW_NUMBER() such as place <= 3"
    raise context.error(
        window or tree, f"{operator} over an unbounded window would have to remember every tuple for ever", hint
    )


def _create_stream(tree: CreateSource, context: Context) -> CreateStream:
    _check_name(tree.this, context)
    stamp = tree.args.get("ordered")
    fields: list[Field] = []
    found: str | None = None
    for column in tree.expressions:
        type_ = column_type(column.args["kind"], context)
        if stamp is not None and column.this.name.casefold() == stamp.name.casefold():
            found = column.this.name
            if type_ != FieldType.INTEGER:
                raise context.error(column.args["kind"], "the stamp must be a TIMESTAMP or an integer")
            continue
        unit = column.args["unit"].this if column.args.get("unit") else ""
        if not context.registered:
            _check_field(column, unit, context)
        try:
            fields.append(Field(column.this.name, type_, unit, fixed=bool(column.args.get("fixed"))))
        except FjordError as error:
            raise context.error(column, error.message, error.hint) from None
    if stamp is not None and found is None:
        names = [column.this.name for column in tree.expressions]
        raise context.error(stamp, f"there is no column {stamp.name!r}", suggest(stamp.name, names, what="columns are"))
    if not fields:
        raise context.error(tree.this, "a stream needs a column besides its stamp")
    if len(fields) > MOST_FIELDS and not context.registered:
        raise context.error(tree.this, f"a stream has at most {MOST_FIELDS} columns besides its stamp")
    try:
        schema = StreamSchema(tree.this.name, tuple(fields))
    except FjordError as error:
        raise context.error(tree.expressions[0], error.message, error.hint) from None
    arguments = tuple(value_of(each, context) for each in tree.args.get("arguments") or ())
    spans = [place_of(each) for each in (tree.args["source"], *(tree.args.get("arguments") or ()))]
    span = spans[0][0], spans[-1][1]
    return CreateStream(context.text, BaseStream(schema, found), tree.args["source"].name, arguments, span)


def _check_field(column: exp.Expr, unit: str, context: Context) -> None:
    """Refuse a column that no demand can contain: no message could be sent with it."""
    _check_name(column.this, context, "column")
    if len(unit) > LONGEST_UNIT:
        raise context.error(column.args["unit"], f"a unit has at most {LONGEST_UNIT} characters")


def _check_name(name: exp.Identifier, context: Context, what: str = "stream") -> None:
    check_letters(name, context, what)
