"""What a worker keeps is skipped by garbage collections, and is set aside once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from cluster.spark.worker_memory import SURVIVORS_ONLY, WorkerMemory

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node:
    """An object that garbage collection visits."""


@pytest.fixture
def memory() -> Iterator[WorkerMemory]:
    before = list(gc.callbacks)
    yield WorkerMemory()
    gc.callbacks[:] = before
    gc.unfreeze()


def _is_visited(node: Node) -> bool:
    return any(each is node for each in gc.get_objects())


def test_what_a_collection_leaves_is_set_aside(memory: WorkerMemory) -> None:
    kept = [Node() for _ in range(1_000)]
    memory.keep("plan 1")
    assert _is_visited(kept[0]), "nothing happens before Spark collects"
    gc.collect(0)
    assert _is_visited(kept[0]), "nor when only what is young is collected"
    gc.collect()
    aside = {id(each) for each in gc.get_objects()}
    assert not any(id(each) in aside for each in kept)
    assert gc.get_freeze_count() > len(kept)


def test_memory_is_set_aside_once_for_each_plan(memory: WorkerMemory) -> None:
    memory.keep("plan 1")
    gc.collect()
    later = Node()
    memory.keep("plan 1")
    gc.collect()
    assert _is_visited(later), "nothing new was built to be kept"
    memory.keep("plan 2")
    gc.collect()
    assert not _is_visited(later)


def test_with_the_next_plan_only_what_is_new_is_looked_at(memory: WorkerMemory) -> None:
    memory.keep("plan 1")
    kept = [Node() for _ in range(1_000)]
    gc.collect()
    looked_at: list[int] = []

    def count(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(isinstance(each, Node) for each in gc.get_objects()))

    memory.keep("plan 2")
    gc.callbacks.append(count)
    later = Node()
    gc.collect()
    assert looked_at == [1]
    assert not _is_visited(later)
    assert not _is_visited(kept[0])


def test_what_is_no_longer_needed_is_collected_once_enough_else_was_built(memory: WorkerMemory) -> None:
    memory.keep("plan 1")
    alive = [Node()]
    alive[0].itself = alive[0]  # type: ignore[attr-defined]
    gc.collect()
    alive.clear()
    gc.collect()
    assert gc.get_freeze_count(), "still set aside"
    for number in range(SURVIVORS_ONLY + 1):
        memory.keep(f"plan {2 + number}")
        gc.collect()
    gc.unfreeze()
    assert not any(isinstance(each, Node) for each in gc.get_objects())
