"""The logical algebra: immutable typed nodes, one per operator of papers/pipes_algebra.md section 3.

A node is a value: equal nodes mean the same stream. Plans are written to and read from JSON
(cluster/plan/stored_plans.py), each node tagged with its class name.

Scalar expressions are nodes of their own (:mod:`cluster.expressions`); their columns are those of the node's input (for
:class:`Join` and its kin: of the concatenated inputs). Column names of a node are unique.

Nodes are shared: a plan is a graph in which equal parts may be one object (cluster/shared_nodes.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cluster.language.columns import STAMP, AggregateCall, Column, Ordering, Output, RankFunction, Scalar, Schema
from cluster.language.extents import Coalescing
from cluster.language.kept_tuples import KeptTuples
from cluster.language.row_patterns import RowPattern
from cluster.language.sequence_calls import SequenceCall
from cluster.language.stream_reading import Detector, History, Tolerance, Unchanged
from cluster.language.window_shapes import Allowed, Grid, Session
from cluster.shared_nodes import SharedNode, remembered
from protocols.wire.streams import FieldType


class _Pair(SharedNode, frozen=True):
    """Base of nodes with two inputs."""

    left: Node
    right: Node


LookupKind = Literal["inner", "left", "semi", "anti"]
"""Pairs; pairs, or the tuple with NULLs where it has no partner; tuples that have a partner; tuples that have none."""


class TableLookup(msgspec.Struct, frozen=True):
    """What every tuple of a stream is looked up in: see :class:`Lookup`.

    Parameters
    ----------
    table
        A plan of relations only.
    predicate
        Over the columns of both; None for all pairs.
    kind
        What becomes of a tuple.
    """

    table: Node
    predicate: Scalar | None
    kind: LookupKind

    @property
    def pairs(self) -> bool:
        """True if it adds the columns of the table."""
        return self.kind in ("inner", "left")


class Source(SharedNode, frozen=True, tag="Source"):
    """A base stream: each tuple is valid at its own instant only, ``[t, t + 1)``.

    ``sample_period_us`` (``SAMPLE``) keeps the tuples stamped at whole multiples of the period; None keeps all. With a
    `detector` (``EVENTS``), tuples are events, stamped where they begin. `slowest_us` (``AT LEAST EVERY``) is the
    longest period that will do, `lifetime_us` (``LIFETIME``) how long batteries should last; 0 is no such hint.
    """

    stream: str
    columns: Schema
    sample_period_us: Annotated[int, Meta(ge=1)] | None = None
    tolerances: tuple[Tolerance, ...] = ()
    occurrence: int = 0
    """Tells sources of a template with different conditions apart (cluster/physical/rules); 0 in a query."""
    slowest_us: Annotated[int, Meta(ge=0)] = 0
    lifetime_us: Annotated[int, Meta(ge=0)] = 0
    detector: Detector | None = None
    fixed: tuple[str, ...] = ()
    """Which of the stream's columns are properties of its sensors."""
    lookups: tuple[TableLookup, ...] = ()
    """Relations that each tuple is looked up in as it comes, one after the other; their columns are among `columns`."""
    history: History | None = None
    """Its past, if the query reads that first."""
    unchanged: Unchanged | msgspec.UnsetType = msgspec.UNSET
    """Set where it is read for what held until when: COALESCE, VALID UNTIL NEXT."""

    @property
    def found(self) -> frozenset[str]:
        """Names of the columns that are looked up."""
        tables = (each.table for each in self.lookups if each.pairs)
        return frozenset(column.name for table in tables for column in schema_of(table))

    @property
    def sampled(self) -> Schema:
        """The columns of the stream itself."""
        found = self.found
        return tuple(column for column in self.columns if column.name not in found)


class Relation(SharedNode, frozen=True, tag="Relation"):
    """A relation as it is at an instant: a table that changes outside Fjord (papers/star_joins.md section 1.3).

    Parameters
    ----------
    name
        Its name in queries.
    identity
        A name no other relation ever has, not even one that is made anew under the same name.
    columns
        Those of its columns that are read.
    """

    name: str
    identity: str
    columns: Schema


