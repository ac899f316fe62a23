"""The publisher's process is killed, stopped and doubled, its broker restarted, its subscriber slow.

Every numbered row arrives, in order by query once repeats are discarded; and the position on disk is never ahead of
what the broker has acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiomqtt
import msgspec
import polars as pl
import psutil
import pytest

from cluster.service.publishing import supervised_publishers
from cluster.service.publishing.publication import ROWS_BETWEEN_NOTES, Publication, published_of
from cluster.service.publishing.publisher_channel import Orders, Report, from_line, to_line
from cluster.service.publishing.supervised_publishers import MODULE, TROUBLE, ProgressOfAll, SupervisedPublishers
from cluster.storage.results_table import ResultsTable
from cluster.storage.synced_files import Troubles
from protocols.mqtt.link import BrokerAddress
from protocols.wire import topics
from proxy.broker import mosquitto
from proxy.broker.choice import BrokerSettings
from proxy.broker.mosquitto import find_mosquitto
from proxy.broker.running import broker_by_settings

pytestmark = [
    pytest.mark.system,
    pytest.mark.faults,
    pytest.mark.skipif(find_mosquitto() is None, reason="Mosquitto is not installed"),
]

QUERIES = 7
COMMITS, ROWS = 16, 1_500
LIMIT_SECONDS = 120.0


class Cluster:
    """What a publisher knows of its cluster: its results table, and how it is started."""

    def __init__(self, folder: Path, broker: BrokerAddress, publishers: int = 1) -> None:
        self.folder = folder
        self.table = ResultsTable(str(folder / "results"), "f")
        self.troubles = Troubles()
        self.orders = Orders(str(folder), broker, "publisher", 15.0, "error")
        self.publisher = self.started(publishers)
        self._commits = 0

    def started(self, publishers: int = 1) -> SupervisedPublishers:
        """Return publishers as a restarted cluster has them."""
        progress = ProgressOfAll(self.folder, publishers)
        return SupervisedPublishers(self.orders, progress, newest=lambda: self.table.version, troubles=self.troubles)

    def commit(self, commits: int = 1) -> None:
        """Add rows of all queries."""
        for _ in range(commits):
            names = [f"q{number % QUERIES}" for number in range(ROWS)]
            rows = {"query": names, "start_us": 0, "end_us": 1, "kind": "row", "row": '{"speed":66.5}'}
            self.table.append(pl.DataFrame(rows), self._commits)
            self._commits += 1

    async def fill(self) -> None:
        """Add all rows while others run."""
        for _ in range(COMMITS):
            await asyncio.to_thread(self.commit)

    def wanted(self, version: int = COMMITS) -> Counter[str]:
        """Return the numbers of the queries' last rows up to a version."""
        return Counter({f"q{place}": version * len(range(place, ROWS, QUERIES)) for place in range(QUERIES)})

    def process(self) -> psutil.Process:
        """Return the process that runs."""
        return next(each for each in psutil.Process().children(recursive=True) if MODULE in each.cmdline())


class Subscriber:
    """Counts the rows that arrive; its session outlives its connections. It reads only while it may."""

    def __init__(self, broker: BrokerAddress) -> None:
        self.count = 0
        """Rows that arrived, repeated ones included."""
        self.gaps: list[tuple[str, int]] = []
        """Rows that came before the one in front of them."""
        self._last: Counter[str] = Counter()
        self.reads = asyncio.Event()
        self.reads.set()
        self.subscribed = asyncio.Event()
        self._broker = broker

    async def run(self) -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError):
                await self._receive()
            self.subscribed.clear()
            await asyncio.sleep(0.05)

    async def _receive(self) -> None:
        async with aiomqtt.Client(
            self._broker.host, self._broker.port, identifier="subscriber", clean_session=False
        ) as client:
            await client.subscribe(topics.results("+"), qos=1)
            self.subscribed.set()
            async for message in client.messages:
                await self.reads.wait()
                assert isinstance(message.payload, bytes)
                found = msgspec.json.decode(message.payload)
                self._take(found["query"], found["sequence"])

    def _take(self, query: str, number: int) -> None:
        """Note a row; those with a number that has been there are repeats."""
        self.count += 1
        if number > self._last[query] + 1:
            self.gaps.append((query, number))
        self._last[query] = max(number, self._last[query])

    def has(self, wanted: Counter[str]) -> bool:
        """Return whether all rows up to these numbers have arrived, in order."""
        assert self.gaps == []
        return all(self._last[query] >= number for query, number in wanted.items())


