"""Operations of the nodes of a physical plan: one kind per operator, with everything that the operator is built from.

Plain data. The name of a kind in ids of state never changes: running state is found by it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from cluster.operators import TableLookup, ZipKind
from cluster.operators.columns import AggregateCall, Ordering, Output, RankFunction, Scalar, Schema
from cluster.operators.extent import Coalescing
from cluster.operators.kept_extent import KeptTuples
from cluster.operators.pattern_match import RowPattern
from cluster.operators.sequence import SequenceCall
from cluster.operators.source import Detector, History
from cluster.operators.window_shapes import Grid, Session
from protocols.wire.programs import Measure

Measures = tuple[tuple[str, tuple[Measure, ...]], ...]
"""By field: the measures that are needed."""


class _Operation(msgspec.Struct, frozen=True, tag=True):
    """Base of all kinds. Their names in plan files and in ids of state never change, however classes are called."""

    called: ClassVar[str] = ""

    @classmethod
    def kind_name(cls) -> str:
        """Return the name of the kind in plan files and prices."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def state_name(cls) -> str:
        """Return the name of the kind in ids of state."""
        return cls.called or cls.kind_name()


class Scan(_Operation, frozen=True, tag="Scan"):
    """The rows of a stream; pipelines that read the same rows share one scan.

    Parameters
    ----------
    stream
        Its name.
    events
        The fingerprint of the events that are read; None for samples.
    detector
        The detector of these events.
    columns
        The columns that are read.
    history
        The past that is read first, if any.
    """

    stream: str
    columns: Schema
    events: str | None = None
    detector: Detector | None = None
    history: History | None = None


class ScanAggregates(_Operation, frozen=True, tag="ScanAggregates"):
    """Partial aggregates that devices and proxies have stored in a stream's table.

    Parameters
    ----------
    stream, columns, history
        As of :class:`Scan`.
    measures
        The measures that are read.
    """

    stream: str
    columns: Schema
    measures: Measures
    history: History | None = None


class Sample(_Operation, frozen=True, tag="Sample"):
    """The samples of a period; None for those at each mote's default rate."""

    period_us: int | None


class Columns(_Operation, frozen=True, tag="Columns"):
    """The columns of the shared scan that a pipeline reads; the stamp is one of them if it is needed."""

    columns: Schema
    called: ClassVar[str] = "Project"


class GroupedFilter(_Operation, frozen=True, tag="GroupedFilter"):
    """A row for each query group whose condition holds.

    Parameters
    ----------
    place
        Place of its conditions among those of the subscribers.
    columns
        The columns that these may read.
    visible_from
        True if rows carry the newest epoch to which they are visible.
    """

    place: int
    columns: Schema
    visible_from: bool


class PreaggregatedFilter(_Operation, frozen=True, tag="PreaggregatedFilter"):
    """Removes from each query group the samples that are contained in device partial aggregates for it."""

    called: ClassVar[str] = "WithoutTold"


class Filter(_Operation, frozen=True, tag="Filter"):
    """Rows for which the predicate is true."""

    predicate: Scalar


class PerQueryFilter(_Operation, frozen=True, tag="PerQueryFilter"):
    """The rows of each query group for which its own condition is true; `place` is that of the condition."""

    place: int
    called: ClassVar[str] = "MemberFilter"


class Project(_Operation, frozen=True, tag="Project"):
    """Rows mapped to new ones."""

    outputs: tuple[Output, ...]


class TimeWindow(_Operation, frozen=True, tag="TimeWindow"):
    """Rows valid for `size_us` (None: without end), moving by `slide_us`."""

    size_us: int | None
    slide_us: int


class CountWindow(_Operation, frozen=True, tag="CountWindow"):
    """The last `rows` rows (None: all) of each combination of `keys`.

    Parameters
    ----------
    columns
        Of the input.
    rows, slide_rows, keys
        The window.
    lag_us
        How far it may lag behind its input; None for any distance.
    """

    columns: Schema
    rows: int | None
    slide_rows: int
    keys: tuple[str, ...]
    lag_us: int | None


class SharedCountWindow(_Operation, frozen=True, tag="SharedCountWindow"):
    """The last `rows` rows of each combination of `keys`, for queries of different age: see its subscribers.

    Parameters
    ----------
    columns
        Of the input, with the marks of rows.
    rows, keys
        The window, which moves with every row; the query group is among the keys.
    lag_us
        How far it may lag behind its input.
    """

    columns: Schema
    rows: int
    keys: tuple[str, ...]
    lag_us: int


class GridWindow(_Operation, frozen=True, tag="GridWindow"):
    """A window whose boundaries lie on a grid; `slide_us` is how often one that is reset shows what is new."""

    grid: Grid
    slide_us: int


