"""Stored rows are read one answer at a time, and tokens take turns."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from cluster.service.catalog.planning import ResultReading


class Reads:
    """Reads that end when they are let go on, noted in the order in which they begin."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_once = self.most_at_once = 0
        self.gate = threading.Semaphore(0)

    def of(self, name: str) -> bytes:
        self.begun.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.gate.acquire(timeout=60)
        self.at_once -= 1
        return name.encode()


async def asked(reading: ResultReading, reads: Reads, *names: str) -> list[asyncio.Task[bytes]]:
    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(reading.read(name[0], lambda name=name: reads.of(name))))
        await asyncio.sleep(0)
    return tasks


async def test_one_at_a_time_and_tokens_take_turns() -> None:
    reading, reads = ResultReading(), Reads()
    tasks = await asked(reading, reads, "a1", "a2", "a3", "a4", "b1", "c1")
    reads.gate.release(6)
    assert [await each for each in tasks] == [b"a1", b"a2", b"a3", b"a4", b"b1", b"c1"]
    assert reads.begun == ["a1", "a2", "b1", "c1", "a3", "a4"]
    assert reads.most_at_once == 1


@pytest.mark.parametrize("gone", [1, 2])
async def test_a_client_that_goes_away_holds_up_no_other(gone: int) -> None:
    reading, reads = ResultReading(), Reads()
    tasks = await asked(reading, reads, "a1", "b1", "c1")
    tasks[gone].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tasks[gone]
    reads.gate.release(3)
    left = [each for number, each in enumerate(tasks) if number != gone]
    assert len([await each for each in left]) == 2
    assert await (await asked(reading, reads, "d1"))[0] == b"d1"


async def test_a_read_that_fails_lets_the_next_one_begin() -> None:
    reading, reads = ResultReading(), Reads()

    def fails() -> bytes:
        raise OSError(5, "input/output error")

    failing = asyncio.create_task(reading.read("a", fails))
    await asyncio.sleep(0)
    (other,) = await asked(reading, reads, "b1")
    reads.gate.release()
    with pytest.raises(OSError, match="input/output"):
        await failing
    assert await other == b"b1"
