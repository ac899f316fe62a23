"""The victim: two queries of another owner, what they must answer, and how far their answers are behind.

What motes have sampled is computed anew from their world, so the oracle reads nothing that a neighbour could harm:
DuckDB answers over that. The lag of an answer is the time from its instant until it has been published, as
``benchmarks/latency.py`` measures it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import duckdb

from cluster.sizing.measuring import quantile
from firmware_sim.phenomena.traffic import Traffic
from protocols.mqtt.link import BrokerAddress, Message, MqttLink, Subscription
from protocols.wire import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOTES = 16
SECOND_US = 1_000_000
WINDOW_US = 2 * SECOND_US
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUERIES = {
    "victim_rows": "SELECT sensor, speed, flow FROM traffic",
    "victim_sums": "SELECT segment, COUNT(*) AS n, SUM(flow) AS flow, MIN(speed) AS slowest "
    "FROM traffic WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY segment",
}
"""One without state and one with: each of the engine's two Spark queries has a victim."""
MEANT = {
    "victim_rows": "SELECT stamp, stamp + 1, sensor, speed, flow FROM samples WHERE stamp >= $begin AND stamp < $end",
    "victim_sums": """
        SELECT tick - 1, tick + 999_999, segment, count(*), sum(flow), min(speed)
        FROM samples JOIN (SELECT unnest(generate_series($begin, $end, 1_000_000)) AS tick) AS ticks
        ON stamp >= tick - 2_000_000 AND stamp < tick
        WHERE tick - 1 >= $begin AND tick - 1 < $end GROUP BY tick, segment""",
}


class Answer(NamedTuple):
    """An answer of a query: its interval, in microseconds since 1970, and its values."""

    query: str
    start_us: int
    end_us: int
    values: tuple[object, ...]


class Arrival(NamedTuple):
    """An answer, and when it came, in seconds since 1970."""

    answer: Answer
    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a victim in a window of time.

    Parameters
    ----------
    expected
        How many answers there must be.
    lacking, wrong
        How many did not come, and how many came that should not, copies among them.
    median_s, p99_s
        Of the lags, in seconds; an answer that has not come has been behind since its instant.
    """

    expected: int
    lacking: int
    wrong: int
    median_s: float
    p99_s: float

    @property
    def exact(self) -> bool:
        """Whether its answers are those of the oracle."""
        return self.expected > 0 and not self.lacking and not self.wrong


def sampled(begin_us: int, end_us: int) -> list[tuple[int, str, int, float, float]]:
    """Return what all motes sample from an instant to before another: stamp, sensor, segment, speed, flow."""
    world = Traffic(MOTES, default_period_us=SECOND_US)
    first_us = -(-begin_us // SECOND_US) * SECOND_US
    found = []
    for at_us in range(first_us, end_us, SECOND_US):
        for place, mote in enumerate(world.motes):
            speed, flow = world.sense(place, at_us, ("speed", "flow"))
            assert isinstance(speed, float)
            assert isinstance(flow, float)
            found.append((at_us, mote.name, int(str(mote.properties["segment"])), speed, flow))
    return found


def meant(begin_us: int, end_us: int) -> list[Answer]:
    """Return the answers of all queries that begin from an instant, a whole second, to before another one."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE samples (stamp BIGINT, sensor TEXT, segment BIGINT, speed DOUBLE, flow DOUBLE)")
        database.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", sampled(begin_us - WINDOW_US, end_us))
        limits = {"begin": begin_us, "end": end_us}
        return [
            Answer(query, row[0], row[1], tuple(row[2:]))
            for query, sql in MEANT.items()
            for row in database.execute(sql, limits).fetchall()
        ]


def judged(expected: Sequence[Answer], arrivals: Iterable[Arrival], now: float, *, lags_from_us: int = 0) -> Seen:
    """Return what became of the victim, given what it must answer and what has come until now.

    Lags are those of answers from an instant on.
    """
    due, came = Counter(expected), list(arrivals)
    found = Counter(each.answer for each in came)
    timed = [each for each in came if each.answer in due and each.answer.start_us >= lags_from_us]
    lags = [each.at - each.answer.start_us / SECOND_US for each in timed]
    lacking = due - found
    lags += [now - each.start_us / SECOND_US for each in lacking.elements() if each.start_us >= lags_from_us]
    ordered = sorted(lags) or [0.0]
    return Seen(
        len(expected),
        lacking.total(),
        (found - due).total(),
        statistics.median(ordered),
        quantile(ordered, 0.99),
    )


class Subscriber:
    """Receives the results of the victim, and errors of all queries, in a thread of its own; a context.

    Parameters
    ----------
    broker
        Where they are published.
    """

    def __init__(self, broker: BrokerAddress) -> None:
        self._broker = broker
        self._arrivals: list[Arrival] = []
        self._errors: dict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        self._listens = threading.Event()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="victim", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(30), "the broker does not accept a subscriber"
        return self

    def __exit__(self, *error: object) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def between(self, begin_us: int, end_us: int) -> list[Arrival]:
        """Return the answers that begin from an instant to before another one, and have come."""
        with self._lock:
            return [each for each in self._arrivals if begin_us <= each.answer.start_us < end_us]

    def errors(self, query: str) -> list[str]:
        """Return the errors of a query so far."""
        with self._lock:
            return list(self._errors[query])

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        wanted = [Subscription(topics.results(name)) for name in QUERIES]
        wanted.append(Subscription(f"{topics.PREFIX}/errors/+"))
        link = MqttLink(self._broker, client_id="fjord-victim", subscriptions=wanted)
        running = asyncio.create_task(link.run(self._receive))
        await link.connected.wait()
        self._listens.set()
        await self._end.wait()
        running.cancel()

    async def _receive(self, message: Message) -> None:
        at = time.time()
        content: dict[str, Any] = json.loads(message.payload)
        with self._lock:
            if "error" in content:
                self._errors[content["query"]].append(str(content["error"]))
            elif "row" in content:
                start_us, end_us = _us(content["start"]), _us(content["end"])
                answer = Answer(content["query"], start_us, end_us, tuple(content["row"].values()))
                self._arrivals.append(Arrival(answer, at))


def _us(instant: str) -> int:
    return (datetime.fromisoformat(instant) - _EPOCH) // timedelta(microseconds=1)
