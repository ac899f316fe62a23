"""Proxies report the demands that they leave out, and queries and sensors show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from cluster.service.catalog.sensor_catalog import EntryPublished, SensorCatalog, sensors_relation
from cluster.service.client.command import refusal_texts
from cluster.service.publishing.demand_publication import DemandReports
from protocols.mqtt.link import Message
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.demands import RefusedDemand, demand_report
from protocols.wire.frames import encode
from tests.cluster.service.conftest import application
from tests.cluster.service.energy_cases import entry

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

SMALL = "SELECT sensor, speed FROM traffic"


def report(proxy: str = "p", stream: str = "traffic", reasons: Mapping[str, str] | None = None) -> bytes:
    refused = [RefusedDemand(query, reason) for query, reason in (reasons or {"bad": "too odd"}).items()]
    return encode(demand_report(proxy, stream, 3, refused))


def deliver(reports: DemandReports, payload: bytes, proxy: str = "p", stream: str = "traffic") -> None:
    topic = topics.demand_report(proxy, stream)
    reports.handle(Message(topic, payload, retain=True), topics.parse(topic))


def test_the_newest_report_of_each_proxy_counts() -> None:
    reports = DemandReports()
    deliver(reports, report())
    deliver(reports, report("r"), "r")
    deliver(reports, report("s", reasons={"*": "other columns"}), "s")
    assert [(each["proxy"], each["reason"]) for each in reports.of_query("bad", {"traffic"})] == [
        ("p", "too odd"), ("r", "too odd"), ("s", "other columns"),
    ]  # fmt: skip
    assert [each["proxy"] for each in reports.of_query("good", {"traffic"})] == ["s"]
    assert reports.of_query("bad", {"weather"}) == []
    deliver(reports, b"")
    deliver(reports, report("r", reasons={"worse": "odder"}), "r")
    assert [each["proxy"] for each in reports.of_query("bad", {"traffic"})] == ["s"]
    reports.connected()
    assert reports.texts() == {}


@pytest.mark.parametrize(("payload", "reason"), [
    (b"\xc1", "garbled"), (report("other"), "identity"), (report(stream="weather"), "identity"), (b"\x91\x01", "shape"),
])  # fmt: skip
def test_bad_reports_are_counted_and_change_nothing(payload: bytes, reason: str) -> None:
    reports = DemandReports()
    deliver(reports, report())
    before = reports.texts()
    deliver(reports, payload)
    assert (reports.rejected, reports.texts()) == ({reason: 1}, before)


def test_reports_beyond_the_limit_are_rejected_and_counted() -> None:
    reports = DemandReports(most=1)
    deliver(reports, report())
    deliver(reports, report("r"), "r")
    deliver(reports, report(reasons={"bad": "odder"}))
    assert reports.texts() == {("p", "traffic"): "bad: odder"}
    assert reports.rejected == {"full": 1}


def test_a_sensor_shows_the_queries_that_its_proxy_leaves_out() -> None:
    reports = DemandReports()
    deliver(reports, report("north", reasons={f"q{number}": "odd" for number in range(12)}), "north")
    catalog = SensorCatalog(refused_demands=reports.texts)
    catalog.apply(EntryPublished(entry("m1")))
    (row,) = sensors_relation(catalog.snapshot()[0], refused_demands=catalog.refused_demands()).to_dicts()
    assert (row["proxy"], row["stream"]) == ("north", "traffic")
    assert row["refused_demands"].startswith("q0: odd; q1: odd; ")
    assert row["refused_demands"].endswith("; and 4 more")


async def test_a_query_shows_the_proxies_that_leave_it_out(service: Service) -> None:
    await service.handle(topics.proxy_status("p"), encode(Status(1, "p", Presence.ONLINE, "e", 0)))
    await service.queries.add(SMALL, "bad")
    await service.queries.add(SMALL, "good")
    deliver(service.queries.demand_reports, report())
    service.queries.demands._left_out.setdefault("traffic", {})["bad"] = "no proxy could read it"
    async with application(service.parts()) as api:
        shown = (await api.get("/v1/queries/bad")).json()["refused_demands"]
        assert shown == [
            {"stream": "traffic", "proxy": None, "online": True, "reason": "no proxy could read it"},
            {"stream": "traffic", "proxy": "p", "reason": "too odd", "online": True},
        ]
        assert (await api.get("/v1/queries/good")).json()["refused_demands"] == []
        assert [each["refused_demands"] == [] for each in (await api.get("/v1/queries")).json()] == [False, True]
        service.queries.demands._max_bytes = 100
        refused = await api.post("/v1/queries", json={"sql": SMALL})
    assert (refused.status_code, refused.json()["error"]) == (429, "TooManyDemandsError")
    assert "no room for another demand on stream 'traffic'" in refused.json()["message"]
    assert refusal_texts(shown) == [
        "sensors of stream traffic are not asked by any proxy: no proxy could read it",
        "sensors of stream traffic are not asked by proxy p: too odd",
    ]
