"""A publisher and two Spark workers are killed in turn, in one run: what a subscriber gets is what DuckDB computes.

motes -> broker -> proxy -> cluster -> a Spark master with two workers -> cluster -> publisher -> broker -> subscriber
                                                     1, then 2  ^                    ^  first
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.demo.parts import Child, Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.service.publishing.supervised_publishers import MODULE
from tests.faults.standalone import WORKERS, standalone_spark
from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql, expected_below
from tests.system.test_killed_cluster import ROWS, wait_for_rows, wait_until_all_is_answered
from tests.system.test_killed_database import published, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

SLOW = 20.0
"""Miles per hour: 3 in 100 readings are slower."""


def publishers(cluster: Child) -> set[int]:
    """Return the processes that publish, by number: one, or none for a moment."""
    found = set()
    for each in psutil.Process(cluster.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if MODULE in each.cmdline():
                found.add(each.pid)
    return found


def each_once(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows by number without repeats, which say the same; there is none before the one in front of it."""
    found: dict[int, dict[str, Any]] = {}
    for each in messages:
        number = each["sequence"]
        assert number <= len(found) + 1, f"row {number} came behind row {len(found)}"
        assert found.setdefault(number, each) == each
    return [found[number] for number in sorted(found)]


def test_a_subscriber_gets_every_answer_once_whoever_is_killed(tmp_path: Path) -> None:
    with standalone_spark(tmp_path / "spark") as spark, Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        cluster = parts.start_cluster("--master", spark.address)
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--trace", str(DAY), "--speed", str(SPEED))
        parts.wait_for_stream("traffic", proxy)
        with (
            ApiClient(parts.api_address) as api,
            published(parts.broker, "averages") as averages,
            published(parts.broker, "slow") as slow,
        ):
            api.add(averages_sql("traffic") + " EMIT FINAL", "averages")
            api.add(f"SELECT sensor, speed FROM traffic WHERE speed < {SLOW}", "slow")
            wait_for_rows(api, ROWS // 5)
            (killed,) = publishers(cluster)
            psutil.Process(killed).kill()
            wait_for(lambda: publishers(cluster) - {killed}, "another publisher")
            for place, name in enumerate(WORKERS, 2):
                wait_for_rows(api, ROWS * place // 5)
                assert spark.executors(name) >= 1
                spark.kill_worker(name)
                spark.start_worker(name)
            assert rows_are_missing(api), "all had been answered before the last kill"
            wait_for_rows(api, ROWS)
            wait_until_all_is_answered(api)
            wanted = expected_below(SLOW)
            wait_for(lambda: len(each_once(averages)) == ROWS and len(each_once(slow)) == len(wanted), "all messages")
            status = api.status()
    assert_all_averages(each_once(averages))
    found = [(row["row"]["sensor"], datetime.fromisoformat(row["start"]), row["row"]["speed"]) for row in slow]
    assert sorted(set(found)) == sorted(wanted)
    assert len(each_once(slow)) == len(wanted)
    assert (status["rows_late"], status["results"]["lost"]["rows"]) == (0, 0)


def rows_are_missing(api: ApiClient) -> bool:
    """Return whether the run goes on."""
    return next(int(each["rows"]) for each in api.queries() if each["name"] == "averages") < ROWS
