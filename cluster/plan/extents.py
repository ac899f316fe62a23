"""Extents of plans: kept eagerly or lazily, and by count, of which queries share some.

**Extents that are kept eagerly or lazily: two plans of a query with the same answers.**

eagerly   each sample is compared with its neighbour as it comes; shared by queries that coalesce the same columns
lazily    whole samples are kept once for all queries over the same window, and coalesced whenever it changes

**Extents over windows by count: which ones queries share, and what is left without all in which these differ.**

    columns of q1            columns of q2, sensor = 'a'        what remains of each query
    coalesce lane by sensor                                     one extent
    window of the last 100                                      of one window
    lane, sensor                                                over the columns that it reads

A condition on keys sinks below the extent, where it spares it other keys. It is lifted again here: whole runs are
removed above as below.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from cluster.expressions.nodes import Column as ColumnUse
from cluster.expressions.nodes import Expression, bare
from cluster.expressions.walks import columns_read
from cluster.expressions.walks import rebuilt as expression_rebuilt
from cluster.operators import CountWindow, Extent, Filter, Node, PartitionedWindow, Project, Source, TimeWindow
from cluster.operators.columns import Output, Scalar
from cluster.operators.extent import Keeping
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import conjunction_of, passed_on, plain_column
from cluster.operators.walks import rebuilt
from cluster.plan.names_read import functions_of
from cluster.plan.pipelines import is_pipeline
from cluster.shared_nodes import remembered


@remembered
def extent_of(plan: Node) -> Extent | None:
    """Return the extent of a plan whose samples it may share: with nothing but filters and projections above."""
    node = plan
    while isinstance(node, Filter | Project):
        node = node.input
    if not isinstance(node, Extent) or not is_pipeline(node.input):
        return None
    below, windowed = node.input, False
    while isinstance(below, Filter | Project | TimeWindow):
        windowed |= isinstance(below, TimeWindow)
        below = below.input
    return node if windowed and is_plain(below) else None


def is_plain(node: Node) -> bool:
    """Return whether a node is a stream without lookups, a past or a detector."""
    return isinstance(node, Source) and not node.lookups and node.history is None and node.detector is None


def extents_kept(plan: Node) -> Iterator[tuple[Node, str]]:
    """Yield a plan with its extent kept in the other way, and in words what is different."""
    extent = extent_of(plan)
    if extent is None:
        return
    eager = extent.coalescing.kept == "eager"
    words = "whole samples are kept, and coalesced as rows are due" if eager else "samples are coalesced as they come"
    yield with_keeping(plan, "lazy" if eager else "eager"), words


def with_keeping(plan: Node, kept: Keeping) -> Node:
    """Return a plan with all its extents kept in one way."""
    return rebuilt(
        plan,
        lambda each: (
            replace(each, coalescing=replace(each.coalescing, kept=kept)) if isinstance(each, Extent) else each
        ),
    )


Counted = CountWindow | PartitionedWindow
_LIFTED = "fjord_lifted "


def with_counted_extents(plan: Node) -> Node:
    """Return a plan whose extent is marked as shared if it is over a window by count, and may be."""
    extent = _eager_below(plan)
    if extent is None or functions_of(plan) or common_part(extent) is None:
        return plan
    marked = replace(extent, coalescing=replace(extent.coalescing, counted=True))
    return rebuilt(plan, lambda each: marked if each == extent else each)


@remembered
def counted_extent_of(plan: Node) -> Extent | None:
    """Return the extent of a plan over a window by count whose samples it shares; None if there is none."""
    extent = _eager_below(plan)
    return extent if extent is not None and extent.coalescing.counted is True else None


def common_part(extent: Extent) -> tuple[Extent, Scalar | None] | None:
    """Return what queries can share of an extent over a window by count: its keys, window and samples.

    And the condition on its keys that has been lifted above it; None for none. None if it has another form.
    """
    top = extent.input
    below = top.input if isinstance(top, Project) else top
    conditions: list[Scalar] = []
    while isinstance(below, Filter):
        conditions.append(below.predicate)
        below = below.input
    if not isinstance(below, Counted) or below.rows is None or not _plain(below.input):
        return None
    outputs = top.outputs if isinstance(top, Project) else passed_on(top.schema)
    named = {plain_column(each.scalar): each.name for each in reversed(outputs)}
    window: Node = replace(below, input=project(below.input, outputs))
    if isinstance(below, PartitionedWindow):
        if not {*below.keys} <= named.keys():
            return None
        keys = tuple(named[key] for key in below.keys)
        window = replace(below, keys=keys, input=project(below.input, outputs))
        if not {*keys} <= {*extent.keys}:
            return None  # which samples leave a run depends on more than the run
    lifted = [_lifted(each, outputs, extent.keys) for each in reversed(conditions)]
    if None in lifted:
        return None
    return replace(extent, input=window), conjunction_of(each for each in lifted if each is not None)


def _eager_below(plan: Node) -> Extent | None:
    node = plan
    while isinstance(node, Filter | Project):
        node = node.input
    return node if isinstance(node, Extent) and node.coalescing.kept == "eager" else None


def _plain(node: Node) -> bool:
    """Return whether a node is such a stream with filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.input
    return is_plain(node)


def _lifted(predicate: Scalar, outputs: tuple[Output, ...], keys: tuple[str, ...]) -> Scalar | None:
    """Return a condition over what projections read as one over their keys; None if it reads anything else."""
    own = [(bare(each.scalar.expression), each.name) for each in reversed(outputs) if each.name in keys]
    made = {expression: name for expression, name in own if columns_read(expression)}

    def over_keys(part: Expression) -> Expression:
        return ColumnUse(_LIFTED + made[bare(part)]) if bare(part) in made else part

    def named(part: Expression) -> Expression:
        return ColumnUse(part.name.removeprefix(_LIFTED)) if isinstance(part, ColumnUse) else part

    lifted = expression_rebuilt(predicate.expression, over_keys)
    if not all(name.startswith(_LIFTED) for name in columns_read(lifted)):
        return None
    return Scalar(expression_rebuilt(lifted, named), predicate.type)
