"""Operators of the logical algebra: one module each, with its node and everything that is true of it."""

from __future__ import annotations

from cluster.operators.aggregate import Aggregate
from cluster.operators.changes import Dstream, Istream
from cluster.operators.count_window import CountWindow, PartitionedWindow
from cluster.operators.extent import Extent
from cluster.operators.filter import Filter
from cluster.operators.held import Held
from cluster.operators.join import AntiJoin, Join, SemiJoin
from cluster.operators.kept_extent import KeptExtent
from cluster.operators.lookup import Lookup, LookupKind, TableLookup
from cluster.operators.node import Node, Relation
from cluster.operators.pattern_match import PatternMatch
from cluster.operators.project import Project
from cluster.operators.ranked import Ranked
from cluster.operators.sequence import Sequence
from cluster.operators.session_window import SessionWindow
from cluster.operators.set_operations import Difference, Distinct, Intersection, Union
from cluster.operators.source import Source
from cluster.operators.stamp_join import StampJoin
from cluster.operators.time_window import Granularity, TimeWindow, WindowBounds
from cluster.operators.until_next import UntilNext
from cluster.operators.zip import Zip, ZipKind

__all__ = [
    "NODES",
    "Aggregate",
    "AntiJoin",
    "CountWindow",
    "Difference",
    "Distinct",
    "Dstream",
    "Extent",
    "Filter",
    "Granularity",
    "Held",
    "Intersection",
    "Istream",
    "Join",
    "KeptExtent",
    "Lookup",
    "LookupKind",
    "Node",
    "PartitionedWindow",
    "PatternMatch",
    "Project",
    "Ranked",
    "Relation",
    "SemiJoin",
    "Sequence",
    "SessionWindow",
    "Source",
    "StampJoin",
    "TableLookup",
    "TimeWindow",
    "Union",
    "UntilNext",
    "WindowBounds",
    "Zip",
    "ZipKind",
]

_KINDS: tuple[type[Node], ...] = (
    Source,
    Relation,
    Lookup,
    Held,
    TimeWindow,
    CountWindow,
    PartitionedWindow,
    SessionWindow,
    UntilNext,
    Filter,
    Project,
    Union,
    Join,
    Zip,
    PatternMatch,
    StampJoin,
    Sequence,
    KeptExtent,
    SemiJoin,
    AntiJoin,
    Distinct,
    Difference,
    Intersection,
    Aggregate,
    Extent,
    Ranked,
    WindowBounds,
    Granularity,
    Istream,
    Dstream,
)
NODES: dict[str, type[Node]] = {kind.kind_name(): kind for kind in _KINDS}
"""Kinds of nodes by the names that they have in plan files."""
