"""What a worker keeps is skipped by garbage collections, and is set aside once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from cluster.spark.worker_memory import GROWN, WorkerMemory

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


def test_what_is_set_aside_is_not_looked_at_for_each_plan(memory: WorkerMemory) -> None:
    memory.keep("plan 0")
    gc.collect()
    looked: list[int] = []
    gc.callbacks.append(lambda phase, _: looked.append(gc.get_freeze_count()) if phase == "start" else None)
    for number in range(1, 20):
        plan = [Node() for _ in range(10)]
        memory.keep(f"plan {number}")
        gc.collect()
        assert not _is_visited(plan[0])
    assert all(looked), "what was there before stayed aside"


def test_what_is_set_aside_is_not_counted_for_each_plan(memory: WorkerMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.keep("plan 0")
    gc.collect()
    aside, counted = gc.get_freeze_count(), list[int]()
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or count())
    plans = []
    for number in range(1, 20):
        plans.append([Node() for _ in range(10)])
        memory.keep(f"plan {number}")
        gc.collect()
    assert not counted, "that takes as long as there is much of it"
    for number in range(20, 25):  # each adds a tenth, and what the one before added is gone
        plans[-1:] = [[Node() for _ in range(aside // 10)]]
        memory.keep(f"plan {number}")
        gc.collect()
    assert sum(counted) == 1, "once so much has come that there may be a quarter more"


def test_what_is_no_longer_needed_is_collected_when_there_is_much_more(memory: WorkerMemory) -> None:
    memory.keep("plan 1")
    alive = [Node()]
    alive[0].itself = alive[0]  # type: ignore[attr-defined]
    gc.collect()
    alive.clear()
    gc.collect()
    aside = gc.get_freeze_count()
    assert aside, "still set aside"
    more = [Node() for _ in range(int(aside * GROWN))]
    for plan in ("plan 2", "plan 3"):
        memory.keep(plan)
        gc.collect()
    gc.unfreeze()
    assert sum(isinstance(each, Node) for each in gc.get_objects()) == len(more)


def test_what_a_process_was_forked_with_is_not_looked_at(memory: WorkerMemory) -> None:
    loaded = Node()
    gc.freeze()
    memory.keep("plan 1")
    visited: list[bool] = []
    gc.callbacks.append(lambda phase, _: visited.append(_is_visited(loaded)) if phase == "start" else None)
    gc.collect()
    gc.callbacks.pop()
    assert visited == [False], "memory that is visited is shared no longer"
