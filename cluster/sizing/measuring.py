"""Runs one load on parts of its own, and measures what they use, what delays answers, and which stage limits them.

**Which stage limits a deployment: the first one behind which work piles up.**

motes -> broker -> proxy -> its spool -> ingest -> stream table -> Spark -> results table -> publisher

**Delays of answers, and what they consist of: waiting for motes, and the work of the parts.**

    sampled             complete                     answered
       |---- for motes -----|---- from proxy to row ----|

A sample is complete at its proxy when each mote has promised to send nothing that early: the first batch whose low
watermark has passed it shows that to the cluster. Until then no part could answer it, however fast it is.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from cluster.demo.parts import Children, Parts
from cluster.service.client.api_client import ApiClient
from cluster.sizing.loads import Load, query_texts
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.text.quantities import format_duration
from protocols.wire import topics
from protocols.wire.batches import decode_batch

GROWTH = 0.1
"""Share of the work that may pile up: less is noise."""
LEAST_GROWTH_SECONDS = 1.0
"""Work that has waited for less than this is on its way."""
LEAST_GROWTH_COMMITS = 5
FULL_CORE = 0.9
"""A single-threaded process that uses more of a core than this has no more to give."""


class Backlog(msgspec.Struct, frozen=True):
    """What waits between the stages at one instant.

    Parameters
    ----------
    spooled_seconds
        How long the oldest batch in a proxy's spool has waited to be acknowledged.
    unread_seconds
        How long the oldest stored row has waited for its answer.
    unpublished_commits
        Commits of the results table that are not published.
    """

    spooled_seconds: float = 0.0
    unread_seconds: float = 0.0
    unpublished_commits: int = 0


class Flow(msgspec.Struct, frozen=True):
    """What went through the stages between two instants.

    Parameters
    ----------
    seconds
        The time between them.
    sampled_rows
        Samples that the motes had to send; None if queries let them leave out some.
    stored_rows
        Rows stored in streams.
    proxy_cores
        Cores in use by the proxy's busiest process.
    commits
        Commits of the results table that were published.
    """

    seconds: float
    sampled_rows: int | None
    stored_rows: int
    proxy_cores: float
    commits: int


def limiting_stage(flow: Flow, before: Backlog, after: Backlog) -> str | None:
    """Return the stage that cannot keep up; None if all can.

    Examples
    --------
    >>> flow = Flow(seconds=10.0, sampled_rows=None, stored_rows=40_000, proxy_cores=0.3, commits=50)
    >>> limiting_stage(flow, Backlog(unread_seconds=0.4), Backlog(unread_seconds=5.1))
    'Spark'
    """
    growth_seconds = max(LEAST_GROWTH_SECONDS, GROWTH * flow.seconds)
    if after.spooled_seconds - before.spooled_seconds > growth_seconds:
        return "ingest"
    if flow.sampled_rows is not None and flow.stored_rows < (1.0 - GROWTH) * flow.sampled_rows:
        return "proxy" if flow.proxy_cores > FULL_CORE else "motes or broker"
    if after.unread_seconds - before.unread_seconds > growth_seconds:
        return "Spark"
    if after.unpublished_commits - before.unpublished_commits > max(LEAST_GROWTH_COMMITS, GROWTH * flow.commits):
        return "publisher"
    return None


class Delays(msgspec.Struct, frozen=True):
    """Seconds, median and 99th percentile. Pure.

    Parameters
    ----------
    median, p99
        From a sample to its answer.
    median_for_motes, p99_for_motes
        From a sample to the first batch that says that it is complete.
    median_after, p99_after
        From that batch to the answer.
    """

    median: float
    p99: float
    median_for_motes: float
    p99_for_motes: float
    median_after: float
    p99_after: float


class SeenDelays:
    """Collects what is seen of batches and answers as they are sent. Pure."""

    def __init__(self) -> None:
        self._watermarks_us: list[int] = []
        self._arrived: list[float] = []
        self._answers: list[tuple[float, float, float]] = []

    def batch(self, watermark_us: int, at: float) -> None:
        """Note a batch's low watermark, and when the batch was sent, in seconds since 1970."""
        if not self._watermarks_us or watermark_us > self._watermarks_us[-1]:
            self._watermarks_us.append(watermark_us)
            self._arrived.append(at)

    def answer(self, start_us: int, at: float) -> None:
        """Note the start of an answer to a query without a window, and when it was sent.

        It is left out if its batch was sent before batches were noted.
        """
        place = bisect_right(self._watermarks_us, start_us)
        if 0 < place < len(self._watermarks_us):
            complete = self._arrived[place]
            self._answers.append((at - start_us / 1e6, complete - start_us / 1e6, at - complete))

    def forget_answers(self) -> None:
        """Forget the answers noted so far."""
        self._answers.clear()

    def found(self) -> Delays | None:
        """Return the delays; None without any."""
        if not self._answers:
            return None
        return Delays(
            *(
                figure
                for part in zip(*self._answers, strict=True)
                for figure in (statistics.median(part), quantile(sorted(part), 0.99))
            )
        )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of some ordered values lies, at least one of them. Pure.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    3.0
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


