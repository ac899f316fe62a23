"""A query that takes too much of Spark's workers costs its owner only: the others answer, without a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.demo.parts import Children, Parts
from cluster.fjord.overruns import STRIKES
from cluster.service.client.api_client import ApiClient
from tests.system.recorded_day import DAY, SPEED, assert_all_averages, averages_sql
from tests.system.test_killed_cluster import ROWS, wait_for_rows, wait_until_all_is_answered
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

WINDOWS = ", ".join(f"traffic {each} WINDOW(RANGE 1 HOUR)" for each in "abc")
BOMB = f"SELECT COUNT(*) AS n FROM {WINDOWS} WHERE a.speed + b.speed > c.speed"
LIMIT_SECONDS = 240.0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--worker-memory", "1GiB"), "it took more memory than 1.0 GiB in operator Join, the limit of a worker"),
        (("--query-time", "3s"), "it took longer than 3 s in operator Join, the limit of a query in a micro-batch"),
    ],
    ids=["memory", "time"],
)
def test_a_bomb_is_set_aside_and_others_answer_exactly(tmp_path: Path, limit: Sequence[str], reason: str) -> None:
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        parts.start_cluster(
            "--max-rows-per-second", str(10**12), "--max-rows-per-tuple", str(10**12), "--max-state", "1TiB", *limit
        )  # fmt: skip
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--trace", str(DAY), "--speed", str(SPEED))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            api.add(averages_sql("traffic"), "averages")
            api.add(BOMB, "bomb")

            def state() -> str:
                return str(api.query("bomb")["state"])

            wait_for(lambda: state().startswith("set aside"), "the bomb runs on", seconds=LIMIT_SECONDS)
            assert reason in state()
            wait_for_rows(api, ROWS, seconds=LIMIT_SECONDS)
            wait_until_all_is_answered(api)
            assert_all_averages(api.results("averages", limit=10_000))
            status = api.status()
            assert (status["fjord"]["restarts"], status["fjord"]["hangs"]) == (0, 0)
            assert status["fjord"]["overruns"] >= STRIKES
            # A micro-batch that was under way may note its own overrun behind this row.
            errors = [each.get("error") for each in api.results("bomb", limit=10_000)]
            assert errors.count(f"the query is set aside, as {reason}") == 1
            api.drop("bomb")
            assert [each["name"] for each in api.queries()] == ["averages"]
