"""Joins of streams with relations as lookups, as close to their stream as possible, and in which order.

**The order of a stream's lookups: the one that leaves the fewest pairs comes first.**

Lookups of the same tuple do not depend on each other, unless one reads columns that another adds; so any order in
which each follows those whose columns it reads has the same answers. Lookups that only filter tuples come first. Then
come those that make pairs and drop tuples without a partner: the fewer partners a tuple has, the earlier; of equals
the smaller relation first, as fewer tuples have a partner there. Last come those that keep every tuple.

Figures are compared by their order of magnitude only: queries share equal lookups, and must not be
separated because a relation has grown a little.

    join segment = segment                            project
    |- window of 5 minutes                   ->       `- window of 5 minutes
    |  `- stream traffic                                 `- stream traffic, looked up in incidents on segment = ...
    `- relation incidents

A stream's tuple is joined with the rows that are active when it is sampled, and none that come later
(papers/star_joins.md section 1.3). So the lookup stands below the window, needs no memory, and runs next to the scan.
Where FROM has several streams, a relation is looked up by the one its conditions read, by the first if they read none,
and by the pair, when it begins, if they read several. Rows that are not tuples of a stream (of an aggregate, or of a
count window) are joined with the rows that are active when they begin to be valid.

A relation whose own rows are kept or chosen by a stream (NOT EXISTS, set operations, outer joins) is not looked up: its
rows flow, each as long as its version holds (:class:`~cluster.operators.Held`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from cluster.operators import (
    AntiJoin,
    Difference,
    Filter,
    Held,
    Intersection,
    Join,
    Lookup,
    LookupKind,
    Node,
    Project,
    Relation,
    SemiJoin,
    Source,
    TableLookup,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Output, Scalar, unique_name
from cluster.operators.projections import named_as, project, reads_relations_only
from cluster.operators.scalar_expressions import (
    by_name,
    column_scalar,
    columns_of,
    conjunction_of,
    conjuncts_of,
    passed_on,
    plain_column,
    substituted,
)
from cluster.operators.walks import above, rebuilt
from cluster.plan.expressions import joins_by_equality, kept, tidy_equality, without_alternatives
from cluster.plan.names_read import RelationSize
from cluster.plan.pipelines import is_pipeline, partition_keys

_RANKS = {"semi": 0, "anti": 0, "inner": 1, "left": 2}


def with_ordered_lookups(node: Node, sizes: Mapping[str, RelationSize]) -> Node:
    """Return a plan with the lookups of its streams in the best order.

    Parameters
    ----------
    node
        The rewritten plan.
    sizes
        By identity; nothing is known of relations that are missing.
    """

    def change(each: Node) -> Node:
        if not isinstance(each, Source) or len(each.lookups) < 2:  # noqa: PLR2004 - there is no order of one
            return each
        return replace(each, lookups=ordered(each.lookups, frozenset(column.name for column in each.sampled), sizes))

    return rebuilt(node, change)


def ordered(
    lookups: Sequence[TableLookup], sampled: frozenset[str], sizes: Mapping[str, RelationSize]
) -> tuple[TableLookup, ...]:
    """Return lookups in the best order.

    Parameters
    ----------
    lookups
        In an order that satisfies the dependencies.
    sampled
        Columns of the stream itself.
    sizes
        As for :func:`with_ordered_lookups`.
    """
    waiting, known, found = list(lookups), set(sampled), list[TableLookup]()
    while waiting:
        possible = [each for each in waiting if _read(each) <= known]
        best = min(possible, key=lambda each: _cost(each, sizes))  # of equals the first
        waiting.remove(best)
        found.append(best)
        known |= _added(best)
    return tuple(found)


def in_order(lookups: Sequence[TableLookup], sampled: frozenset[str]) -> bool:
    """Return whether each lookup follows those whose columns it reads, given the columns of the stream itself."""
    known = sampled
    for each in lookups:
        if not _read(each) <= known:
            return False
        known |= _added(each)
    return True


def partners_of(lookup: Lookup | TableLookup, sizes: Mapping[str, RelationSize]) -> float:
    """Return about how many rows a tuple with partners finds; infinity if that is not known."""
    own = lookup.table.names
    keys = [
        columns_of(part) & own
        for part in conjuncts_of(lookup.predicate)
        if joins_by_equality(part, columns_of(part) - own, own)
    ]
    values = [distinct_values(lookup.table, *key, sizes=sizes) for key in keys if len(key) == 1]
    known = [max(1, each) for each in values if each is not None]
    if keys and not known:
        return math.inf
    return max(1.0, _rows(lookup.table, sizes) / math.prod(known))


def _cost(lookup: TableLookup, sizes: Mapping[str, RelationSize]) -> tuple[int, float, float]:
    return _RANKS[lookup.kind], _magnitude(partners_of(lookup, sizes)), _magnitude(_rows(lookup.table, sizes))


def _read(lookup: TableLookup) -> frozenset[str]:
    """Return the columns of earlier lookups that it reads."""
    return (frozenset() if lookup.predicate is None else columns_of(lookup.predicate)) - lookup.table.names


def _added(lookup: TableLookup) -> frozenset[str]:
    """Return the columns that it adds to tuples."""
    return lookup.table.names if lookup.pairs else frozenset()


def _rows(table: Node, sizes: Mapping[str, RelationSize]) -> float:
    """Return about how many rows a table of relations has; for a join as many as the largest relation."""
    return max((_rows_of(each, sizes) for each in table.relations), default=math.inf)


def _rows_of(relation: Relation, sizes: Mapping[str, RelationSize]) -> float:
    return float(sizes[relation.identity].rows) if relation.identity in sizes else math.inf


def distinct_values(table: Node, column: str, *, sizes: Mapping[str, RelationSize]) -> int | None:
    """Return about how many distinct values a column of a table has; None if that is not known."""
    match table:
        case Relation():
            size = sizes.get(table.identity)
            return None if size is None else size.distinct.get(column)
        case Filter():
            return distinct_values(table.input, column, sizes=sizes)
        case Project():
            scalar = next(output.scalar for output in table.outputs if output.name == column)
            plain = plain_column(scalar)
            return None if plain is None else distinct_values(table.input, plain, sizes=sizes)
        case _:
            return None


def _magnitude(figure: float) -> float:
    return math.floor(math.log2(figure)) if 1 <= figure < math.inf else figure


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A lookup's table without the query's selection of columns and rows.

    Parameters
    ----------
    rest
        The table below the selection.
    names
        By column of the lookup's table: its name there.
    condition
        Over the columns there; None for all rows.
    """

    rest: Node
    names: dict[str, str]
    condition: Scalar | None


