"""Changes from one physical plan to the next, as data: the content of a plan file, and whether it is sound.

A change is small whatever the plan's size: a query that comes or goes changes the subscribers of one fragment in one
place, and the aggregates of its nodes if panes are shared. :mod:`cluster.physical.difference` has changes in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress, count
from operator import is_not
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from cluster.operators.columns import AggregateCall
from cluster.physical.nodes import Fragment, OperatorNode, PhysicalPlan, Subscriber
from cluster.physical.operations import (
    DeviceAggregates,
    Exchange,
    GroupedFilter,
    PaneAggregate,
    PartialAggregate,
    PerQueryFilter,
    Scan,
    ScanAggregates,
    Sink,
)
from cluster.physical.successors import Step, place_in, steps_to, successor

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


T = TypeVar("T")
WithCalls = PartialAggregate | DeviceAggregates | PaneAggregate
"""Operations that have the aggregates of all subscribers."""


class Splice(msgspec.Struct, Generic[T], frozen=True):
    """A change of a tuple: one slice of it is replaced.

    Parameters
    ----------
    at
        Where the slice begins.
    out
        The number of values removed there.
    into
        The values inserted there.
    """

    at: int
    out: int
    into: tuple[T, ...] = ()

    @classmethod
    def between(cls, before: tuple[T, ...], after: tuple[T, ...]) -> Splice[T]:
        """Return the change from `before` to `after`."""
        begin = _alike(before, after)
        end = _alike(before[begin:][::-1], after[begin:][::-1])
        return cls(begin, len(before) - begin - end, after[begin : len(after) - end])

    def applied_to(self, before: tuple[T, ...]) -> tuple[T, ...]:
        """Return the tuple after the change.

        Raises
        ------
        ValueError
            If there is no such slice.
        """
        if not 0 <= self.at <= self.at + self.out <= len(before):
            raise ValueError(f"{self.out} values at {self.at} are not among {len(before)}")
        return (*before[: self.at], *self.into, *before[self.at + self.out :])


class NodeChange(msgspec.Struct, frozen=True):
    """A node that comes, or whose operation changes.

    Parameters
    ----------
    node
        The node, without aggregates if `calls` has them.
    calls
        How its aggregates differ from those it had.
    """

    node: OperatorNode
    calls: Splice[AggregateCall] | None = None


class FragmentChange(msgspec.Struct, frozen=True):
    """The change of a fragment.

    Parameters
    ----------
    identity
        Of the fragment.
    subscribers
        How they differ.
    nodes
        Those that come or change.
    order
        Ids of all nodes if nodes come or go; else none.
    """

    identity: str
    subscribers: Splice[Subscriber]
    nodes: tuple[NodeChange, ...] = ()
    order: tuple[str, ...] = ()


class PhysicalChange(msgspec.Struct, frozen=True):
    """How an epoch's plan differs from that of the epoch before.

    Parameters
    ----------
    epoch
        The new epoch.
    come
        Fragments that are new or replaced.
    go
        Identities of those that are gone.
    change
        Changes of others.
    positions
        As in :class:`~cluster.physical.nodes.PhysicalPlan`.
    """

    epoch: int
    come: tuple[Fragment, ...] = ()
    go: tuple[str, ...] = ()
    change: tuple[FragmentChange, ...] = ()
    positions: Mapping[str, int] = {}

    @classmethod
    def between(cls, before: PhysicalPlan, after: PhysicalPlan) -> PhysicalChange | None:
        """Return the change from `before` to `after`; None if none expresses it."""
        steps = steps_to(before, after)
        if steps is not None:
            return cls._made(steps, after)
        come: list[Fragment] = []
        change: list[FragmentChange] = []
        places = Splice.between(before.fragments, after.fragments)
        for fragment in places.into:
            old = before.by_identity.get(fragment.identity)
            if old is not None and _same(old, fragment):
                continue
            if old is None or (old.host, old.shares_rows) != (fragment.host, fragment.shares_rows):
                come.append(fragment)
            else:
                change.append(_change(old, fragment))
        left = before.fragments[places.at : places.at + places.out]
        go = tuple(each.identity for each in left if each.identity not in after.by_identity)
        found = cls(after.epoch, tuple(come), go, tuple(change), after.positions)
        return found if found.applied_to(before) == after else None

    @classmethod
    def _made(cls, steps: Iterable[Step], after: PhysicalPlan) -> PhysicalChange:
        come: list[Fragment] = []
        go: list[str] = []
        change: list[FragmentChange] = []
        for step in steps:
            old, new = step.before, step.after
            if new is None:
                go += [] if old is None else [old.identity]
            elif old is None or (old.host, old.shares_rows) != (new.host, new.shares_rows):
                come.append(new)
            else:
                change.append(_change(old, new, step))
        return cls(after.epoch, tuple(come), tuple(go), tuple(change), after.positions)

    def applied_to(self, before: PhysicalPlan) -> PhysicalPlan:
        """Return the plan after the change.

        Raises
        ------
        ValueError
            If it is about another plan.
        """
        steps: list[Step] = []
        for each in self.change:
            old = _of(before.by_identity, each.identity)
            new = _changed(old, each)
            at, out = each.subscribers.at, each.subscribers.out
            steps.append(Step(old, new, old.subscribers[at : at + out], each.subscribers.into))
        for identity in self.go:
            old = _of(before.by_identity, identity)
            steps.append(Step(old, None, old.subscribers))
        for new in self.come:
            replaced = before.by_identity.get(new.identity)
            steps.append(Step(replaced, new, () if replaced is None else replaced.subscribers, new.subscribers))
        return successor(before, self.epoch, self.positions, steps)


def _same(one: object, other: object) -> bool:
    return one is other or one == other


def _alike(before: tuple[object, ...], after: tuple[object, ...]) -> int:
    """Return how many of the first values of two tuples are the same, in pairs."""
    shorter = min(len(before), len(after))
    # Nearly all are the same objects, which takes no time to see, however many they are.
    at = next(compress(count(), map(is_not, before[:shorter], after)), shorter)
    while at < shorter and _same(before[at], after[at]):
        at += 1
    return at


def _change(old: Fragment, new: Fragment, step: Step | None = None) -> FragmentChange:
    order = () if [each.id for each in old.nodes] == [each.id for each in new.nodes] else tuple(new.by_id)
    subscribers = (None if step is None else _spliced(step)) or Splice.between(old.subscribers, new.subscribers)
    nodes = () if old.nodes is new.nodes else tuple(_node_changes(old, new))
    return FragmentChange(new.identity, subscribers, nodes, order)


def _spliced(step: Step) -> Splice[Subscriber] | None:
    """Return the change of subscribers in a step by which one comes or goes; None for any other."""
    if step.before is None or step.after is None or len(step.go) + len(step.come) != 1:
        return None
    had, has = step.before.subscribers, step.after.subscribers
    if step.go:
        return Splice(place_in(had, step.go[0]), 1)
    return Splice(len(had), 0, step.come) if has[-1] is step.come[0] else None


def _node_changes(old: Fragment, new: Fragment) -> Iterator[NodeChange]:
    for node in new.nodes:
        had = old.by_id.get(node.id)
        if had is None or not _same(had, node):
            yield _node_change(had, node)


def _node_change(old: OperatorNode | None, new: OperatorNode) -> NodeChange:
    operation = new.operation
    if old is None or not isinstance(operation, WithCalls) or not isinstance(old.operation, WithCalls):
        return NodeChange(new)
    calls = Splice.between(old.operation.calls, operation.calls)
    return NodeChange(replace(new, operation=replace(operation, calls=())), calls)


def _changed(old: Fragment, change: FragmentChange) -> Fragment:
    nodes = dict(old.by_id)
    nodes |= {each.node.id: _changed_node(old, each) for each in change.nodes}
    for each in change.order:
        _of(nodes, each)
    listed = tuple(nodes[each] for each in change.order) if change.order else tuple(nodes.values())
    found = replace(old, nodes=listed, subscribers=change.subscribers.applied_to(old.subscribers))
    check(found, change.subscribers.into)
    return found


def _changed_node(old: Fragment, change: NodeChange) -> OperatorNode:
    if change.calls is None:
        return change.node
    had, operation = _of(old.by_id, change.node.id).operation, change.node.operation
    if not isinstance(had, WithCalls) or not isinstance(operation, WithCalls):
        raise ValueError(f"{change.node.id!r} has no aggregates")  # noqa: TRY004 - the file is wrong, not the caller
    return replace(change.node, operation=replace(operation, calls=change.calls.applied_to(had.calls)))


def _of(known: Mapping[str, T], identity: str) -> T:
    if identity not in known:
        raise ValueError(f"there is no {identity!r}")
    return known[identity]
