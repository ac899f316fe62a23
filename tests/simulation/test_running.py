import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.simulation.preparing import folder_in_memory
from tests.simulation.running import PURPOSE, remove_leftovers
from tests.simulation.schedules import Fault, Schedule, drawn
from tests.simulation.shrinking import shrunk

TRACES = """
from tests.simulation import preparing
preparing.prepare()
from tests.simulation.running import run
from tests.simulation.schedules import drawn
for seed in (5, 12):
    outcome = run(drawn(seed, seconds=20.0))
    print(seed, outcome.trace, outcome.callbacks, outcome.violations)
"""


FOUND = """
import sys
from pathlib import Path
from msgspec.structs import replace
from tests.simulation import preparing
preparing.prepare()
from tests.simulation.forked import apart
from tests.simulation.schedules import drawn
from tests.simulation.world import World

def work():
    schedule = drawn(3, 20.0)
    often = tuple(replace(each, settings={**each.settings, "flush_interval": 1_000_000}) for each in schedule.proxies)
    world = World(replace(schedule, proxies=often), Path(sys.argv[1]) / "world")
    proxy, found = world.proxies["p0"], set()

    async def steer():
        for machine in (world.cluster, *world.proxies.values(), *world.gateways.values()):
            machine.start()
        for mote in world.motes:
            mote.switch_on()
        world.loop.create_task(world.cluster.add_query("SELECT speed FROM traffic", "q"), name="query")
        for _ in range(10):
            await world.loop.passed(5)
            proxy.disk.faults.error_after = 1.0
            await world.loop.passed(5)
            before = set(proxy.spooled)
            proxy.kill()
            proxy.disk.faults.error_after = 0.0
            proxy.start()
            await world.loop.passed(0.001)
            found.update(set(proxy.spooled) - before)

    world.loop.run_until_complete(steer())
    return len(found)

print(apart(work))
"""


PACKED = """
import sys
from pathlib import Path
from msgspec.structs import replace
from tests.simulation import preparing
preparing.prepare()
from tests.simulation.deployed_cluster import DeployedCluster
from tests.simulation.forked import apart
from tests.simulation.schedules import SAMPLES_SQL, drawn
from tests.simulation.world import World

def work(make_cluster):
    schedule = replace(drawn(3, 80.0), faults=())
    world = World(schedule, Path(sys.argv[1]) / f"{make_cluster is None}", make_cluster)

    async def steer():
        for machine in (world.cluster, *world.proxies.values(), *world.gateways.values()):
            machine.start()
        for mote in world.motes:
            mote.switch_on()
        while await world.cluster.add_query(SAMPLES_SQL, "q") is not None:
            await world.loop.passed(5)
        await world.loop.passed(60)

    world.loop.run_until_complete(steer())
    spooled = world.proxies["p0"].spooled
    return [spooled[each].payload[0] for each in sorted(spooled)]

for make_cluster in (None, DeployedCluster):
    forms = apart(lambda: work(make_cluster))
    print(sorted(set(forms)), forms == sorted(forms))
"""


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=280,
        env=os.environ | {"PYTHONHASHSEED": "0"} | environment,
    )  # fmt: skip


def test_proxies_pack_batches_as_soon_as_a_cluster_has_acknowledged_one(tmp_path):
    """One that stands in, and a real one: before, batches are of columns (0x9b), and then all are packed (0x9c)."""
    done = python("-c", PACKED, str(tmp_path))
    assert done.stdout.splitlines() == ["[155, 156] True"] * 2, done.stderr


def test_a_schedule_runs_alike_in_two_processes():
    first, second = (python("-c", TRACES).stdout for _ in range(2))
    assert first == second
    assert len(first.splitlines()) == 2
    traces = [line.split()[1] for line in first.splitlines()]
    assert len(set(traces)) == 2


def test_a_batch_that_only_the_next_process_finds_was_spooled(tmp_path):
    """Its commit was reported as failed, though it had taken effect: seed 125."""
    done = python("-c", FOUND, str(tmp_path))
    assert int(done.stdout) > 0, done.stderr


