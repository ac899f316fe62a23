"""What a worker keeps is passed over by collections of garbage, and nothing is done twice for the same."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from cluster.spark.worker_memory import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node:
    """Something that garbage collection has to look at."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    set_aside.cache_clear()
    yield
    gc.unfreeze()


def test_what_is_there_is_set_aside() -> None:
    kept = [Node() for _ in range(1_000)]
    set_aside("plan 1")
    aside = {id(each) for each in gc.get_objects()}
    assert not any(id(each) in aside for each in kept)
    assert gc.get_freeze_count() > len(kept)


def test_once_for_what_was_built() -> None:
    set_aside("plan 1")
    later = Node()
    set_aside("plan 1")
    assert any(each is later for each in gc.get_objects()), "nothing new was built to be kept"
    set_aside("plan 2")
    assert not any(each is later for each in gc.get_objects())


def test_what_is_no_longer_needed_is_collected_when_something_else_was_built() -> None:
    set_aside("plan 1")
    alive = [Node()]
    alive[0].itself = alive[0]  # type: ignore[attr-defined]
    set_aside("plan 2")
    alive.clear()
    gc.collect()
    set_aside("plan 3")
    gc.unfreeze()
    assert not any(isinstance(each, Node) for each in gc.get_objects())
