"""Operations of the nodes of a physical plan: one kind per operator, with everything that the operator is built from.

Plain data. The name of a kind in ids of state never changes: running state is found by it.
"""

from __future__ import annotations

from typing import ClassVar, Literal, final, get_args

import msgspec

from cluster.operators.aggregate import aggregate_words
from cluster.operators.changes import ChangesOperation as Changes
from cluster.operators.columns import AggregateCall, Output, Schema
from cluster.operators.count_window import CountWindowOperation as CountWindow
from cluster.operators.count_window import count_window_words
from cluster.operators.extent import ExtentOperation as Extent
from cluster.operators.filter import FilterOperation as Filter
from cluster.operators.filter import PerQueryFilterOperation as PerQueryFilter
from cluster.operators.held import HeldOperation as Held
from cluster.operators.join import JoinOperation as Join
from cluster.operators.join import SemiJoinOperation as SemiJoin
from cluster.operators.kept_extent import KeptExtentOperation as KeptExtent
from cluster.operators.lookup import LookupOperation as Lookup
from cluster.operators.operation import Late, Operation, Prompt, listed, own, own_keys
from cluster.operators.pattern_match import PatternMatchOperation as PatternMatch
from cluster.operators.project import ProjectOperation as Project
from cluster.operators.ranked import RankedOperation as Ranked
from cluster.operators.sequence import SequenceOperation as Sequence
from cluster.operators.session_window import SessionWindowOperation as SessionWindow
from cluster.operators.set_operations import DifferenceOperation as Difference
from cluster.operators.set_operations import DistinctOperation as Distinct
from cluster.operators.set_operations import IntersectionOperation as Intersection
from cluster.operators.set_operations import UnionOperation as Union
from cluster.operators.source import Detector, History, since_words
from cluster.operators.stamp_join import StampJoinOperation as StampJoin
from cluster.operators.time_window import GranularityOperation as Granularity
from cluster.operators.time_window import GridWindowOperation as GridWindow
from cluster.operators.time_window import TimeWindowOperation as TimeWindow
from cluster.operators.time_window import WindowBoundsOperation as WindowBounds
from cluster.operators.until_next import UntilNextOperation as UntilNext
from cluster.operators.zip import ZipOperation as Zip
from protocols.text.quantities import format_duration
from protocols.wire.programs import Measure

__all__ = [
    "OPERATIONS",
    "Changes",
    "Columns",
    "CountWindow",
    "DeviceAggregates",
    "Difference",
    "Distinct",
    "Exchange",
    "Extent",
    "Filter",
    "Granularity",
    "GridWindow",
    "GroupedFilter",
    "Held",
    "Intersection",
    "Join",
    "KeptExtent",
    "Lookup",
    "Measures",
    "MergeAggregate",
    "Operation",
    "PaneAggregate",
    "Panes",
    "PartialAggregate",
    "PatternMatch",
    "PerQueryFilter",
    "PlainOperation",
    "PreaggregatedFilter",
    "Project",
    "Ranked",
    "Reorder",
    "Sample",
    "Scan",
    "ScanAggregates",
    "SemiJoin",
    "Sequence",
    "SessionWindow",
    "SharedCountWindow",
    "SharedExtents",
    "Sink",
    "Split",
    "Spread",
    "StampJoin",
    "TimeWindow",
    "Union",
    "UntilNext",
    "WindowBounds",
    "Zip",
]

Measures = tuple[tuple[str, tuple[Measure, ...]], ...]
"""By field: the measures that are needed."""


@final
class Scan(Prompt, frozen=True, tag="Scan"):
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

    def describe(self) -> str:
        """Return the stream, or its events, and the past that is read."""
        past = "" if self.history is None else f", since {since_words(self.history)}"
        if self.detector is None:
            return f"stream {self.stream}{past}"
        field, above, below = msgspec.structs.astuple(self.detector)
        return f"events of {self.stream} where {field} rises to {above:g} and falls to {below:g}{past}"


