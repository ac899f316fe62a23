"""A data folder that an earlier version was killed over, or stopped, is upgraded: today's version continues from it.

``old_folders/611828f.tar.xz`` holds the folders of that commit's cluster and proxy: the cluster was killed in the
middle of a trace, the proxy ran to its end and was killed then. In ``611828f-stopped.tar.xz`` both were stopped by
SIGTERM instead, and ended by themselves. Three sensors, sixty samples each, ten seconds apart.

    sample     1          20           40           60
    cluster    |-----------> ended                             answers were numbered, state was kept in windows
    proxy      |----------------------------------> ended      the rest is in its spool
    today                  |=======================>
"""

from __future__ import annotations

import json
import statistics
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.service.publishing.result_messages import stored_results
from cluster.storage.results_table import ResultsTable
from tests.system.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark]

OLD = Path(__file__).with_name("old_folders")
BEGIN = datetime.fromisoformat("2012-03-01T00:00:00Z")
SAMPLES, STEP, MICROSECOND = 60, timedelta(seconds=10), timedelta(microseconds=1)
END = BEGIN + SAMPLES * STEP
SENSORS = ("a", "b", "c")
SEGMENTS = {"a": "north", "b": "south"}

Sample = tuple[datetime, str, float, int]
Row = tuple[Any, ...]


def trace() -> list[Sample]:
    """Everything that was sampled."""
    return [
        (BEGIN + number * STEP, sensor, (number * 7 + place * 13) % 97 + 0.5, place + 1)
        for number in range(SAMPLES)
        for place, sensor in enumerate(SENSORS)
    ]


def within(at: datetime, size: timedelta) -> list[Sample]:
    """Return the samples that a window of a size holds at an instant."""
    return [sample for sample in trace() if sample[0] <= at < sample[0] + size]


def fixed(at: datetime, size: timedelta, slide: timedelta) -> list[Sample]:
    """Return the samples that a sliding window holds at an instant."""
    moved = datetime.fromtimestamp((at + MICROSECOND).timestamp() // slide.seconds * slide.seconds, tz=at.tzinfo)
    return [sample for sample in trace() if moved - size <= sample[0] < moved]


def averages(at: datetime) -> Iterator[Row]:
    held = fixed(at, timedelta(minutes=2), timedelta(minutes=1))
    for sensor in sorted({sample[1] for sample in held}):
        speeds = [sample[2] for sample in held if sample[1] == sensor]
        yield sensor, round(statistics.fmean(speeds), 6), len(speeds)


def spreads(at: datetime) -> Iterator[Row]:
    held = fixed(at, timedelta(minutes=1), timedelta(seconds=30))
    speeds = [sample[2] for sample in held]
    if speeds:
        yield round(statistics.stdev(speeds), 6), statistics.median(speeds), len({sample[3] for sample in held})


def totals(at: datetime) -> Iterator[Row]:
    for sensor in SENSORS:
        speeds = [sample[2] for sample in trace() if sample[1] == sensor and sample[2] > 50 and sample[0] <= at]
        if speeds:
            yield sensor, round(sum(speeds[-3:]), 6)


ANSWERS: dict[str, Callable[[datetime], Iterator[Row]]] = {
    "all": lambda at: (sample[1:] for sample in within(at, MICROSECOND)),
    "named": lambda at: (
        (sensor, speed, SEGMENTS[sensor])
        for _, sensor, speed, _ in within(at, MICROSECOND)
        if speed < 30 and sensor in SEGMENTS
    ),
    "kinds": lambda at: iter({(sample[3],) for sample in within(at, timedelta(seconds=30)) if sample[2] > 80}),
    "average": averages,
    "spread": spreads,
    "last3": totals,
}
"""By query, its rows at an instant."""


def instants() -> list[datetime]:
    """Return instants at and between all samples, up to the last."""
    halves = [BEGIN + number * STEP / 2 for number in range(2 * SAMPLES - 2)]
    return [at + shift for at in halves for shift in (timedelta(), -MICROSECOND)]


def row_values(message: dict[str, Any]) -> Row:
    return tuple(round(value, 6) if isinstance(value, float) else value for value in message["row"].values())


def check(query: str, messages: list[dict[str, Any]]) -> None:
    """Check that numbers have no gaps, and that every instant has the expected rows."""
    assert [message["sequence"] for message in messages] == list(range(1, len(messages) + 1))
    rows = [
        (datetime.fromisoformat(each["start"]), datetime.fromisoformat(each["end"]), row_values(each))
        for each in messages
    ]
    for at in instants():
        found = Counter(row for start, end, row in rows if start <= at < end)
        assert found == Counter(ANSWERS[query](at)), (query, at)


def unpack(name: str, folder: Path) -> None:
    with tarfile.open(OLD / f"{name}.tar.xz") as archive:
        # Python 3.11 has had filters since its fourth release only; those before ignore the attribute.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)


def stored_before(folder: Path, query: str) -> list[dict[str, Any]]:
    """Return the earlier answers, in the format of the API."""
    table = ResultsTable(str(folder / "cluster" / "results"), "reader", appends=False)
    found: list[dict[str, Any]] = json.loads(stored_results(table, query, 0, 10_000))
    return found


def answered_up_to(api: ApiClient, query: str, at: datetime) -> bool:
    messages = api.results(query, limit=10_000)
    return any(datetime.fromisoformat(message["start"]) >= at for message in messages)


@pytest.mark.parametrize("name", ["611828f", "611828f-stopped"])
def test_an_old_folder_is_upgraded_and_continued(tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    before = {query: stored_before(tmp_path, query) for query in (*ANSWERS, "gone")}
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        child = parts.start_cluster()
        parts.start_proxy("roadside")
        with ApiClient(parts.api_address) as api:
            assert {each["name"] for each in api.queries()} == set(ANSWERS)
            api.add("SELECT COUNT(*) AS n FROM traffic SINCE BEGINNING WINDOW(RANGE 1 HOUR SLIDE 10 MINUTES)", "later")
            for query in ANSWERS:
                wait_for(lambda name=query: answered_up_to(api, name, END - timedelta(minutes=2)), query)
            wait_for(lambda: api.results("later"), "later")
            for query in ANSWERS:
                messages = api.results(query, limit=10_000)
                assert messages[: len(before[query])] == before[query]
                check(query, messages)
            assert api.results("gone", limit=10_000) == before["gone"]
            assert api.results("later")[0]["row"] == {"n": SAMPLES * len(SENSORS)}
            assert api.status()["rows_late"] == 0
        assert "the data folder has been upgraded" in child.log.read_text()
