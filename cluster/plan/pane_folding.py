"""Panes: windowed aggregates of one stream by the same keys are one, whatever their windows, conditions and aggregates.

    AVG(speed) over 5 minutes, every minute              panes of a minute: one partial row per key, pane and condition,
    MAX(speed) over 1 hour, every 10 minutes       ->    with what all aggregates need; each window is made of whole
    COUNT(*) WHERE lane = 1, 15 minutes, every 15        panes, and the rest of each query is made of its window's rows

A tuple stamped t lies in the pane that ends with the least multiple of the pane's width above t. Where that divides
slide and size of a window, all tuples of a pane enter and leave the window together (papers/pipes_algebra.md section 3,
with advance), so a window over panes holds exactly the tuples of a window over the stream: a coarser slide is answered
from a finer one's panes.

Queries with equal conditions share their tuples: such a *group* is known by a digest of its condition. A query that
comes later must not see what came before it; so partial rows carry the newest query's epoch at their arrival
(``SINCE``), and an answer says which queries it is for: those that began after ``AFTER``, up to ``SINCE``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from cluster.language.algebra import (
    MEMBER,
    SINCE,
    STAMP,
    Aggregate,
    AggregateCall,
    Column,
    Filter,
    Node,
    Output,
    Project,
    Scalar,
    Schema,
    Source,
    TimeWindow,
    schema_of,
)
from cluster.language.plans import column_scalar
from cluster.plan.epoch import PlannedQuery
from cluster.plan.expressions import columns_of, conjunction_of, conjuncts_of, substituted
from protocols.streams import FieldType

SIZE = Column("fjord_size_us", FieldType.INTEGER, "us")
SLIDE = Column("fjord_slide_us", FieldType.INTEGER, "us")
AFTER = Column("fjord_after", FieldType.INTEGER)
"""Queries that began up to this epoch get another row in the place of this one."""
MARKS: Schema = (MEMBER, SIZE, SLIDE, SINCE, AFTER)
"""What the rows of answers carry so that each query finds its own."""

PANE_CLASS_BITS = 8
"""Windows share panes with those whose own panes are up to 256 times as wide: a pane of one microsecond would be of no
use to a window of an hour."""


@dataclass(frozen=True, slots=True)
class PaneQuery:
    """A windowed aggregate, taken apart.

    Parameters
    ----------
    source
        The stream, without the column of stamps.
    keys
        What it groups by, as expressions of the stream's columns, in the order of their text.
    size_us, slide_us
        Its window.
    calls
        Its aggregates over the stream's columns; a name says everything about an aggregate.
    top
        The rest of the plan, above a source with the keys and the calls.
    predicate
        Which tuples are its own; None for all.
    """

    source: Source
    keys: tuple[Scalar, ...]
    size_us: int
    slide_us: int
    calls: tuple[AggregateCall, ...]
    top: Node
    predicate: Scalar | None

    @property
    def own_pane_us(self) -> int:
        """The widest panes its window is made of."""
        return math.gcd(self.size_us, self.slide_us)

    @property
    def family(self) -> str:
        """The same for all queries that may share panes; never changes."""
        pane_class = self.own_pane_us.bit_length() // PANE_CLASS_BITS
        what = msgspec.json.encode((self.source, self.keys, pane_class))
        return f"panes-{hashlib.blake2b(what, digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class PaneMember:
    """A query of a fold; `group` is that of its condition."""

    query: PlannedQuery
    pane_query: PaneQuery
    group: int

    @property
    def number(self) -> int:
        """The epoch with which it began."""
        return self.query.since_epoch

    @property
    def top(self) -> Node:
        """What is left to do to its window's rows."""
        return self.pane_query.top


@dataclass(frozen=True, slots=True)
class PaneFold:
    """Windowed aggregates that share panes.

    Parameters
    ----------
    name
        Identity of the fold.
    members
        Its queries, oldest first.
    """

    name: str
    members: tuple[PaneMember, ...]

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        """All their aggregates, by name."""
        found = {call.name: call for member in self.members for call in member.pane_query.calls}
        return tuple(found[name] for name in sorted(found))

    @property
    def keys(self) -> tuple[Output, ...]:
        """What they group by, with the names the partial rows have for it."""
        return tuple(Output(_key_name(key), key) for key in self.members[0].pane_query.keys)

    @property
    def pane_us(self) -> int:
        """The width of their panes."""
        return math.gcd(*(member.pane_query.own_pane_us for member in self.members))

    @property
    def groups(self) -> tuple[tuple[int, Scalar | None], ...]:
        """The conditions, by number of their group."""
        return tuple({member.group: member.pane_query.predicate for member in self.members}.items())

    @property
    def chain(self) -> Project:
        """What runs next to the scan: the stream's tuples with keys and what the aggregates read."""
        source, calls = self.members[0].pane_query.source, self.calls
        read = {name for call in calls for scalar in call.reads for name in columns_of(scalar)}
        columns = [*source.columns, *([STAMP] if STAMP.name in read else []), MEMBER, SINCE]
        kept = [column for column in columns if column.name in read or column in (MEMBER, SINCE)]
        outputs = (*self.keys, *(Output(column.name, column_scalar(column), column.unit) for column in kept))
        return Project(replace(source, columns=tuple(columns)), outputs)

    @property
    def aggregate(self) -> Aggregate:
        """The first half of which makes the panes."""
        return Aggregate(self.chain, (*(key.name for key in self.keys), MEMBER.name, SINCE.name), self.calls)


