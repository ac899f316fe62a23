"""FROM: streams, derived streams, subqueries and changing relations, with their windows -> plan and scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from cluster.language.acquisition import noted, with_events, with_sample, with_sources, with_tolerance
from cluster.language.catalog import BaseStream, DerivedStream, StaticRelation
from cluster.language.coalescing import coalesced, refuse_kept_alone
from cluster.language.context import Context
from cluster.language.errors import suggest
from cluster.language.item_parsing import with_history
from cluster.language.row_patterns import match_pattern
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.stream_item import Changes, StreamItem, reshaping
from cluster.language.syntax import KeepClause, RowPatternClause, SampleClause, SinceClause, Within
from cluster.language.validities import held
from cluster.language.window_clauses import windowed
from cluster.operators import Dstream, Istream, Node, Relation, Source
from cluster.operators.columns import STAMP
from cluster.operators.projections import project, reads_relations_only
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.walks import nodes_of


class QueryTranslator(Protocol):
    """The part of the translation of queries that FROM needs."""

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
    more
        The names of those it has been zipped with.
    """

    node: Node
    scope: ScopeItem
    base: bool
    more: tuple[ScopeItem, ...] = ()

    @property
    def scopes(self) -> tuple[ScopeItem, ...]:
        """All its names."""
        return (self.scope, *self.more)

    @property
    def static(self) -> bool:
        """True if it is a relation, or consists of relations only."""
        return reads_relations_only(self.node)


class SelectTranslator(Protocol):
    """The part of the translation of queries that the translation of subqueries needs."""

    @property
    def context(self) -> Context:
        """Text, catalog and warnings."""

    def query(self, query: exp.Expr) -> Node:
        """Return the plan of a whole query."""

    def knowing(self, query: exp.Expr) -> SelectTranslator:
        """Return the translator with the names that the WITH of `query` defines."""

    def from_clause(self, select: exp.Select) -> tuple[Node, Scope]:
        """Return plan and names of FROM."""

    def restrict(self, node: Node, scope: Scope, conditions: list[exp.Expr]) -> Node:
        """Return the tuples for which all conditions are true."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a SELECT reads of the items of its FROM, besides their columns.

    Parameters
    ----------
    stamped
        True if it reads the instants at which tuples were sampled.
    names
        The names of columns in it, without case: one of them may be that of the stamp.
    validities
        The items of FROM of which it reads VALID, by name without case; None for any.
    keep
        How many tuples extents may keep that have no KEEP of their own.
    """

    stamped: bool = False
    names: frozenset[str] = frozenset()
    validities: frozenset[str | None] = frozenset()
    keep: KeepClause | None = None


NOTHING_READ = Read()


def translate_item(item: StreamItem, translator: QueryTranslator, read: Read = NOTHING_READ) -> FromItem:
    """Return the plan of one item of FROM.

    Parameters
    ----------
    item
        Its syntax.
    translator
        For subqueries.
    read
        What its query reads of it.

    Raises
    ------
    FjordSqlError
        If a name is unknown or a clause makes no sense.
    """
    context, stamped = translator.context, read.stamped
    reference = item.this
    alias = item.args["alias"].name if item.args.get("alias") else None
    if alias and (meant := item.args["alias"].meta.get("meant")):
        context.warn(f"{alias} is taken for a name that is given to what stands before it; {meant}")
    stamp: str | None = None
    base = False
    since: SinceClause | None = item.args.get("since")
    if isinstance(reference, exp.Table):
        entry = context.catalog.find(reference.name)
        if entry is None and (why := context.catalog.unreadable.get(reference.name.casefold())):
            reason = f"stream {reference.name!r} cannot be read: {why}"
            raise context.error(reference, reason, "drop it, and create it anew")
        if entry is None:
            hint = suggest(reference.name, context.catalog.names, what="there are")
            raise context.error(reference, f"there is no stream {reference.name!r}", hint)
        alias = alias or reference.name
        context.reads.add(entry.name)
        context.add_readings(entry.readings if isinstance(entry, DerivedStream) else 1, reference)
        if isinstance(entry, BaseStream):
            base, stamp = True, entry.stamp
            stamped = stamped or (stamp or "").casefold() in read.names
            node: Node = _source(entry, item, context, stamped=stamped)
        elif isinstance(entry, StaticRelation):
            node = Relation(entry.name, entry.identity, entry.columns)
        else:
            node = entry.node
        if since and not isinstance(entry, StaticRelation):
            node, since = with_history(node, since, context, name=entry.name), None
    elif isinstance(reference, Changes):
        node, alias = _changes(reference, alias, translator)
    elif isinstance(reference, RowPatternClause):
        below = translate_item(reference.this, translator)
        node = match_pattern(reference, below.node, below.scope, context)
    else:
        node = translator.query(reference.this)
    if not base and (clause := item.args.get("sample") or item.args.get("events")):
        events = item.args.get("events") is clause
        reason = f"only a stream that sensors feed {'has events' if events else 'can be sampled'}"
        raise context.error(clause, reason, f"put {'EVENTS' if events else 'SAMPLE'} where it is read")
    if isinstance(node, Relation) and (clause := reshaping(item)):
        reason = f"{node.name} is a relation: it has no window"
        raise context.error(clause, reason, "each tuple of a stream meets the rows that are there when it is sampled")
    if since:
        raise context.error(since, "only a stream has a past that is stored", "put SINCE where the stream is read")
    node, bounds = _lasting(node, item, context, read, alias)
    columns = _named_columns(node, {STAMP.name, *(bounds or ())})
    sampled_at = STAMP.name if base and stamped and not item.args.get("coalesce") else None
    return FromItem(
        node,
        ScopeItem(
            alias,
            columns,
            stamp,
            sampled_at,
            validity=bounds,
            counted=item.args.get("window") is not None,
            quality=node.quality,
        ),
        base,
    )


