"""Every operator is known by its name on disk, and has every fact."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from cluster.operators import NODES, Node
from cluster.operators.operation import Operation
from cluster.physical.operations import OPERATIONS


def kinds(base: type[Node] = Node) -> Iterator[type[Node]]:
    """Yield the classes of nodes that can be made, wherever they are defined."""
    for kind in base.__subclasses__():
        below = list(kinds(kind))
        yield from below
        if not below:
            yield kind


def lacking(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers_static(kind, is_abstract)]


def is_abstract(member: object) -> bool:
    return bool(getattr(member, "__isabstractmethod__", False))


def test_every_kind_is_found_by_its_name() -> None:
    assert set(NODES.values()) == set(kinds())
    assert all(kind.kind_name() == name for name, kind in NODES.items())


@pytest.mark.parametrize("kind", NODES.values(), ids=NODES)
def test_every_kind_has_every_fact(kind: type[Node]) -> None:
    assert lacking(kind) == []


def test_a_fact_that_is_left_out_is_found() -> None:
    assert {"schema", "reach_us", "describe"} <= set(lacking(Node))


@pytest.mark.parametrize("kind", OPERATIONS, ids=[kind.kind_name() for kind in OPERATIONS])
def test_every_operation_has_every_fact(kind: type[Operation]) -> None:
    assert lacking(kind) == []
