"""The real cluster in a whole deployment: what it stored, answered and published, against what proxies have spooled."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cluster.ingest.writer import StreamWriter
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.service.running.engine import checkpoint_of
from cluster.spark.offsets import SparkPositions
from protocols.wire.batches import START_COLUMN, Batch, Resumption, decode_batch
from tests.faults.checks import shown
from tests.simulation import cluster_oracles, short_retention
from tests.simulation.bounds import commit_seconds
from tests.simulation.broker import PORT
from tests.simulation.cluster_host import AWAY, ClusterHost
from tests.simulation.cluster_oracles import Result
from tests.simulation.committed_versions import ALWAYS_US
from tests.simulation.deployed_answers import answered, definition_of, expected, given_out_until
from tests.simulation.device_plans import NEW_COLUMN
from tests.simulation.engine import SimulatedEngine
from tests.simulation.fault_kinds import MIGRATES
from tests.simulation.fed_cluster import RESULTS
from tests.simulation.hosts import current
from tests.simulation.proxy_host import BatchId
from tests.simulation.result_messages import received, stored_result
from tests.simulation.schedules import stream_of
from tests.simulation.violations import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from protocols.mqtt.messages import Message
    from tests.simulation.deployed_answers import Definition
    from tests.simulation.schedules import QueryPlan
    from tests.simulation.world import World

STREAM = "traffic"
TRIGGER_SECONDS, CALM_TRIGGER_SECONDS = 75.0, 20.0
"""Between micro-batches while things go wrong, and when no more do: answers are compared up to the end."""
MOST_CHANGES = 8
"""With more queries that come, go or migrate, micro-batches are closer together: each begins one plan at most."""
COMPACTED_SECONDS = 30
LONGEST_UNPUBLISHED_SECONDS = 5.0
"""After it a commit is published: not all are in the moment in which they are made, which may be the last one."""
LONGEST_LAG_SECONDS = 50.0
"""How far answers are behind what is stored at the end, at most: two plans may have begun just before."""


class DeployedCluster(ClusterHost):
    """The machine.

    Parameters
    ----------
    world
        The deployment.
    folder
        For its disk.
    """

    def __init__(self, world: World, folder: Path) -> None:
        seed = str(world.schedule.seed)
        short_retention.install(COMPACTED_SECONDS)
        gone_after = 20.0 if world.schedule.seed % 2 else None
        intervals = {"commit_interval_seconds": commit_seconds(world.schedule), "trigger_seconds": CALM_TRIGGER_SECONDS}
        divided = {"partitions": world.schedule.partitions}
        settings = {**intervals, **divided, **short_retention.BUDGET, "gone_after_seconds": gone_after}
        publishers = world.schedule.publishers
        changes = sum(1 + (each.dropped is not None) for each in world.schedule.queries)
        changes += 2 * sum(each.kind == MIGRATES for each in world.schedule.faults)  # to run beside, and to go on alone
        SimulatedEngine.least_pause_seconds = TRIGGER_SECONDS * min(1.0, MOST_CHANGES / changes)
        super().__init__(world.loop, folder, "broker", PORT, seed=seed, publishers=publishers, **settings)
        self.world = world
        self.accepted: list[Message] = []
        """What the broker accepted of results."""
        self.skipped: set[BatchId] = set()
        """Batches that proxies reported as lost, and that are therefore not awaited."""
        self._tap()

    def calm_down(self) -> None:
        """Let micro-batches begin more often, and the next ones now."""
        SimulatedEngine.least_pause_seconds = 0.0
        if self.server is not None:
            self.server.parts.engine.hurry()

    async def add_query(self, sql: str, name: str) -> str | None:
        """Add a query, once there is the stream."""
        if self.server is None or stream_of(sql) not in self.server.parts.ingest.writers:
            return AWAY
        return self._later(await super().add_query(sql, name))

    async def drop_query(self, name: str) -> str | None:
        """Drop a query."""
        return self._later(await super().drop_query(name))

    @property
    def batches(self) -> dict[BatchId, Batch]:
        """All batches that proxies have spooled and the table says that it has."""
        return dict(self._batches())

    @property
    def watermark_us(self) -> int | None:
        """The low watermark of what is stored; None if nothing is, or it does not run."""
        writer = None if self.server is None else self.server.parts.ingest.writers.get(STREAM)
        return None if writer is None else writer.admission.position.watermark_us

    @property
    def fails_next(self) -> bool:
        """Whether the next syncs or commits will fail."""
        return any(self.disk.failing.values())

    @property
    def demanded(self) -> set[str]:
        """The queries that are registered: all demand something."""
        return set() if self.server is None else {query.name for query in self.server.parts.registry.queries()}

    def violations(self) -> list[Violation]:
        """Return what is wrong with the cluster's half."""
        return list(self._violations())

    def _violations(self) -> Iterator[Violation]:
        server = self.server
        if server is None:
            yield Violation("stalled", f"the cluster does not run: {self.failures[-1:]}")
            return
        if not self.disk.failed:
            yield from (Violation("wrong", f"the cluster ended: {each}") for each in self.failures)
            yield from (Violation("wrong", f"the engine failed: {each}") for each in server.parts.engine.failures)
        lost = server.parts.publishers.progress.lost
        if lost.times and not self.disk.failed:
            yield Violation("lost", f"{lost.rows} results of {lost.commits} commits before they were published")
        self.note_counts()
        for stream in server.parts.ingest.tables():
            yield from self._wrong_rows(stream, list(self._rows(stream)))
        left = {
            "old commits not published": self._old_unpublished(),
            **{
                f"seconds that {host} is behind {stream}": lag.seconds - LONGEST_LAG_SECONDS
                for (stream, host), lag in self._lags()
            },
        }
        yield from (
            Violation("stalled", f"{name}: {value:.0f} more than allowed") for name, value in left.items() if value > 0
        )
        results = self._results()
        accepted = self._accepted()
        for name in sorted(results.keys() | accepted.keys()):
            yield from self._wrong_results(name, results.get(name, []), accepted.get(name, []))
        for plan in self.world.schedule.queries:
            yield from self._wrong_answers(plan, results.get(plan.name, []))
        seen: dict[str, list[Result]] = {}
        for arrival in self.world.subscriber.arrivals:
            query, result = received(arrival.message)
            seen.setdefault(query, []).append(result)
        for name, found in seen.items():
            yield from self._wrong_arrivals(name, results.get(name, []), found)

    def _old_unpublished(self) -> int:
        """How many commits are not published though they are not of the last moment."""
        assert self.server is not None
        newest = self.server.parts.results.version
        published = newest - self.server.parts.publishers.unpublished_commits
        unpublished = range(published + 1, newest + 1)
        return sum(self.committed.age_seconds("results", each) > LONGEST_UNPUBLISHED_SECONDS for each in unpublished)

    @staticmethod
    def _later(reason: str | None) -> str | None:
        """Return a reason, as one to try again for if the disk was at fault."""
        return AWAY if reason is not None and ("disk" in reason or "written" in reason) else reason

    def _tap(self) -> None:
        """Note what passes; the process runs this one deployment only."""
        resume = StreamWriter.resume

        def observed(message: Message) -> None:
            if message.topic.startswith(RESULTS):
                self.accepted.append(message)

        def resuming(writer: StreamWriter, resumption: Resumption) -> Any:
            process = current()
            lane = resumption.proxy, resumption.epoch
            lost = writer._waiting.lost
            found = resume(writer, resumption)
            if process is self.host.incarnation and writer._waiting.lost > lost:
                first = resumption.first - (writer._waiting.lost - lost)
                self.skipped |= {BatchId(*lane, writer.stream, each) for each in range(first, resumption.first)}
            return found

        self.world.broker.observers.append(observed)
        StreamWriter.resume = resuming  # type: ignore[method-assign]

    def _batches(self) -> Iterator[tuple[BatchId, Batch]]:
        if self.server is None:
            return
        for proxy in self.world.proxies.values():
            for identity, spooled in proxy.spooled.items():
                writer = self.server.parts.ingest.writers.get(identity.stream)
                if writer is None or identity in self.skipped:
                    continue
                if identity.sequence <= writer.table.last_sequence(identity.proxy, identity.epoch):
                    yield identity, decode_batch(spooled.payload)

    def _rows(self, stream: str = STREAM, *, after: int = -1) -> Iterator[dict[str, Any]]:
        assert self.server is not None
        tables = self.server.parts.ingest.tables()
        if stream in tables:
            yield from self.committed.rows(f"streams/{stream}", tables[stream].version, after)

    def _lags(self) -> Any:
        assert self.server is not None
        assert self.host.incarnation is not None
        return self.host.incarnation.run(self.server.parts.lags.now).items()

    def _wrong_rows(self, stream: str, rows: list[dict[str, Any]]) -> Iterator[Violation]:
        """Every row of a batch that the table says it has is in the table once."""
        have = Counter(map(_known_values, rows))
        want: Counter[tuple[Any, ...]] = Counter()
        for batch in (found for identity, found in self.batches.items() if identity.stream == stream):
            columns = {column.name: column.values(batch.rows) for column in batch.columns}
            if not self._declares(stream, NEW_COLUMN.name):
                columns.pop(NEW_COLUMN.name, None)  # it came after the stream had its table
            want.update(
                _known_values(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
            )
        lost, more = list((want - have).elements()), list((have - want).elements())
        if len(lost) > self.late.total():
            yield from (
                Violation("lost", each)
                for each in shown(f"rows of stored batches missing, {self.late.total()} late", lost)
            )
        yield from (Violation("doubled", each) for each in shown("rows stored that no batch has, or too often", more))

    def _declares(self, stream: str, column: str) -> bool:
        assert self.server is not None
        return any(each.name == column for each in self.server.parts.ingest.schemas[stream].fields)

    def _wrong_results(self, name: str, stored: list[Result], accepted: list[Result]) -> Iterator[Violation]:
        for text in cluster_oracles.numbered(stored):
            yield Violation("wrong", f"{name}: {text}")
        last = max((each.sequence for each in accepted), default=0)
        for text in cluster_oracles.published([each for each in stored if each.sequence <= last], accepted):
            yield Violation("lost" if "never" in text else "wrong", f"{name}: {text}")

    @staticmethod
    def _wrong_arrivals(name: str, stored: list[Result], found: list[Result]) -> Iterator[Violation]:
        """What a subscriber has is what is stored, each number the first time in order; it may have been away."""
        kept, first = {each.sequence: each for each in stored}, list(dict.fromkeys(each.sequence for each in found))
        other = [each.sequence for each in found if kept.get(each.sequence) != each]
        back = [b for a, b in pairwise(first) if b < a]
        for text in (
            *shown("results received otherwise than stored", other),
            *shown("results received after later ones", back),
        ):
            yield Violation("wrong", f"{name}: {text}")

    def _wrong_answers(self, plan: QueryPlan, found: list[Result]) -> Iterator[Violation]:
        """Compare the answers of a query with its definition, as far as the engine says that it has answered."""
        stream = stream_of(plan.sql)
        span = self.committed.span(plan.name, stream)
        if span is None:
            return
        definition = definition_of(plan.sql)
        begun_us = self.committed.watermark_us(stream, span.begun)
        seen = (
            self._rows(stream, after=span.begun)
            if definition.has_state
            else (row for row in self._rows(stream) if row[START_COLUMN] >= begun_us)
        )
        wanted = list(expected(definition, seen))
        until_us = (
            self._answered_until_us(stream, definition, found)
            if span.ended is None
            else given_out_until(wanted, self.committed.watermark_us(stream, span.ended), span.handover)
        )
        for text in cluster_oracles.same_snapshots(answered(found), wanted, until_us):
            yield Violation("lost" if "missing" in text else "doubled", f"{plan.name}: {text}")

    def _answered_until_us(self, stream: str, definition: Definition, found: list[Result]) -> int:
        """Return up to which instant a query that goes on must have answered: its last micro-batch may not be noted."""
        assert self.server is not None
        folder = self.settings.folder
        positions = SparkPositions(checkpoint_of(folder, self.server.parts.registry), PlanFiles(folder / "plans"))
        host = Host.STATEFUL if definition.has_state else Host.STATELESS
        read = positions.read_by(host, [stream])
        last_us = max((each.start_us for each in found if each.start_us is not None), default=ALWAYS_US)
        return max(last_us, self.committed.watermark_us(stream, read[stream]) if stream in read else ALWAYS_US)

    def _results(self) -> dict[str, list[Result]]:
        assert self.server is not None
        found: dict[str, list[Result]] = {}
        for row in self.committed.rows("results", self.server.parts.results.version):
            found.setdefault(row["query"], []).append(stored_result(row))
        return found

    def _accepted(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for message in self.accepted:
            query, result = received(message)
            found.setdefault(query, []).append(result)
        return found


def _known_values(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, value) for name, value in row.items() if value is not None))
