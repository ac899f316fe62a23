"""Queues: push holds, pull calls the producer, full ones wait or drop the oldest, and count that."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.dataflow import PullQueue, PushQueue, WhenFull


def batch(*starts: int, watermark: int = 0) -> Batch:
    return Batch(pl.DataFrame({START: list(starts), END: [start + 1 for start in starts]}), watermark)


def test_push_queue_gives_in_order_and_then_nothing() -> None:
    queue = PushQueue()
    first, second = batch(1), batch(2)
    queue.put(first)
    queue.put(second)
    assert queue.pending
    assert queue.get() is first
    assert queue.get() is second
    assert queue.get() is None
    assert not queue.pending
    assert queue.counters.deepest == 2


def test_full_queue_that_waits_is_not_ready() -> None:
    queue = PushQueue(capacity=1)
    queue.put(batch(1))
    assert not queue.ready
    with pytest.raises(PlanError, match="full queue"):
        queue.put(batch(2))


def test_full_queue_that_drops_loses_the_oldest_rows_but_not_their_watermark() -> None:
    queue = PushQueue(capacity=1, when_full=WhenFull.DROP_OLDEST)
    queue.put(batch(1, 2, watermark=9))
    queue.put(batch(10, watermark=5))
    kept = queue.get()
    assert kept is not None
    assert kept.rows[START].to_list() == [10]
    assert kept.watermark_us == 9
    assert queue.counters.rows_dropped == 2


def test_pull_queue_asks_its_producer_until_it_has_nothing() -> None:
    produced = [batch(1), batch(2)]
    queue = PullQueue(lambda: produced.pop(0) if produced else None)
    assert queue.pending
    assert queue.get() is not None
    assert queue.get() is not None
    assert queue.get() is None
    assert not queue.pending
    queue.wake()
    assert queue.pending


def test_a_queue_holds_at_least_one_batch() -> None:
    with pytest.raises(PlanError, match="at least one"):
        PushQueue(capacity=0)