BROKER, PROXY, CLUSTER, SPARK = "broker", "proxy", "cluster", "Spark"
PARTS = (BROKER, PROXY, CLUSTER, SPARK)


class Use(msgspec.Struct, frozen=True):
    """What a part has used.

    Parameters
    ----------
    processor_seconds
        Since its start.
    memory_bytes
        Now: its proportional share of memory, so that what processes share counts once.
    busiest_seconds
        Processor time of the one process that has used most of it.
    """

    processor_seconds: float = 0.0
    memory_bytes: int = 0
    busiest_seconds: float = 0.0

    def __add__(self, other: Use) -> Use:
        """Return the use of two parts together."""
        return Use(
            self.processor_seconds + other.processor_seconds,
            self.memory_bytes + other.memory_bytes,
            max(self.busiest_seconds, other.busiest_seconds),
        )


class WatchedProcesses:
    """The processes of the parts, with their children.

    Parameters
    ----------
    roots
        By part: the number of its first process. What the cluster starts is Spark's: Java, and Python workers.
    """

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = {part: psutil.Process(number) for part, number in roots.items()}
        self._ended: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._seconds: dict[int, tuple[str, float]] = {}

    def use(self) -> dict[str, Use]:
        """Return what each part has used; processor time of processes that have ended counts on."""
        found = dict.fromkeys(PARTS, Use())
        alive: dict[int, tuple[str, float]] = {}
        for part, process in self._all():
            try:
                times = process.cpu_times()
                memory = process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            seconds = times.user + times.system
            alive[process.pid] = part, seconds
            found[part] += Use(seconds, memory, seconds)
        for number, (part, seconds) in self._seconds.items():
            if number not in alive:
                self._ended[part] += seconds
        self._seconds = alive
        return {part: each + Use(self._ended[part]) for part, each in found.items()}

    def _all(self) -> Iterator[tuple[str, psutil.Process]]:
        for part, root in self._roots.items():
            yield part, root
            try:
                children = root.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
            for child in children:
                yield (SPARK if part == CLUSTER else part), child


def bytes_below(folder: Path) -> int:
    """Return how many bytes are in all files below a folder; files that vanish meanwhile count nothing."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(Path(root, name)).st_size
            except FileNotFoundError:
                continue
    return size


PROXY_NAME = "roadside"
DELAYED = "sized1"
"""The first query: one without a window, whose rows show the delay from sample to answer."""

Progress = Callable[[str], None]


class Measurement(msgspec.Struct, frozen=True):
    """What a load took.

    Parameters
    ----------
    load
        The load.
    seconds
        For how long it was measured.
    samples_per_second, answers_per_second
        Rows stored in streams, and published.
    cores
        By part: processors in use.
    memory_bytes
        By part.
    disk_bytes_per_second
        Growth of the cluster's data folder, while all is kept.
    delays
        From samples to their answers; None if no query without a window answered.
    limit
        The stage that could not keep up; None if all did.
    """

    load: Load
    seconds: float
    samples_per_second: float
    answers_per_second: float
    cores: dict[str, float]
    memory_bytes: dict[str, int]
    disk_bytes_per_second: float
    delays: Delays | None
    limit: str | None


class _Look(msgspec.Struct, frozen=True):
    """The state of the parts at one instant."""

    at: float
    use: dict[str, Use]
    stored_rows: int
    published_rows: int
    commits: int
    disk_bytes: int
    backlog: Backlog


def measure(
    load: Load,
    *,
    settle_seconds: float,
    seconds: float,
    progress: Progress,
    folder: Path | None = None,
    longest_silence_us: int | None = None,
) -> Measurement:
    """Start parts of their own, run a load on them, and stop them.

    Parameters
    ----------
    load
        The load.
    settle_seconds
        Not measured: motes get their programs, and Spark compiles its code.
    seconds
        For how long to measure.
    progress
        Called with what is being done.
    folder
        Where the parts' data go; else into the system's folder for temporary files. They are removed.
    longest_silence_us
        How long motes may send nothing; None for the proxy's default.

    Raises
    ------
    ChildError
        If a part fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fjord-bench-", dir=folder) as made,
        Children(Path(made, "logs")) as children,
    ):
        parts = Parts.on_free_ports(children, Path(made))
        progress("starting broker and cluster")
        roots = {BROKER: parts.start_broker().process.pid}
        # What is too much is measured here, and not set aside.
        roots[CLUSTER] = parts.start_cluster("--query-share", "0").process.pid
        progress(f"starting {load.motes:,} motes")
        silence = [] if longest_silence_us is None else ["--longest-silence", format_duration(longest_silence_us)]
        proxy = parts.start_proxy(PROXY_NAME, *silence)
        parts.start_motes(PROXY_NAME, "--motes", str(load.motes), "--period", format_duration(load.period_us))
        parts.wait_for_stream("traffic", proxy)
        watched = WatchedProcesses({**roots, PROXY: proxy.process.pid})
        with ApiClient(parts.api_address) as api:
            for number, text in enumerate(query_texts(load), 1):
                progress(f"adding query {number:,} of {load.queries:,}")
                api.add(text, f"sized{number}")
            return asyncio.run(_measured(load, parts, api, watched, settle_seconds, seconds, progress))


