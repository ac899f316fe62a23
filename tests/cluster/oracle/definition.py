"""The oracle: what a logical plan means, instant by instant, straight from papers/pipes_algebra.md section 3.

Each specimen (tests/cluster/specimens) says what its operator means, most of them in DuckDB's words: such a plan is one
query. What takes rows one by one is computed apart and stands in the query as a stream; a relation is a stream of the
same rows at every instant. Slow, small, and sharing nothing with what runs: no Polars, no intervals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from cluster.operators import Node, Project, Relation, Source
from cluster.operators.columns import Output, Schema
from cluster.operators.scalar_expressions import column_scalar
from cluster.physical.rules.pipelines import stored_columns
from protocols.wire.streams import FieldType
from tests.cluster.oracle.scalar_sql import NoDefinitionError, connection
from tests.cluster.published_tuples import taken
from tests.cluster.specimens import SPECIMENS
from tests.cluster.specimens.snapshot_sql import SnapshotSql, table_of
from tests.cluster.specimens.specimen import DefinedByRewriting, DefinedByRows, DefinedInSql, Stamped

Row = tuple[Any, ...]
Streams = Mapping[str, Sequence[Stamped]]
"""By stream: stamped tuples, in the order in which they arrive."""
Relations = Mapping[str, Sequence[Row]]
"""By relation: its rows, which are the same at all times."""
Bag = Counter[Row]
Snapshots = list[Bag]
"""The bag at each instant 0, 1, 2, ..."""

ARROW_TYPES = {
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.INTEGER: pa.int64(),
    FieldType.REAL: pa.float64(),
    FieldType.TEXT: pa.string(),
    FieldType.TIMESTAMP: pa.int64(),
    FieldType.LOCAL_TIMESTAMP: pa.int64(),
    FieldType.INTERVAL: pa.int64(),
}


@dataclass(frozen=True)
class Meaning:
    """What a plan means on several stream sets.

    Parameters
    ----------
    snapshots
        By stream set: the bag at each instant.
    ambiguous
        Stream sets for which the plan has no one meaning: different tuples with equal stamps, in no known order,
        below a count window (section 3: "the window is ambiguous").
    granule
        Only instants that are multiples of this are promised.
    """

    snapshots: list[Snapshots]
    ambiguous: frozenset[int]
    granule: int


def evaluate(node: Node, runs: Sequence[Streams], instants: int, relations: Relations | None = None) -> Meaning:
    """Return the snapshots of `node` at the instants 0 to `instants` - 1, for each of `runs`.

    Parameters
    ----------
    node
        The plan.
    runs
        Stream sets.
    instants
        How many; at least :func:`horizon_of`, so that nothing changes any more at the last one.
    relations
        Their rows.
    """
    given = _Given([dict(run) for run in runs], relations or {}, instants)
    plan = given.standing_in(node)
    snapshots, ambiguous = _queried(plan, given.runs, instants)
    return Meaning(snapshots, ambiguous | given.ambiguous, granule_of(node))


def snapshots_of_plan(node: Node, streams: Streams, instants: int, relations: Relations | None = None) -> Snapshots:
    """Return the snapshots of a plan on one stream set, on which it is not ambiguous."""
    meaning = evaluate(node, [streams], instants, relations)
    assert not meaning.ambiguous
    return meaning.snapshots[0]


def horizon_of(node: Node, last: int) -> int:
    """Return how many instants to look at so that nothing changes after them, if no stamp is above `last`."""
    reach = 5
    stack = [node]
    while stack:
        each = stack.pop()
        stack.extend(each.inputs)
        reach += SPECIMENS[type(each)].reach_us(each)
    return last + reach


def granule_of(node: Node) -> int:
    """Return at which multiples alone a plan's snapshots are promised; 1 for all (rule G1)."""
    return math.lcm(SPECIMENS[type(node)].granule_us(node), *(granule_of(each) for each in node.inputs))


