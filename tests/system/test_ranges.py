"""A query with a range of twelve hours in a budget that fits five, on a cluster with Spark: what it answers, and when.

    hours of the stream    0  3          15                 about 115
    other                     |-----------|
    ranged                    | window 5h .................. | and 12h, not full yet | window 12h ...

An hour passes in a third of a second. What the cluster decides follows from stamps, but for one thing: sizes grow once
no query has come or gone for half a minute.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.demo.parts import Children, Parts
from cluster.fjord.upper_estimates import state_bytes
from cluster.language.catalog import Catalog
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.service.catalog.planning import PlanningContext
from cluster.service.client.api_client import ApiClient
from protocols.text.quantities import parse_duration_us
from tests.system.hourly_feed import HOUR_US, SCHEMA, HourlyFeed

pytestmark = [pytest.mark.system, pytest.mark.spark]

PER_HOUR = 6
PAUSE_SECONDS = 0.3
"""For each hour of the stream."""
DAYS_BACK = 30
PAIRED = (
    "SELECT a.lane, COUNT(*) AS n FROM hours WINDOW(RANGE {0}) AS a JOIN hours WINDOW(RANGE {0}) AS b "
    "ON a.lane = b.lane GROUP BY a.lane"
)
RANGED = PAIRED.format("MIN 1 HOUR, MAX 12 HOURS")
OTHER = PAIRED.format("48 HOURS").replace("COUNT(*)", "SUM(b.lane)")
TOO_LONG = PAIRED.format("MIN 96 HOURS, MAX 120 HOURS")
SECONDS = 240.0


def state_of(text: str) -> float:
    """Return how many bytes of state a query keeps, at most."""
    node = PlanningContext(Catalog.of([SCHEMA]), {}, frozenset()).planned(text)[1]
    plan = lower(Plan(1, (PlannedQuery("q", 1, node),)))
    return state_bytes(plan, {SCHEMA.name: PER_HOUR * 1e6 / HOUR_US})


def budget() -> int:
    """Return the bytes of which all but a fifth is enough for the other query and five hours of this one."""
    hour = state_of(PAIRED.format("2 HOURS")) - state_of(PAIRED.format("1 HOUR"))
    return int((state_of(OTHER) + 5.5 * hour) / 0.8)


def instant_us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond


@dataclass(frozen=True)
class Answer:
    """A row, and from when until when it holds."""

    begins_us: int
    ends_us: int
    row: dict[str, Any]

    @property
    def size_us(self) -> int:
        """The window that it names."""
        return parse_duration_us(self.row["quality"].removeprefix("window "))


@dataclass(frozen=True)
class Shown:
    """The cluster, asked by the API and by the commands."""

    parts: Parts
    api: ApiClient

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `fjord query`."""
        typed = [sys.executable, "-m", "protocols.command_line", "query", *arguments, "--api", self.parts.api_address]
        return subprocess.run(typed, capture_output=True, text=True, check=False, timeout=SECONDS)

    def sizes(self) -> list[str]:
        """Return what `fjord query show` prints about sizes."""
        lines = self.command("show", "ranged").stdout.splitlines()
        return [line.removeprefix("sizes").strip() for line in lines if line.startswith("sizes ")]

    def history(self) -> list[dict[str, Any]]:
        """Return the same from the API."""
        return list(self.api.query("ranged")["sizes"])

    def answers(self) -> Iterator[Answer]:
        """Yield all answers whose end is known."""
        opened: dict[int, dict[str, Any]] = {}
        after = 0
        while page := self.api.results("ranged", after=after, limit=10_000):
            after = page[-1]["sequence"]
            for each in page:
                if each.get("open"):
                    opened[each["sequence"]] = each
                    continue
                begun = opened.pop(each["closes"]) if "closes" in each else each
                yield Answer(instant_us(begun["start"]), instant_us(each["end"]), begun["row"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Shown]:
    """A broker, and a cluster with the budget."""
    with Children(tmp_path / "logs") as children:
        parts = Parts.on_free_ports(children, tmp_path)
        parts.start_broker()
        parts.start_cluster("--max-state", f"{budget()}B")
        with ApiClient(parts.api_address) as api:
            yield Shown(parts, api)


def expected(feed: HourlyFeed, at_us: int, size_us: int) -> Counter[tuple[int, int]]:
    """Return what the query answers at an instant, by its definition: pairs of each lane."""
    valid = Counter(lane for stamp, lane in feed.sent if at_us - size_us < stamp <= at_us)
    return Counter({(lane, count * count): 1 for lane, count in valid.items()})


async def until(reached: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(reached):  # noqa: ASYNC110 - the cluster has no events
            await asyncio.sleep(PAUSE_SECONDS)


async def hours_until(feed: HourlyFeed, reached: Callable[[], bool]) -> None:
    """Let hours pass until something holds."""
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(reached):
            await feed.hour()
            await asyncio.sleep(PAUSE_SECONDS)


def check(answers: Sequence[Answer], feed: HourlyFeed, history: Sequence[dict[str, Any]], first_us: int) -> None:
    """Compare the answers at many instants with the definition, each for the window that it names and that holds."""
    checked: Counter[str] = Counter()
    instants = {*range(first_us, feed.ends_us, HOUR_US // 4), *(stamp for stamp, _ in feed.sent if stamp >= first_us)}
    for at_us in sorted(instants):
        found = [each for each in answers if each.begins_us <= at_us < each.ends_us]
        sizes_us = {each.size_us for each in found}
        assert len(sizes_us) == 1, f"{len(found)} rows {(at_us - feed.begins_us) / HOUR_US:.2f} hours after the first"
        (size_us,) = sizes_us
        assert Counter((each.row["lane"], each.row["n"]) for each in found) == expected(feed, at_us, size_us)
        began = [each for each in history if each["from"] is None or instant_us(each["from"]) <= at_us]
        assert {each.row["quality"] for each in found} == {began[-1]["quality"]}
        checked[began[-1]["quality"]] += 1
    assert checked.keys() == {each["quality"] for each in history}
    assert min(checked.values()) > 100


async def test_each_answer_is_that_of_the_window_it_names(cluster: Shown) -> None:
    api = cluster.api
    async with HourlyFeed(cluster.parts.broker, per_hour=PER_HOUR, days_back=DAYS_BACK) as feed:
        await until(lambda: any(each["name"] == SCHEMA.name for each in api.streams()))
        for _ in range(3):  # each stored for itself: the rate is known of several
            await feed.hour()
            await feed.stored()
        await asyncio.to_thread(api.add, OTHER, "other")
        await asyncio.to_thread(api.add, RANGED, "ranged")
        assert await asyncio.to_thread(cluster.sizes) == ["window 5h from the beginning"]
        refused = await asyncio.to_thread(cluster.command, "add", TOO_LONG, "--name", "too_long")
        assert refused.returncode == 1
        size = r"[\d.]+ KiB of state"
        assert re.search(
            rf"even with the shortest windows .* would take {size} with this query, {size} of it for this query alone; "
            rf"there is {size}, which is {size} that all may take less a fifth in reserve "
            r"hint: start the cluster with --max-state \d+KiB at least",
            " ".join(refused.stderr.split()),
        )

        first_us, dropped_us = feed.ends_us + 6 * HOUR_US, feed.ends_us + 12 * HOUR_US
        await hours_until(feed, lambda: feed.ends_us >= dropped_us)
        await asyncio.to_thread(api.drop, "other")
        await hours_until(feed, lambda: len(cluster.history()) > 1)
        assert [each["quality"] for each in cluster.history()] == ["window 5h", "window 12h"]
        holds_us = instant_us(cluster.history()[-1]["from"])
        await hours_until(feed, lambda: feed.ends_us > holds_us + 6 * HOUR_US and not api.migrations())
        begins = cluster.history()[-1]["from"]
        assert await asyncio.to_thread(cluster.sizes) == [
            "window 5h from the beginning",
            f"window 12h from {begins}",
        ]

        await feed.end(24)
        last_us = feed.sent[-1][0] + 12 * HOUR_US
        answers: list[Answer] = []

        def answered() -> bool:
            answers[:] = cluster.answers()
            return any(each.ends_us >= last_us for each in answers)

        await until(answered)
        check(answers, feed, cluster.history(), first_us)