@pytest.mark.parametrize("options", [("4", "--stand-in"), ("1",)])
def test_schedules_keep_what_is_promised(options):
    count, *others = options
    done = python(
        "-m", "tests.simulation", "--schedules", count, "--seed", "8", "--no-shrink", *others, PYTHONHASHSEED="random"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == f"{count} schedules, 0 lost, 0 doubled, 0 stalled"
    *kinds, hours, each = lines
    assert sum(int(line.split()[0]) for line in kinds) >= 3 * int(count)
    assert "simulated hours" in hours
    minutes, least = float(each.split()[2]), int(each.split()[8])
    assert minutes >= 10, each
    assert least >= 3, each


def test_a_seed_draws_one_schedule_with_at_least_three_faults():
    for seed in range(50):
        schedule = drawn(seed)
        assert schedule == drawn(seed) != drawn(seed + 1)
        assert len(schedule.faults) >= 3
        assert all(0 < fault.at < schedule.seconds for fault in schedule.faults)
        assert all(fault.at + fault.lasts <= schedule.seconds for fault in schedule.faults)
        assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def test_every_kind_of_fault_is_drawn():
    from tests.simulation.fault_kinds import KINDS

    kinds = {fault.kind for seed in range(200) for fault in drawn(seed).faults}
    assert kinds == set(KINDS)


def test_shrinking_keeps_what_makes_it_fail():
    schedule = next(each for each in map(drawn, range(100)) if len(each.faults) > 5 and len(each.motes) > 3)
    culprit, mote = schedule.faults[2], schedule.motes[1]

    def fails(candidate):
        return any(fault.at == culprit.at for fault in candidate.faults) and mote in candidate.motes

    small = shrunk(schedule, fails)
    assert [fault.kind for fault in small.faults] == [culprit.kind]
    assert small.motes == (mote,)
    assert [query.name for query in small.queries] == ["all"], "oracles look for the samples that it demands"
    assert small.faults[0].lasts <= culprit.lasts


def test_shrinking_ends_after_some_attempts():
    tried = []
    schedule = drawn(1)
    shrunk(schedule, lambda candidate: tried.append(candidate) or False, most_attempts=5)
    assert len(tried) == 5


@pytest.fixture
def endless():
    """A run that has begun, and the folders in memory of its schedules."""
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "--minutes", "9", "--stand-in", "--workers", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )

    def folders():
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        return [each for child in children for each in folder_in_memory().glob(f"{PURPOSE}-{child}-*")]

    until = time.monotonic() + 60
    while not (found := folders()):
        assert time.monotonic() < until
        time.sleep(0.01)
    yield running, found
    running.kill()
    running.communicate()


def test_an_interrupted_run_prints_what_it_has_and_leaves_nothing(endless):
    running, folders = endless
    running.send_signal(signal.SIGINT)
    printed, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert printed.splitlines()[-1].endswith(" schedules, 0 lost, 0 doubled, 0 stalled")
    assert not any(folder.exists() for folder in folders)


def test_a_killed_run_leaves_nothing_to_the_next_one(endless):
    running, folders = endless
    children = [folder.name.removeprefix(f"{PURPOSE}-").partition("-")[0] for folder in folders]
    running.kill()
    running.wait()
    until = time.monotonic() + 30
    while any(Path("/proc", child).exists() for child in children):
        assert time.monotonic() < until, "a schedule runs on without the process that started it"
        time.sleep(0.01)
    remove_leftovers()
    assert not any(folder.exists() for folder in folders)


def test_another_cluster_can_be_named():
    arguments = ("-m", "tests.simulation", "--schedules", "1", "--no-shrink", "--cluster")
    done = python(*arguments, "tests.simulation.test_running:no_cluster")
    assert done.returncode == 1
    assert "there is no cluster" in done.stdout


def no_cluster(world, folder):
    raise RuntimeError("there is no cluster")


@pytest.mark.parametrize("change", ["acknowledges before it stores", "stores twice"])
def test_a_cluster_that_breaks_its_promise_is_found(tmp_path, change):
    """The kill comes where the cluster has acknowledged, and not stored."""
    faults = [Fault("cluster killed", "cluster", 20.0 + 7 * number, 1.0, 0.5) for number in range(5)]
    schedule = msgspec.structs.replace(drawn(3, 60.0), faults=tuple(faults))
    file = tmp_path / "schedule.json"
    file.write_bytes(msgspec.json.encode(schedule))
    code = f"""
import sys
from tests.simulation import preparing
preparing.prepare()
from tests.simulation import stand_in
from tests.simulation.proxy_host import BatchId
real = stand_in.StandInCluster._commit
def broken(self, batch):
    if {change!r} == "stores twice":
        self.stored[BatchId("p0", "again", "traffic", batch.sequence)] = batch
        real(self, batch)
    else:
        self.acknowledged[stand_in._lane(batch)] = batch.sequence
        self.loop.schedule_in(1_500_000_000, real, self, batch, by=self.host.incarnation)
stand_in.StandInCluster._commit = broken
sys.argv = ["simulate", "--file", {str(file)!r}, "--no-shrink", "--stand-in"]
from tests.simulation.__main__ import simulate
simulate()
"""
    done = python("-c", code)
    assert done.returncode == 1, done.stdout + done.stderr
    counts = dict(reversed(each.split()) for each in done.stdout.splitlines()[-1].split(", ")[1:4])
    assert counts["doubled" if change == "stores twice" else "lost"] == "1", done.stdout
    assert json.loads(file.read_text())["seed"] == 3


@pytest.mark.parametrize(("minutes", "code"), [("0", 2), ("-3", 2), ("nan", 2)])
def test_a_command_that_runs_nothing_fails(minutes, code):
    assert python("-m", "tests.simulation", "--stand-in", "--minutes", minutes).returncode == code
