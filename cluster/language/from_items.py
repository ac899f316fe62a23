"""FROM: streams, derived streams, subqueries and changing relations, with their windows -> plan and scope."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from sqlglot import exp

from cluster.language.algebra import (
    STAMP,
    CountWindow,
    Dstream,
    Granularity,
    Istream,
    Join,
    Node,
    PartitionedWindow,
    Source,
    TimeWindow,
    Tolerance,
    schema_of,
)
from cluster.language.catalog import BaseStream
from cluster.language.errors import suggest
from cluster.language.plans import never_null, renamed_apart
from cluster.language.quantities import QuantityError, duration_us, period_us, row_count
from cluster.language.scope import Context, Scope, ScopeColumn, ScopeItem
from cluster.language.syntax import Bounds, Changes, SampleClause, StreamItem, StreamWindow, Within
from protocols.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable


class QueryTranslator(Protocol):
    """What the translation of FROM needs to know of the translation of queries."""

    @property
    def context(self) -> Context:
        """Text, catalog and warnings."""

    def query(self, query: exp.Expr) -> Node:
        """Return the plan of a whole query."""


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM.

    Parameters
    ----------
    node
        Its plan.
    scope
        Its names.
    base
        True if it is a stream that comes from outside, so that acquisition clauses make sense on it.
    """

    node: Node
    scope: ScopeItem
    base: bool


def join_items(items: list[FromItem]) -> tuple[Node, Scope]:
    """Return the product of `items`; columns whose name is taken get a number."""
    node, scopes = items[0].node, [items[0].scope]
    for item in items[1:]:
        right, names = renamed_apart(item.node, [column.name for column in schema_of(node)])
        node = Join(node, right, None)
        scopes.append(item.scope.renamed(names))
    return node, Scope(tuple(scopes))


def translate_item(item: StreamItem, translator: QueryTranslator, *, stamped: bool = False) -> FromItem:
    """Return the plan of one item of FROM.

    Parameters
    ----------
    item
        Its syntax.
    translator
        For subqueries.
    stamped
        True if FIRST or LAST want to know when tuples were sampled.

    Raises
    ------
    FjordSqlError
        If a name is unknown or a clause makes no sense.
    """
    context = translator.context
    reference = item.this
    alias = item.args["alias"].name if item.args.get("alias") else None
    stamp: str | None = None
    base = False
    if isinstance(reference, exp.Table):
        entry = context.catalog.find(reference.name)
        if entry is None:
            hint = suggest(reference.name, context.catalog.names, what="streams are")
            raise context.error(reference, f"there is no stream {reference.name!r}", hint)
        alias = alias or reference.name
        context.reads.add(entry.name)
        if isinstance(entry, BaseStream):
            base, stamp = True, entry.stamp
            node: Node = Source(entry.schema.name, (*entry.columns, STAMP) if stamped else entry.columns)
        else:
            node = entry.node
    elif isinstance(reference, Changes):
        node, alias = _changes(reference, alias, translator)
    else:
        node = translator.query(reference.this)
    if sample := item.args.get("sample"):
        node = _sampled(node, sample, context, base=base)
    node = _windowed(node, item, context)
    certain = never_null(node)
    columns = tuple(
        ScopeColumn(column.name, column.name, column.type, column.unit, nullable=column.name not in certain)
        for column in schema_of(node)
        if column != STAMP
    )
    sampled_at = STAMP.name if base and stamped else None
    return FromItem(node, ScopeItem(alias, columns, stamp, sampled_at), base)


def _changes(changes: Changes, alias: str | None, translator: QueryTranslator) -> tuple[Node, str | None]:
    inner: StreamItem = changes.this
    relation = translate_item(inner, translator)
    kind = changes.args["kind"]
    if relation.base and not inner.args.get("window"):
        raise translator.context.error(
            inner,
            "this stream has no past: each of its tuples is valid at one instant only",
            f"give it a window, {kind.capitalize()}({inner.this.name} WINDOW(RANGE UNBOUNDED))",
        )
    alias = alias or relation.scope.alias
    match kind:
        case "ISTREAM":
            return Istream(relation.node), alias
        case "DSTREAM":
            return Dstream(relation.node), alias
        case _:
            # Rstream(S) is S: being valid at an instant and being inserted at it are the same (section 3).
            return relation.node, alias


def _sampled(node: Node, sample: SampleClause, context: Context, *, base: bool) -> Node:
    if not base:
        raise context.error(sample, "only a stream that sensors feed can be sampled", "put SAMPLE where it is read")
    read = duration_us if sample.args["kind"] == "EVERY" else period_us
    period = _read(sample.this, read, context)
    assert isinstance(node, Source)  # noqa: S101 - base streams are sources
    return msgspec.structs.replace(node, sample_period_us=period)


def with_sample(item: FromItem, sample: SampleClause, context: Context) -> FromItem:
    """Return `item` sampled as the query as a whole says, unless it says so itself."""
    source = _source_of(item.node) if item.base else None
    if source is None or source.sample_period_us is not None:
        return item
    return replace(item, node=_replace_source(item.node, _sampled(source, sample, context, base=True)))