def opened(lookup: Lookup) -> OpenedTable:
    """Return a lookup's table, opened as far as the selection can be applied afterwards."""
    table = lookup.table
    names = {column.name: column.name for column in table.schema}
    condition: Scalar | None = None
    while True:
        match table:
            case Project() if (plain := _plain(table)) is not None:
                below = None if condition is None else substituted(condition, by_name(table.outputs))
                if condition is not None and below is None:
                    return OpenedTable(table, names, condition)  # too large
                names = {name: plain[column] for name, column in names.items()}
                condition, table = below, table.input
            # Only pairs can be filtered afterwards: a missing row gives NULLs, or no row at all.
            case Filter() if lookup.kind == "inner":
                condition = conjunction_of((*conjuncts_of(table.predicate), *conjuncts_of(condition)))
                table = table.input
            case _:
                return OpenedTable(table, names, condition)


def _plain(table: Project) -> dict[str, str] | None:
    """Return the name of each column below, if a projection only renames and selects columns."""
    plain = {output.name: plain_column(output.scalar) for output in table.outputs}
    found = {name: below for name, below in plain.items() if below is not None}
    return found if len(found) == len(plain) else None


PLAIN_EQUALITY = 2
"""Number of columns in an equality of one column with another."""


def with_lookups(node: Node, large: frozenset[str] = frozenset()) -> Node:
    """Return a plan in which every join with relations is a lookup.

    Parameters
    ----------
    node
        The plan.
    large
        Identities of the relations that are too large for the memory of every worker. Tuples that are looked up in them
        are spread by the key, if no operator above the lookup needs tuples of several keys together.
    """
    spread = _with_lookups(node, large)
    return spread if not large or partition_keys(spread) else _with_lookups(node, frozenset())


@lru_cache(maxsize=4096)
def _with_lookups(node: Node, large: frozenset[str]) -> Node:
    if reads_relations_only(node):
        return node
    if not node.relations:
        return node
    node = above(node, tuple([_with_lookups(each, large) for each in node.inputs]))
    match node:
        case Join():
            return _timed(_joined(node, large))
        case SemiJoin() | AntiJoin():
            if reads_relations_only(node.left):
                # The rows of the relation are chosen by a stream: they flow as its time passes.
                return replace(node, left=Held(node.right, node.left))
            if not reads_relations_only(node.right):
                return _timed(node)
            kind: LookupKind = "semi" if isinstance(node, SemiJoin) else "anti"
            return _sunk(Lookup(node.left, node.right, node.predicate, kind), large)
        case Union() | Difference() | Intersection():
            return _beside(node)
        case Lookup():
            return _sunk(node, large)
        case _:
            return node


