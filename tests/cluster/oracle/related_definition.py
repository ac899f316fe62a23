"""What a plan means with unchanging relations, zipper joins and patterns: the oracle, and what it leaves to others.

A relation is a stream of the same rows at every instant, a left join is a union. A zipper join, which is defined tuple
by tuple (tests/cluster/zip_definition), is the stream of its rows, and so is a pattern (tests/cluster/pattern_plans).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from cluster.expressions.nodes import NULL
from cluster.language.algebra import (
    AntiJoin,
    Join,
    Lookup,
    Node,
    PatternMatch,
    Project,
    Relation,
    Source,
    Union,
    Zip,
    inputs_of,
    schema_of,
    with_inputs,
)
from cluster.language.columns import Output, Scalar
from cluster.language.plans import column_scalar
from tests.cluster.oracle.definition import Row, Snapshots, Streams, evaluate
from tests.cluster.pattern_plans import pattern_rows
from tests.cluster.zip_definition import zip_rows


@dataclass(frozen=True)
class RelatedMeaning:
    """What a plan means.

    Parameters
    ----------
    snapshots
        The bag at each instant.
    granule
        Only instants that are multiples of this are promised.
    """

    snapshots: Snapshots
    granule: int


@dataclass
class _Given:
    """Streams, and what stands for one."""

    streams: dict[str, list[tuple[int, Row]]]
    relations: Mapping[str, Sequence[Row]]
    instants: int
    known: dict[Node, Source] = field(default_factory=dict)

    def standing_in(self, node: Node) -> Node:
        """Return a plan that reads streams only."""
        if isinstance(node, Relation):
            rows = self.relations[node.name]
            return self._stream(node, [(at, row) for at in range(self.instants) for row in rows])
        if isinstance(node, Lookup):
            return self.standing_in(_joined(node))
        below = tuple(self.standing_in(each) for each in inputs_of(node))
        found = with_inputs(node, below) if below else node
        if isinstance(found, PatternMatch):
            return self._stream(node, pattern_rows(found, self._tuples(found.input)))
        return self._stream(node, self._zipped(found)) if isinstance(found, Zip) else found

    def _stream(self, node: Node, rows: list[tuple[int, Row]]) -> Source:
        if node not in self.known:
            name = f"given {len(self.known)}"
            self.streams[name] = rows
            self.known[node] = Source(name, schema_of(node))
        return self.known[node]

    def _tuples(self, node: Node) -> list[tuple[int, Row]]:
        """Return what is valid at each instant."""
        return [
            (at, row)
            for at, bag in enumerate(evaluate(node, [self.streams], self.instants).snapshots[0])
            for row, count in bag.items()
            for _ in range(count)
        ]

    def _zipped(self, node: Zip) -> list[tuple[int, Row]]:
        sides = [self._tuples(side) for side in (node.left, node.right)]
        names = [[column.name for column in schema_of(side)] for side in (node.left, node.right)]
        places = [[columns.index(key[side]) for key in node.keys] for side, columns in enumerate(names)]

        def key_of(side: int, row: Row) -> Row:
            return tuple(itemgetter(place)(row) for place in places[side])

        return zip_rows(
            *sides,
            (lambda row: key_of(0, row), lambda row: key_of(1, row)),
            (node.low_us, node.high_us),
            node.kind,
            (len(names[0]), len(names[1])),
        )


def _joined(node: Lookup) -> Node:
    """Return a left join in other words: pairs, and the tuples that have none with NULLs."""
    assert node.kind == "left"
    pairs = Join(node.input, node.table, node.predicate)
    own = [Output(column.name, column_scalar(column)) for column in schema_of(node.input)]
    nothing = [Output(column.name, Scalar(NULL, column.type)) for column in schema_of(node.table)]
    return Union(pairs, Project(AntiJoin(node.input, node.table, node.predicate), (*own, *nothing)))


def evaluate_with_relations(
    node: Node, streams: Streams, relations: Mapping[str, Sequence[Row]], instants: int
) -> RelatedMeaning:
    """Return the snapshots of a plan at the instants from 0 on.

    Parameters
    ----------
    node
        The plan, as it was translated.
    streams
        By name: stamped tuples, in the order in which they arrive.
    relations
        By name: rows.
    instants
        How many.
    """
    given = _Given({name: list(rows) for name, rows in streams.items()}, relations, instants)
    meaning = evaluate(given.standing_in(node), [given.streams], instants)
    assert not meaning.ambiguous
    return RelatedMeaning(meaning.snapshots[0], meaning.granule)