@final
class ScanAggregates(Prompt, frozen=True, tag="ScanAggregates"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return f"aggregates stored in {self.stream}"


@final
class Sample(Prompt, frozen=True, tag="Sample"):
    """The samples of a period; None for those at each mote's default rate."""

    period_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        default = "samples at the default rate"
        return default if self.period_us is None else f"samples every {format_duration(self.period_us)}"


@final
class Columns(Prompt, frozen=True, tag="Columns"):
    """The columns of the shared scan that a pipeline reads; the stamp is one of them if it is needed."""

    columns: Schema
    called: ClassVar[str] = "Project"

    def describe(self) -> str:
        """Return one line about it."""
        return f"columns {listed(own(column.name for column in self.columns)) or 'nothing'}"


@final
class GroupedFilter(Prompt, frozen=True, tag="GroupedFilter"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return "grouped filter"


@final
class PreaggregatedFilter(Prompt, frozen=True, tag="PreaggregatedFilter"):
    """Removes from each query group the samples that are contained in device partial aggregates for it."""

    called: ClassVar[str] = "WithoutTold"

    def describe(self) -> str:
        """Return one line about it."""
        return "without samples that devices have aggregated"


@final
class SharedCountWindow(Late, frozen=True, tag="SharedCountWindow"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return count_window_words(self.rows, 1, own(self.keys))


@final
class SharedExtents(Late, frozen=True, tag="SharedExtents"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return "coalesce"


@final
class Panes(Prompt, frozen=True, tag="Panes"):
    """One stamp for all rows of a pane; of a family with a name: of that, a width."""

    width_us: int
    family_us: int | msgspec.UnsetType = msgspec.UNSET

    def describe(self) -> str:
        """Return one line about it."""
        family = "" if self.family_us is msgspec.UNSET else f", of the family of {format_duration(self.family_us)}"
        return f"panes of {format_duration(self.width_us)}{family}"


@final
class PartialAggregate(Prompt, frozen=True, tag="PartialAggregate"):
    """The first half of an aggregate: a partial row per key and interval."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    def describe(self) -> str:
        """Return one line about it."""
        return f"first half of {aggregate_words(self.calls, own_keys(self.keys))}"


@final
class DeviceAggregates(Prompt, frozen=True, tag="DeviceAggregates"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return "missing samples, by query group" if self.missing else "device partial aggregates, by query group"


Spread = Literal["keys", "group", "lookup"]
"""By the values of keys; by query group; by the keys of a relation beyond memory."""


@final
class Exchange(Prompt, frozen=True, tag="Exchange"):
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

    def describe(self) -> str:
        """Return by what rows are spread."""
        match self.spread:
            case "keys":
                return f"exchange by {listed(own_keys(self.by)) or 'nothing'}"
            case "lookup":
                return f"exchange by {listed(own(self.by)) or 'nothing'}, as the relation is sliced"
            case "group":
                return "exchange by query group"


@final
class Reorder(Prompt, frozen=True, tag="Reorder"):
    """Rows in the order of their starts, as far as the watermark has come."""

    columns: Schema

    def describe(self) -> str:
        """Return one line about it."""
        return "in the order of their stamps"


@final
class Split(Prompt, frozen=True, tag="Split"):
    """Rows split into one for each instant of their validity."""

    columns: Schema

    def describe(self) -> str:
        """Return one line about it."""
        return "split into instants"


@final
class MergeAggregate(Operation, frozen=True, tag="MergeAggregate"):
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

    def describe(self) -> str:
        """Return one line about it."""
        return aggregate_words(self.calls, own_keys(column.name for column in self.keys))

    @property
    def holds_rows_back(self) -> bool:
        """If its rows end wherever a tuple does."""
        return self.slide_us == 1


@final
class PaneAggregate(Prompt, frozen=True, tag="PaneAggregate"):
    """The windows of all subscribers, merged from shared panes."""

    keys: Schema
    calls: tuple[AggregateCall, ...]

    def describe(self) -> str:
        """Return one line about it."""
        return aggregate_words(self.calls, own_keys(column.name for column in self.keys))


@final
class Sink(Prompt, frozen=True, tag="Sink"):
    """Answers: each subscriber's own rows, finished, under its name."""

    called: ClassVar[str] = "Answers"

    def describe(self) -> str:
        """Return one line about it."""
        return "answers"


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

OPERATIONS: tuple[type[Operation], ...] = (*get_args(PlainOperation), Lookup, Held)
"""All kinds."""