class TimeWindow(SharedNode, frozen=True, tag="TimeWindow"):
    """Time window of `size_us` (None: unbounded) that moves every `slide_us` (1: continuously).

    With slide a and size w a tuple stamped t is valid on [k0 - 1, k1 - 1), where k0 is the first multiple of a that is
    at least t + 1 and k1 the first that is at least t + w + 1 (papers/pipes_algebra.md section 3, with advance).

    With a `grid`, its boundaries are in place of the multiples, and size and slide are bounds of what it has.
    """

    input: Node
    size_us: Annotated[int, Meta(ge=1)] | None
    slide_us: Annotated[int, Meta(ge=1)] = 1
    grid: Grid | msgspec.UnsetType = msgspec.UNSET
    allowed: Allowed | msgspec.UnsetType = msgspec.UNSET
    """The range that its author allows (cluster/language/size_ranges.py); plans that run have none."""
    family_us: Annotated[int, Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    """Its panes are shared with windows of this family only (cluster/plan/pane_families.py); unset: the common one."""


class SessionWindow(SharedNode, frozen=True, tag="SessionWindow"):
    """Sessions of each combination of `keys`; of the whole stream without any."""

    input: Node
    keys: tuple[str, ...]
    session: Session


class UntilNext(SharedNode, frozen=True, tag="UntilNext"):
    """Each tuple from its stamp until the next later stamp of its `keys`, or for `longest_us` if that is shorter.

    Tuples are those of a stream, valid at their own instant only. Which tuples come next is decided over all of them.

    Parameters
    ----------
    input, keys
        The tuples, and whose next one ends them; without keys it is that of the whole stream.
    longest_us
        None: until the next one, however late that comes.
    bounds
        Names of two more columns, begin and end of this interval in microseconds: rows then come whole. There is a
        `longest_us` then.
    lasts
        False if the interval is in these columns only: the tuple itself is valid at its own instant.
    """

    input: Node
    keys: tuple[str, ...]
    longest_us: Annotated[int, Meta(ge=1)] | None = None
    bounds: tuple[str, str] | None = None
    lasts: bool = True


class CountWindow(SharedNode, frozen=True, tag="CountWindow"):
    """The last `rows` tuples (None: all), moving every `slide_rows`-th tuple."""

    input: Node
    rows: Annotated[int, Meta(ge=1)] | None
    slide_rows: Annotated[int, Meta(ge=1)] = 1


class PartitionedWindow(SharedNode, frozen=True, tag="PartitionedWindow"):
    """A count window for each combination of `keys`."""

    input: Node
    keys: tuple[str, ...]
    rows: Annotated[int, Meta(ge=1)]
    slide_rows: Annotated[int, Meta(ge=1)] = 1


class Filter(SharedNode, frozen=True, tag="Filter"):
    """Tuples for which the predicate is true (not false, not NULL).

    In a template, `choice` is the place of the condition in each subscriber's list (cluster/physical/rules); None in a
    query.
    """

    input: Node
    predicate: Scalar
    choice: int | None = None


class Project(SharedNode, frozen=True, tag="Project"):
    """Tuples mapped to new ones; duplicates stay."""

    input: Node
    outputs: tuple[Output, ...]


class Union(_Pair, frozen=True, tag="Union"):
    """Bag union; the columns of both sides agree in number, type and (after renaming) name."""


class Join(_Pair, frozen=True, tag="Join"):
    """Pairs valid at the same instant for which the predicate is true (None: all pairs)."""

    predicate: Scalar | None


ZipKind = Literal["inner", "left", "full"]
"""Pairs; pairs and left tuples without a partner; pairs and all tuples without one."""


class Zip(_Pair, frozen=True, tag="Zip"):
    """Tuples of both sides paired one to one in the order of their stamps (papers/fjords.md section 2, zipper join).

    Tuples of either side are valid at their own instant only. Look, among tuples with equal keys, at the earliest of
    each side that is neither paired nor unmatched yet; of equal stamps, at the one with the least values:

    * right minus left above `high_us` leaves the left one unmatched, below `low_us` the right one;
    * else, if the side of the earlier one has a later tuple that is not after the other and within the bounds, too, the
      earlier one stays unmatched: the later one is nearer;
    * else they are a pair.

    A pair is valid at the instant of its later tuple, an unmatched tuple at the last instant at which a partner might
    have come; NULLs are in place of the other side then.

    Parameters
    ----------
    keys
        Columns of left and right that must be equal; a NULL equals nothing.
    low_us, high_us
        Bounds of the right stamp minus the left one.
    kind
        Which tuples without a partner there are.
    apart
        The name of the column, behind those of both sides, with the right stamp minus the left one.
    """

    keys: tuple[tuple[str, str], ...]
    low_us: int
    high_us: int
    kind: ZipKind
    apart: str


class PatternMatch(SharedNode, frozen=True, tag="PatternMatch"):
    """Matches of a pattern of rows, for each combination of `keys` (docs/reference/sql.md, Patterns).

    Tuples are valid at their own instant only; a match is valid at that of its last row.
    """

    input: Node
    keys: tuple[str, ...]
    pattern: RowPattern


class StampJoin(_Pair, frozen=True, tag="StampJoin"):
    """Pairs of tuples whose stamps are at most so far apart: interval joins, and ASOF joins.

    Tuples of either side are valid at their own instant only. A pair is valid at the instant of its later tuple, a
    tuple without a partner at the last instant at which one might have come, with NULLs for the other side.

    Parameters
    ----------
    keys
        Columns of left and right that must be equal; a NULL equals nothing.
    low_us, high_us
        Bounds of the right stamp minus the left one; without a lower one, all earlier tuples of the right count.
    kind
        Which tuples without a partner there are.
    predicate
        Another condition on pairs, over the columns of both; None for none.
    latest
        Whether only the latest of all tuples on the right is the partner of a left one (ASOF); of equal stamps, the one
        with the greatest values, NULL being less than all. There is no other condition then.
    """

    keys: tuple[tuple[str, str], ...]
    low_us: int | None
    high_us: int
    kind: ZipKind = "inner"
    predicate: Scalar | None = None
    latest: bool = False


class Sequence(SharedNode, frozen=True, tag="Sequence"):
    """Tuples, valid at their own instant only, each with what functions compute over those of its `keys` in order.

    The order is that of stamps; of equal stamps it is that of the columns of `ties`, with NULLs last.
    """

    input: Node
    keys: tuple[str, ...]
    ties: tuple[str, ...]
    calls: tuple[SequenceCall, ...]


class KeptExtent(SharedNode, frozen=True, tag="KeptExtent"):
    """Coalesced rows of at most so many tuples of a window (docs/reference/sql.md, Keeping fewer tuples).

    Tuples are valid at their own instant only, and numbered in runs.
    """

    input: Node
    kept: KeptTuples


class SemiJoin(_Pair, frozen=True, tag="SemiJoin"):
    """Left tuples, with their multiplicity, for which some right tuple satisfies the predicate."""

    predicate: Scalar | None


class AntiJoin(_Pair, frozen=True, tag="AntiJoin"):
    """Left tuples, with their multiplicity, for which no right tuple satisfies the predicate."""

    predicate: Scalar | None


class Lookup(SharedNode, frozen=True, tag="Lookup"):
    """Tuples with the rows of a table of relations that are active when they begin to be valid.

    A change of a relation affects only tuples that begin after it (papers/star_joins.md section 1.3); a pair is valid
    as long as its tuple is.

    Parameters
    ----------
    input
        The tuples.
    table
        A plan of relations only.
    predicate
        Over the columns of both; None for all pairs.
    kind
        What becomes of a tuple.
    by
        Columns of the input by whose values tuples are spread over buckets, where the table is too large for every
        worker to have it; none where it is not.
    """

    input: Node
    table: Node
    predicate: Scalar | None
    kind: LookupKind = "inner"
    by: tuple[str, ...] = ()

    @property
    def pairs(self) -> bool:
        """True if it adds the columns of the table."""
        return self.kind in ("inner", "left")


class Held(SharedNode, frozen=True, tag="Held"):
    """The rows of a table of relations as a stream: each is valid as long as the versions that have it hold.

    A version holds, at the instants of the streams of `input`, from where tuples are looked up in it (:class:`Lookup`).

    Parameters
    ----------
    input
        A plan of the streams whose time passes; its tuples do not matter.
    table
        A plan of relations only.
    waits_us, against
        How much later the rows begin than these streams: once the windows they are held against can be full. Zero for
        rows that begin with the query.
    begins_us
        The instant at which the query begins: fixed when it does, None before, and if the streams begin later.
    epoch
        The epoch with which the query begins: no other one shares these rows.
    marks
        More columns, which tell the queries of a template apart (cluster/physical/rules).
    """

    input: Node
    table: Node
    waits_us: int = 0
    against: tuple[str, ...] = ()
    begins_us: int | None = None
    epoch: int = 0
    marks: Schema = ()


class Distinct(SharedNode, frozen=True, tag="Distinct"):
    """Each tuple once per instant."""

    input: Node


class Difference(_Pair, frozen=True, tag="Difference"):
    """Bag difference: multiplicity max(left - right, 0)."""


class Intersection(_Pair, frozen=True, tag="Intersection"):
    """Bag intersection: multiplicity min(left, right)."""


class Aggregate(SharedNode, frozen=True, tag="Aggregate"):
    """Aggregates per instant and combination of `keys`; nothing at an instant without tuples (section 0.7)."""

    input: Node
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]


