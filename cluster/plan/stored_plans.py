"""Plans as JSON: trees where that is short, lists of distinct nodes where parts stand in many places.

A tree is easier to read, and files from before there were lists hold trees.
"""

from __future__ import annotations

import hashlib

import msgspec

from cluster.expressions import storing
from cluster.operators import NODES, Node, Relation
from cluster.operators.columns import Scalar, identity_of
from cluster.operators.walks import from_below, written_out
from cluster.shared_nodes import remembered
from protocols.wire.streams import FieldType

LARGEST_TREE = 5_000
"""Most nodes of a plan that is written as a tree, counting shared parts wherever they occur; larger ones are lists."""

_NOWHERE = Relation("", "", ())
"""Stands for an input in a list, where numbers give the place of the input."""


class Numbered(msgspec.Struct, frozen=True):
    """A node of a list.

    Parameters
    ----------
    node
        The node, its inputs left out.
    inputs
        Their places in the list; they precede the node.
    """

    node: Node
    inputs: tuple[int, ...]


Stored = Node | tuple[Numbered, ...]
"""A plan in its stored form: the last node of a list is its top."""


def stored(node: Node) -> Stored:
    """Return a plan in its stored form."""
    if written_out(node) <= LARGEST_TREE:
        return node
    places: dict[int, int] = {}
    listed: list[Numbered] = []
    for each in from_below(node):
        places[id(each)] = len(listed)
        inputs = each.inputs
        bare = each.with_inputs(tuple(_NOWHERE for _ in inputs))
        listed.append(Numbered(bare, tuple(places[id(below)] for below in inputs)))
    return tuple(listed)


def _restored(found: tuple[Numbered, ...]) -> Node:
    nodes: list[Node] = []
    for each in found:
        if not all(0 <= place < len(nodes) for place in each.inputs):
            raise ValueError(f"node {len(nodes)} of a plan does not come after its inputs")
        nodes.append(each.node.with_inputs(tuple(nodes[place] for place in each.inputs)))
    if not nodes:
        raise ValueError("a plan without nodes")
    return nodes[-1]


_INPUTS = ("input", "left", "right", "table")
"""The fields of nodes that hold nodes."""

_decoder = msgspec.json.Decoder()


class _Expression(msgspec.Struct, frozen=True):
    """An expression in its stored form: a list of its distinct nodes (:mod:`cluster.expressions.storing`)."""

    expression: list[storing.StoredNode]
    type: FieldType


class _Text(msgspec.Struct, frozen=True):
    """An expression in formats 2 and 3."""

    sql: str
    type: FieldType


def as_nodes(value: object) -> object:
    """Return the stored form of an object that `msgspec` does not know: an expression."""
    if not isinstance(value, Scalar):
        raise NotImplementedError(f"{type(value).__name__} is no part of a plan")
    return _Expression(storing.stored(value.expression), value.type)


def from_nodes(kind: type, value: object) -> Scalar | Node:
    """Return the expression or node of a stored form of this version or an earlier one.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if kind is Node:
        return _node(value)
    if kind is not Scalar:
        raise NotImplementedError(f"{kind.__name__} is no part of a plan")
    if isinstance(value, dict) and "sql" in value:
        from cluster.plan.scalar_texts import scalar_of_text  # noqa: PLC0415 - the parser is loaded for old files only

        text = msgspec.convert(value, _Text)
        return scalar_of_text(text.sql, text.type)
    found = msgspec.convert(value, _Expression)
    return Scalar(storing.restored(found.expression), found.type)


def _node(value: object) -> Node:
    """Return the plan of a decoded tree or list."""
    if isinstance(value, list):
        return _restored(msgspec.convert(value, tuple[Numbered, ...], dec_hook=from_nodes))
    waiting, made = [(value, False)], dict[int, Node]()
    while waiting:
        current, inputs_made = waiting.pop()
        if isinstance(current, Node):
            made[id(current)] = current
            continue
        kind = NODES.get(str(current.get("type"))) if isinstance(current, dict) else None
        if kind is None or not isinstance(current, dict):
            raise ValueError("what has none of the types of nodes is no plan")
        inputs = {name: current[name] for name in _INPUTS if name in current}
        if inputs_made:
            nodes = {name: made[id(each)] for name, each in inputs.items()}
            made[id(current)] = msgspec.convert({**current, **nodes}, kind, dec_hook=from_nodes)
        else:
            waiting += [(current, True), *((each, False) for each in inputs.values())]
    return made[id(value)]


@remembered
def written(node: Node) -> bytes:
    """Return a plan as JSON; computed once, however many epochs it is part of."""
    return msgspec.json.encode(stored(node), enc_hook=as_nodes)


def read(text: bytes | str | msgspec.Raw) -> Node:
    """Return the plan that a JSON text describes.

    Raises
    ------
    msgspec.DecodeError, ValueError
        If the text is not a plan.
    """
    return _node(_decoder.decode(text))


def encoded(node: Node) -> bytes:
    """Return a text that is the same for equal plans only, and for ever: names are made of it."""
    if written_out(node) <= LARGEST_TREE:
        return identity_of(node)
    digests: dict[int, str] = {}
    for each in from_below(node):
        inputs = each.inputs
        bare = each.with_inputs(tuple(_NOWHERE for _ in inputs))
        below = [digests[id(input_)] for input_ in inputs]
        digests[id(each)] = hashlib.blake2b(identity_of((bare, below)), digest_size=16).hexdigest()
    return digests[id(node)].encode()
