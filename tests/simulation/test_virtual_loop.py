import asyncio
import gc
from random import Random

import pytest

from tests.simulation.cluster_host import answer_arrives
from tests.simulation.hosts import CURRENT, SECOND_NS, Host, HostClock, WorldTime
from tests.simulation.virtual_loop import StalledError, VirtualLoop


@pytest.fixture
def loop():
    made = VirtualLoop(Random(1), WorldTime())
    yield made
    made.close()


def host(loop, name="a", **clock):
    return Host(name, HostClock(loop.world, **clock))


def test_hours_pass_at_once(loop):
    async def wait():
        await asyncio.sleep(3 * 3600)
        return loop.time()

    assert loop.run_until_complete(wait()) == 3 * 3600


def test_callbacks_of_one_process_keep_their_order(loop):
    seen = []
    process = host(loop).start()

    async def ask():
        for number in range(50):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0)

    async def steer():
        await loop.spawn(process, ask(), "ask")
        await loop.passed(1)

    loop.run_until_complete(steer())
    assert seen == list(range(50))


def orders(seed, work):
    loop = VirtualLoop(Random(seed), WorldTime())
    seen = []
    loop.run_until_complete(work(loop, seen))
    return tuple(seen), loop.trace


async def two_processes(loop, seen):
    async def count(name):
        for number in range(5):
            seen.append((name, number))
            await asyncio.sleep(0)

    for name in "ab":
        loop.spawn(host(loop, name).start(), count(name), name)
    await loop.passed(1)


async def timers_of_one_instant(loop, seen):
    for number in range(5):
        loop.schedule(SECOND_NS, seen.append, number)
    await loop.passed(2)


@pytest.mark.parametrize("work", [two_processes, timers_of_one_instant])
def test_the_seed_draws_whose_turn_it_is(work):
    found = {seed: orders(seed, work) for seed in range(20)}
    assert len({order for order, _ in found.values()}) > 5
    assert found == {seed: orders(seed, work) for seed in range(20)}
    assert len({trace for _, trace in found.values()}) == 20 or work is timers_of_one_instant


def test_timers_run_in_order_and_cancelled_ones_not_at_all(loop):
    seen = []

    async def steer():
        for second in (3, 1, 2):
            loop.call_later(second, seen.append, second)
        handles = [loop.call_later(1.5, seen.append, "cancelled") for _ in range(1000)]
        for handle in handles:
            handle.cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await loop.create_future()

    loop.run_until_complete(steer())
    assert seen == [1, 2, 3]
    assert loop.world.now_ns == 10 * SECOND_NS


def test_each_process_has_its_own_clock(loop):
    fast = host(loop, "fast", drift_ppm=100_000).start()
    seen = {}

    async def wait():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(11)
        seen["fast"] = asyncio.get_running_loop().time() - began, loop.world.now_ns

    async def steer():
        await loop.spawn(fast, wait(), "wait")

    loop.run_until_complete(steer())
    assert seen["fast"] == (11.0, 10 * SECOND_NS)


def test_a_timer_is_never_early_by_its_own_clock(loop):
    dice = Random(3)

    async def wait(seconds):
        running = asyncio.get_running_loop()
        due = running.time() + seconds
        await asyncio.sleep(seconds)
        assert running.time() >= due

    async def steer():
        for number in range(300):
            process = host(loop, str(number), drift_ppm=dice.randrange(-500, 500)).start()
            loop.spawn(process, wait(dice.random() * 10), "wait")
        await loop.passed(20)

    loop.run_until_complete(steer())
    assert not loop.unhandled


