"""Windowed aggregates of one stream, analysed: what may share panes, families of them, and what sensors may compute.

**Families of panes: which windowed aggregates of one stream by the same keys share panes, and which do not.**

    common family    1 min every 10 s, 5 min every 10 s, 61 s every 7 s      panes of 1 s for all of them

    common family    1 min every 10 s, 5 min every 10 s                      panes of 10 s
    family of 1 s    61 s every 7 s                                          panes of 1 s, from the same tuples

Panes are as wide as the greatest common divisor of all windows of a family. A family is named by a width; its windows
are those that were put there, and each of them consists of whole panes of this width. So windows of the same own panes
meet in one family, and windows of two or three times as wide panes may join them. Answers are the same in each.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import Aggregate, Filter, Node, Project, Source, TimeWindow, WindowBounds
from cluster.operators.columns import STAMP, AggregateCall, Column, Output, Scalar, identity_of
from cluster.operators.scalar_expressions import column_scalar, columns_of, conjunction_of, conjuncts_of, substituted
from cluster.operators.source import Tolerance
from cluster.operators.walks import rebuilt
from cluster.plan.names_read import called_by
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration

PANE_CLASS_BITS = 8
"""Windows share panes only with windows whose own panes are up to 256 times as wide: panes of one microsecond would be
of no use to a window of an hour."""


@dataclass(frozen=True, slots=True)
class PaneQuery:
    """The pieces of a windowed aggregate.

    Parameters
    ----------
    source
        The stream, with the column of stamps only if keys or conditions read it.
    keys
        The keys, as expressions of the stream's columns, in the order of their text.
    size_us, slide_us
        Its window.
    calls
        Its aggregates over the stream's columns; a name describes an aggregate in full.
    top
        The rest of the plan, above a source with the keys and the calls.
    predicate
        The condition on its tuples; None for all.
    tolerances, slowest_us
        The tolerances and the longest period that its author allows.
    family_us
        The width that names the family with which it shares panes; None for the common one.
    """

    source: Source
    keys: tuple[Scalar, ...]
    size_us: int
    slide_us: int
    calls: tuple[AggregateCall, ...]
    top: Node
    predicate: Scalar | None
    tolerances: tuple[Tolerance, ...] = ()
    slowest_us: int = 0
    family_us: int | None = None

    @property
    def counts_samples(self) -> bool:
        """Whether it counts missing samples."""
        return any(call.function == "completeness" for call in self.calls)

    @property
    def own_pane_us(self) -> int:
        """The width of the widest panes that its window consists of."""
        return math.gcd(self.size_us, self.slide_us)

    @property
    def pane_class(self) -> int:
        """Equal for all windows that may share panes in a common family."""
        return self.own_pane_us.bit_length() // PANE_CLASS_BITS

    @property
    def family(self) -> str:
        """Equal for all queries that share panes; never changes."""
        members = f"family {self.family_us}" if self.family_us else self.pane_class
        what = identity_of((self.source, self.keys, members))
        if called_by([*self.keys, *(scalar for call in self.calls for scalar in call.reads)]):
            # A function that fails is no matter of queries that call others, or this one with other tuples.
            what = identity_of((self.source, self.keys, members, self.calls, self.predicate))
        return f"panes-{hashlib.blake2b(what, digest_size=8).hexdigest()}"

    @property
    def panes_of(self) -> str:
        """Equal for all queries whose panes are of the same tuples and keys, whatever their families."""
        return hashlib.blake2b(identity_of((self.source, self.keys)), digest_size=8).hexdigest()


@lru_cache(maxsize=65_536)
def pane_query_of(node: Node) -> PaneQuery | None:
    """Return a plan's pieces, if it is a windowed aggregate of one stream with only stateless operators above."""
    above: list[Filter | Project | WindowBounds] = []
    while isinstance(node, Filter | Project | WindowBounds):
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
    schema = tuple(Column(key_name(key), key.type) for key in sorted_keys)
    source = below.source
    if any(STAMP.name in columns_of(each) for each in (*own_keys, *conjuncts_of(below.predicate))):
        source = replace(source, columns=(*source.columns, STAMP))
    results = {call.name: Column(call.name, call.type, call.unit) for call in own_calls}
    shared = Source(below.source.stream, (*schema, *results.values()))
    names = (*(key_name(key) for key in own_keys), *(call.name for call in own_calls))
    outputs = tuple(
        Output(column.name, column_scalar(Column(name, column.type)), column.unit)
        for column, name in zip(node.schema, names, strict=True)
    )
    top: Node = Project(shared, outputs)
    for each in reversed(above):
        top = replace(each, input=top)
    allowed = (below.tolerances, below.slowest_us, below.family_us)
    return PaneQuery(source, sorted_keys, below.size_us, below.slide_us, own_calls, top, below.predicate, *allowed)


