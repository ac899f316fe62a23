"""Spark's forked Python processes, and the stand-ins beside them, are killed while queries answer: answers stay exact.

Two kills by default, one of each kind; ``make test-faults`` asks for twenty (FJORD_KILLS).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import psutil
import pytest

from cluster.demo.parts import Child, Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.spark.forking import stand_in
from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql
from tests.system.test_killed_cluster import ROWS, wait_for_rows, wait_until_all_is_answered

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

KILLS = max(2, int(os.environ.get("FJORD_KILLS", "2")))
PARENT = "fjord-parent"
LIMIT_SECONDS = 180.0


def processes(cluster: Child, *, stand_ins: bool) -> list[psutil.Process]:
    """Return the stand-ins, or the processes that the parent has forked, and what these have forked."""
    found = psutil.Process(cluster.process.pid).children(recursive=True)
    if stand_ins:
        return [each for each in found if stand_in.__file__ in words_of(each)]
    (parent,) = (each for each in found if each.name() == PARENT)
    return parent.children(recursive=True)


def words_of(process: psutil.Process) -> list[str]:
    """Return with what a process was started; nothing of one that has ended, as a script of Java's may have."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def shown(cluster: Child) -> list[str]:
    """Return the processes below a cluster."""
    found = []
    for each in psutil.Process(cluster.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = " ".join(words_of(each))[-90:]
            found.append(f"{each.name()} {each.pid} of {each.ppid()}, {each.status()}: {words}")
    return found


def kill_one(cluster: Child, dice: random.Random, *, stand_ins: bool) -> str:
    """Kill one of them, once there is one; return its name."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            victim = dice.choice(processes(cluster, stand_ins=stand_ins))
            name = " ".join(victim.cmdline()[-2:]) if stand_ins else victim.name()
            victim.kill()
        except (IndexError, psutil.NoSuchProcess):
            assert time.monotonic() < deadline, f"no {'stand-in' if stand_ins else 'fork'} among {shown(cluster)}"
            time.sleep(0.1)
        else:
            return name


def test_answers_are_exact_while_workers_and_stand_ins_are_killed(tmp_path: Path) -> None:
    dice, killed = random.Random(), []
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--trace", str(DAY), "--speed", str(SPEED))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add(averages_sql("traffic"), "averages")
            for number in range(KILLS):
                wait_for_rows(api, ROWS * (number + 1) // (2 * KILLS))
                killed.append(kill_one(cluster, dice, stand_ins=number % 2 == 1))
            wait_for_rows(api, ROWS)
            wait_until_all_is_answered(api)
            assert_all_averages(api.results("averages", limit=10_000))
            assert api.status()["results"]["lost"]["rows"] == 0
    assert len(killed) == KILLS, killed
