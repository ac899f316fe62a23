"""Physical plans as JSON: written to plan files, and read again.

The JSON follows the structs, except for tables of lookups: plans of relations, which may be lists of their distinct
nodes (:mod:`cluster.plan.stored_plans`). A digest at the end covers everything before it except white space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from cluster.operators import LookupKind, TableLookup
from cluster.operators.columns import AggregateCall, Scalar
from cluster.physical.nodes import Fragment, Host, OperatorNode, Origins, PhysicalPlan, Subscriber
from cluster.physical.operations import Held, Lookup, PlainOperation
from cluster.physical.plan_changes import FragmentChange, NodeChange, PhysicalChange, Splice, check
from cluster.plan import stored_plans

FORMAT = 5
"""4 and those before have logical plans (:mod:`cluster.plan.epoch`)."""


class _Table(msgspec.Struct, frozen=True):
    table: msgspec.Raw
    predicate: Scalar | None
    kind: LookupKind


class _Lookup(msgspec.Struct, frozen=True, tag="Lookup"):
    table: _Table
    streams: tuple[str, ...]


class _Held(msgspec.Struct, frozen=True, tag="Held"):
    table: _Table
    streams: tuple[str, ...]
    begins_us: int | None
    waits_us: int
    marked: bool
    against: tuple[str, ...] = ()


class _Node(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    operation: PlainOperation | _Lookup | _Held
    inputs: tuple[str, ...] = ()
    origins: Origins = "none"


class _Fragment(msgspec.Struct, frozen=True):
    identity: str
    host: Host
    nodes: tuple[_Node, ...]
    subscribers: tuple[Subscriber, ...]
    shares_rows: bool


class _NodeChange(msgspec.Struct, frozen=True, omit_defaults=True):
    node: _Node
    calls: Splice[AggregateCall] | None = None


class _FragmentChange(msgspec.Struct, frozen=True, omit_defaults=True):
    identity: str
    subscribers: Splice[Subscriber]
    nodes: tuple[_NodeChange, ...] = ()
    order: tuple[str, ...] = ()


class _Plan(msgspec.Struct, frozen=True, tag="PhysicalPlan"):
    epoch: int
    fragments: tuple[_Fragment, ...]
    positions: Mapping[str, int]
    format: int = FORMAT


class _Change(msgspec.Struct, frozen=True, tag="PhysicalChange"):
    epoch: int
    come: tuple[_Fragment, ...]
    go: tuple[str, ...]
    change: tuple[_FragmentChange, ...]
    positions: Mapping[str, int]
    format: int = FORMAT


PART = 256
"""Subscribers that are written at a time, so that the plan of thousands holds nothing up."""
_NO_SUBSCRIBERS = b'"subscribers":[]'
_DIGEST = b',"digest":"'
_DIGEST_BYTES = 8

_decoder = msgspec.json.Decoder(_Plan | _Change, dec_hook=stored_plans.from_nodes)


def encode(plan: PhysicalPlan | PhysicalChange) -> bytes:
    """Return a plan, or the change from the previous one, as JSON."""
    written: _Plan | _Change
    if isinstance(plan, PhysicalPlan):
        written = _Plan(plan.epoch, tuple(map(_stored, plan.fragments)), plan.positions)
    else:
        change = tuple(
            _FragmentChange(each.identity, each.subscribers, tuple(map(_stored_change, each.nodes)), each.order)
            for each in plan.change
        )
        written = _Change(plan.epoch, tuple(map(_stored, plan.come)), plan.go, change, plan.positions)
    text = _json(written)
    return text[:-1] + _DIGEST + _digest(text) + b'"}'


def file_parts(plan: PhysicalPlan | PhysicalChange) -> Iterator[bytes]:
    """Yield what a plan file contains, part by part: none takes long, so that other threads go on meanwhile."""
    if isinstance(plan, PhysicalChange) or len(plan.subscribers) <= PART:
        yield msgspec.json.format(encode(plan))
        return
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in _whole(plan):
        digest.update(part)
        yield part + b"\n"
    digest.update(b"}")
    yield _DIGEST + digest.hexdigest().encode() + b'"}'


def _whole(plan: PhysicalPlan) -> Iterator[bytes]:
    """Yield a plan as JSON without the brace at its end, in parts of so many subscribers."""
    yield f'{{"type":"{_Plan.__struct_config__.tag}","epoch":{plan.epoch},"fragments":['.encode()
    for number, fragment in enumerate(plan.fragments):
        head, tail = _json(_stored(replace(fragment, subscribers=()))).split(_NO_SUBSCRIBERS)
        yield (b"," if number else b"") + head + _NO_SUBSCRIBERS[:-1]
        for at in range(0, len(fragment.subscribers), PART):
            yield (b"," if at else b"") + _json(fragment.subscribers[at : at + PART])[1:-1]
        yield b"]" + tail
    yield b'],"positions":' + _json(plan.positions) + b',"format":' + str(FORMAT).encode()


def _json(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=stored_plans.as_nodes)


def decode(text: bytes) -> PhysicalPlan | PhysicalChange:
    """Return a plan or a change from JSON.

    Raises
    ------
    msgspec.DecodeError
        If it is no plan; names unknown content.
    """
    try:
        return _restored_plan(_decoder.decode(text))
    except msgspec.DecodeError:
        raise
    except (ValueError, RecursionError) as error:  # for texts that are not Unicode, too
        raise msgspec.DecodeError(str(error)) from error


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest().encode()


def check_digest(text: bytes) -> None:
    """Raise if a file has been changed since it was written: another name or number would make it another plan.

    Parameters
    ----------
    text
        A text that :func:`decode` accepts.

    Raises
    ------
    ValueError
        If it was changed.
    """
    content, found, digest = msgspec.json.format(text, indent=-1).rpartition(_DIGEST)
    if found and digest != _digest(content + b"}") + b'"}':  # early files have none
        raise ValueError("it has been changed since it was written")


def _stored(fragment: Fragment) -> _Fragment:
    nodes = tuple(map(_stored_node, fragment.nodes))
    return _Fragment(fragment.identity, fragment.host, nodes, fragment.subscribers, fragment.shares_rows)


def _stored_node(node: OperatorNode) -> _Node:
    operation = node.operation
    if not isinstance(operation, Lookup | Held):
        return _Node(node.id, cast("PlainOperation", operation), node.inputs, node.origins)
    found = operation.table
    table = _Table(msgspec.Raw(stored_plans.written(found.table)), found.predicate, found.kind)
    if isinstance(operation, Lookup):
        return _Node(node.id, _Lookup(table, operation.streams), node.inputs, node.origins)
    begins = (operation.begins_us, operation.waits_us, operation.marked, operation.against)
    held = _Held(table, operation.streams, *begins)
    return _Node(node.id, held, node.inputs, node.origins)


def _stored_change(change: NodeChange) -> _NodeChange:
    return _NodeChange(_stored_node(change.node), change.calls)


def _restored_plan(found: _Plan | _Change) -> PhysicalPlan | PhysicalChange:
    if isinstance(found, _Plan):
        return PhysicalPlan(found.epoch, tuple(map(_restored, found.fragments)), found.positions)
    change = tuple(
        FragmentChange(each.identity, each.subscribers, tuple(map(_restored_change, each.nodes)), each.order)
        for each in found.change
    )
    return PhysicalChange(found.epoch, tuple(map(_restored, found.come)), found.go, change, found.positions)


def _restored(fragment: _Fragment) -> Fragment:
    nodes = tuple(map(_restored_node, fragment.nodes))
    found = Fragment(fragment.identity, fragment.host, nodes, fragment.subscribers, fragment.shares_rows)
    check(found, found.subscribers)
    return found


def _restored_node(node: _Node) -> OperatorNode:
    operation = node.operation
    if not isinstance(operation, _Lookup | _Held):
        return OperatorNode(node.id, operation, node.inputs, node.origins)
    table = stored_plans.read(operation.table.table)
    found = TableLookup(table, operation.table.predicate, operation.table.kind)
    if isinstance(operation, _Lookup):
        return OperatorNode(node.id, Lookup(found, operation.streams), node.inputs, node.origins)
    begins = (operation.begins_us, operation.waits_us, operation.marked, operation.against)
    held = Held(found, operation.streams, *begins)
    return OperatorNode(node.id, held, node.inputs, node.origins)


def _restored_change(change: _NodeChange) -> NodeChange:
    return NodeChange(_restored_node(change.node), change.calls)