async def _measured(  # noqa: PLR0917 - called once, with all that was started
    load: Load,
    parts: Parts,
    api: ApiClient,
    watched: WatchedProcesses,
    settle_seconds: float,
    seconds: float,
    progress: Progress,
) -> Measurement:
    seen = SeenDelays()

    async def receive(message: Message) -> None:
        arrived = time.time()
        if message.topic == topics.batches(PROXY_NAME):
            seen.batch(decode_batch(message.payload).watermark_us, arrived)
            return
        row: dict[str, Any] = msgspec.json.decode(message.payload)
        if "row" in row:
            seen.answer(round(datetime.fromisoformat(row["start"]).timestamp() * 1e6), arrived)

    subscriptions = [Subscription(topics.results(DELAYED)), Subscription(topics.batches(PROXY_NAME))]
    link = MqttLink(parts.broker, client_id="fjord-bench", subscriptions=subscriptions)
    receiving = asyncio.create_task(link.run(receive), name="results")
    try:
        await _wait(parts, settle_seconds, progress, "letting it settle")
        seen.forget_answers()
        before = await asyncio.to_thread(_look, parts, api, watched)
        await _wait(parts, seconds, progress, "measuring")
        found = seen.found()
        after = await asyncio.to_thread(_look, parts, api, watched)
    finally:
        receiving.cancel()
    return _measurement(load, before, after, found)


async def _wait(parts: Parts, seconds: float, progress: Progress, what: str) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        progress(f"{what}: {left:.0f} s")
        await asyncio.sleep(min(1.0, left))
        parts.children.check()


def _look(parts: Parts, api: ApiClient, watched: WatchedProcesses) -> _Look:
    status = api.status()
    spools, lag, results = status["proxy_spools"].values(), status["lag"] or {}, status["results"]
    backlog = Backlog(
        max((each["waits_seconds"] or 0.0 for each in spools), default=0.0),
        lag.get("seconds", 0.0),
        results["unpublished_commits"],
    )
    return _Look(
        time.monotonic(),
        watched.use(),
        status["rows_stored"],
        status["rows_published"],
        results["published_version"],
        bytes_below(parts.folder / "cluster"),
        backlog,
    )


def _measurement(load: Load, before: _Look, after: _Look, delays: Delays | None) -> Measurement:
    seconds = after.at - before.at

    def cores(name: str, field: str = "processor_seconds") -> float:
        return float(getattr(after.use[name], field) - getattr(before.use[name], field)) / seconds

    stored = after.stored_rows - before.stored_rows
    flow = Flow(
        seconds,
        round(load.motes * seconds * 1e6 / load.period_us) if load.every_sample else None,
        stored,
        cores(PROXY, "busiest_seconds"),
        after.commits - before.commits,
    )
    return Measurement(
        load,
        seconds,
        stored / seconds,
        (after.published_rows - before.published_rows) / seconds,
        {name: cores(name) for name in after.use},
        {name: use.memory_bytes for name, use in after.use.items()},
        max(0, after.disk_bytes - before.disk_bytes) / seconds,
        delays,
        limiting_stage(flow, before.backlog, after.backlog),
    )