class WindowBounds(_Operation, frozen=True, tag="WindowBounds"):
    """Rows cut where a window moves, with its begin and end; fields as of the algebra's node."""

    grid: Grid
    start: str
    end: str


class SessionWindow(_Operation, frozen=True, tag="SessionWindow"):
    """Rows of sessions of each combination of `keys`, at the instant at which their session closes, or until then.

    Parameters
    ----------
    columns
        Of the input.
    keys, session
        The sessions.
    lag_us
        How far it may lag behind its input, where rows last until the end; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    session: Session
    lag_us: int | None


class UntilNext(_Operation, frozen=True, tag="UntilNext"):
    """Rows from their stamp until the next later one of their `keys`, at most for a time.

    Parameters
    ----------
    columns
        Of the input.
    keys, longest_us, bounds, lasts
        As in :class:`cluster.operators.UntilNext`.
    lag_us
        How far it may lag behind its input, where rows need not be whole; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    longest_us: int | None
    bounds: tuple[str, str] | None
    lasts: bool
    lag_us: int | None


class Extent(_Operation, frozen=True, tag="Extent"):
    """Runs of the samples of `keys` in their order.

    Parameters
    ----------
    columns
        Of the input.
    keys, coalescing
        As in :class:`cluster.operators.Extent`.
    lag_us
        How far it may lag behind its input, where other operators wait for it; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    coalescing: Coalescing
    lag_us: int | None


class SharedExtents(_Operation, frozen=True, tag="SharedExtents"):
    """Runs of the same samples, for several queries, each in its way: see its subscribers.

    Parameters
    ----------
    columns
        Of the input.
    keys
        Whose samples are coalesced together.
    eager
        Whether samples are compared as they come: all queries then coalesce them in one way.
    """

    columns: Schema
    keys: tuple[str, ...]
    eager: bool


class Panes(_Operation, frozen=True, tag="Panes"):
    """One stamp for all rows of a pane; of a family with a name: of that, a width."""

    width_us: int
    family_us: int | msgspec.UnsetType = msgspec.UNSET


class PartialAggregate(_Operation, frozen=True, tag="PartialAggregate"):
    """The first half of an aggregate: a partial row per key and interval."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]


class DeviceAggregates(_Operation, frozen=True, tag="DeviceAggregates"):
    """Device partial aggregates as partial rows of the query groups that can use them.

    Parameters
    ----------
    missing
        True for counts of missing samples, which only queries that demand them get.
    columns
        Fixed columns that conditions and keys may read.
    keys, calls, pane_us
        Of the panes.
    """

    missing: bool
    columns: Schema
    keys: tuple[Output, ...]
    calls: tuple[AggregateCall, ...]
    pane_us: int
    called: ClassVar[str] = "ToldAggregates"


Spread = Literal["keys", "group", "lookup"]
"""By the values of keys; by query group; by the keys of a relation beyond memory."""


class Exchange(_Operation, frozen=True, tag="Exchange"):
    """Hash partitioning: rows cross Spark's shuffle to the bucket of their values.

    Parameters
    ----------
    spread
        The kind of values that determine the bucket.
    by
        The columns with these values.
    columns
        Of the rows, before the first half of an aggregate if there is one.
    """

    spread: Spread
    by: tuple[str, ...]
    columns: Schema


class Reorder(_Operation, frozen=True, tag="Reorder"):
    """Rows in the order of their starts, as far as the watermark has come."""

    columns: Schema


class Split(_Operation, frozen=True, tag="Split"):
    """Rows split into one for each instant of their validity."""

    columns: Schema


class MergeAggregate(_Operation, frozen=True, tag="MergeAggregate"):
    """The second half of an aggregate.

    Parameters
    ----------
    keys, calls
        Of the aggregate.
    slide_us
        Of the window below, if it moves in steps.
    """

    keys: Schema
    calls: tuple[AggregateCall, ...]
    slide_us: int = 1


class PaneAggregate(_Operation, frozen=True, tag="PaneAggregate"):
    """The windows of all subscribers, merged from shared panes."""

    keys: Schema
    calls: tuple[AggregateCall, ...]


class Union(_Operation, frozen=True, tag="Union"):
    """The rows of both inputs."""

    columns: Schema


class Distinct(_Operation, frozen=True, tag="Distinct"):
    """Each row once per instant."""

    columns: Schema


class Difference(_Operation, frozen=True, tag="Difference"):
    """Rows of the left input without those of the right one."""

    columns: Schema
    called: ClassVar[str] = "Multiplicities"


class Intersection(_Operation, frozen=True, tag="Intersection"):
    """Rows that both inputs have."""

    columns: Schema
    called: ClassVar[str] = "Multiplicities"


