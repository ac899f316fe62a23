"""What a plan means with unchanging relations, zipper joins, joins by stamps, patterns and KEEP: the oracle.

A relation is a stream of the same rows at every instant, a left join is a union. A zipper join, a join by stamps or a
pattern is the stream of its rows, defined one by one (zip_definition, stamp_join_definition and pattern_plans); what is
kept of an extent is a stream of its rows at each instant (kept_definition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from msgspec.structs import replace

from cluster.expressions.nodes import NULL
from cluster.operators import (
    AntiJoin,
    Join,
    KeptExtent,
    Lookup,
    Node,
    PatternMatch,
    Project,
    Relation,
    Source,
    StampJoin,
    Union,
    Zip,
)
from cluster.operators.columns import Output, Scalar
from cluster.operators.scalar_expressions import column_scalar
from tests.cluster.oracle.definition import Row, Snapshots, Streams, evaluate
from tests.cluster.pattern_plans import pattern_rows
from tests.cluster.plan.snapshots import kept_snapshots, met_by, stamped_rows
from tests.cluster.stamp_join_definition import stamp_join_rows
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
    known: dict[Node, Node] = field(default_factory=dict)

    def standing_in(self, node: Node) -> Node:
        """Return a plan that reads streams only."""
        if isinstance(node, Relation):
            rows = self.relations[node.name]
            return self._stream(node, [(at, row) for at in range(self.instants) for row in rows])
        if isinstance(node, Lookup):
            return self.standing_in(_joined(node))
        below = tuple(self.standing_in(each) for each in node.inputs)
        found = node.with_inputs(below) if below else node
        match found:
            case Zip():
                return self._stream(node, self._zipped(found))
            case StampJoin():
                return self._stream(node, self._by_stamps(found))
            case PatternMatch():
                return self._stream(node, pattern_rows(found, self._tuples(found.input)))
            case KeptExtent():
                taken = evaluate(found.input, [self.streams], self.instants).snapshots[0]
                return self._stream(node, stamped_rows(kept_snapshots(found, taken)))
            case _:
                return found

    def _stream(self, node: Node, rows: list[tuple[int, Row]]) -> Node:
        if node not in self.known:
            name = f"given {len(self.known)}"
            self.streams[name] = rows
            # A stamp among them is a value like any other, and not that of the row.
            own = tuple(replace(each, name=f"c{place}") for place, each in enumerate(node.schema))
            outputs = [
                Output(each.name, column_scalar(other), each.unit) for each, other in zip(node.schema, own, strict=True)
            ]
            self.known[node] = Project(Source(name, own), tuple(outputs))
        return self.known[node]

    def _tuples(self, node: Node) -> list[tuple[int, Row]]:
        """Return what is valid at each instant."""
        return stamped_rows(evaluate(node, [self.streams], self.instants).snapshots[0])

    def _by_stamps(self, node: StampJoin) -> list[tuple[int, Row]]:
        left, right = self._tuples(node.left), self._tuples(node.right)
        widths = (len(node.left.schema), len(node.right.schema))
        bounds = (node.low_us, node.high_us)
        return stamp_join_rows(left, right, met_by(node), bounds, node.kind, widths, latest=node.latest)

    def _zipped(self, node: Zip) -> list[tuple[int, Row]]:
        sides = [self._tuples(side) for side in (node.left, node.right)]
        names = [[column.name for column in side.schema] for side in (node.left, node.right)]
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
    own = [Output(column.name, column_scalar(column)) for column in node.input.schema]
    nothing = [Output(column.name, Scalar(NULL, column.type)) for column in node.table.schema]
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
