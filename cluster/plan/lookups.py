"""Joins of streams with relations as lookups, as close to their stream as possible.

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
    SemiJoin,
    Source,
    TableLookup,
    TimeWindow,
    Union,
)
from cluster.operators.columns import Output, Scalar
from cluster.operators.projections import named_as, project, reads_relations_only
from cluster.operators.scalar_expressions import (
    column_scalar,
    columns_of,
    conjunction_of,
    conjuncts_of,
    passed_on,
    substituted,
)
from cluster.operators.unique_names import unique_name
from cluster.operators.walks import above
from cluster.plan.expressions import joins_by_equality, kept, tidy_equality, without_alternatives
from cluster.plan.opened_tables import opened
from cluster.plan.pipelines import is_pipeline, partition_keys

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
