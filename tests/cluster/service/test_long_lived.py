"""What queries are made of is put aside, so that no full collection visits it; cycles in it are found now and then."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cluster.service.queries.long_lived import LongLived, without_full_collections
from tests.cluster.service.conftest import Service

SLOW = "SELECT sensor, speed FROM traffic WHERE speed < 10"


class Part:
    """Part of a plan."""

    def __init__(self) -> None:
        self.whole: Part | None = None


@pytest.fixture(autouse=True)
def nothing_put_aside_later() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_there_is_put_aside_and_freed_without_a_collection() -> None:
    part = Part()
    seen = weakref.ref(part)
    LongLived().put_aside()
    assert gc.get_freeze_count() > 0
    assert not any(each is part for each in gc.get_objects()), "a collection does not visit it"
    del part
    assert seen() is None


def test_young_cycles_are_not_put_aside_and_old_ones_are_found_in_the_end() -> None:
    long_lived, young, old = LongLived(full_every=3), Part(), Part()
    young.whole, old.whole = young, old
    seen_young, seen_old = weakref.ref(young), weakref.ref(old)
    del young
    long_lived.put_aside()
    assert seen_young() is None
    del old
    gc.collect()
    assert seen_old() is not None
    long_lived.put_aside(2)
    assert seen_old() is None


@pytest.mark.parametrize("fails", [False, True])
def test_no_full_collection_begins_by_itself_meanwhile(fails: bool) -> None:
    usual, generations = gc.get_threshold(), Counter[int]()

    def note(phase: str, collection: dict[str, int]) -> None:
        generations[collection["generation"]] += phase == "start"

    gc.set_threshold(700, 10, 10)
    gc.callbacks.append(note)
    try:
        with suppress(ZeroDivisionError), without_full_collections():
            kept = [[number] for number in range(200_000)]
            assert len(kept) / (not fails) > 0
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*usual)
    assert generations[1] > 10, "after which a full one would have begun"
    assert generations[2] == 0


async def test_each_change_of_queries_puts_aside_what_has_come(service: Service) -> None:
    changes: list[int] = []
    queries = service.started(put_aside=lambda changed=1: changes.append(changed))
    await queries.add(SLOW, "a")
    await queries.drop("a")
    assert changes == [1, 1]
    await queries.add_many([("b", SLOW), ("c", SLOW)])
    assert sum(changes[2:]) == 4, "planned, and begun"