@contextlib.asynccontextmanager
async def running(*parts: Callable[[], object]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(part()) for part in parts]  # type: ignore[arg-type] # parts are coroutines
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(reached: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not reached():  # noqa: ASYNC110 - what is waited for comes from other processes
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(what)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerAddress]:
    async with broker_by_settings(BrokerSettings(persist=tmp_path / "broker"), "mosquitto") as (address, _):
        yield address


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_publishers, "FIRST_PAUSE_SECONDS", 0.05)


async def test_a_publisher_that_is_killed_again_and_again_leaves_out_no_row(
    tmp_path: Path, broker: BrokerAddress
) -> None:
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)
    async with running(subscriber.run, cluster.publisher.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        for kills in range(1, 5):
            before = subscriber.count
            await asyncio.to_thread(cluster.commit, COMMITS // 4)
            await until(lambda before=before: subscriber.count > before + ROWS // 2, "no rows come")
            cluster.process().send_signal(signal.SIGKILL)
            position = Publication(tmp_path).now.version
            await until(lambda kills=kills: cluster.publisher.starts > kills, "it is not started again")
            await until(lambda at=position: subscriber.has(cluster.wanted(at)), "the position was ahead")
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
        await until(lambda: cluster.publisher.unpublished_commits == 0, "the position is behind")
    assert cluster.troubles.counts == {TROUBLE: 4}
    assert cluster.publisher.lost.commits == 0


async def test_a_publisher_that_is_stopped_goes_on_and_repeats_nothing(tmp_path: Path, broker: BrokerAddress) -> None:
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)
    async with running(subscriber.run, cluster.publisher.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        cluster.commit(3)
        await until(lambda: subscriber.count > ROWS, "no rows come")
        cluster.process().send_signal(signal.SIGSTOP)
        await asyncio.to_thread(cluster.commit, COMMITS - 3)
        cluster.process().send_signal(signal.SIGCONT)
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
    assert subscriber.count == cluster.wanted().total()


async def test_a_second_publisher_is_refused_and_the_first_goes_on(tmp_path: Path, broker: BrokerAddress) -> None:
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)
    async with running(subscriber.run, cluster.publisher.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        await until(lambda: cluster.publisher.connected, "it has no connection")
        second = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        report, _ = await asyncio.wait_for(second.communicate(to_line(cluster.orders)), LIMIT_SECONDS)
        assert second.returncode == 1
        assert "another process publishes the results in" in from_line(report, Report).failure
        again = cluster.started()
        async with running(again.run):
            await until(lambda: cluster.troubles.counts[TROUBLE] >= 2, "a second one is not refused")
            assert "another process publishes" in again.status()["publisher"]["trouble"]
            assert not again.connected
        await cluster.fill()
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
    assert subscriber.count == cluster.wanted().total(), "none is published twice"
    assert cluster.publisher.starts == 1


async def test_rows_wait_for_a_broker_that_is_restarted(tmp_path: Path) -> None:
    settings = BrokerSettings(persist=tmp_path / "broker")
    async with contextlib.AsyncExitStack() as stack:
        async with broker_by_settings(settings, "mosquitto") as (address, _):
            cluster, subscriber = Cluster(tmp_path, address), Subscriber(address)
            await stack.enter_async_context(running(subscriber.run, cluster.publisher.run, cluster.fill))
            await until(lambda: subscriber.count > 2 * ROWS, "no rows come")
        await until(lambda: not cluster.publisher.connected, "the outage is not noticed")
        same = BrokerSettings(persist=settings.persist, port=address.port)
        async with broker_by_settings(same, "mosquitto"):
            await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
            await until(lambda: cluster.publisher.unpublished_commits == 0, "the position is behind")
    assert cluster.publisher.starts == 1


async def test_a_subscriber_slower_than_its_topic_gets_each_row_once(tmp_path: Path, broker: BrokerAddress) -> None:
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)
    subscriber.reads.clear()
    async with running(subscriber.run, cluster.publisher.run, cluster.fill):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        await until(lambda: cluster.publisher.progress.version() == COMMITS, "it does not publish all")
        assert subscriber.count == 0
        subscriber.reads.set()
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
    assert subscriber.count == cluster.wanted().total()


async def test_a_stopped_cluster_leaves_no_publisher_and_the_next_one_repeats_nothing(
    tmp_path: Path, broker: BrokerAddress
) -> None:
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)
    async with running(subscriber.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        async with running(cluster.publisher.run):
            cluster.commit(COMMITS // 2)
            await until(lambda: subscriber.count > ROWS, "no rows come")
            process = cluster.process()
        assert not process.is_running()
        async with running(cluster.started().run):
            cluster.commit(COMMITS - COMMITS // 2)
            await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
    assert subscriber.count <= cluster.wanted().total() + 2 * 4_096, "at most what was in flight is repeated"


async def test_one_of_two_publishers_is_killed_and_the_other_goes_on(tmp_path: Path, broker: BrokerAddress) -> None:
    #  publisher 0   [ runs ........................
    #  publisher 1   [ runs ..X] [ runs ..X] [ runs      either of them, whichever is found first
    cluster, subscriber = Cluster(tmp_path, broker, 2), Subscriber(broker)
    async with running(subscriber.run, cluster.publisher.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        await until(lambda: cluster.publisher.connected, "they have no connection")
        for kills in range(1, 5):
            before = subscriber.count
            await asyncio.to_thread(cluster.commit, COMMITS // 4)
            await until(lambda before=before: subscriber.count > before + ROWS // 2, "no rows come")
            cluster.process().send_signal(signal.SIGKILL)
            position = published_of(tmp_path).version
            await until(lambda kills=kills: cluster.publisher.starts == 2 + kills, "it is not started again alone")
            await until(lambda at=position: subscriber.has(cluster.wanted(at)), "the position was ahead")
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
        await until(lambda: cluster.publisher.unpublished_commits == 0, "the position is behind")
        rows = [each["rows_published"] for each in cluster.publisher.status()["publishers"]]
        assert min(rows) > 0, "each has published rows"
    assert cluster.troubles.counts == {TROUBLE: 4}
    assert cluster.publisher.lost.commits == 0


async def test_another_number_of_publishers_loses_no_row_and_repeats_none(
    tmp_path: Path, broker: BrokerAddress
) -> None:
    cluster, subscriber = Cluster(tmp_path, broker, 2), Subscriber(broker)
    async with running(subscriber.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        for publishers in (2, 3, 1, 2):
            publisher = cluster.started(publishers)
            async with running(publisher.run):
                await asyncio.to_thread(cluster.commit, COMMITS // 4)
                await until(lambda last=publisher: last.progress.version() == cluster.table.version, "rows wait")
        await until(lambda: subscriber.has(cluster.wanted()), "rows are missing")
    assert subscriber.count == cluster.wanted().total()
    assert cluster.troubles.counts == {}


async def test_new_publishers_wait_for_one_that_still_runs(tmp_path: Path, broker: BrokerAddress) -> None:
    cluster = Cluster(tmp_path, broker, 1)
    async with running(cluster.publisher.run) as (first,):
        await until(lambda: cluster.publisher.connected, "it has no connection")
        two = cluster.started(2)
        async with running(two.run):
            await until(lambda: two.trouble is not None and "another process" in two.trouble, "they do not wait")
            assert two.starts == 0
            first.cancel()
            await until(lambda: two.connected, "they are not started")
    assert published_of(tmp_path).publishers == 2


@pytest.fixture
def long_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker keep all rows for a subscriber that is slower than the publisher."""
    monkeypatch.setattr(mosquitto, "_QUEUED_MESSAGES_PER_CLIENT", 10**6)
    monkeypatch.setattr(mosquitto, "_QUEUED_BYTES_PER_CLIENT", 10**9)


@pytest.mark.usefixtures("long_queue")
async def test_a_query_with_very_many_rows_keeps_no_other_waiting(tmp_path: Path, broker: BrokerAddress) -> None:
    #  commits   [ heavy ............ a ][ a ][ a ]     the publisher is killed while heavy is behind
    many, few = 200_000, 5
    cluster, subscriber = Cluster(tmp_path, broker), Subscriber(broker)

    def commit(number: int, **counts: int) -> None:
        names = [name for name, count in counts.items() for _ in range(count)]
        cluster.table.append(
            pl.DataFrame({"query": names}).with_columns(
                start_us=pl.int_range(pl.len()), end_us=pl.int_range(pl.len()) + 1, kind=pl.lit("row"), row=pl.lit("{}")
            ),
            number,
        )

    async with running(subscriber.run, cluster.publisher.run):
        await until(subscriber.subscribed.is_set, "it is not subscribed")
        await asyncio.to_thread(commit, 0, heavy=many, a=few)
        for number in range(1, few):
            commit(number, a=few)
        (progress,) = cluster.publisher.progress.each
        await until(lambda: progress.last.front == few, "the front waits")
        assert progress.last.behind == {"heavy": 0}
        await until(lambda: subscriber.has(Counter(a=few * few)), "rows are missing")
        assert not subscriber.has(Counter(heavy=many)), "others come before the last of its rows"
        cluster.process().send_signal(signal.SIGKILL)
        await until(lambda: subscriber.has(Counter(heavy=many)), "rows are missing")
        await until(lambda: cluster.publisher.unpublished_commits == 0, "the position is behind")
    assert Publication(tmp_path).now.version == few
    assert subscriber.count <= many + 2 * ROWS_BETWEEN_NOTES, "few come again"
