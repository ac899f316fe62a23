"""A query with a lifetime hint: sensors sample less often for it, and subscribers are notified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.waiting import next_results, wait_for

if TYPE_CHECKING:
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

MOTES = 3
QUERY = "SELECT sensor, speed FROM traffic SAMPLE EVERY 1 SECOND AT LEAST EVERY 8 SECONDS"


def test_batteries_last_as_long_as_a_query_requires(cluster: RunningCluster) -> None:
    """A pair of AA cells lasts about 100 days at a sample a second."""

    def stretched(proxy: str) -> list[tuple[int, int, bool]]:
        columns = "SELECT period_us, stretched, lifetime_kept FROM sensors"
        rows = cluster.api.sensors(where=None, sql=f"{columns} WHERE proxy = '{proxy}'")["rows"]
        return [(row["period_us"], row["stretched"], row["lifetime_kept"]) for row in rows]

    proxy = cluster.parts.start_proxy("frugal")
    cluster.parts.start_motes("frugal", "--motes", str(MOTES), "--battery", "alkaline-aa-pair")
    cluster.parts.wait_for_stream("traffic", proxy)

    cluster.api.add(QUERY, "free")
    wait_for(lambda: stretched("frugal") == [(1_000_000, 1, True)] * MOTES)
    assert "sensors" not in next_results(cluster, "free", 1)[0]

    cluster.api.add(f"{QUERY} LIFETIME 120 DAYS", "lasting")
    wait_for(lambda: len(found := stretched("frugal")) == MOTES and all(each[1] > 1 and each[2] for each in found))
    slower = max(each[1] for each in stretched("frugal"))
    assert wait_for(lambda: next_results(cluster, "lasting", 1)[0].get("sensors")) == {
        "slower": slower,
        "too_short_lived": 0,
    }

    cluster.api.drop("lasting")
    wait_for(lambda: stretched("frugal") == [(1_000_000, 1, True)] * MOTES)
    cluster.api.drop("free")
