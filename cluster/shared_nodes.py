"""Immutable nodes of plans and expressions as graphs, not trees: hashes are cached, equality takes linear time.

A node that is the input of two others is one object. Written out as a tree such a graph may be exponentially large, so
nothing may walk it as one: hashes are kept, equality compares each pair of nodes once, and what was found out about a
node is remembered with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeGuard, TypeVar

import msgspec

N = TypeVar("N")
T = TypeVar("T")


class SharedNode(msgspec.Struct, frozen=True, tag=True, cache_hash=True, dict=True):
    """Base of the nodes of plans and expressions: a value, compared in time linear in the number of distinct nodes."""

    @classmethod
    def kind_name(cls) -> str:
        """Return what names it in plan files and prices, which never changes, however the class is called."""
        return str(cls.__struct_config__.tag)

    def __eq__(self, other: object) -> bool:
        """Return whether `other` means the same."""
        return isinstance(other, SharedNode) and _equal(self, other)

    def __ne__(self, other: object) -> bool:
        """Return whether `other` means something else."""
        return not self == other

    __hash__ = msgspec.Struct.__hash__

    def __repr__(self) -> str:
        """Return the node with what it consists of; each object is written out once, so that messages stay short."""
        return _written(self, set())


def _written(node: SharedNode, seen: set[int]) -> str:
    if id(node) in seen:
        return f"{type(node).__name__}(...)"
    seen.add(id(node))
    parts = [f"{name}={_value_written(getattr(node, name), seen)}" for name in node.__struct_fields__]
    return f"{type(node).__name__}({', '.join(parts)})"


def _value_written(value: object, seen: set[int]) -> str:
    if isinstance(value, SharedNode):
        return _written(value, seen)
    if _several(value):
        parts = [_value_written(each, seen) for each in value]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(value)


def _equal(one: SharedNode, other: SharedNode) -> bool:
    pairs = [(one, other)]
    compared: set[tuple[int, int]] = set()
    while pairs:
        left, right = pairs.pop()
        if left is right or (id(left), id(right)) in compared:
            continue
        if type(left) is not type(right) or hash(left) != hash(right):
            return False
        compared.add((id(left), id(right)))
        for name in left.__struct_fields__:
            ours, theirs = getattr(left, name), getattr(right, name)
            if isinstance(ours, SharedNode) and isinstance(theirs, SharedNode):
                pairs.append((ours, theirs))
            elif _several(ours) and _several(theirs):
                if len(ours) != len(theirs):
                    return False
                pairs.extend(zip(ours, theirs, strict=True))
            elif ours is not theirs and ours != theirs:
                return False
    return True


def _several(value: object) -> TypeGuard[tuple[SharedNode, ...]]:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], SharedNode)


def remembered(function: Callable[[N], T]) -> Callable[[N], T]:
    """Return a function or method of one node that finds its answer out once for each node, however often it is asked.

    The answer is kept with the node and goes with it, so this is for what depends on nothing but the node.
    """
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(node: N) -> T:
        known = node.__dict__
        if key not in known:
            known[key] = function(node)
        answer: T = known[key]
        return answer

    return found