def with_tolerance(items: list[FromItem], within: Within, context: Context) -> list[FromItem]:
    """Return `items` with the error that `within` allows noted at the stream it is about.

    Raises
    ------
    FjordSqlError
        If it is not about a numeric, sampled field of a stream, or allows another error elsewhere.
    """
    column: exp.Column = within.this
    found = Scope(tuple(item.scope for item in items)).find(column, context)
    position = next(index for index, item in enumerate(items) if any(each is found for each in item.scope.columns))
    item = items[position]
    source = _source_of(item.node) if item.base else None
    if source is None:
        reason = "an error can be allowed on a field of a stream only"
        raise context.error(within, reason, "put WITHIN where the stream is read")
    if found.type not in (FieldType.INTEGER, FieldType.REAL):
        raise context.error(within, f"an error can be allowed on a number, but {found.visible!r} is {found.type.value}")
    error = float(within.expression.this)
    if error <= 0:
        raise context.error(within.expression, "the error allowed must be greater than zero")
    same = next((each for each in source.tolerances if each.field == found.visible), None)
    if same is not None and same.error != error:
        raise context.error(within, f"{found.visible!r} already has an error of {same.error:g}", "allow one error")
    tolerances = {each.field: each for each in source.tolerances} | {found.visible: Tolerance(found.visible, error)}
    changed = msgspec.structs.replace(source, tolerances=tuple(tolerances[name] for name in sorted(tolerances)))
    return [*items[:position], replace(item, node=_replace_source(item.node, changed)), *items[position + 1 :]]


def _source_of(node: Node) -> Source | None:
    while not isinstance(node, Source):
        if not isinstance(node, TimeWindow | CountWindow | PartitionedWindow | Granularity):
            return None
        node = node.input
    return node


def _replace_source(node: Node, source: Node) -> Node:
    if isinstance(node, Source):
        return source
    assert isinstance(node, TimeWindow | CountWindow | PartitionedWindow | Granularity)  # noqa: S101 - see _source_of
    return msgspec.structs.replace(node, input=_replace_source(node.input, source))


def _windowed(node: Node, item: StreamItem, context: Context) -> Node:
    window: StreamWindow | None = item.args.get("window")
    if window is not None:
        node = _window(node, window, context)
    if granularity := item.args.get("granularity"):
        node = Granularity(node, _read(_best(granularity.this, context), duration_us, context))
    return node


def _window(node: Node, window: StreamWindow, context: Context) -> Node:
    size, slide, partition = (window.args.get(part) for part in ("this", "slide", "partition"))
    if size is None and slide is not None:
        raise context.error(window, "an unbounded window cannot slide", "give it a size, or leave SLIDE away")
    keys = tuple(dict.fromkeys(_partition_key(each, node, context) for each in partition or ()))
    if window.args["kind"] == "RANGE":
        if keys:
            context.warn("PARTITION BY changes nothing in a time window and is ignored")
        size_us = None if size is None else _read(_best(size, context), duration_us, context)
        return TimeWindow(node, size_us, _read(slide, duration_us, context) if slide else 1)
    rows = None if size is None else _read(_best(size, context), row_count, context)
    slide_rows = _read(slide, row_count, context) if slide else 1
    if rows is None:
        # The last of arbitrarily many tuples: no tuple ever leaves, by group or not.
        return CountWindow(node, None)
    context.warn(
        f"WINDOW({'PARTITION BY ... ' if keys else ''}ROWS {rows}) counts tuples: "
        f"where several of one {'group' if keys else 'stream'} carry the same stamp, which of them count is arbitrary"
    )
    return PartitionedWindow(node, keys, rows, slide_rows) if keys else CountWindow(node, rows, slide_rows)


def _partition_key(key: exp.Expr, node: Node, context: Context) -> str:
    names = [column.name for column in schema_of(node)]
    found = next((name for name in names if name.casefold() == key.name.casefold()), None)
    if not isinstance(key, exp.Column) or found is None:
        raise context.error(key, f"there is no column {key.name!r}", suggest(key.name, names, what="columns are"))
    return found


def _best(value: Any, context: Context) -> Any:
    """Return the value of the best quality where a range of them is allowed."""
    if isinstance(value, Bounds):
        context.warn("the range of qualities allowed is not used yet: the best is always delivered")
        return value.expression
    return value


def _read(quantity: Any, read: Callable[[str, str | None], int], context: Context) -> int:
    unit = quantity.args.get("unit")
    try:
        value = read(quantity.this.this, unit.name if unit else None)
    except QuantityError as error:
        at = unit if unit is not None and repr(unit.name) in error.reason else quantity
        raise context.error(at, error.reason, error.hint) from None
    if read is duration_us and unit is None and value > 1:
        context.warn(f"{value} without a unit is {value} microseconds")
    return value
