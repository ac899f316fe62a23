"""Plants do not rot: each can still be planted, and a simulation still finds some."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.simulation.forked import apart
from tests.simulation.planted.all_plants import PLANTS
from tests.simulation.planted.plant import Simulation, put
from tests.simulation.process_folders import own_prefix, remove_stale_folders


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_each_can_be_planted(plant):
    apart(plant.plant)


def test_names_are_different_and_each_simulation_has_plants():
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert {plant.simulation for plant in PLANTS} == set(Simulation)


def test_what_the_product_does_not_have_cannot_be_replaced():
    with pytest.raises(AttributeError, match="gone"):
        put(SimpleNamespace(), "gone", None)


def planted(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.planted", *arguments],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["results without their transaction", "spool deleted when sent"])
def test_a_plant_is_found(name):
    done = planted("--only", name, "--most", "4", "--control", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 planted, 1 found"


def test_a_plant_that_is_not_found_ends_with_1():
    done = planted("--only", "spool not synced", "--most", "1", "--control", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing in proxies" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 planted, 0 found"


def test_a_plant_that_there_is_not_is_refused_with_those_there_are():
    done = planted("--only", "zzz")
    assert done.returncode == 2
    assert "there is no plant with 'zzz' in its name" in done.stderr
    assert all(plant.name in done.stderr for plant in PLANTS)


def test_folders_of_processes_that_have_ended_are_removed(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    own = own_prefix("fjord-planted", os.getpid())
    for name in (f"fjord-planted-{ended.pid}-a", f"{own}b", "fjord-planted-c", f"other-{ended.pid}-d"):
        (tmp_path / name / "cluster").mkdir(parents=True)
    remove_stale_folders("fjord-planted", tmp_path)
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {f"{own}b", "fjord-planted-c", f"other-{ended.pid}-d"}