def _beside(node: Union | Difference | Intersection) -> Node:
    """Return a set operation in which a relation beside a stream flows as the stream's time passes."""
    if reads_relations_only(node.left):
        return replace(node, left=Held(node.right, node.left))
    if reads_relations_only(node.right):
        return replace(node, right=Held(node.left, node.right))
    return node


def _timed(node: Node) -> Node:
    """Return a join of rows that flow, with the time of what they are joined with as that is planned at last."""
    if not isinstance(node, Join | SemiJoin | AntiJoin):
        return node
    if isinstance(node.left, Held) and node.left.input != node.right and not isinstance(node.right, Held):
        return replace(node, left=replace(node.left, input=node.right))
    if isinstance(node.right, Held) and node.right.input != node.left and not isinstance(node.left, Held):
        return replace(node, right=replace(node.right, input=node.left))
    return node


def _joined(join: Join, large: frozenset[str]) -> Node:
    if reads_relations_only(join.right):
        return _sunk(Lookup(join.left, join.right, join.predicate), large)
    if not reads_relations_only(join.left):
        return join
    looked_up = _sunk(Lookup(join.right, join.left, join.predicate), large)
    by_name = {output.name: output for output in kept(looked_up, looked_up.names)}
    return project(looked_up, [by_name[column.name] for column in join.schema])


@lru_cache(maxsize=4096)
def _sunk(lookup: Lookup, large: frozenset[str]) -> Node:
    """Return a lookup moved down to the source of its tuples."""
    below = lookup.input
    match below:
        case Source() | Filter() if any(_spread_by(each, large) for each in _apart(lookup)):
            return _placed(lookup, large)
        case Source():
            return _placed(lookup, large)
        case TimeWindow() | Filter():
            return replace(below, input=_sunk(replace(lookup, input=below.input), large))
        case Project():
            return _below_project(lookup, below, large) or _placed(lookup, large)
        case Join() | SemiJoin() | AntiJoin() | Lookup():
            return _below_join(lookup, below, large) or _placed(lookup, large)
        case Union():
            return _below_union(lookup, below, large)
        case _:
            return _placed(lookup, large)


def _placed(lookup: Lookup, large: frozenset[str]) -> Node:
    """Return a lookup at its final place; NOT IN as several lookups, each of which a hash table answers.

    Only here: the parts read fewer columns than the whole, and would sink to places where other versions hold.
    """
    node = lookup.input
    for part in sorted(_apart(lookup), key=lambda each: bool(_spread_by(each, large))):
        each = replace(part, input=node)
        by = _spread_by(each, large)
        match node:
            case Source() | Filter() if by and is_pipeline(node):
                node = replace(each, by=by)
            case Source():
                node = _in_source(each, node)
            case Filter() if is_pipeline(node):
                node = _sunk(each, large)
            case _:
                node = each
    return node


def _apart(lookup: Lookup) -> tuple[Lookup, ...]:
    """Return several lookups that in a row are equivalent to one, and of which most have an equality."""
    if lookup.kind != "anti":
        return (lookup,)
    conditions = without_alternatives(lookup.predicate, lookup.input.names, lookup.table.names)
    return tuple(replace(lookup, predicate=condition) for condition in conditions)


def _spread_by(lookup: Lookup, large: frozenset[str]) -> tuple[str, ...]:
    """Return the column by whose values tuples are spread over buckets, if the table is too large for every worker."""
    if lookup.predicate is None or not any(each.identity in large for each in lookup.table.relations):
        return ()
    left, right = lookup.input.names, lookup.table.names
    for part in conjuncts_of(lookup.predicate):
        if joins_by_equality(part, left, right):
            plain = [name for name in columns_of(part) if name in left]
            return (plain[0],) if len(columns_of(part)) == PLAIN_EQUALITY else ()
    return ()


def _below_project(lookup: Lookup, below: Project, large: frozenset[str]) -> Node | None:
    table, names = renamed_table(lookup, [column.name for column in below.input.schema])
    meanings = {output.name: output.scalar for output in below.outputs}
    meanings |= called_columns(lookup, names)
    predicate = None if lookup.predicate is None else substituted(lookup.predicate, meanings)
    if lookup.predicate is not None and predicate is None:
        return None
    found = found_columns(lookup, names)
    return Project(_sunk(Lookup(below.input, table, predicate, lookup.kind), large), (*below.outputs, *found))


