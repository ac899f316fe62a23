"""What all tests share: a broker, a Spark session, and hypothesis settings that fit a busy machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.examples import some_examples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator
    from types import FrameType

    from pyspark.sql import SparkSession

    from proxy.broker import LocalBroker
    from tests.postgres_server import PostgresServer

# A slow example says something about the machine, not about the code.
hypothesis.settings.register_profile("fjord", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("fjord")

# Thousands of tests and all libraries stay in memory: looking through them as often as usual takes a sixth of the time.
gc.set_threshold(20_000, 10, 10)

LONG_SECONDS = 3600
"""For a test that kills or starves parts many times, on a busy machine; others have what pyproject.toml says."""

SYSTEM_SECONDS = 900
"""For several parts together: some take three minutes on a slow machine that is otherwise idle."""

SHARED = {
    "spark": "Spark",
    "postgres": "parts",
    "running_parts": "parts",
    "undisturbed": "stored day",
    "deployment": "neighbours",
}
"""Fixtures that are there once for all tests that use them, also where tests run in several processes; with their
groups. The tests of a group run in one process, and those of another in whichever has less to do."""

REPEATABLE = {"stored day", "neighbours"}
"""Groups that save time only: tests that need another group as well run there, with what is shared made once more."""


HEAVY_MARKERS = ("spark", "system", "faults")
HEAVY = re.compile(rf"mark\.({'|'.join(HEAVY_MARKERS)})\b")
"""How the Makefile finds files with tests that need Spark or several processes."""


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Undo what commands that run in this process do to it: `fjord proxy` and others make private files only."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.hookimpl(tryfirst=True)  # before any are deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    heavy = {item.path for item in items if any(each.name in HEAVY_MARKERS for each in item.iter_markers())}
    if unfound := [str(path) for path in sorted(heavy) if not HEAVY.search(path.read_text())]:
        raise pytest.UsageError(f"`make test` would not find tests marked from elsewhere: {', '.join(unfound)}")
    shortened = set()
    for item in items:
        test = getattr(item, "obj", None)
        if hypothesis.is_hypothesis_test(test):
            item.add_marker(pytest.mark.examples)
            if test not in shortened:  # it may be several items
                shortened.add(test)
                # Hypothesis has no public way to change the settings of a test that has been decorated.
                test._hypothesis_internal_use_settings = some_examples(test._hypothesis_internal_use_settings)
        groups = {SHARED[each] for each in getattr(item, "fixturenames", ()) if each in SHARED}
        if len(groups) > 1:
            groups -= REPEATABLE
        if len(groups) > 1:
            raise pytest.UsageError(f"{item.nodeid} needs two of what there is once: make one group of {groups}")
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
            if config.getoption("loadgroup", default=False) and hasattr(item, "_id"):
                # pytest-xdist 3.8 puts the group where pytest 9.2 does not look for it: nothing would be grouped.
                item._id = type(item._id).parse(f"{item.nodeid}@{group}")
        if any(item.iter_markers("long")) or any(item.iter_markers("faults")):
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
        elif any(item.iter_markers("system")):
            item.add_marker(pytest.mark.timeout(SYSTEM_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Print what asyncio's tasks wait for before a test ends that has hung: their frames are on no thread's stack."""
    end = signal.getsignal(signal.SIGALRM)

    def show_and_end(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):  # no loop is running
            for task in asyncio.all_tasks():
                task.print_stack()
        if callable(end):
            end(number, frame)

    if callable(end):
        signal.signal(signal.SIGALRM, show_and_end)
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Sync nothing in this process: the power stays on, and tables of a few rows would only wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def garbage_is_collected() -> Iterator[None]:
    """Undo what a cluster in this process has put aside: what a test leaves, open files among it, would stay."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def event_log_left_as_it_was() -> Iterator[None]:
    """Undo what a command that ran in this process has set up: later tests read events where they expect them."""
    root = logging.getLogger()
    level = root.level
    yield
    ours = [each for each in root.handlers if type(each.formatter).__module__ == "protocols.event_log"]
    for handler in ours:
        root.removeHandler(handler)
    if ours:
        root.setLevel(level)
        if "structlog" in sys.modules:
            sys.modules["structlog"].reset_defaults()


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    """A broker of this test's own, on a free port."""
    from proxy.broker import running_broker

    async with running_broker() as address:
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local Spark session for the whole run; mark its tests with ``spark``."""
    from cluster.spark.session import SessionSettings, open_session

    session = open_session(SessionSettings(master="local[2]"), tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the whole run; mark its tests with ``system``."""
    from tests.postgres_server import find_postgres, running_postgres

    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres(programs) as server:
        yield server
