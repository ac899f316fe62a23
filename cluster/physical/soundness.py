"""Validation of fragments that were read from a file: errors name what no operator could be built from."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.physical.nodes import Fragment, OperatorNode, Subscriber
from cluster.physical.operations import (
    DeviceAggregates,
    Exchange,
    GroupedFilter,
    PerQueryFilter,
    Scan,
    ScanAggregates,
    Sink,
)

_COUNTS = "ToldCounts"
"""The other name of device aggregates in ids of state: for counts of missing samples."""


def check(fragment: Fragment, subscribers: Iterable[Subscriber]) -> None:
    """Raise if a fragment cannot be run.

    Parameters
    ----------
    fragment
        The fragment.
    subscribers
        Those of its subscribers that are new.

    Raises
    ------
    ValueError
        If it has no subscribers or no sink, a subscriber lacks a condition, a node does not come after its inputs, or
        a node's id is not one under which operators of its kind keep state.
    """
    if not fragment.subscribers:
        raise ValueError(f"fragment {fragment.identity!r} has no subscribers")
    if not fragment.nodes or not isinstance(fragment.nodes[-1].operation, Sink):
        raise ValueError(f"fragment {fragment.identity!r} does not end with a sink")
    known: set[str] = set()
    for node in fragment.nodes:
        _check_name(fragment, node)
        if node.id in known:
            raise ValueError(f"node {node.id!r} occurs twice")
        if isinstance(node.operation, Scan | ScanAggregates) == bool(node.inputs):
            raise ValueError(f"node {node.id!r} has {len(node.inputs)} inputs")
        for each in node.inputs:
            if each not in known:
                raise ValueError(f"node {node.id!r} does not come after its input {each!r}")
        known.add(node.id)
    _check_subscribers(fragment, subscribers)


def _check_name(fragment: Fragment, node: OperatorNode) -> None:
    """Raise unless a node has an id such as ``fold-0f3a@0/2 MergeAggregate`` or ``panes-77e2/0``."""
    place, *kind = node.id.removeprefix(fragment.identity).split(" ")
    operation = type(node.operation)
    kinds = {operation.kind_name(), operation.state_name(), *([_COUNTS] if operation is DeviceAggregates else [])}
    named = not kind if operation is Exchange else bool(kind) and kind[0] in kinds
    if not node.id.startswith(fragment.identity) or not named or not (place == "" or place.startswith("/")):
        raise ValueError(f"no operator of the kind {operation.kind_name()} keeps state under the name {node.id!r}")


def _check_subscribers(fragment: Fragment, subscribers: Iterable[Subscriber]) -> None:
    conditions = {node.operation.place for node in fragment.nodes if isinstance(node.operation, GroupedFilter)}
    choices = {node.operation.place for node in fragment.nodes if isinstance(node.operation, PerQueryFilter)}
    for each in subscribers:
        if len(each.conditions) <= max(conditions, default=-1) or len(each.choices) <= max(choices, default=-1):
            raise ValueError(f"query {each.query!r} lacks a condition of {fragment.identity!r}")
