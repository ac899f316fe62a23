"""A cluster that lives again and again on the same folder, each time until the power is cut at a random instant.

Proxies, subscribers and users are outside: they remember what was acknowledged, and send again what was not
acknowledged. In the end nothing acknowledged may be missing, and nothing may be there twice.
"""

from __future__ import annotations

import asyncio
import copy
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import polars as pl
import pytest

from cluster.fjord.batch import instant_text
from cluster.ingest.writer import StreamWriter
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.rewrite import rewrite
from cluster.service.publishing.publication import Publication, rewind
from cluster.service.publishing.publisher import Publisher
from cluster.service.registry.registry import Registry
from cluster.storage import archived_log, delta_tables
from cluster.storage.committed_results import CommittedResults
from cluster.storage.compaction import Compaction
from cluster.storage.results_table import ResultsTable
from cluster.storage.stream_tables import StreamTable
from protocols.mqtt.publish_frames import PublishFrames
from protocols.wire.batches import Ack, Batch, PackedBatch, make_columns, pack_batch
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.service.test_publisher import messages_of
from tests.power_cuts.disk import RecordedDisk
from tests.power_cuts.micro_batches import MicroBatches

SPEEDS = StreamSchema("speeds", (Field("speed", FieldType.INTEGER),))
SECOND_US = 1_000_000
PROXIES = ("p", "q")
QUERIES = {
    "rows": "SELECT speed FROM speeds",
    "counts": "SELECT COUNT(*) AS n, SUM(speed) AS total FROM speeds WINDOW(RANGE 10 SECONDS SLIDE 5 SECONDS)",
    "late-rows": "SELECT speed FROM speeds WHERE speed > 3",
    "late-counts": "SELECT COUNT(*) AS n FROM speeds WINDOW(RANGE 1 SECOND SLIDE 1 SECOND)",
}
INSTANTS = 240
"""A life ends after so many at most: some fall into the start, and some lives reach a checkpoint or a compaction."""
MEANWHILE = 0.2
"""How often another part reads what is being written."""


@dataclass
class Outside:
    """What is known outside the cluster, where no power cut reaches."""

    sent: int = 0
    """Batches of each proxy there are in all: sent, or to be sent."""
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROXIES, 0))
    published: dict[tuple[str, int], str] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)


def batch(proxy: str, sequence: int, last: int) -> PackedBatch:
    """Return a batch: the first announces the proxy, the last ends its stream."""
    number = 2 * sequence + PROXIES.index(proxy)
    stamps = [] if sequence in (1, last) else [sequence * SECOND_US + number]
    rows = len(stamps)
    columns = make_columns(SPEEDS, stamps, ["m"] * rows, [True] * rows, {"speed": [number] * rows})
    watermark = 0 if sequence == 1 else (sequence + 1) * SECOND_US + (100 * SECOND_US if sequence == last else 0)
    return pack_batch(Batch(1, proxy, "e", "speeds", sequence, watermark, True, rows, columns if rows else ()))


def speeds(last: int) -> list[int]:
    """Return all speeds there are in so many batches of each proxy."""
    return sorted(2 * sequence + number for sequence in range(2, last) for number in range(len(PROXIES)))


