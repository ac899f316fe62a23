"""What flushes write, without a disk: whatever fails, batches are written once, in the order of their numbers.

fleet    1 2    3       4
flush    1 2 x  1 2 x   1 2    3 4        x: the write failed; a full spool cuts nothing
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.running.unwritten_batches import POSITIONS_EVERY_US, FlushSchedule, SpoolFull, UnwrittenBatches, Write

if TYPE_CHECKING:
    from proxy.fleet.fleet import Fleet

FULL = 10


class Proxy:
    """A fleet that numbers what it cuts, and a spool that is a list."""

    def __init__(self) -> None:
        self.waiting = self.cut_batches = self.now_us = 0
        self.spool: list[int] = []
        self.positions: list[int] = []
        self.losses: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.unwritten = UnwrittenBatches(
            cast(
                "Fleet",
                SimpleNamespace(cut=self.cut, positions=lambda: [self.now_us], new_losses=self.new_losses),
            ),
            FlushSchedule(1.0, positions_us=0),
            FULL,
        )

    def cut(self, _: int) -> list[int]:
        count, self.waiting = self.waiting, 0
        self.cut_batches += count
        return list(range(self.cut_batches - count + 1, self.cut_batches + 1))

    def new_losses(self) -> dict[str, int]:
        found, self.lost = self.lost, {}
        return found

    def flush(self, *, fails: bool = False, stopping: bool = False) -> Write | SpoolFull | None:
        self.now_us += POSITIONS_EVERY_US // 4
        found = self.unwritten.next(self.now_us, spool_bytes=len(self.spool), stopping=stopping)
        if isinstance(found, Write) and not fails:
            self.spool += cast("list[int]", found.batches)
            self.positions += cast("list[int]", found.positions)
            self.losses |= found.losses
            self.unwritten.written()
        return found


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
@example([(1, True), (1, True), (3, True), (3, False), (3, True), (1, True)])
def test_batches_are_written_once_and_in_order_whatever_fails(steps: list[tuple[int, bool]]) -> None:
    proxy = Proxy()
    for samples, fails in steps:
        proxy.waiting += samples
        before = len(proxy.spool)
        waiting, full = bool(proxy.unwritten), before >= FULL
        found = proxy.flush(fails=fails)
        assert isinstance(found, SpoolFull) == (full and not waiting)
        assert proxy.spool == list(range(1, len(proxy.spool) + 1)), "a batch is missing, or written twice"
    written: list[int] = []
    for _ in range(2):  # what failed, and what has waited for it, into a spool that has room
        written, proxy.spool = [*written, *proxy.spool], []
        proxy.flush()
    assert [*written, *proxy.spool] == list(range(1, proxy.cut_batches + 1))
    assert (proxy.waiting, bool(proxy.unwritten)) == (0, False)


def test_a_full_spool_cuts_nothing_but_a_failed_write_is_made_again() -> None:
    proxy = Proxy()
    proxy.waiting = 2
    first = proxy.flush(fails=True)
    proxy.spool = [0] * FULL
    proxy.waiting = 3
    assert proxy.flush() == first
    assert proxy.flush() == SpoolFull()
    assert proxy.waiting == 3


def test_of_a_write_that_failed_half_way_the_other_half_is_written_next() -> None:
    proxy = Proxy()
    proxy.waiting, proxy.lost = 3, {"m1": 7}
    proxy.flush(fails=True)
    proxy.unwritten.written(2)
    assert proxy.flush(fails=True) == Write([3], (), {"m1": 7})
    proxy.unwritten.written(0)
    assert proxy.flush() == Write([3], (), {"m1": 7})
    assert not proxy.unwritten


def test_positions_of_a_failed_write_are_written_with_the_next() -> None:
    proxy = Proxy()
    for _ in range(3):
        assert proxy.flush() is None
    due = proxy.flush(fails=True)
    assert due == Write([], [POSITIONS_EVERY_US], {})
    assert not proxy.unwritten
    proxy.waiting = 1
    assert proxy.flush() == Write([1], [POSITIONS_EVERY_US], {})
    assert proxy.flush() is None


def test_the_last_flush_takes_positions_at_once() -> None:
    proxy = Proxy()
    proxy.flush(stopping=True)
    assert proxy.positions == [proxy.now_us]


def test_losses_are_written_with_what_is_written_next_and_after_a_failure_again() -> None:
    proxy = Proxy()
    proxy.flush()
    proxy.lost = {"m1": 7, "m2": 3}
    assert proxy.flush() is None, "losses alone are not worth a write: a restart finds the gap itself"
    proxy.lost, proxy.waiting = {"m1": 9}, 1
    assert proxy.flush(fails=True) == Write([1], (), {"m1": 9, "m2": 3})
    proxy.lost = {"m3": 1}
    proxy.flush()
    assert proxy.losses == {"m1": 9, "m2": 3}
    proxy.waiting = 1
    proxy.flush()
    assert proxy.losses == {"m1": 9, "m2": 3, "m3": 1}
