"""Projections and windows merge and sink (section 4.2 W1, W3 to W6, G1, CQL; section 4.3)."""

from __future__ import annotations

from collections import Counter
from math import lcm

from msgspec import UNSET
from msgspec.structs import replace

from cluster.operators import (
    Aggregate,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Istream,
    Node,
    PartitionedWindow,
    Project,
    SessionWindow,
    Source,
    TimeWindow,
    Union,
    UntilNext,
)
from cluster.operators.columns import Output
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import by_name, column_uses, columns_of, plain_column, substituted
from cluster.operators.window_shapes import END_OF_TIME_US, LONGEST_WINDOW_US
from cluster.plan.expressions import kept

_OfKeys = PartitionedWindow | SessionWindow | UntilNext
_Windows = TimeWindow | CountWindow | _OfKeys


def merge_projects(node: Node) -> Node | None:
    """Two projections in a row are one, μf(μg(S)) = μf∘g(S), unless an expression would be computed twice."""
    if not (isinstance(node, Project) and isinstance(node.input, Project)):
        return None
    inner = by_name(node.input.outputs)
    uses = Counter[str]()
    for output in node.outputs:
        uses.update(column_uses(output.scalar))
    if any(uses[name] > 1 and plain_column(scalar) is None for name, scalar in inner.items()):
        return None
    outputs: list[Output] = []
    for output in node.outputs:
        scalar = substituted(output.scalar, inner)
        if scalar is None:
            return None
        outputs.append(Output(output.name, scalar, output.unit))
    return Project(node.input.input, tuple(outputs))


def drop_identity_project(node: Node) -> Node | None:
    """A projection to the same columns under the same names has no effect."""
    if not isinstance(node, Project):
        return None
    same = project(node.input, node.outputs)
    return same if same is node.input else None


def project_below_union(node: Node) -> Node | None:
    """μf(A ∪ B) = μf(A) ∪ μf(B)."""
    if not (isinstance(node, Project) and isinstance(node.input, Union)):
        return None
    return Union(replace(node, input=node.input.left), replace(node, input=node.input.right))


def _raw(node: Node) -> bool:
    """Return whether `node` is a base stream, perhaps filtered: its windows need no split, and others use them too."""
    while isinstance(node, Filter):
        node = node.input
    return isinstance(node, Source)


def _windowed_raw(node: Node) -> bool:
    """Return whether `node` is a base stream with any number of windows."""
    while isinstance(node, _Windows):
        node = node.input
    return _raw(node)


def _adds_bounds(node: Node) -> bool:
    """Return whether a window has columns that its input does not have."""
    return isinstance(node, UntilNext) and node.bounds is not None


def project_above_window(node: Node) -> Node | None:
    """W3, W5, W6 upwards, over a base stream: ω(μf(S)) = μf(ω(S)), so that queries with other columns share the window.

    A partitioned window needs its keys from below unchanged.
    """
    if not (isinstance(node, _Windows) and isinstance(node.input, Project)) or _adds_bounds(node):
        return None
    if not _raw(node.input.input):
        return None
    if isinstance(node, _OfKeys):
        plain = {output.name: plain_column(output.scalar) for output in node.input.outputs}
        keys = tuple(name for key in node.keys if (name := plain[key]) is not None)
        if len(keys) != len(node.keys):
            return None
        return replace(node.input, input=replace(node, input=node.input.input, keys=keys))
    return replace(node.input, input=replace(node, input=node.input.input))


def project_below_time_window(node: Node) -> Node | None:
    """W3 downwards, over a derived stream: μf(ω(S)) = ω(μf(S)), so that the rows split for the window are narrow."""
    if not (isinstance(node, Project) and isinstance(node.input, TimeWindow)) or _windowed_raw(node.input):
        return None
    return replace(node.input, input=replace(node, input=node.input.input))


def project_below_count_window(node: Node) -> Node | None:
    """W5 downwards, over a derived stream: μf(ω_N(S)) = ω_N(μf(S)), where f adds no columns."""
    if not (isinstance(node, Project) and isinstance(node.input, CountWindow)) or _windowed_raw(node.input):
        return None
    if len(node.outputs) > len(node.input.schema):
        return None
    return replace(node.input, input=replace(node, input=node.input.input))


def project_below_partitioned_window(node: Node) -> Node | None:
    """W6 downwards, over a derived stream, where f adds no columns and passes on every key; else groups would merge."""
    if not (isinstance(node, Project) and isinstance(node.input, _OfKeys)) or _windowed_raw(node.input):
        return None
    if _adds_bounds(node.input):
        return None
    if len(node.outputs) > len(node.input.schema):
        return None
    handed_on = {plain_column(output.scalar): output.name for output in node.outputs}
    if not all(key in handed_on for key in node.input.keys):
        return None
    keys = tuple(handed_on[key] for key in node.input.keys)
    return replace(node.input, keys=keys, input=replace(node, input=node.input.input))


