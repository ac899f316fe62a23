"""What all tests share: a broker, a Spark session, and hypothesis settings that fit a busy machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pyspark.sql import SparkSession

    from proxy.broker import LocalBroker
    from tests.postgres_server import PostgresServer

# A slow example says something about the machine, not about the code.
hypothesis.settings.register_profile("fjord", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("fjord")


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Sync nothing in this process: nobody cuts the power, and tables of a few rows would wait for the disk only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


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
