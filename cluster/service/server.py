"""A whole cluster in one process: ingest, Fjord on Spark, registry, API and publisher, under one task group."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client import CollectorRegistry

from cluster.errors import ClusterError
from cluster.fjord.acceptance import RowLimits
from cluster.fjord.batch import instant_text
from cluster.fjord.counters import Counters, added
from cluster.ingest.service import Ingest
from cluster.physical.plan_files import PlanFiles
from cluster.plan.demand import streams_of
from cluster.relations.source import Limits
from cluster.service.billing.lifetime_notes import lifetime_notes
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.catalog.sensor_catalog import Connected, SensorCatalog
from cluster.service.catalog.stream_budgets import StillRead, StreamBudgets
from cluster.service.data_folder.folder import check_path, lock_folder
from cluster.service.data_folder.format import REGISTRY, decide, look, settle
from cluster.service.http.api import make_api
from cluster.service.http.listening import ApiServer, listen
from cluster.service.http.metrics import ClusterMetrics
from cluster.service.lag import Lags, greatest
from cluster.service.publishing.demand_reports import DemandReports
from cluster.service.publishing.publisher import Publisher
from cluster.service.publishing.result_messages import stored_results
from cluster.service.query_service import QueryService
from cluster.service.registry.lost_epochs import go_on_behind, named_epoch
from cluster.service.registry.lost_versions import make_up_for_lost, named_versions, set_back
from cluster.service.registry.registry import Registry
from cluster.service.settings import ClusterSettings
from cluster.spark.positions import SparkPositions
from cluster.spark.session import SessionSettings, open_session
from cluster.spark.spark_log import SPARK_LOG, SparkLog
from cluster.storage.budgets import Blocked, Budget
from cluster.storage.compaction import Compaction
from cluster.storage.results_table import ResultsTable
from cluster.storage.synced_files import Troubles
from protocols.errors import TopicError
from protocols.event_log import get_logger
from protocols.mqtt.link import Message, MqttLink
from protocols.wire import topics
from protocols.wire.catalog import Presence, Status
from protocols.wire.frames import VERSION, encode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cluster.spark.hosting import FjordState, RunningFjord

log = get_logger(__name__)

RESTART_PAUSE_SECONDS = 5.0
LOG_PAUSE_SECONDS = 1.0
"""Between two looks at how large Spark's log is."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ClusterServer:
    """Everything a cluster is made of.

    Parameters
    ----------
    settings
        How to run it.

    Raises
    ------
    ClusterError
        If another cluster uses the data folder, it is of a format that is not read or at a path that is misread, or
        the API would be open to the network without a token.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        if settings.api_host not in LOOPBACK and not settings.api_token:
            raise ClusterError(
                f"the API would listen on {settings.api_host} for anybody",
                hint="set FJORD_API_TOKEN, or listen on 127.0.0.1",
            )
        self.settings = settings
        folder = settings.folder.resolve()
        check_path(folder)
        decide(folder, look(folder))  # a folder that is refused stays as it is
        self._lock = lock_folder(folder)
        settle(folder)
        self._folder = folder
        plans = PlanFiles(folder / "plans")
        self.troubles = Troubles()
        self.registry = Registry(folder / REGISTRY, plans, max_queries=settings.max_queries, troubles=self.troubles)
        self._fjord = self.registry.fjord
        self._checkpoint = folder / f"checkpoint-{self._fjord}"
        self.buckets = self.registry.fix("buckets", settings.buckets)
        positions = SparkPositions(self._checkpoint, PlanFiles(folder / "plans"))
        self.budgets = StreamBudgets(self.registry, Budget(settings.stream_age_us, settings.stream_bytes))
        self.ingest = Ingest(
            folder / "streams",
            quarantine=self.registry.quarantine,
            commit_interval_seconds=settings.commit_interval_seconds,
            silence_seconds=settings.silence_seconds,
            clock_tolerance_seconds=settings.clock_tolerance_seconds,
            needed=positions,
            troubles=self.troubles,
            budget=self.budgets.of,
            forgotten=self.budgets.forget,
            passed=StillRead(
                positions, lambda: self.registry.physical, lambda stream: str(folder / "streams" / stream)
            ),
        )
        self.lags = Lags(positions, lambda: {name: writer.table for name, writer in self.ingest.writers.items()})
        demand_reports = DemandReports()
        self.sensors = SensorCatalog(
            quarantine=self.registry.quarantine,
            mismatches=lambda: self.ingest.offers.mismatches,
            proxy_clocks=lambda: self.ingest.proxy_clocks.faults,
            refused_demands=demand_reports.texts,
        )
        budget, published = Budget(bytes=settings.results_bytes), lambda: self.registry.published()[0]
        unpublished = Compaction(needed=published, backlog_bytes=settings.results_backlog_bytes, budget=lambda: budget)
        self.results = ResultsTable(
            str(folder / "results"), self._fjord, compaction=unpublished, budget=budget, published=published
        )
        if self.results.damage is not None:
            log.error("results were damaged", what=str(self.results.damage))
        make_up_for_lost(self.ingest.writers, named_versions(self.registry.plan, self._checkpoint))
        go_on_behind(
            self.registry,
            named_epoch(plans, self._checkpoint),
            {stream: writer.table.version for stream, writer in self.ingest.writers.items()},
        )
        positions.check_plans(self.registry.plan.epoch)
        set_back(self.registry, self.results)
        status = topics.cluster_status(settings.name)
        self._link = MqttLink(
            settings.broker,
            client_id=f"fjord-cluster-{settings.name}",
            subscriptions=list(
                dict.fromkeys((*self.ingest.subscriptions, *self.sensors.subscriptions, *demand_reports.subscriptions))
            ),
            births=[Message(status, self._status(Presence.ONLINE), retain=True)],
            will=Message(status, self._status(Presence.OFFLINE), retain=True),
            on_connect=self._connected,
            silence_seconds=settings.broker_silence_seconds,
        )
        self._result_link = MqttLink(
            settings.broker,
            client_id=f"fjord-results-{settings.name}",
            silence_seconds=settings.broker_silence_seconds,
        )
        self.ingest.attach(self._link)
        limits = Limits(max_bytes=settings.max_relation_bytes)
        self.queries = QueryService(
            settings.name,
            self.registry,
            self.ingest,
            self._link,
            max_state_bytes=settings.max_state_bytes,
            row_limits=RowLimits(settings.max_rows_per_tuple, settings.max_rows_per_second),
            relation_memory_bytes=settings.relation_memory_bytes,
            buckets=self.buckets,
            relations=RelationStore.of(self.registry.relations, folder / "relations", self.sensors, limits),
            history_rows=settings.history_rows,
            planning_seconds=settings.planning_seconds,
            demand_reports=demand_reports,
        )
        stale = self.queries.relations.stale_for
        self.publisher = Publisher(self.results, self.registry, self._result_link, notes=self._notes_on, stale=stale)
        self.metrics = ClusterMetrics(self, CollectorRegistry())
        self._spark_log = SparkLog(folder / SPARK_LOG)
        self._spark: SparkSession | None = None
        self.running_fjord: RunningFjord | None = None
        self.fjord_state: FjordState | None = None
        """As Java has last said; None before the first time."""
        self._said_at = time.monotonic()
        self.fjord_restarts = 0
        self.fjord_starts = 0
        self.counters: Counters = {}
        """What operators have done since this process began."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask the server to stop; :meth:`run` then returns."""
        self._stopping.set()

    async def run(self, *, ready: asyncio.Event | None = None) -> None:
        """Run until :meth:`stop`. `ready` is set when the API answers and the Fjord runs."""
        notify = self.publisher.notify_from(asyncio.get_running_loop())
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._link.run(self._handle), name="link"),
                    tasks.create_task(self._result_link.run(_ignore), name="result link"),
                    tasks.create_task(self.ingest.run(), name="ingest"),
                    tasks.create_task(self.queries.run(), name="relations"),
                    tasks.create_task(self.publisher.run(), name="publisher"),
                    tasks.create_task(self._keep_log_small(), name="log of Spark"),
                ]
                async with self._serving(tasks):
                    running.append(tasks.create_task(self._keep_fjord(notify, ready), name="fjord"))
                    await self._stopping.wait()
                    await self._say_offline()
                    for task in running:
                        task.cancel()
        finally:
            await asyncio.to_thread(self._stop_spark)
            self.registry.close()
            os.close(self._lock)

    @property
    def fjord_ready(self) -> bool:
        """True once a new query does not wait for Spark's start any more."""
        return self.fjord_state is not None and self.fjord_state.ready

    def status(self) -> dict[str, Any]:
        """Return what the API's status shows."""
        fjord = self.fjord_state
        links = (self._link, self._result_link)
        lag = greatest(self.lags.now().values())
        lost = self.registry.lost_epochs()
        return {
            "name": self.settings.name,
            "broker": {
                "address": str(self.settings.broker),
                "connected": all(link.connected.is_set() for link in links),
                "trouble": next((link.trouble for link in links if link.trouble), None),
                "connects": self._link.connects_total,
                "hangs": self._link.hangs_total,
            },
            "fjord": {
                "running": fjord is not None and fjord.active,
                "ready": self.fjord_ready,
                "silent_seconds": None if fjord is None else round(time.monotonic() - self._said_at, 1),
                "starts": self.fjord_starts,
                "epoch": self.registry.plan.epoch,
                "lost": {"epochs": lost.epochs, "last": None if lost.seen_us is None else instant_text(lost.seen_us)},
                "micro_batches": {
                    host.value: {"number": last["batchId"], "milliseconds": last["batchDuration"]}
                    for host, last in ({} if fjord is None else fjord.progress).items()
                },
            },
            "queries": len(self.registry.plan.queries),
            "lag": None if lag is None else lag.as_json(),
            "streams": sorted(self.ingest.schemas),
            "rows_stored": sum(writer.admission.counters.rows for writer in self.ingest.writers.values()),
            "rows_rejected": sum(writer.admission.counters.rejected_rows for writer in self.ingest.writers.values()),
            "rows_late": sum(writer.admission.counters.late_rows for writer in self.ingest.writers.values()),
            "rows_published": self.publisher.published_rows,
            "results": {**self.publisher.status(), "dropped_rows": self.results.retention.numbers.dropped_rows},
            "refused": dict(self.ingest.refused),
            "storage": {
                **self.troubles.as_json(),
                "over_budget": {
                    table: f"{blocked.bytes} bytes: {blocked.by}"
                    for table, blocked in self.over_budget().items()
                    if blocked.bytes
                },
                "damaged": {stream: str(damage) for stream, damage in self.ingest.damages.items()},
                "lost_commits": sum(damage.lost_commits for damage in self.ingest.damages.values()),
            },
            "mismatches": len(self.ingest.offers.mismatches),
            "sensors": {
                "known": len(self.sensors),
                "refused": dict(self.sensors.refused),
                "wrong_clocks": dict(self.sensors.clock_faults()),
                "samples_rejected": dict(self.sensors.samples_rejected()),
            },
            "proxy_clocks": {
                proxy: {"behind_seconds": behind_us / 1e6, "fault": self.ingest.proxy_clocks.faults.get(proxy)}
                for proxy, behind_us in self.ingest.proxy_clocks.behind_us.items()
            },
            "proxy_spools": {
                proxy: {
                    "online": self.ingest.online(proxy),
                    "batches": spool.said.batches,
                    "bytes": spool.said.bytes,
                    "waits_seconds": spool.waits_seconds,
                    "heard": instant_text(spool.heard_us),
                }
                for proxy, spool in self.ingest.proxy_spools.all().items()
            },
        }

    def over_budget(self) -> dict[str, Blocked]:
        """Return, by table, what is over its budget, as it still has to be read."""
        streams = {f"streams/{name}": each.table.retention.blocked for name, each in self.ingest.writers.items()}
        return {"results": self.results.retention.blocked, **streams}

    async def results_json(self, query: str, after: int, limit: int) -> bytes:
        """Return rows of a query, dropped ones included, as a JSON array of the published messages."""
        root, fjord = self.results.root, self._fjord
        return await asyncio.to_thread(
            lambda: stored_results(ResultsTable(root, fjord, appends=False), query, after, limit)
        )

    @asynccontextmanager
    async def _serving(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Serve the API; a port in use is found before anything else starts."""
        api = make_api(self, self.metrics.registry, self.settings.api_token)
        config = uvicorn.Config(api, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2)
        server = ApiServer(config)
        listening = listen(self.settings.api_host, self.settings.api_port)
        serving = tasks.create_task(server.serve(sockets=[listening]), name="api")
        log.info("API listens", address=f"http://{self.settings.api_host}:{listening.getsockname()[1]}")
        try:
            yield
        finally:
            server.should_exit = True
            await serving

    async def _keep_fjord(self, notify: Any, ready: asyncio.Event | None) -> None:
        """Start Spark and the Fjord, and start the Fjord again if it fails."""
        began = time.monotonic()
        self._spark = await asyncio.to_thread(
            open_session,
            SessionSettings(
                master=self.settings.master,
                partitions=self.settings.partitions,
                driver_memory=self.settings.driver_memory,
            ),
            self._folder / "spark",
            self._spark_log,
        )
        log.info("Spark runs", version=self._spark.version, seconds=round(time.monotonic() - began, 1))
        while True:
            fjord, reason = None, None
            try:
                await asyncio.to_thread(self._start_fjord, notify)
                fjord = self.running_fjord
            except Exception as error:  # noqa: BLE001 - Java's and Spark's, too: a full disk has many names
                reason = str(error)
                self.troubles.note("start of the Fjord", reason[:500])
            while fjord is not None and (await self._ask(fjord)).active:
                if ready is not None and self.fjord_ready:
                    ready.set()
                await asyncio.sleep(0.5)
            reason = self.fjord_state.failure if fjord is not None and self.fjord_state is not None else reason
            self.fjord_restarts += 1
            log.error("the Fjord stopped and will be started again", reason=str(reason)[:2000])
            await asyncio.to_thread(self._stop_fjord)
            await asyncio.sleep(RESTART_PAUSE_SECONDS)

    async def _keep_log_small(self) -> None:
        while True:
            await asyncio.to_thread(self._spark_log.rotate)
            await asyncio.sleep(LOG_PAUSE_SECONDS)

    async def _ask(self, fjord: RunningFjord) -> FjordState:
        """Ask Java how the Fjord is; while it does not answer, ingest and API go on."""
        self.fjord_state = await asyncio.to_thread(fjord.state)
        self._said_at = time.monotonic()
        return self.fjord_state

    def _start_fjord(self, notify: Any) -> None:
        from cluster.spark.hosting import start_fjord  # noqa: PLC0415 - Spark takes a second to import
        from cluster.spark.source import SourceOptions  # noqa: PLC0415

        assert self._spark is not None  # noqa: S101 - set just before
        self.running_fjord = start_fjord(
            self._spark,
            options=SourceOptions(
                streams_folder=str(self._folder / "streams"),
                plans_folder=str(self._folder / "plans"),
                relations_folder=str(self._folder / "relations"),
                relation_memory_bytes=self.settings.relation_memory_bytes,
                buckets=self.buckets,
                max_partitions=self._spark.sparkContext.defaultParallelism,
                max_rows=self.settings.max_rows,
                history_rows=self.settings.history_rows,
            ),
            checkpoint=self._checkpoint,
            results=self.results,
            on_commit=notify,
            run=uuid.uuid4().hex,
            trigger_seconds=self.settings.trigger_seconds,
            on_counters=self._count,
        )
        self.fjord_starts += 1
        log.info("the Fjord runs", epoch=self.registry.plan.epoch, queries=len(self.registry.plan.queries))

    def _count(self, counters: Counters) -> None:
        """Add what operators did; called in one of Spark's threads."""
        self.counters = added(self.counters, counters)

    def _stop_fjord(self) -> None:
        if self.running_fjord is not None:
            self.running_fjord.stop()

    def _stop_spark(self) -> None:
        self._stop_fjord()
        if self._spark is not None:
            self._spark.stop()

    async def _handle(self, message: Message) -> None:
        try:
            topic = topics.parse(message.topic)
        except TopicError as error:
            log.warning("message refused", topic=message.topic, error=str(error))
            return
        self.sensors.handle(message, topic)
        self.queries.demand_reports.handle(message, topic)
        await self.ingest.handle(message, topic)

    async def _connected(self) -> None:
        self.sensors.apply(Connected())
        self.queries.demand_reports.connected()
        await self.queries.publish_all_demands()

    async def _say_offline(self) -> None:
        if self._link.connected.is_set():
            await self._link.publish(
                Message(topics.cluster_status(self.settings.name), self._status(Presence.OFFLINE), retain=True)
            )

    def _notes_on(self, queries: Collection[str]) -> Mapping[str, dict[str, Any] | None]:
        """Return what subscribers of queries are to know of their sensors."""
        streams = {name: streams_of(node) for name, node in self.registry.nodes(queries).items()}
        return lifetime_notes(self.sensors.snapshot()[0], streams)

    def _status(self, presence: Presence) -> bytes:
        return encode(Status(VERSION, self.settings.name, presence, self._fjord, time.time_ns() // 1000))


async def _ignore(_: Message) -> None:
    """The result link receives nothing."""