def project_below_granularity(node: Node) -> Node | None:
    """μf(Γ(S)) = Γ(μf(S)): granularity commutes with every snapshot-reducible operator."""
    if not (isinstance(node, Project) and isinstance(node.input, Granularity)):
        return None
    return replace(node.input, input=replace(node, input=node.input.input))


def narrow_aggregate(node: Node) -> Node | None:
    """Keep, of an aggregate's input, only its keys and the columns that its calls read."""
    if not isinstance(node, Aggregate):
        return None
    arguments = [columns_of(scalar) for call in node.calls for scalar in call.reads]
    outputs = kept(node.input, frozenset(node.keys).union(*arguments))
    if len(outputs) == len(node.input.names):
        return None
    return replace(node, input=project(node.input, outputs))


def drop_unused_calls(node: Node) -> Node | None:
    """Compute only the aggregates that the projection above reads; of several without keys one stays, for the row."""
    if not (isinstance(node, Project) and isinstance(node.input, Aggregate)):
        return None
    used = frozenset().union(*(columns_of(output.scalar) for output in node.outputs))
    calls = tuple(call for call in node.input.calls if call.name in used)
    if not calls and not node.input.keys:
        calls = node.input.calls[:1]
    if len(calls) == len(node.input.calls):
        return None
    return replace(node, input=replace(node.input, calls=calls))


def groups_without_aggregates(node: Node) -> Node | None:
    """Groups of which only the keys are used are the distinct keys: γ_keys(S) = δ(π_keys(S))."""
    if not (isinstance(node, Aggregate) and not node.calls and node.keys):
        return None
    by_column = {output.name: output for output in kept(node.input, node.keys)}
    return Distinct(project(node.input, [by_column[key] for key in node.keys]))


def drop_now_window(node: Node) -> Node | None:
    """W1: a window of one instant that slides with every instant is the stream itself."""
    if isinstance(node, TimeWindow) and node.size_us == 1 and node.slide_us == 1 and node.grid is UNSET:
        return node.input
    return None


def window_below_union(node: Node) -> Node | None:
    """W4: ω(A ∪ B) = ω(A) ∪ ω(B), so that the window over A can be shared with other queries."""
    if not (isinstance(node, TimeWindow) and isinstance(node.input, Union)):
        return None
    return Union(replace(node, input=node.input.left), replace(node, input=node.input.right))


def unbounded_count_window(node: Node) -> Node | None:
    """The last of arbitrarily many tuples are all of them: an unbounded count window is an unbounded time window."""
    if isinstance(node, CountWindow) and node.rows is None and node.slide_rows == 1:
        return TimeWindow(node.input, None)
    return None


def istream_of_unbounded_window(node: Node) -> Node | None:
    """CQL: tuples that begin to be valid in the whole past are the new tuples of the stream: Istream(ω_∞(S)) = S.

    Selections and projections in between commute with the window (W2, W3): Istream(σμ(ω_∞(S))) = σμ(S).
    """
    return _without_unbounded_window(node.input) if isinstance(node, Istream) else None


def _without_unbounded_window(node: Node) -> Node | None:
    match node:
        case TimeWindow(size_us=None, slide_us=1):
            return node.input
        case Filter() | Project():
            below = _without_unbounded_window(node.input)
            return None if below is None else replace(node, input=below)
        case _:
            return None


def merge_granularities(node: Node) -> Node | None:
    """Γ_g(Γ_h(S)) = Γ_lcm(g,h)(S), unless that has no multiple but 0 before the end of time."""
    if not (isinstance(node, Granularity) and isinstance(node.input, Granularity)):
        return None
    both_us = lcm(node.granule_us, node.input.granule_us)
    return None if both_us >= END_OF_TIME_US else Granularity(node.input.input, both_us)


def drop_finest_granularity(node: Node) -> Node | None:
    """Γ_1(S) = S: every instant is a multiple of one."""
    return node.input if isinstance(node, Granularity) and node.granule_us == 1 else None


def merge_windows_below_distinct(node: Node) -> Node | None:
    """δ(ω_v(ω_w(S))) = δ(ω_v+w−1(S)) for windows without slide. Without δ the bags differ, and it must not be done."""
    if not (isinstance(node, Distinct) and isinstance(node.input, TimeWindow)):
        return None
    outer, inner = node.input, node.input.input
    if not isinstance(inner, TimeWindow) or outer.slide_us != 1 or inner.slide_us != 1:
        return None
    if outer.grid is not UNSET or inner.grid is not UNSET:
        return None
    if outer.size_us is None or inner.size_us is None:
        return None
    return Distinct(TimeWindow(inner.input, min(outer.size_us + inner.size_us - 1, LONGEST_WINDOW_US)))