def _lasting(
    node: Node, item: StreamItem, context: Context, read: Read, alias: str | None
) -> tuple[Node, tuple[str, str] | None]:
    """Return tuples with their window, or until the next one, and the columns that bound their intervals."""
    if item.args.get("coalesce"):
        rows, ends = coalesced(node, item, context, item.args.get("keep") or read.keep)
        return noted(rows, node, item, context), ends
    refuse_kept_alone(item, context)
    validity = not {None, (alias or "").casefold()}.isdisjoint(read.validities)
    tuples, bounds = held(node, item, context, read=validity)
    return noted(windowed(tuples, item, context), node, item, context), bounds


def _named_columns(node: Node, hidden: set[str]) -> tuple[ScopeColumn, ...]:
    """Return the columns that a query can name of an item of FROM."""
    certain = node.never_null
    return tuple(
        ScopeColumn(column.name, column.name, column.type, column.unit, nullable=column.name not in certain)
        for column in node.schema
        if column.name not in hidden
    )


def _source(entry: BaseStream, item: StreamItem, context: Context, *, stamped: bool) -> Source:
    stored = (*entry.columns, STAMP) if stamped else entry.columns
    source = Source(entry.schema.name, stored, fixed=entry.fixed)
    if events := item.args.get("events"):
        source = with_events(source, events, entry, context)
    if sample := item.args.get("sample"):
        source = with_sample(source, sample, context)
    return source


def _changes(changes: Changes, alias: str | None, translator: QueryTranslator) -> tuple[Node, str | None]:
    inner: StreamItem = changes.this
    relation = translate_item(inner, translator)
    kind = changes.args["kind"]
    if relation.base and not (inner.args.get("window") or inner.args.get("valid")):
        raise translator.context.error(
            inner,
            "this stream has no past: each of its tuples is valid at one instant only",
            f"give it a window, {kind.capitalize()}({inner.this.name} WINDOW(RANGE UNBOUNDED))",
        )
    alias = alias or relation.scope.alias
    # What comes and goes is rows as they can be seen: intervals are none of their columns.
    seen = {column.internal for column in relation.scope.columns}
    node = project(relation.node, passed_on(column for column in relation.node.schema if column.name in seen))
    match kind:
        case "ISTREAM":
            return Istream(node), alias
        case "DSTREAM":
            return Dstream(node), alias
        case _:
            # Rstream(S) is S: being valid at an instant and being inserted at it are the same (section 3).
            return node, alias


def sample_item(item: FromItem, sample: SampleClause, context: Context) -> FromItem:
    """Return `item` with the sample period of the whole query, unless it has one of its own."""
    source = _source_of(item.node) if item.base else None
    if source is None or source.sample_period_us is not None:
        return item
    return replace(item, node=with_sources(item.node, lambda source: with_sample(source, sample, context)))


def tolerate(items: list[FromItem], joins: Sequence[exp.Join], within: Within, context: Context) -> list[FromItem]:
    """Return `items` with the error that `within` allows noted at the stream it is about, the left one behind USING.

    Raises
    ------
    FjordSqlError
        If it is not about a numeric, sampled field of a stream, or allows another error elsewhere.
    """
    column: exp.Column = within.this
    shared = [frozenset(each.name.casefold() for each in join.args.get("using") or ()) for join in joins]
    scopes = (replace(item.scope, shared=names) for item, names in zip(items, (frozenset[str](), *shared), strict=True))
    found = Scope(tuple(scopes)).find(column, context)
    position = next(index for index, item in enumerate(items) if any(each is found for each in item.scope.columns))
    item = items[position]
    if not item.base:
        reason = "an error can be allowed on a field of a stream only"
        raise context.error(within, reason, "put WITHIN where the stream is read")
    node = with_sources(item.node, lambda source: with_tolerance(source, found, within, context))
    return [*items[:position], replace(item, node=node), *items[position + 1 :]]


def _source_of(node: Node) -> Source | None:
    return next((each for each in nodes_of(node) if isinstance(each, Source)), None)