class Extent(SharedNode, frozen=True, tag="Extent"):
    """Runs of the samples of `keys` that are valid at an instant, in the order of their stamps (sql.md, Coalescing).

    A run goes on while each sample is linked with the one before. It is a row with the keys, the coalesced columns of
    its first sample, and its interval: from the stamp of that to the stamp of the sample that begins the next run, or
    of its own last one.
    """

    input: Node
    keys: tuple[str, ...]
    coalescing: Coalescing


class Ranked(SharedNode, frozen=True, tag="Ranked"):
    """Tuples whose place in the order of their `keys` is above `above` and at most `most` (None: any), per instant.

    With `name`, a column of that name is their place, counted by `function`.
    """

    input: Node
    keys: tuple[str, ...]
    order: tuple[Ordering, ...]
    function: RankFunction = "row_number"
    above: Annotated[int, Meta(ge=0)] = 0
    most: Annotated[int, Meta(ge=0)] | None = None
    name: str | None = None


class WindowBounds(SharedNode, frozen=True, tag="WindowBounds"):
    """Tuples with begin and end of the window that there is at each instant, as columns `start` and `end`.

    At an instant t that is the window of the last boundary of `grid`, which has a size, that is at most t + 1.
    """

    input: Node
    grid: Grid
    start: str
    end: str