def fold_panes(queries: Mapping[PlannedQuery, PaneQuery]) -> tuple[PaneFold, ...]:
    """Return the folds of windowed aggregates."""
    families: dict[str, list[PaneMember]] = {}
    for query, pane_query in queries.items():
        member = PaneMember(query, pane_query, group_of((pane_query.predicate,)))
        families.setdefault(pane_query.family, []).append(member)
    return tuple(PaneFold(name, tuple(members)) for name, members in families.items())


@lru_cache(maxsize=65_536)
def group_of(predicates: tuple[Scalar | None, ...]) -> int:
    """Return the number of conditions on sources: a digest of them, so that it is the same for ever; 0 for none."""
    if not any(predicates):
        return 0
    digest = hashlib.blake2b(msgspec.json.encode(predicates), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1


@lru_cache(maxsize=65_536)
def pane_query_of(node: Node) -> PaneQuery | None:
    """Return a plan taken apart, if it is a windowed aggregate of one stream with nothing but stateless work above."""
    above: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        above.append(node)
        node = node.input
    if not isinstance(node, Aggregate):
        return None
    below = _below(node.input)
    if below is None or below.size_us is None or below.slide_us is None or below.slide_us <= 1:
        return None
    calls = [_over_the_stream(call, below.columns) for call in node.calls]
    keys = [below.columns.get(key) for key in node.keys]
    if any(each is None for each in (*calls, *keys)):
        return None
    own_calls = tuple(call for call in calls if call is not None)
    own_keys = tuple(key for key in keys if key is not None)
    sorted_keys = tuple(sorted(set(own_keys), key=lambda key: key.sql))
    schema = tuple(Column(_key_name(key), key.type) for key in sorted_keys)
    results = {call.name: Column(call.name, call.type, call.unit) for call in own_calls}
    shared = Source(below.source.stream, (*schema, *results.values()))
    names = (*(_key_name(key) for key in own_keys), *(call.name for call in own_calls))
    outputs = tuple(
        Output(column.name, column_scalar(Column(name, column.type)), column.unit)
        for column, name in zip(schema_of(node), names, strict=True)
    )
    top: Node = Project(shared, outputs)
    for each in reversed(above):
        top = replace(each, input=top)
    return PaneQuery(below.source, sorted_keys, below.size_us, below.slide_us, own_calls, top, below.predicate)


@dataclass(frozen=True, slots=True)
class _Below:
    """What is below an aggregate: its columns as expressions of the stream's."""

    source: Source
    columns: Mapping[str, Scalar]
    predicate: Scalar | None = None
    size_us: int | None = None
    slide_us: int | None = None


def _below(node: Node) -> _Below | None:
    match node:
        case Source():
            stored = tuple(column for column in node.columns if column != STAMP)
            return _Below(replace(node, columns=stored), {each.name: column_scalar(each) for each in node.columns})
        case Filter() | Project() | TimeWindow():
            below = _below(node.input)
        case _:
            return None
    if below is None:
        return None
    if isinstance(node, TimeWindow):
        if below.slide_us is not None:
            return None
        return _Below(below.source, below.columns, below.predicate, node.size_us, node.slide_us)
    window = (below.size_us, below.slide_us)
    if isinstance(node, Filter):
        condition = substituted(node.predicate, below.columns)
        if condition is None:
            return None
        both = conjunction_of((*conjuncts_of(below.predicate), *conjuncts_of(condition)))
        return _Below(below.source, below.columns, both, *window)
    outputs = {output.name: substituted(output.scalar, below.columns) for output in node.outputs}
    columns = {name: scalar for name, scalar in outputs.items() if scalar is not None}
    return _Below(below.source, columns, below.predicate, *window) if len(columns) == len(outputs) else None


def _over_the_stream(call: AggregateCall, columns: Mapping[str, Scalar]) -> AggregateCall | None:
    """Return a call whose argument reads the stream's columns, under a name that says everything about it."""
    argument = None if call.argument is None else substituted(call.argument, columns)
    if (argument is None) != (call.argument is None):
        return None
    if call.order is not None and columns.get(call.order) != column_scalar(STAMP):
        return None
    words = ["*" if argument is None else argument.sql, *([] if call.parameter is None else [repr(call.parameter)])]
    name = f"fjord_{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(words)})"
    order = None if call.order is None else STAMP.name
    return replace(call, name=name, argument=argument, order=order)


def _key_name(key: Scalar) -> str:
    return f"fjord_key({key.sql})"
