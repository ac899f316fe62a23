"""The cluster is killed in the middle of a day and started again: no average is lost, doubled or wrong."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

ROWS = 207 * 48


def rows_of(api: ApiClient, query: str) -> int:
    return next(int(each["rows"]) for each in api.queries() if each["name"] == query)


def wait_for_rows(api: ApiClient, count: int, *, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while rows_of(api, "averages") < count:
        assert time.monotonic() < deadline, f"only {rows_of(api, 'averages')} of {count} rows came"
        time.sleep(0.2)


def wait_until_all_is_answered(api: ApiClient, *, seconds: float = 60.0) -> None:
    """Return when no stored row waits for its answer: no answer can come after that."""
    deadline = time.monotonic() + seconds
    while (lag := api.status()["lag"]) is not None and lag["rows"]:
        assert time.monotonic() < deadline, lag
        time.sleep(0.2)


def test_kill_minus_nine_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        doomed = parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--trace", str(DAY), "--speed", str(SPEED))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add(averages_sql("traffic"), "averages")
            wait_for_rows(api, ROWS // 4)
            children.forget(doomed)
            os.killpg(doomed.process.pid, signal.SIGKILL)
            doomed.process.wait(20)
            parts.start_cluster()
            wait_for_rows(api, ROWS)
            wait_until_all_is_answered(api)
            rows = api.results("averages", limit=10_000)
            assert_all_averages(rows)
            status = api.status()
            assert status["rows_late"] == 0
