"""A query with a range of twelve hours in a budget that fits five: what it answers as others come and go.

A cluster without Spark: the service plans, and the local engine runs each epoch's plan over two days of a stream.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from cluster.fjord.batch import START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.local.engine import Arrival, LocalEngine
from cluster.physical.nodes import Host
from cluster.service.queries.migrations import Answered
from cluster.storage.stream_tables import StreamPosition
from protocols.text.quantities import parse_duration_us
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from tests.cluster.service.conftest import traffic_rows
from tests.cluster.service.test_adapted_sizes import settled, state_of

if TYPE_CHECKING:
    from tests.cluster.service.conftest import Service

HOUR = 3_600_000_000
PAIRED = (
    "SELECT a.lane, COUNT(*) AS n FROM traffic WINDOW(RANGE {0}) AS a JOIN traffic WINDOW(RANGE {0}) AS b "
    "ON a.lane = b.lane GROUP BY a.lane"
)
RANGED = PAIRED.format("MIN 1 HOUR, MAX 12 HOURS")
PER_HOUR = 6


class Cluster:
    """A service, and an engine that runs its plans hour by hour."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.tuples: list[tuple[int, int]] = []
        self.rows: list[tuple[int, int, dict[str, Any]]] = []
        self.open: dict[tuple[int, str], int] = {}
        self._dice = random.Random(7)
        self._engine: LocalEngine | None = None
        self._epoch = 0
        self.hours = 0

    def __call__(self, host: Host, streams: frozenset[str]) -> Answered | None:
        return Answered(self._epoch, frozenset(), dict.fromkeys(streams, self.hours * HOUR))

    def hour(self) -> None:
        """Let an hour's tuples come, and answer them."""
        begin = self.hours * HOUR
        stamps = sorted(self._dice.sample(range(begin, begin + HOUR), PER_HOUR))
        new = [(at, self._dice.randrange(3)) for at in stamps]
        self.tuples += new
        self.hours += 1
        writer = self.service.ingest.writers["traffic"]
        writer.table.append([traffic_rows(stamps)], StreamPosition(self.hours * HOUR, {}), {})
        writer.admission.note_stamp(writer.table.latest_stamp())
        plan = self.service.registry.plan
        schema = {START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean, "speed": pl.Float64, "sensor": pl.String}
        frame = pl.DataFrame([(at, True, 1.0, "a") for at, _ in new], schema=schema, orient="row")
        frame = frame.with_columns(pl.Series("lane", [lane for _, lane in new]))
        self._engine = self._engine or LocalEngine(plan)
        arrival = Arrival((RowsInMemory(frame),), self.hours * HOUR)
        answers = self._engine.run({"traffic": arrival}, plan=plan).rows
        self._epoch = plan.epoch
        for start, end, kind, row in (
            answers.filter(pl.col("query") == "ranged").select("start_us", "end_us", "kind", "row").iter_rows()
        ):
            if kind == "open":
                self.open[(start, row)] = end
            else:
                self.open.pop((start, row), None)
                self.rows.append((start, end, json.loads(row)))

    def expected(self, at_us: int, size_us: int) -> Counter[tuple[int, int]]:
        """Return what the query answers at an instant, by its definition."""
        valid = Counter(lane for stamp, lane in self.tuples if at_us - size_us < stamp <= at_us)
        return Counter({(lane, count * count): 1 for lane, count in valid.items()})


async def test_each_answer_is_that_of_the_window_it_names(service: Service) -> None:
    cluster = Cluster(service)
    queries = service.started(answered=cluster)
    queries.sizes._settled_seconds = 0.0
    await queries.add("SELECT speed FROM traffic", "warm")  # so that the engine has a plan
    for _ in range(3):
        cluster.hour()
    hour = state_of(service, PAIRED.format("2 HOURS")) - state_of(service, PAIRED.format("1 HOUR"))
    other = PAIRED.format("48 HOURS").replace("COUNT(*)", "SUM(b.lane)")
    queries = service.started(answered=cluster, max_state_bytes=int((state_of(service, other) + 5.5 * hour) / 0.8))
    queries.sizes._settled_seconds = 0.0
    await queries.add(other, "other")
    ranged, _ = await queries.add(RANGED, "ranged")
    began = cluster.hours

    async def hours(count: int) -> None:
        for _ in range(count):
            cluster.hour()
            await settled(queries)

    await hours(14)
    await queries.drop("other")
    await hours(34)
    history = queries.sizes.history(service.registry.query("ranged"))
    assert history is not None
    qualities = [each["quality"] for each in history]
    assert qualities[0] == "window 5h"
    assert len(qualities) > 1
    widest = max(parse_duration_us(each.removeprefix("window ")) for each in qualities)
    assert widest >= 9 * HOUR
    checked: Counter[str] = Counter()
    first, last = (began + 6) * HOUR, (cluster.hours - 1) * HOUR
    for at_us in [*range(first, last, HOUR // 4), *(stamp for stamp, _ in cluster.tuples if first <= stamp < last)]:
        found = [row for start, end, row in cluster.rows if start <= at_us < end]
        found += [json.loads(row) for start, row in cluster.open if start <= at_us]
        (quality,) = {row["quality"] for row in found}
        size_us = parse_duration_us(quality.removeprefix("window "))
        assert Counter((row["lane"], row["n"]) for row in found) == cluster.expected(at_us, size_us)
        checked[quality] += 1
    assert checked.keys() == set(qualities)
    assert ranged.name == "ranged"