class Granularity(SharedNode, frozen=True, tag="Granularity"):
    """Snapshots at whole multiples of `granule_us` only."""

    input: Node
    granule_us: Annotated[int, Meta(ge=1)]
    allowed: Allowed | msgspec.UnsetType = msgspec.UNSET


class Istream(SharedNode, frozen=True, tag="Istream"):
    """Tuples that begin to be valid, each at that instant only."""

    input: Node


class Dstream(SharedNode, frozen=True, tag="Dstream"):
    """Tuples that cease to be valid, each at its last valid instant only (section 5.16)."""

    input: Node


Node = (
    Source
    | Relation
    | Lookup
    | Held
    | TimeWindow
    | CountWindow
    | PartitionedWindow
    | SessionWindow
    | UntilNext
    | Filter
    | Project
    | Union
    | Join
    | Zip
    | PatternMatch
    | StampJoin
    | Sequence
    | KeptExtent
    | SemiJoin
    | AntiJoin
    | Distinct
    | Difference
    | Intersection
    | Aggregate
    | Extent
    | Ranked
    | WindowBounds
    | Granularity
    | Istream
    | Dstream
)
"""Any node of the logical algebra."""


@remembered
def schema_of(node: Node) -> Schema:
    """Return the output columns of `node`."""
    match node:
        case Source() | Relation():
            return node.columns
        case Lookup():
            return schema_of(node.input) + (schema_of(node.table) if node.pairs else ())
        case Held():
            return schema_of(node.table) + node.marks
        case Project():
            return tuple(Column(output.name, output.scalar.type, output.unit) for output in node.outputs)
        case Join() | StampJoin():
            return schema_of(node.left) + schema_of(node.right)
        case Zip():
            return (*schema_of(node.left), *schema_of(node.right), Column(node.apart, FieldType.INTEGER, "us"))
        case Sequence():
            return (*schema_of(node.input), *(Column(call.name, call.type, call.unit) for call in node.calls))
        case KeptExtent(kept=kept):
            own = (column for column in schema_of(node.input) if column.name not in (kept.run, kept.number))
            bounds = (Column(name, FieldType.INTEGER, "us") for name in kept.bounds)
            return (*own, *bounds, Column(kept.quality, FieldType.REAL))
        case Aggregate():
            by_name = {column.name: column for column in schema_of(node.input)}
            return tuple(by_name[key] for key in node.keys) + tuple(
                Column(call.name, call.type, call.unit) for call in node.calls
            )
        case Extent(coalescing=how):
            by_name = {column.name: column for column in schema_of(node.input)}
            bounds = (Column(name, FieldType.INTEGER, STAMP.unit) for name in how.bounds)
            return (*(by_name[name] for name in (*node.keys, *how.columns)), *bounds)
        case PatternMatch():
            by_name = {column.name: column for column in schema_of(node.input)}
            measures = (Column(each.name, each.scalar.type, each.unit) for each in node.pattern.measures)
            return (*(by_name[key] for key in node.keys), *measures)
        case Ranked(name=str(name)):
            return (*schema_of(node.input), Column(name, FieldType.INTEGER))
        case WindowBounds(start=start, end=end) | UntilNext(bounds=(start, end)):
            return (*schema_of(node.input), *(Column(name, FieldType.INTEGER) for name in (start, end)))
        case Union() | SemiJoin() | AntiJoin() | Difference() | Intersection():
            return schema_of(node.left)
        case _:
            return schema_of(node.input)


def inputs_of(node: Node) -> tuple[Node, ...]:
    """Return the inputs of `node`, left to right; the table of a :class:`Lookup` or :class:`Held` is none."""
    match node:
        case Source() | Relation():
            return ()
        case _Pair():
            return (node.left, node.right)
        case _:
            return (node.input,)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return `node` above other inputs, left to right."""
    match inputs:
        case ():
            return node
        case (single,):
            return replace(node, input=single)
        case _:
            return replace(node, left=inputs[0], right=inputs[1])