class Life:
    """A cluster on a folder.

    Parameters
    ----------
    folder
        Its data.
    outside
        Those it talks to.
    last
        How many batches each proxy sends.
    """

    def __init__(self, folder: Path, outside: Outside, last: int) -> None:
        self._outside = outside
        self._last = last
        plans = PlanFiles(folder / "plans")
        self._registry = Registry(folder / "registry.sqlite", plans)
        self._writer = StreamWriter(
            StreamTable(str(folder / "streams" / "speeds"), SPEEDS, compaction=Compaction(5)),
            acknowledge=self._acknowledged,
            quarantine=lambda *rejected: pytest.fail(str(rejected)),
        )
        self._results = ResultsTable(str(folder / "results"), self._registry.engine_id, compaction=Compaction(5))
        rewind(folder, self._results.version)
        self.connected = asyncio.Event()
        self._publisher = Publisher(CommittedResults(self._results.root), Publication(folder), self)
        self._running = Lock()
        self._hosts: list[MicroBatches] = []
        self._register("rows", "counts")
        self._hosts = [MicroBatches(host, folder, self._results, "run") for host in Host]

    async def step(self, dice: random.Random) -> None:
        """Let one part do something."""
        match dice.choice(["send", "send", "commit", "run", "run", "publish", "register"]):
            case "send":
                await self._send(dice.choice(PROXIES), dice.randrange(1, 4))
            case "commit":
                await self._writer.commit()
            case "run":
                self._run(dice.choice(self._hosts))
            case "publish":
                await self._publish()
            case _:
                self._register(dice.choice([name for name in QUERIES if name.startswith("late")]))

    def run_meanwhile(self) -> None:
        """Run a micro-batch while another part writes, unless one is running."""
        for host in self._hosts:
            self._run(host)

    def _run(self, host: MicroBatches) -> bool:
        if not self._running.acquire(blocking=False):
            return False
        try:
            return host.step()
        finally:
            self._running.release()

    async def finish(self) -> None:
        """Go on until there is nothing left to do."""
        while min(self._outside.acknowledged.values()) < self._last:
            for proxy in PROXIES:
                await self._send(proxy, 3)
            await self._writer.commit()
        for host in self._hosts:
            while self._run(host):
                pass
        while await self._publish():
            pass

    def close(self) -> None:
        """Let go of the files."""
        self._registry.close()

    def stored(self) -> list[int]:
        """Return the rows of the stream."""
        return sorted(pl.read_delta(self._writer.table.root)["speed"].to_list())

    def answers(self, query: str) -> list[tuple[int, int, int, str]]:
        """Return a query's results: number, start, end, row."""
        return list(self._results.rows_after(query, 0, 10_000).select("sequence", "start_us", "end_us", "row").rows())

    async def _publish(self) -> bool:
        self._publisher.announce(self._results.version)
        return await self._publisher.publish()

    async def publish_frames(self, frames: PublishFrames) -> None:
        """Take what is published, for subscribers."""
        for message in messages_of(frames):
            found = msgspec.json.decode(message.payload)
            query, number = message.topic.rsplit("/", 1)[1], found["sequence"]
            row = repr((found["start"], found["end"], found["row"]))
            assert self._outside.published.setdefault((query, number), row) == row, "one number, two rows"

    async def _send(self, proxy: str, count: int) -> None:
        outside = self._outside
        for sequence in range(outside.acknowledged[proxy] + 1, outside.acknowledged[proxy] + 1 + count):
            if sequence > self._last or (sequence > 1 and min(outside.acknowledged.values()) < 1):
                return  # no proxy brings samples before the cluster knows both
            ack = self._writer.receive(batch(proxy, sequence, self._last))
            if ack is not None:
                await self._acknowledged(ack)

    async def _acknowledged(self, ack: Ack) -> None:
        known = self._outside.acknowledged
        assert ack.through >= known[ack.proxy], f"{ack.proxy} was sent {known[ack.proxy]}, and now {ack.through}"
        known[ack.proxy] = ack.through

    def _register(self, *wanted: str) -> None:
        names = {query.name for query in self._registry.queries()}
        assert names >= self._outside.registered
        for name in wanted:
            if name not in names:
                node = rewrite(translate(QUERIES[name], Catalog.of([SPEEDS])).node).node
                self._registry.add(name, QUERIES[name], node, {"speeds": self._writer.table.version})
            self._outside.registered.add(name)


@dataclass
class Ended:
    """What is left after all lives: of the cluster's tables, and outside."""

    stored: list[int]
    answers: dict[str, list[tuple[int, int, int, str]]]
    outside: Outside


async def live(folder: Path, patch: pytest.MonkeyPatch, *, cuts: int, seed: int, last: int = 30) -> Ended:
    """Live so many lives, each cut off, and then a last one to its end."""
    patch.setattr(delta_tables, "COMMITS_BETWEEN_CHECKPOINTS", 6)
    patch.setattr(archived_log, "COMMITS_KEPT", 8)
    dice, outside = random.Random(seed), Outside()
    here = folder / "0"
    here.mkdir()
    for number in range(1, cuts + 1):
        cut = _Cut(here, folder / str(number), outside, random.Random(f"{seed} {number}"))
        cut.disk.record(patch)
        while cut.after is None:
            if cut.life is None:
                cut.life = Life(here, cut.outside, last)
            else:
                await cut.life.step(dice)
            cut.instant()
        if cut.life is not None:
            cut.life.close()
        cut.disk.close()
        shutil.rmtree(here)
        here, outside = cut.into, cut.after
    disk = RecordedDisk(here)
    disk.record(patch)
    life = Life(here, outside, last)
    await life.finish()
    answers = {name: life.answers(name) for name in QUERIES}
    stored = life.stored()
    life.close()
    disk.close()
    return Ended(stored, answers, outside)


class _Cut:
    """Cuts the power at a random instant; what happens on that folder from then on is not read any more."""

    def __init__(self, folder: Path, into: Path, outside: Outside, dice: random.Random) -> None:
        self.into = into
        self.outside = copy.deepcopy(outside)
        self.after: Outside | None = None
        self.life: Life | None = None
        self.disk = RecordedDisk(folder, self.instant)
        self._dice = dice
        self._left = dice.randrange(1, INSTANTS)
        self._lock = Lock()

    def instant(self, _: Path | None = None) -> None:
        """Count an instant; at the last one, cut. At some of the others another part gets its turn."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.disk.cut(self.into, self._dice)
                self.after = copy.deepcopy(self.outside)
            turn = self._dice.random() < MEANWHILE
        if turn and self.life is not None and self.after is None:
            self.life.run_meanwhile()


def as_published(answer: tuple[int, int, int, str]) -> str:
    """Return an answer as a subscriber notes it."""
    _, start_us, end_us, row = answer
    return repr((instant_text(start_us), instant_text(end_us), msgspec.json.decode(row)))


def doubled(numbers: list[int]) -> list[int]:
    """Return what is there more than once."""
    return [number for number, times in Counter(numbers).items() if times > 1]


def rows_of(answers: list[tuple[int, int, int, str]]) -> list[dict[str, Any]]:
    """Return the rows of answers."""
    return [msgspec.json.decode(row) for *_, row in answers]
