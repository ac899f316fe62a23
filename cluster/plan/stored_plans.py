"""Plans as JSON: trees where that is short, lists of distinct nodes where parts stand in many places.

A tree is easier to read, and what was written before there were lists.
"""

from __future__ import annotations

import hashlib

import msgspec

from cluster.language.algebra import Node, Relation, inputs_of, with_inputs
from cluster.language.walks import from_below, written_out

LARGEST_TREE = 5_000
"""Nodes of a plan that is written as a tree; one with more, parts counted wherever they stand, is a list."""

_NOWHERE = Relation("", "", ())
"""Stands for an input in a list, where numbers say what it is."""


class Numbered(msgspec.Struct, frozen=True):
    """A node of a list.

    Parameters
    ----------
    node
        The node, its inputs left out.
    inputs
        Their places in the list; they come before it.
    """

    node: Node
    inputs: tuple[int, ...]


Stored = Node | tuple[Numbered, ...]
"""A plan as it is written: the last of a list is its top."""


def stored(node: Node) -> Stored:
    """Return a plan as it is written."""
    if written_out(node) <= LARGEST_TREE:
        return node
    places: dict[int, int] = {}
    listed: list[Numbered] = []
    for each in from_below(node):
        places[id(each)] = len(listed)
        inputs = inputs_of(each)
        bare = with_inputs(each, tuple(_NOWHERE for _ in inputs))
        listed.append(Numbered(bare, tuple(places[id(below)] for below in inputs)))
    return tuple(listed)


def restored(found: Stored) -> Node:
    """Return the plan that was written.

    Raises
    ------
    ValueError
        If a list is empty, or a node in it does not come after its inputs.
    """
    if not isinstance(found, tuple):
        return found
    nodes: list[Node] = []
    for each in found:
        if not all(0 <= place < len(nodes) for place in each.inputs):
            raise ValueError(f"node {len(nodes)} of a plan does not come after its inputs")
        nodes.append(with_inputs(each.node, tuple(nodes[place] for place in each.inputs)))
    if not nodes:
        raise ValueError("a plan without nodes")
    return nodes[-1]


def encoded(node: Node) -> bytes:
    """Return a text that is the same for equal plans only, to make names of; the same for ever."""
    if written_out(node) <= LARGEST_TREE:
        return msgspec.json.encode(node)
    digests: dict[int, str] = {}
    for each in from_below(node):
        inputs = inputs_of(each)
        bare = with_inputs(each, tuple(_NOWHERE for _ in inputs))
        below = [digests[id(input_)] for input_ in inputs]
        digests[id(each)] = hashlib.blake2b(msgspec.json.encode((bare, below)), digest_size=16).hexdigest()
    return digests[id(node)].encode()