def test_what_is_killed_never_runs_again(loop):
    seen = []
    machine = host(loop)

    async def work():
        try:
            while True:
                seen.append(loop.world.now_ns // SECOND_NS)
                await asyncio.sleep(1)
        finally:
            seen.append("cleared up")

    async def steer():
        loop.spawn(machine.start(), work(), "work")
        await loop.passed(2.5)
        loop.kill(machine)
        await loop.passed(5)
        machine.start()
        assert machine.incarnation.number == 2

    loop.run_until_complete(steer())
    assert seen == [0, 1, 2]


def test_what_a_killed_thread_has_done_is_not_reported(loop):
    def ends(seed):
        running = VirtualLoop(Random(seed), WorldTime())
        machine, seen = host(running), []

        async def work():
            await asyncio.to_thread(seen.append, "done")
            seen.append("reported")

        async def steer():
            running.spawn(machine.start(), work(), "work")
            await running.passed(0.0025)
            running.kill(machine)
            await running.passed(1)

        running.run_until_complete(steer())
        return tuple(seen)

    assert {ends(seed) for seed in range(50)} == {("done",), ("done", "reported")}


def test_a_paused_process_goes_on_later(loop):
    seen = []
    machine = host(loop)

    async def work():
        while True:
            seen.append(loop.world.now_ns // SECOND_NS)
            await asyncio.sleep(1)

    async def steer():
        loop.spawn(machine.start(), work(), "work")
        await loop.passed(1.5)
        loop.pause(machine)
        await loop.passed(5)
        loop.resume(machine)
        await loop.passed(1.2)

    loop.run_until_complete(steer())
    assert seen == [0, 1, 6, 7]


def test_work_in_threads_is_apart_from_the_loop(loop):
    def work(what):
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        assert repr(CURRENT.get()) == "a#1"
        if what is None:
            raise ValueError("none")
        return what

    async def ask():
        assert await asyncio.to_thread(work, 1) == 1
        with pytest.raises(ValueError, match="none"):
            await asyncio.get_running_loop().run_in_executor(None, work, None)
        return loop.world.now_ns

    async def steer():
        return await loop.spawn(host(loop).start(), ask(), "ask")

    assert 0 < loop.run_until_complete(steer()) < 20_000_000


def test_it_names_what_waits_when_nothing_can_happen(loop):
    async def wait():
        await asyncio.get_running_loop().create_future()

    async def steer():
        await loop.spawn(host(loop).start(), wait(), "waiting for nothing")

    with pytest.raises(StalledError, match="waiting for nothing"):
        loop.run_until_complete(steer())


def test_it_ends_what_goes_round_in_circles(loop):
    async def turn():
        while True:  # noqa: ASYNC110 - that is what is to be found
            await asyncio.sleep(0)

    async def steer():
        await loop.spawn(host(loop).start(), turn(), "turn")

    with pytest.raises(StalledError, match="a#1 goes round in circles"):
        loop.run_until_complete(steer())


def test_it_notes_callbacks_that_compute_for_too_long(loop, monkeypatch):
    monkeypatch.setattr("tests.simulation.virtual_loop.LONGEST_WORK_NS", 1_000_000)

    def compute():
        sum(range(5_000_000))

    async def ask():
        await asyncio.to_thread(compute)
        assert not loop.slow
        compute()

    async def steer():
        await loop.spawn(host(loop).start(), ask(), "ask")

    loop.run_until_complete(steer())
    assert [each.incarnation for each in loop.slow] == ["a#1"]


def test_it_keeps_what_no_code_handled(loop):
    def fail():
        raise ValueError("so")

    async def steer():
        loop.schedule_in(1, fail, by=host(loop).start())
        await loop.passed(1)

    loop.run_until_complete(steer())
    ((process, context),) = loop.unhandled
    assert (process, str(context["exception"])) == ("a#1", "so")


def test_an_error_that_a_process_could_not_answer_with_is_none_of_its_own(loop):
    """It had been asked twice and was killed while its second answer was under way: seed 2144."""

    async def refuse():
        raise ValueError("there is one already")

    async def steer():
        machine = host(loop)
        asked = loop.spawn(machine.start(), refuse(), "asked")
        loop.schedule_in(SECOND_NS // 10, loop.kill, machine)
        assert not await answer_arrives(loop, machine.incarnation, asked)

    loop.run_until_complete(steer())
    gc.collect()
    loop.run_until_complete(asyncio.sleep(1))
    assert loop.unhandled == []


def test_sets_of_tasks_have_the_same_order_in_each_run():
    async def order(loop, seen):
        async def fail():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append(asyncio.current_task().get_name())
                raise

        async with asyncio.TaskGroup() as tasks:
            running = {tasks.create_task(fail(), name=str(number)) for number in range(20)}
            await asyncio.sleep(1)
            for task in running:
                task.cancel()

    assert orders(1, order) == orders(1, order)


def test_what_ends_with_a_callback_may_call_back(loop):
    """A coroutine that goes with the last callback that knew it runs what stands in `finally`."""
    seen = []
    process = host(loop).start()

    class Last:
        def __del__(self):
            loop.call_soon(seen.append, "last", context=process.context)

    def use(_):
        seen.append("used")

    def begin():
        loop.call_soon(use, Last())
        loop.call_soon(seen.append, "next")

    async def steer():
        loop.schedule_in(1, begin, by=process)
        await loop.passed(1)

    loop.run_until_complete(steer())
    assert seen == ["used", "next", "last"]
