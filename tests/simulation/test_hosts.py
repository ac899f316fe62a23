import ast
import subprocess
import sys

import pytest

from tests.simulation.hosts import SECOND_NS, WALL_BEGINS_NS, Host, HostClock, WorldTime

SURROUNDINGS = """
from tests.simulation.sources import install
install()
import asyncio, os, random, secrets, time, uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random
from tests.simulation.hosts import Host, HostClock, WorldTime
from tests.simulation.virtual_loop import VirtualLoop

def clock(default=time.monotonic):
    return default()

world = WorldTime()
loop = VirtualLoop(Random(1), world)

async def look():
    await asyncio.sleep(5)
    with ThreadPoolExecutor(max_workers=1) as pool:
        order = []
        for number in range(5):
            pool.submit(order.append, number)
        await asyncio.wrap_future(pool.submit(time.sleep, 2))
        order.append(round(clock()))
    return (
        time.time() // 1 - 1_700_000_000, time.time_ns() // 10**9, clock() // 1, time.perf_counter() // 1,
        uuid.uuid4().hex, secrets.token_hex(4), os.urandom(4).hex(), random.random(), random.Random().random(),
        random.choice(range(1000)), order,
    )

async def steer():
    for name in "ab":
        host = Host(name, HostClock(world, ahead_ns=3600 * 10**9), "seed")
        print(await loop.spawn(host.start(), look(), name))

loop.run_until_complete(steer())
assert abs(time.time() - os.stat(".").st_atime) < 10**9 and ThreadPoolExecutor(1).submit(int).result() == 0
"""


@pytest.fixture
def world():
    return WorldTime()


def test_clocks_drift_and_step(world):
    clock = HostClock(world, drift_ppm=-100, ahead_ns=5 * SECOND_NS)
    world.now_ns = 10_000 * SECOND_NS
    assert clock.monotonic_ns() == 9_999 * SECOND_NS
    assert clock.wall_ns() - WALL_BEGINS_NS == 10_004 * SECOND_NS
    clock.step(-60 * SECOND_NS)
    assert clock.monotonic_ns() == 9_999 * SECOND_NS
    assert clock.wall_ns() - WALL_BEGINS_NS == 9_944 * SECOND_NS


def test_a_boot_begins_the_monotonic_clock_again(world):
    clock = HostClock(world)
    world.now_ns = 50 * SECOND_NS
    clock.boot()
    assert (clock.monotonic_ns(), clock.wall_ns()) == (0, WALL_BEGINS_NS + 50 * SECOND_NS)
    world.now_ns = 51 * SECOND_NS
    assert clock.monotonic_ns() == SECOND_NS


@pytest.mark.parametrize("drift", [-300, 0, 1, 250])
def test_an_instant_is_the_first_that_shows_so_much(world, drift):
    world.now_ns = 7_777
    clock = HostClock(world, drift_ppm=drift)
    for seconds in (0.0, 0.1, 1 / 3, 12.345678901, 99_999.9):
        world.now_ns = at_ns = clock.world_ns_of(seconds)
        assert clock.monotonic_ns() / SECOND_NS >= seconds
        world.now_ns = at_ns - 2
        assert clock.monotonic_ns() / SECOND_NS < seconds or seconds == 0.0


def test_a_host_runs_one_process_at_a_time(world):
    host = Host("a", HostClock(world), "seed")
    first = host.start()
    with pytest.raises(RuntimeError, match="a#1 runs"):
        host.start()
    host.incarnation = None
    assert first.dice.random() != host.start().dice.random()


def test_processes_see_their_own_time_and_chance():
    def look():
        return subprocess.run(
            [sys.executable, "-c", SURROUNDINGS], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    seen = look()
    assert seen == look()
    a, b = map(ast.literal_eval, seen.splitlines())
    assert a[:4] == (3600 + 7, 1_700_000_000 + 3600 + 7, 7.0, 7.0)
    assert b[:4] == (3600 + 14, 1_700_000_000 + 3600 + 14, 7.0, 7.0)
    assert not set(map(str, a[4:-1])) & set(map(str, b[4:-1]))
    assert a[-1] == [0, 1, 2, 3, 4, 7]
