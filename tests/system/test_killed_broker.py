"""The broker is killed and comes back: all parts reconnect, and nothing accepted is lost or doubled."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults]

MOTES = 8


def test_all_parts_reconnect_to_the_broker(tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        doomed = parts.start_broker()
        parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", str(MOTES))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add("SELECT sensor, speed FROM traffic", "all")
            wait_for(lambda: len(api.results("all", limit=10_000)) > 5 * MOTES, "no rows came")
            children.forget(doomed)
            os.killpg(doomed.process.pid, signal.SIGKILL)
            doomed.process.wait(20)
            before = len(api.results("all", limit=10_000))
            parts.start_broker()
            wait_for(lambda: bool(api.status()["broker"]["connected"]), "the cluster did not find the broker")
            wait_for(lambda: len(api.results("all", limit=10_000)) > before + 10 * MOTES, "no rows came any more")
            # The broker has lost its retained demands: the cluster has published them again.
            api.drop("all")
            rows = api.results("all", limit=10_000)
        assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
        seen = [(row["row"]["sensor"], row["start"]) for row in rows]
        assert len(set(seen)) == len(seen), "a row was doubled"
        assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
        # Without a broker no packet arrived; before and after, packets of every mote arrived every second.
        gaps = []
        for sensor in {sensor for sensor, _ in seen}:
            stamps = sorted(datetime.fromisoformat(start) for other, start in seen if other == sensor)
            steps = [(after - at).total_seconds() for at, after in pairwise(stamps)]
            gaps.append(sum(step > 1.0 for step in steps))
        assert max(gaps) <= 3, f"more than the outage is missing: {gaps}"
