"""A clause that does nothing, as devices of its stream publish by their own rules, gets a warning that names them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.service.catalog.sensor_catalog import EntryPublished, ProxyChanged
from cluster.service.queries.query_explanation import publisher_warnings, publishers_of
from protocols.wire.demands import CompletenessDemand, QueryDemand
from tests.cluster.service.conftest import Service
from tests.cluster.service.driven_devices import device
from tests.cluster.service.test_lifetime_notes import entry

NAMES = ("bell", "door", "gate", "lamp", "well")


def test_only_publishers_of_the_streams_count() -> None:
    entries = [device("b"), device("a"), device("c", publishes=False), device("d", stream="weather"), entry("m")]
    assert {name: [each.mote for each in some] for name, some in publishers_of(entries, ["traffic"]).items()} == {
        "traffic": ["a", "b"]
    }


@pytest.mark.parametrize(
    ("count", "named"),
    [(1, "bell of traffic: it publishes"), (2, "bell and door of traffic: they publish"),
     (5, "bell, door, gate and 2 more of traffic: they publish")],
)  # fmt: skip
def test_a_warning_names_some_devices(count: int, named: str) -> None:
    demands = {"traffic": [QueryDemand("q", ("speed",), 1_000_000, lifetime_us=5)]}
    found = list(publisher_warnings(demands, {"traffic": [device(name) for name in NAMES[:count]]}))
    assert found == [f"LIFETIME does nothing for {named} by own rules"]


def test_of_recordings_and_devices_it_is_said_why_nothing_is_counted() -> None:
    demands = {"traffic": [QueryDemand("q", ("speed",), completeness=CompletenessDemand("f", 1_000_000))]}
    devices = [replace(device("bell"), driver=""), device("door"), replace(device("gate"), driver="")]
    recorded, driven = publisher_warnings(demands, {"traffic": devices})
    assert recorded == (
        "COMPLETENESS is NULL for bell and gate of traffic: they replay a recording as it is, without a rate "
        "(fjord motes run --resample gives it one)"
    )
    assert driven.startswith("COMPLETENESS is NULL for door of traffic: it publishes by own rules")
    assert list(publisher_warnings({"traffic": [QueryDemand("q", ("speed",))]}, {"traffic": devices})) == []


TEXTS = {
    "SELECT sensor, speed FROM traffic SAMPLE EVERY 1 SECOND AT LEAST EVERY 1 MINUTE": "AT LEAST EVERY does nothing",
    "SELECT sensor, speed FROM traffic LIFETIME 90 DAYS": "LIFETIME does nothing",
    "SELECT sensor, AVG(speed) AS s FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY sensor "
    "HAVING COMPLETENESS() > 0.5": "COMPLETENESS is NULL",
    "SELECT sensor, speed WITHIN 2 FROM traffic": "WITHIN does nothing",
    "SELECT sensor, speed FROM traffic SAMPLE EVERY 1 SECOND": None,
}


@pytest.mark.parametrize("text", TEXTS)
async def test_queries_are_warned_when_they_are_added_and_explained(service: Service, text: str) -> None:
    service.queries = service.started(entries=lambda: service.sensors.snapshot()[0])
    expected = TEXTS[text]
    _, warnings = await service.queries.add(text)
    assert warnings == ()
    service.sensors.apply(ProxyChanged("north", online=True))
    service.sensors.apply(EntryPublished(device("bell")))
    _, warnings = await service.queries.add(text)
    assert [each.partition(" for ")[0] for each in warnings] == ([] if expected is None else [expected])
    assert all("bell of traffic" in each for each in warnings)
    explained = await service.queries.explain(text)
    assert all(each in explained for each in warnings)
    service.sensors.apply(EntryPublished(device("bell", publishes=False)))
    assert (await service.queries.add(text))[1] == ()


async def test_completeness_is_counted_where_a_driver_says_how_often(service: Service) -> None:
    service.queries = service.started(entries=lambda: service.sensors.snapshot()[0])
    service.sensors.apply(EntryPublished(device("bell", expected_every_us=10_000_000)))
    (text,) = (text for text, words in TEXTS.items() if words == "COMPLETENESS is NULL")
    assert (await service.queries.add(text))[1] == ()
