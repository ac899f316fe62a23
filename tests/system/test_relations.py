"""A query over a database that is away, then available, then away again: it waits, answers, and shows its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.waiting import next_results, wait_for

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]


def test_a_database_away_and_back(cluster: RunningCluster, postgres: PostgresServer) -> None:
    api = cluster.api
    name = postgres.new_database()
    postgres.execute(
        "CREATE TABLE closures (lane bigint, reason text)", "INSERT INTO closures VALUES (1, 'works')", database=name
    )
    address = postgres.url(name)
    postgres.stop()
    try:
        created = api.declare_relation(
            f"CREATE RELATION closures (lane INTEGER, reason TEXT) FROM '{address}' REFRESH EVERY 1 SECOND"
        )
        assert (created["state"], created["rows"]) == ("away", None)
        proxy = cluster.parts.start_proxy("closed")
        cluster.parts.start_motes("closed", "--motes", "8")
        cluster.parts.wait_for_stream("traffic", proxy)
        sql = (
            "SELECT t.sensor, c.reason, s.proxy FROM traffic AS t, closures AS c, sensors AS s "
            "WHERE t.lane = c.lane AND t.sensor = s.sensor AND s.proxy = 'closed'"
        )
        added = api.add(sql, "near")
        assert added["state"].startswith("waiting for relation closures (connection to server")
        assert api.query("near")["epoch"] is None
    finally:
        postgres.start()

    wait_for(lambda: api.query("near")["state"] == "running")
    first = wait_for(lambda: api.results("near"))
    assert {(row["row"]["reason"], row["row"]["proxy"]) for row in first} == {("works", "closed")}
    assert api.relation("closures")["used_by"] == ["near"]

    postgres.execute("UPDATE closures SET reason = 'flood'", database=name)
    wait_for(lambda: api.results("near", limit=10_000)[-1]["row"]["reason"] == "flood")

    postgres.stop()
    try:
        wait_for(lambda: api.relation("closures")["state"] == "stale")
        message = next_results(cluster, "near", 3)[-1]
        assert message["row"]["reason"] == "flood"
        assert message["stale"]["closures"] > 0
    finally:
        postgres.start()
    wait_for(lambda: api.relation("closures")["state"] == "fresh")
    assert "stale" not in next_results(cluster, "near", 3)[-1]
    api.drop("near")
    api.drop_relation("closures")