@dataclass(frozen=True, slots=True)
class _Below:
    """The operators below an aggregate: its columns as expressions of the stream's columns."""

    source: Source
    columns: Mapping[str, Scalar]
    tolerances: tuple[Tolerance, ...]
    slowest_us: int
    predicate: Scalar | None = None
    size_us: int | None = None
    slide_us: int | None = None
    family_us: int | None = None


def _below(node: Node) -> _Below | None:
    match node:
        case Source():
            stored = tuple(column for column in node.columns if column != STAMP)
            source = replace(without_acquisition_hints(node), columns=stored)
            columns = {each.name: column_scalar(each) for each in node.columns}
            return _Below(source, columns, node.tolerances, node.slowest_us)
        case Filter() | Project() | TimeWindow():
            below = _below(node.input)
        case _:
            return None
    if below is None:
        return None
    if isinstance(node, TimeWindow):
        if below.slide_us is not None or node.grid is not msgspec.UNSET:
            return None
        family_us = None if node.family_us is msgspec.UNSET else node.family_us
        return dataclasses.replace(below, size_us=node.size_us, slide_us=node.slide_us, family_us=family_us)
    if isinstance(node, Filter):
        condition = substituted(node.predicate, below.columns)
        if condition is None:
            return None
        both = conjunction_of((*conjuncts_of(below.predicate), *conjuncts_of(condition)))
        return dataclasses.replace(below, predicate=both)
    outputs = {output.name: substituted(output.scalar, below.columns) for output in node.outputs}
    known = {name: scalar for name, scalar in outputs.items() if scalar is not None}
    return dataclasses.replace(below, columns=known) if len(known) == len(outputs) else None


def _over_the_stream(call: AggregateCall, columns: Mapping[str, Scalar]) -> AggregateCall | None:
    """Return a call whose argument reads the stream's columns, under a name that describes it in full."""
    argument = None if call.argument is None else substituted(call.argument, columns)
    if (argument is None) != (call.argument is None):
        return None
    if call.order is not None and columns.get(call.order) != column_scalar(STAMP):
        return None
    by = call.by if call.by is msgspec.UNSET else substituted(call.by, columns)
    if by is None:
        return None
    compared = [] if by is msgspec.UNSET else [by.sql]
    words = [
        "*" if argument is None else argument.sql,
        *compared,
        *([] if call.parameter is None else [repr(call.parameter)]),
    ]
    name = f"fjord_{call.function}({'DISTINCT ' if call.distinct else ''}{', '.join(words)}{call.joined})"
    order = None if call.order is None else STAMP.name
    return replace(call, name=name, argument=argument, order=order, by=by)


def without_acquisition_hints(source: Source) -> Source:
    """Return a source without its acquisition hints (batteries, tolerances), which have no meaning for operators."""
    return replace(source, tolerances=(), slowest_us=0, lifetime_us=0, unchanged=msgspec.UNSET)


def key_name(key: Scalar) -> str:
    """Return the column that holds a key."""
    return f"fjord_key({key.sql})"


MOST_PARTS = 6
"""A window may be made of panes that are up to so many times as narrow as its own."""


@remembered
def families_of(plan: Node) -> tuple[int, ...]:
    """Return the families, by width in microseconds, that a windowed aggregate may join; none of any other plan."""
    windowed = pane_query_of(plan)
    if windowed is None:
        return ()
    own_us = windowed.own_pane_us
    return tuple(own_us // parts for parts in range(1, MOST_PARTS + 1) if own_us % parts == 0)


def with_family(plan: Node, family_us: int | None) -> Node:
    """Return a windowed aggregate with its window in a family; None for the common one."""
    wanted = UNSET if family_us is None else family_us

    def placed(node: Node) -> Node:
        return replace(node, family_us=wanted) if isinstance(node, TimeWindow) and node.family_us != wanted else node

    return rebuilt(plan, placed)


def differ_in_families_only(one: Node, other: Node) -> bool:
    """Return whether two plans are windowed aggregates that share panes with others, and are the same apart from that.

    Their rows are the same then, each with the same interval.
    """
    return pane_query_of(one) is not None and with_family(one, None) == with_family(other, None)


def pane_families(plan: Node) -> Iterator[tuple[Node, str]]:
    """Yield a windowed aggregate with its panes in each family that it may join, and in words what is different."""
    for family_us in families_of(plan):
        words = f"panes are shared in the family of {format_duration(family_us)} only"
        yield with_family(plan, family_us), words
