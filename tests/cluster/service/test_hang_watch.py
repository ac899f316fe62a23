"""An engine hangs if rows wait for long and no micro-batch ends; it is started again, counted and shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.physical.nodes import Host
from cluster.service.publishing.lag import Lag
from cluster.service.running import engine as engine_module
from cluster.service.running.engine import Engine
from cluster.service.running.hang_watch import HangWatch
from cluster.service.running.settings import ClusterSettings
from cluster.spark.hosting import EngineState
from cluster.storage.synced_files import Troubles

LONG = {("traffic", Host.STATEFUL): Lag(7, 5_000.0)}


def hung(watch: HangWatch, now: float, ended: dict[Host, int], lags: Any = LONG) -> str:
    silent = watch.silent(now, ended)
    return watch.hung(silent, lags) if silent else ""


@pytest.fixture
def watch() -> HangWatch:
    made = HangWatch(100.0)
    made.started(0.0)
    return made


def test_it_hangs_once_no_micro_batch_has_ended_for_so_long(watch: HangWatch) -> None:
    assert not hung(watch, 50.0, {Host.STATEFUL: 1})
    assert not hung(watch, 149.0, {Host.STATEFUL: 1})
    found = hung(watch, 150.0, {Host.STATEFUL: 1})
    assert found == "no micro-batch of the stateful queries has ended for 100 s, while 7 rows of stream traffic wait"


@pytest.mark.parametrize("lags", [
    {},
    {("traffic", Host.STATEFUL): Lag(0, 0.0)},
    {("traffic", Host.STATEFUL): Lag(7, 99.0)},  # there was nothing to do before
    {("traffic", Host.STATELESS): Lag(7, 5_000.0)},
])  # fmt: skip
def test_without_rows_that_wait_for_as_long_it_is_idle(watch: HangWatch, lags: Any) -> None:
    ended = {Host.STATEFUL: 1, Host.STATELESS: 4}
    assert not hung(watch, 150.0, ended, lags)
    assert not hung(watch, 249.0, ended | {Host.STATELESS: 5}, lags)
    assert not hung(watch, 250.0, ended | {Host.STATELESS: 5}, lags)


def test_one_that_never_ended_a_micro_batch_hangs_too(watch: HangWatch) -> None:
    assert not hung(watch, 99.0, {})
    assert hung(watch, 100.0, {})


def test_what_is_slow_gets_more_time_with_each_restart_until_a_micro_batch_ends(watch: HangWatch) -> None:
    now, waits = 0.0, []
    for _ in range(6):
        now += watch.patience_seconds
        waits.append(watch.patience_seconds)
        assert hung(watch, now, {})
        watch.started(now)
    assert waits == [100.0, 200.0, 400.0, 800.0, 1600.0, 1600.0]
    assert not hung(watch, now + 1, {Host.STATEFUL: 9})
    assert watch.patience_seconds == 100.0


class Running:
    """The two Spark queries, of which the last micro-batch is number 3."""

    def __init__(self) -> None:
        self.stopped = False

    def state(self) -> EngineState:
        return EngineState(not self.stopped, ready=True, progress={Host.STATEFUL: {"batchId": 3, "batchDuration": 1}})

    def stop(self) -> None:
        self.stopped = True


async def test_a_hung_engine_is_started_again_counted_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = SimpleNamespace(version="4")
    monkeypatch.setattr(engine_module, "open_session", lambda *_: spark)
    for name in ("RESTART_PAUSE_SECONDS", "POLL_SECONDS", "START_POLL_SECONDS"):
        monkeypatch.setattr(engine_module, name, 0.0)
    now, killed, started = [0.0], [], []
    java: Any = SimpleNamespace(kill_children=lambda: killed.append(len(started)))
    registry: Any = SimpleNamespace(troubles=Troubles(), physical=None)
    operators: Any = SimpleNamespace(due=False)

    def lags() -> Any:
        return LONG

    def tick() -> float:
        now[0] += 10.0
        return now[0]

    results: Any = None
    engine = Engine(
        ClusterSettings(hang_seconds=100.0), tmp_path, registry, results, 1,
        java=java, operators=operators, lags=lags, clock=tick,
    )  # fmt: skip
    twice = asyncio.Event()

    def start(*_: Any) -> Running:
        engine._running = running = Running()  # type: ignore[assignment] # it stands in
        started.append(running)
        if len(started) == 3:
            twice.set()
        return running

    monkeypatch.setattr(engine, "_start", start)
    task = asyncio.create_task(engine.run(lambda: None))
    async with asyncio.timeout(30):
        await twice.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert killed == [1, 2], "the Python processes of the first two"
    assert [each.stopped for each in started[:2]] == [True, True]
    shown = engine.as_json()
    assert (shown["hangs"], shown["restarts"]) == (2, 2)


async def test_a_java_that_never_answers_is_killed(tmp_path: Path) -> None:
    silent, killed = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def kill() -> None:
        killed.append(True)
        silent.set()

    def ask() -> None:
        asyncio.run_coroutine_threadsafe(silent.wait(), loop).result(timeout=30)
        raise ConnectionError

    java: Any = SimpleNamespace(process=SimpleNamespace(kill=kill))
    nothing: Any = None
    engine = Engine(ClusterSettings(hang_seconds=0.001), tmp_path, nothing, nothing, 1, java=java)
    with pytest.raises(ConnectionError):
        await engine._asked(ask)
    assert killed
    assert engine.hangs == 1
