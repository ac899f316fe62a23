"""Runs one load on parts of its own, and measures what they use."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from cluster.demo.parts import Parts
from cluster.demo.processes import Children
from cluster.service.client.api_client import ApiClient
from cluster.sizing.bottleneck import Backlog, Flow, limiting_stage
from cluster.sizing.delays import Delays, SeenDelays
from cluster.sizing.loads import Load, query_texts
from cluster.sizing.resources import BROKER, CLUSTER, PROXY, Use, WatchedProcesses, bytes_below
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.text.durations import format_duration
from protocols.wire import topics
from protocols.wire.batches import decode_batch

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
