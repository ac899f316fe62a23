"""The parts of a cluster. Each is fully constructed from earlier ones; none is changed afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from cluster.errors import ClusterError
from cluster.fjord.acceptance import RowLimits
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.ingest.offers import Offers
from cluster.ingest.proxy_reports import ProxyClocks
from cluster.ingest.service import Ingest
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.allowed_hosts import AllowedHosts
from cluster.relations.opening import Reach
from cluster.relations.source import Limits
from cluster.service.billing.periods import BillingPeriods, Ledger
from cluster.service.catalog.relation_store import RelationStore
from cluster.service.catalog.sensor_catalog import SensorCatalog
from cluster.service.catalog.stream_service import ReservedNames
from cluster.service.catalog.stream_settings import GoneProxies, ReadProgress, StreamBudgets
from cluster.service.publishing.demand_publication import DemandReports
from cluster.service.publishing.lag import Lags, instants_read
from cluster.service.publishing.publication import begin, rewind
from cluster.service.publishing.published import LostResults, Published
from cluster.service.publishing.publisher_channel import Note, Orders
from cluster.service.publishing.supervised_publishers import ProgressOfAll, SupervisedPublishers
from cluster.service.queries.lifetime_notes import slower_queries
from cluster.service.queries.long_lived import LongLived
from cluster.service.queries.migrations import Answered
from cluster.service.queries.operator_prices import OperatorPrices
from cluster.service.queries.query_service import QueryService
from cluster.service.registry.registry import (
    newest_known_epoch,
    newest_known_versions,
    replace_lost_versions,
    skip_lost_epochs,
)
from cluster.service.running.engine import Engine, checkpoint_of, notes_in
from cluster.service.running.overrun_watch import OverrunWatch
from cluster.service.running.settings import DEFAULT_BUCKETS
from cluster.spark.bucket_keys import first_key
from cluster.spark.offsets import SparkPositions
from cluster.storage.budgets import Budget
from cluster.storage.compaction import Compaction
from cluster.storage.results_table import ResultsTable
from cluster.storage.table_folders import folder_of
from protocols.event_log import get_logger, logging_configured
from protocols.presence.name_claim import claim_of_cluster
from protocols.wire.catalog import Status

if TYPE_CHECKING:
    from cluster.service.catalog.relation_service import RelationService
    from cluster.service.registry.registry import Registry
    from cluster.service.running.settings import ClusterSettings
    from cluster.spark.java_process import JavaProcess
    from protocols.mqtt.link import Message

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a cluster reads the time, and draws.

    Parameters
    ----------
    wall
        Seconds since 1970.
    monotonic
        Seconds by a clock that never goes back.
    chance
        Draws a number from 0 to 1.
    """

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class BrokerLink(Protocol):
    """The connection to the broker."""

    connected: asyncio.Event
    connects_total: int
    hangs_total: int

    @property
    def trouble(self) -> str | None:
        """Why there is no connection; None while there is one."""

    async def run_in_bursts(self, take: Callable[[Sequence[Message]], Awaitable[None]]) -> None:
        """Receive until cancelled."""

    async def publish(self, message: Message) -> None:
        """Publish; raises LinkError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """What a cluster consists of.

    Parameters
    ----------
    settings
        How it is run.
    registry
        Keeps queries, streams, relations and plans.
    link
        The connection to the broker, for all but results.
    ingest
        Stores what proxies send.
    sensors
        The catalog of sensors.
    budgets
        What may be kept of each stream.
    gone_proxies
        After how long each stream goes on without a proxy.
    lags
        How far queries are behind.
    results
        The results table.
    queries
        Adds and drops queries; holds the services for streams and relations.
    billing
        Divides what motes spend among queries.
    publishers
        The processes that publish results.
    engine
        Answers queries.
    overruns
        Sets aside queries that take too much.
    """

    settings: ClusterSettings
    registry: Registry
    link: BrokerLink
    ingest: Ingest
    sensors: SensorCatalog
    budgets: StreamBudgets
    gone_proxies: GoneProxies
    lags: Lags
    results: ResultsTable
    queries: QueryService
    billing: BillingPeriods
    publishers: SupervisedPublishers
    engine: Engine
    overruns: OverrunWatch


def make_parts(
    settings: ClusterSettings,
    folder: Path,
    registry: Registry,
    link: BrokerLink,
    java: JavaProcess | None = None,
    *,
    sources: Sources | None = None,
    own: Status,
) -> ClusterParts:
    """Return the parts of a cluster over a data folder.

    Parameters
    ----------
    settings, registry, link
        As in :class:`ClusterParts`.
    folder
        The data folder.
    java
        The Java for Spark; None starts one.
    sources
        Where it reads the time, and draws.
    own
        Its status.

    Raises
    ------
    ClusterError
        If something in the data folder cannot be read, or cannot be repaired.
    """
    sources = sources or Sources()
    plans, checkpoint = PlanFiles(folder / "plans"), checkpoint_of(folder, registry)
    buckets, key = fixed_buckets(registry, settings)
    positions = SparkPositions(checkpoint, PlanFiles(folder / "plans"))
    offers, proxy_clocks = Offers(), ProxyClocks(round(settings.clock_tolerance_seconds * 1e6))
    demand_reports = DemandReports()
    ledger = Ledger()
    sensors = SensorCatalog(
        accepted=ledger.note,
        clock=sources.monotonic,
        quarantine=registry.quarantine.keep,
        mismatches=lambda: offers.mismatches,
        proxy_clocks=lambda: proxy_clocks.faults,
        refused_demands=demand_reports.texts,
    )
    limits = Limits(max_bytes=settings.max_relation_bytes)
    reach = Reach(
        AllowedFiles(settings.relation_folders, never=(folder, *settings.secret_files)),
        AllowedHosts(settings.relation_hosts, credentials=settings.relation_credentials),
    )
    names = ReservedNames(
        RelationStore.of(
            registry.relations,
            folder / "relations",
            sensors,
            limits,
            reach,
            clock=sources.monotonic,
            wall=sources.wall,
            chance=sources.chance,
        )
    )
    budgets = StreamBudgets(registry, Budget(settings.stream_age_us, settings.stream_bytes))
    gone_proxies = GoneProxies(registry, settings.gone_after_seconds)

    def forget(stream: str) -> None:
        budgets.forget(stream)
        gone_proxies.forget(stream)

    ingest = Ingest(
        folder / "streams",
        quarantine=registry.quarantine.keep,
        commit_interval_seconds=settings.commit_interval_seconds,
        gone_after=gone_proxies.after,
        link=link,
        echo=claim_of_cluster(own).message,  # it has the name, so that this comes back to it alone
        clock=sources.wall,
        monotonic=sources.monotonic,
        offers=offers,
        proxy_clocks=proxy_clocks,
        reserved_for=names.reserved_for,
        needed=positions,
        troubles=registry.troubles,
        cluster=f"{settings.name}/{registry.engine_id}",
        budget=budgets.of,
        forgotten=forget,
        passed=ReadProgress(
            positions, lambda: registry.physical, lambda stream: str(folder / "streams" / folder_of(stream))
        ),
    )
    _begin_publication(folder, registry)
    progress = ProgressOfAll(folder, settings.publishers)
    results = _results(settings, folder, registry, progress)
    rewind(folder, results.version)
    progress.begin()
    replace_lost_versions(ingest.writers, newest_known_versions(registry.plan, checkpoint))
    versions = {stream: table.version for stream, table in ingest.tables().items()}
    skip_lost_epochs(registry, newest_known_epoch(plans, checkpoint), versions)
    positions.check_plans(registry.plan.epoch)
    long_lived = LongLived()
    long_lived.put_aside(len(registry))
    billing = BillingPeriods(registry, ingest, sensors, ledger)
    operators = OperatorStatistics()
    queries = QueryService(
        settings.name,
        registry,
        ingest,
        link,
        names,
        max_state_bytes=settings.max_state_bytes,
        max_busy=settings.max_busy,
        row_limits=RowLimits(
            settings.max_rows_per_tuple,
            settings.max_rows_per_second,
            settings.max_aggregate_columns,
            settings.max_answers_per_second,
            settings.max_characters_per_second,
        ),
        relation_memory_bytes=settings.relation_memory_bytes,
        buckets=buckets,
        history_rows=settings.history_rows,
        planning_seconds=settings.planning_seconds,
        replan=settings.replan,
        functions=settings.functions,
        demand_reports=demand_reports,
        operators=operators,
        prices=OperatorPrices(folder),
        entries=lambda: sensors.snapshot()[0],
        before_change=billing.close,
        put_aside=long_lived.put_aside,
        answered=partial(_answered, positions, ingest),
        rows_answered=results.last_sequence,
    )
    lags, notes = Lags(positions, ingest.tables), notes_in(folder)
    return ClusterParts(
        settings=settings,
        registry=registry,
        link=link,
        ingest=ingest,
        sensors=sensors,
        budgets=budgets,
        gone_proxies=gone_proxies,
        lags=lags,
        results=results,
        queries=queries,
        billing=billing,
        publishers=SupervisedPublishers(
            _orders(settings, folder),
            progress,
            newest=lambda: results.version,
            notes=partial(_notes, registry, sensors, queries.relations),
            troubles=registry.troubles,
        ),
        engine=Engine(
            settings,
            folder,
            registry,
            results,
            buckets,
            first_key=key,
            java=java,
            operators=operators,
            lags=lags.now,
            notes=notes,
        ),
        overruns=OverrunWatch(
            notes,
            results,
            queries.set_aside,
            newest=partial(_newest_query, registry),
            share=settings.query_share,
            lag_seconds=lambda: max((each.seconds for each in lags.now().values()), default=0.0),
            fragments=lambda: len(registry.physical.fragments),
            clock=sources.monotonic,
            wall=sources.wall,
        ),
    )


def _newest_query(registry: Registry, fragment: str) -> str | None:
    found = registry.physical.by_identity.get(fragment)
    return None if found is None else max(found.subscribers, key=lambda each: each.visible_from).identity


def _answered(positions: SparkPositions, ingest: Ingest, host: Host, streams: frozenset[str]) -> Answered | None:
    with suppress(ClusterError):  # Spark's log cannot be read now
        passed_us = instants_read(positions, ingest.tables(), host, streams)
        return Answered(*positions.begun_and_backfilling(host), passed_us)
    return None


def _begin_publication(folder: Path, registry: Registry) -> None:
    """Take over how far results have been published from the registry, where earlier programs kept it."""
    version, row, lost = registry.published()
    begin(folder, Published(version, msgspec.json.decode(lost, type=LostResults), row))


def _orders(settings: ClusterSettings, folder: Path) -> Orders:
    level, as_json = logging_configured()
    return Orders(
        folder=str(folder),
        broker=settings.broker,
        client_id=f"fjord-results-{settings.name}",
        silence_seconds=settings.broker_silence_seconds,
        log_level=level,
        log_json=as_json,
    )


def _notes(registry: Registry, sensors: SensorCatalog, relations: RelationService) -> dict[str, Note]:
    """Return what subscribers of running queries have to know, of those with anything to know."""
    slower, stale = slower_queries(registry, sensors), relations.stale()
    return {query: Note(slower.get(query), stale.get(query)) for query in slower.keys() | stale.keys()}


def _results(settings: ClusterSettings, folder: Path, registry: Registry, progress: ProgressOfAll) -> ResultsTable:
    budget, published = Budget(bytes=settings.results_bytes), progress.version
    unpublished = Compaction(needed=published, backlog_bytes=settings.results_backlog_bytes, budget=lambda: budget)
    results = ResultsTable(
        str(folder / "results"), registry.engine_id, compaction=unpublished, budget=budget, published=published
    )
    if results.damage is not None:
        log.error("results were damaged", what=str(results.damage))
    return results


def fixed_buckets(registry: Registry, settings: ClusterSettings) -> tuple[int, int]:
    """Return how many buckets a data folder has, and the key of the first; state is stored under these keys."""
    is_new = not registry.is_fixed("buckets")
    buckets = registry.fix("buckets", settings.buckets)
    if settings.buckets not in (buckets, DEFAULT_BUCKETS):
        hint = "their number is fixed at the first start; start with an empty data folder for another"
        log.warning("other number of buckets", here=buckets, asked=settings.buckets, hint=hint)
    return buckets, registry.fix("first_key", first_key(buckets, settings.partitions) if is_new else 0)