def _below_join(lookup: Lookup, below: Join | SemiJoin | AntiJoin | Lookup, large: frozenset[str]) -> Node | None:
    read = frozenset() if lookup.predicate is None else columns_of(lookup.predicate) - lookup.table.names
    left, right = (below.input, below.table) if isinstance(below, Lookup) else (below.left, below.right)
    on_left = read <= left.names
    if not on_left and not (isinstance(below, Join) and read <= right.names):
        return None
    side, other = (left, right) if on_left else (right, left)
    table, names = renamed_table(lookup, [*side.names, *other.names])
    meanings = {column.name: column_scalar(column) for column in side.schema}
    meanings |= called_columns(lookup, names)
    predicate = None if lookup.predicate is None else substituted(lookup.predicate, meanings)
    looked_up = _sunk(Lookup(side, table, predicate, lookup.kind), large)
    joined = below.with_inputs((looked_up, *below.inputs[1:]) if on_left else (left, looked_up))
    return project(joined, (*passed_on(below.schema), *found_columns(lookup, names)))


def _below_union(lookup: Lookup, below: Union, large: frozenset[str]) -> Node:
    sides = (below.left, named_as(below.right, below.left.schema))
    return Union(*(_sunk(replace(lookup, input=side), large) for side in sides))


def _in_source(lookup: Lookup, source: Source) -> Node:
    """Return a stream whose tuples are looked up as they arrive.

    A query's conditions and columns of the table stay above, so that queries with others share the lookup: it looks up
    whole rows, whose columns have names of their own, and the queries filter the pairs.
    """
    table = opened(lookup)
    # No other column has a name with a dot.
    prefix = unique_name("+".join(each.name for each in table.rest.relations), _prefixes(source))
    names = {column.name: f"{prefix}.{column.name}" for column in table.rest.schema}
    whole = tuple(Output(names[each.name], column_scalar(each), each.unit) for each in table.rest.schema)
    outside = {each.name: column_scalar(replace(each, name=names[each.name])) for each in table.rest.schema}
    meanings = {column.name: column_scalar(column) for column in source.columns}
    meanings |= {column.name: outside[table.names[column.name]] for column in lookup.table.schema}
    predicate = None if lookup.predicate is None else substituted(lookup.predicate, meanings)
    chosen = None if table.condition is None else substituted(table.condition, outside)
    if (predicate is None) != (lookup.predicate is None) or (chosen is None) != (table.condition is None):
        return lookup  # too large
    # Equal lookups are equal however queries write them.
    sides = [tidy_equality(part, frozenset(names.values())) for part in conjuncts_of(predicate)]
    predicate = conjunction_of(sorted(sides, key=lambda part: part.sql))
    entry = TableLookup(Project(table.rest, whole), predicate, lookup.kind)
    columns = (*source.columns, *entry.table.schema) if entry.pairs else source.columns
    node: Node = replace(source, columns=columns, lookups=(*source.lookups, entry))
    if chosen is not None:
        node = Filter(node, chosen)
    found = {column.name: names[table.names[column.name]] for column in lookup.table.schema}
    return project(node, (*passed_on(source.columns), *found_columns(lookup, found)))


def _prefixes(source: Source) -> list[str]:
    return [each.table.schema[0].name.split(".", maxsplit=1)[0] for each in source.lookups]


def called_columns(lookup: Lookup, names: dict[str, str]) -> dict[str, Scalar]:
    """Return the columns of a lookup's table under other names, by their own names."""
    return {each.name: column_scalar(replace(each, name=names[each.name])) for each in lookup.table.schema}


def renamed_table(lookup: Lookup, taken: list[str]) -> tuple[Node, dict[str, str]]:
    """Return a lookup's table with names that are not in use, and the new name of each column."""
    used = list(taken)
    names: dict[str, str] = {}
    for column in lookup.table.schema:
        names[column.name] = unique_name(column.name, used)
        used.append(names[column.name])
    outputs = [Output(names[each.name], column_scalar(each), each.unit) for each in lookup.table.schema]
    return project(lookup.table, outputs), names


def found_columns(lookup: Lookup, names: dict[str, str]) -> list[Output]:
    """Return the columns that a lookup adds, under the lookup's names for columns that have others."""
    if not lookup.pairs:
        return []
    return [
        Output(column.name, column_scalar(replace(column, name=names[column.name])), column.unit)
        for column in lookup.table.schema
    ]