class Join(_Operation, frozen=True, tag="Join"):
    """Pairs of rows that are valid together and meet the predicate."""

    left: Schema
    right: Schema
    predicate: Scalar | None


class SemiJoin(_Operation, frozen=True, tag="SemiJoin"):
    """Rows of the left input that have a partner, or that have none (`anti`)."""

    left: Schema
    right: Schema
    predicate: Scalar | None
    anti: bool


class Zip(_Operation, frozen=True, tag="Zip"):
    """Rows paired one to one in the order of their stamps; fields as of the algebra's node."""

    left: Schema
    right: Schema
    keys: tuple[tuple[str, str], ...]
    low_us: int
    high_us: int
    kind: ZipKind
    apart: str


class PatternMatch(_Operation, frozen=True, tag="PatternMatch"):
    """Matches of a pattern of rows; fields as of the algebra's node, `columns` those of the input."""

    columns: Schema
    keys: tuple[str, ...]
    pattern: RowPattern


class StampJoin(_Operation, frozen=True, tag="StampJoin"):
    """Pairs of rows whose stamps are at most so far apart; fields as of the algebra's node."""

    left: Schema
    right: Schema
    keys: tuple[tuple[str, str], ...]
    low_us: int | None
    high_us: int
    kind: ZipKind
    predicate: Scalar | None
    latest: bool


class KeptExtent(_Operation, frozen=True, tag="KeptExtent"):
    """Coalesced rows of at most so many tuples of a window.

    Parameters
    ----------
    columns
        Of the input.
    kept
        What is kept.
    lag_us
        How far it may lag behind its input, where rows last until the end; None for any distance.
    """

    columns: Schema
    kept: KeptTuples
    lag_us: int | None


class Sequence(_Operation, frozen=True, tag="Sequence"):
    """Rows with functions over those before and behind them, in order; fields as of the algebra's node."""

    columns: Schema
    keys: tuple[str, ...]
    ties: tuple[str, ...]
    calls: tuple[SequenceCall, ...]


class Lookup(_Operation, frozen=True, tag="Lookup"):
    """Rows with what a table of relations has for them.

    Parameters
    ----------
    table
        The table, the condition and the kind of lookup.
    streams
        The streams whose instants determine the version of the table.
    """

    table: TableLookup
    streams: tuple[str, ...]


class Ranked(_Operation, frozen=True, tag="Ranked"):
    """Rows by their places in an order; fields as of the algebra's node.

    Parameters
    ----------
    columns
        Of the input.
    lag_us
        How far it may lag behind its input; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    order: tuple[Ordering, ...]
    function: RankFunction
    above: int
    most: int | None
    name: str | None
    lag_us: int | None = None


class Held(_Operation, frozen=True, tag="Held"):
    """The rows of a table of relations, each valid as long as the versions that have it hold.

    Parameters
    ----------
    table
        The table; there is no condition.
    streams
        The streams whose instants determine the version of the table.
    begins_us
        The instant at which the query begins; None for that at which the streams do (cluster/physical/beginnings.py).
    waits_us
        How much later the rows begin.
    marked
        Whether the rows have the query group.
    against
        The streams of which the last to begin counts then; none if the first of `streams` does.
    """

    table: TableLookup
    streams: tuple[str, ...]
    begins_us: int | None
    waits_us: int
    marked: bool
    against: tuple[str, ...] = ()


class Granularity(_Operation, frozen=True, tag="Granularity"):
    """Snapshots at whole multiples of `granule_us`."""

    granule_us: int


class Changes(_Operation, frozen=True, tag="Changes"):
    """Rows that begin to be valid (`insertions`), or that cease to be."""

    columns: Schema
    insertions: bool


class Sink(_Operation, frozen=True, tag="Sink"):
    """Answers: each subscriber's own rows, finished, under its name."""

    called: ClassVar[str] = "Answers"


PlainOperation = (
    Scan
    | ScanAggregates
    | Sample
    | Columns
    | GroupedFilter
    | PreaggregatedFilter
    | Filter
    | PerQueryFilter
    | Project
    | TimeWindow
    | CountWindow
    | SharedCountWindow
    | GridWindow
    | WindowBounds
    | SessionWindow
    | UntilNext
    | Extent
    | SharedExtents
    | Panes
    | PartialAggregate
    | DeviceAggregates
    | Exchange
    | Reorder
    | Split
    | MergeAggregate
    | PaneAggregate
    | Union
    | Distinct
    | Difference
    | Intersection
    | Join
    | SemiJoin
    | Zip
    | PatternMatch
    | StampJoin
    | Ranked
    | Sequence
    | KeptExtent
    | Granularity
    | Changes
    | Sink
)
"""Any kind that reads no relation."""

Operation = PlainOperation | Lookup | Held
"""Any kind."""