def rows_as_they_are(stream: str, schema: Schema) -> Node:
    """Return a plan of the rows of a stream, where a stamp among the columns is a value like any other."""
    columns = tuple(replace(each, name=f"c{place}") for place, each in enumerate(schema))
    outputs = [Output(each.name, column_scalar(other), each.unit) for each, other in zip(schema, columns, strict=True)]
    return Project(Source(stream, columns), tuple(outputs))


@dataclass
class _Given:
    """Streams, and what stands for one."""

    runs: list[dict[str, Sequence[Stamped]]]
    relations: Relations
    instants: int
    ambiguous: frozenset[int] = frozenset()
    known: dict[Node, Node] = field(default_factory=dict)

    def standing_in(self, node: Node) -> Node:
        """Return a plan that reads streams only, and whose operators are all defined in SQL."""
        if isinstance(node, Relation):
            rows = [(at, row) for at in range(self.instants) for row in self.relations[node.name]]
            return self._stream(node, [rows] * len(self.runs))
        specimen = SPECIMENS[type(node)]
        if isinstance(specimen, DefinedByRewriting):
            return self.standing_in(specimen.as_plan(node))
        below = tuple(self.standing_in(each) for each in node.inputs)
        found = node.with_inputs(below) if below else node
        if not isinstance(specimen, DefinedByRows):
            return found
        if node not in self.known:
            sides = [self._rows(each) for each in below]
            self._stream(node, [specimen.rows(found, inputs, self.instants) for inputs in zip(*sides, strict=True)])
        return self.known[node]

    def _stream(self, node: Node, rows: Sequence[Sequence[Stamped]]) -> Node:
        if node not in self.known:
            name = f"given {len(self.known)}"
            for run, own in zip(self.runs, rows, strict=True):
                run[name] = own
            self.known[node] = rows_as_they_are(name, node.schema)
        return self.known[node]

    def _rows(self, node: Node) -> list[list[Stamped]]:
        """Return, by stream set, what is valid at each instant."""
        snapshots, ambiguous = _queried(node, self.runs, self.instants)
        self.ambiguous |= ambiguous
        return [[(at, row) for at, bag in enumerate(each) for row in bag.elements()] for each in snapshots]


def _queried(node: Node, runs: Sequence[Streams], instants: int) -> tuple[list[Snapshots], frozenset[int]]:
    query = SnapshotSql(_defined, node, len(runs), instants)
    cursor = connection().cursor()
    try:
        for source in _sources(node):
            cursor.register(table_of(source), _arrow(source, runs))
        snapshots: list[Snapshots] = [[Counter() for _ in range(instants)] for _ in runs]
        for run, instant, count, *row in cursor.execute(query.snapshots()).fetchall():
            assert instant >= 0
            if instant < instants:
                snapshots[run][instant][tuple(row)] = count
        sql = query.ambiguity()
        return snapshots, frozenset(run for (run,) in cursor.execute(sql).fetchall()) if sql else frozenset()
    finally:
        cursor.close()


def _defined(node: Node, query: SnapshotSql) -> str:
    specimen = SPECIMENS[type(node)]
    if not isinstance(specimen, DefinedInSql):
        raise NoDefinitionError(type(node).__name__)
    return specimen.sql(node, query)


def _sources(node: Node) -> list[Source]:
    if isinstance(node, Source):
        return [node]
    found = {table_of(each): each for child in node.inputs for each in _sources(child)}
    return list(found.values())


def _arrow(source: Source, runs: Sequence[Streams]) -> pa.Table:
    rows = [
        (run, stamp, place, *row)
        for run, streams in enumerate(runs)
        for place, ((stamp, row), kept) in enumerate(
            zip(streams[source.stream], taken(streams[source.stream], source.sample_period_us), strict=True)
        )
        if kept
    ]
    stored = stored_columns(source)
    columns = list(zip(*rows, strict=True)) if rows else [()] * (3 + len(stored))
    types = [pa.int64()] * 3 + [ARROW_TYPES[column.type] for column in stored]
    names = ["#run", "#t", "#o", *(column.name for column in stored)]
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)
