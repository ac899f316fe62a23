"""The cluster's metrics, read from its counters on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from cluster.fjord.overruns import OverrunKind
from cluster.relations.refresh_decisions import State
from protocols.wire.catalog import ClockFault

if TYPE_CHECKING:
    from prometheus_client import Metric

    from cluster.service.catalog.relation_store import RelationStore
    from cluster.service.running.parts import ClusterParts


def relation_metrics(store: RelationStore) -> Iterable[Metric]:
    """Return the present metrics of all relations.

    Parameters
    ----------
    store
        The relations.
    """
    now = store.clock()
    age = GaugeMetricFamily(
        "fjord_relation_age_seconds", "Time since a relation was last known to equal its source", labels=["relation"]
    )
    rows = GaugeMetricFamily("fjord_relation_rows", "Rows of a relation's newest version", labels=["relation"])
    fresh = GaugeMetricFamily(
        "fjord_relation_fresh", "1 while a relation's source can be read, else 0", labels=["relation"]
    )
    failures = CounterMetricFamily(
        "fjord_relation_refresh_failures_total", "Times a relation's source could not be read", labels=["relation"]
    )
    versions = CounterMetricFamily(
        "fjord_relation_versions_total", "Versions committed since the cluster started", labels=["relation"]
    )
    for relation in store.all():
        label = [relation.name]
        if (seconds := relation.freshness.age(now)) is not None:
            age.add_metric(label, seconds)
        if relation.last is not None:
            rows.add_metric(label, relation.last.rows)
        fresh.add_metric(label, float(relation.freshness.state(now) is State.FRESH))
        failures.add_metric(label, relation.failures_total)
        versions.add_metric(label, relation.versions_total)
    return age, rows, fresh, failures, versions


class ClusterMetrics(Collector):
    """Collects the metrics of a cluster. Labels are bounded: streams, relations, and the few reasons for rejecting.

    Parameters
    ----------
    parts
        The parts of the cluster.
    registry
        The registry that it is added to.
    """

    def __init__(self, parts: ClusterParts, registry: CollectorRegistry) -> None:
        self._parts = parts
        self.registry = registry
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics at present."""
        batches = CounterMetricFamily("fjord_ingest_batches_total", "Batches by outcome", labels=["stream", "outcome"])
        rows = CounterMetricFamily("fjord_ingest_rows_total", "Rows stored", labels=["stream"])
        late = CounterMetricFamily("fjord_ingest_late_rows_total", "Rows that came too late", labels=["stream"])
        rejected = CounterMetricFamily(
            "fjord_ingest_rejected_rows_total", "Rows that can never be stored", labels=["stream"]
        )
        mismatches = GaugeMetricFamily(
            "fjord_ingest_mismatches", "Proxies that do not offer a stream as it is declared", labels=["stream"]
        )
        for stream, writer in self._parts.ingest.writers.items():
            counters = writer.admission.counters
            for outcome, count in (
                ("taken", counters.accepted),
                ("repeated", counters.repeated),
                ("gap", counters.gaps),
                ("held", counters.held),
                ("contested", counters.contested),
                ("put off", counters.deferred),
                ("rejected", counters.rejected),
            ):
                batches.add_metric([stream, outcome], count)
            rows.add_metric([stream], counters.rows)
            late.add_metric([stream], counters.late_rows)
            rejected.add_metric([stream], counters.rejected_rows)
            mismatches.add_metric([stream], sum(not each.fits for each in self._parts.ingest.offers.of(stream)))
        waiting_bytes = GaugeMetricFamily(
            "fjord_ingest_waiting_bytes", "Rows in memory that wait for a commit", labels=["stream"]
        )
        for stream, writer in self._parts.ingest.writers.items():
            waiting_bytes.add_metric([stream], writer.waiting_bytes)
        lost = CounterMetricFamily(
            "fjord_ingest_lost_total", "What was accepted and is lost", labels=["stream", "what"]
        )
        for stream, writer in self._parts.ingest.writers.items():
            lost.add_metric([stream, "batches"], writer.admission.counters.lost_batches)
            lost.add_metric([stream, "versions"], writer.admission.counters.lost_versions)
        refused = CounterMetricFamily("fjord_ingest_refused_total", "Messages rejected", labels=["reason"])
        for reason, count in self._parts.ingest.rejected.items():
            refused.add_metric([reason], count)
        yield from (batches, rows, late, rejected, mismatches, waiting_bytes, lost, refused)
        yield from self._clocks()
        yield from self._spools()
        yield from relation_metrics(self._parts.queries.store)
        yield from self._lags()
        waiting = self._parts.queries.waiting.all()
        yield GaugeMetricFamily("fjord_queries_waiting", "Queries that wait for a relation", value=len(waiting))
        yield CounterMetricFamily(
            "fjord_results_published_rows_total", "Result rows published", value=self._parts.publishers.published_rows
        )
        yield GaugeMetricFamily(
            "fjord_results_unpublished_commits",
            "Commits of results that wait for the broker",
            value=self._parts.publishers.unpublished_commits,
        )
        yield from self._publishers()
        disk = GaugeMetricFamily(
            "fjord_table_bytes", "Disk used by tables, and by files that they have replaced", labels=["table", "files"]
        )
        streams = {f"streams/{name}": writer.table.use for name, writer in self._parts.ingest.writers.items()}
        for table, use in {"results": self._parts.results.use, **streams}.items():
            if use is not None:
                disk.add_metric([table, "live"], use.live_bytes)
                disk.add_metric([table, "replaced"], use.replaced_bytes)
        yield disk
        yield from self._budgets()
        unread = self._parts.publishers.lost
        yield CounterMetricFamily(
            "fjord_results_lost_commits_total",
            "Commits of results that are lost",
            value=unread.commits,
        )
        yield CounterMetricFamily(
            "fjord_results_lost_rows_total", "Rows in them, as far as is known", value=unread.rows
        )
        yield CounterMetricFamily(
            "fjord_plan_lost_epochs_total",
            "Epochs that the registry has lost",
            value=self._parts.registry.lost_epochs().epochs,
        )
        yield CounterMetricFamily(
            "fjord_energy_implausible_reports_total",
            "Reports by which a mote has spent more than it can",
            value=self._parts.billing.ledger.implausible_reports,
        )
        yield from self._engine()
        failures = CounterMetricFamily(
            "fjord_storage_failures_total",
            "Failed writes, retried or passed over",
            labels=["what"],
        )
        for what, count in self._parts.registry.troubles.counts.items():
            failures.add_metric([what], count)
        yield failures
        broken = self._parts.engine.operators.broken
        yield CounterMetricFamily(
            "fjord_broken_batches_total", "Batches between operators that broke their contract", value=broken
        )
        yield CounterMetricFamily(
            "fjord_evicted_tuples_total",
            "Tuples that queries with KEEP have dropped",
            value=self._parts.engine.operators.evicted,
        )
        yield GaugeMetricFamily("fjord_queries", "Running queries", value=len(self._parts.registry))
        yield GaugeMetricFamily("fjord_plan_epoch", "Newest plan epoch", value=self._parts.registry.epoch)

    def _engine(self) -> Iterable[Metric]:
        engine = self._parts.engine
        yield CounterMetricFamily("fjord_restarts_total", "Restarts of the engine", value=engine.restarts)
        yield CounterMetricFamily("fjord_hangs_total", "Hangs of the engine, ended by a restart", value=engine.hangs)
        overruns = CounterMetricFamily(
            "fjord_overruns_total",
            "Queries stopped in a part of a micro-batch: they took too much memory or time, or workers ended over them",
            labels=["kind"],
        )
        for kind in OverrunKind:
            overruns.add_metric([kind.value], self._parts.overruns.counts[kind])
        yield overruns
        aside = len(self._parts.registry.aside.all())
        yield GaugeMetricFamily("fjord_queries_set_aside", "Queries that are not run any more", value=aside)

    def _budgets(self) -> Iterable[Metric]:
        dropped = CounterMetricFamily(
            "fjord_table_dropped_rows_total", "Rows removed to keep a table within its budget", labels=["table"]
        )
        over = GaugeMetricFamily(
            "fjord_table_over_budget_bytes",
            "Bytes over a table's budget that still have to be read",
            labels=["table"],
        )
        dropped.add_metric(["results"], self._parts.results.retention.numbers.dropped_rows)
        over.add_metric(["results"], self._parts.results.retention.blocked.bytes)
        for name, writer in self._parts.ingest.writers.items():
            dropped.add_metric([f"streams/{name}"], writer.table.retention.dropped.rows)
            over.add_metric([f"streams/{name}"], writer.table.retention.blocked.bytes)
        yield from (dropped, over)

    def _publishers(self) -> Iterable[Metric]:
        labels = ["publisher"]
        rows = CounterMetricFamily("fjord_publisher_rows_total", "Result rows that it published", labels=labels)
        behind = GaugeMetricFamily(
            "fjord_publisher_unpublished_commits", "Commits whose rows a publisher has not published", labels=labels
        )
        front = GaugeMetricFamily(
            "fjord_publisher_front_unpublished_commits",
            "The same, but for queries that are behind the others",
            labels=labels,
        )
        queries = GaugeMetricFamily(
            "fjord_publisher_queries_behind", "Queries with very many rows that are behind the others", labels=labels
        )
        connected = GaugeMetricFamily(
            "fjord_publisher_connected", "Whether a publisher has a connection to the broker", labels=labels
        )
        starts = CounterMetricFamily("fjord_publisher_starts_total", "Starts of a publisher's process", labels=labels)
        for each in self._parts.publishers.each:
            name = [str(each.share.number)]
            rows.add_metric(name, each.progress.rows)
            behind.add_metric(name, each.unpublished_commits)
            front.add_metric(name, each.unpublished_in_front)
            queries.add_metric(name, each.progress.last.queries_behind)
            connected.add_metric(name, each.connected)
            starts.add_metric(name, each.starts)
        yield from (rows, behind, front, queries, connected, starts)

    def _lags(self) -> Iterable[Metric]:
        """Yield lags: all queries with state are equally far behind a stream, and so are all without."""
        labels = ["stream", "queries"]
        rows = GaugeMetricFamily("fjord_query_lag_rows", "Rows stored and not yet answered", labels=labels)
        seconds = GaugeMetricFamily(
            "fjord_query_lag_seconds", "Time since the oldest of them was stored", labels=labels
        )
        for (stream, host), lag in self._parts.lags.now().items():
            rows.add_metric([stream, host.value], lag.rows)
            seconds.add_metric([stream, host.value], lag.seconds)
        yield from (rows, seconds)

    def _spools(self) -> Iterable[Metric]:
        labels = ["proxy"]
        batches = GaugeMetricFamily("fjord_spooled_batches", "Batches that wait at a proxy", labels=labels)
        size = GaugeMetricFamily("fjord_spooled_bytes", "Size of the batches that wait at a proxy", labels=labels)
        waits = GaugeMetricFamily("fjord_spooled_seconds", "For how long the oldest of them has waited", labels=labels)
        for proxy, spool in self._parts.ingest.proxy_spools.all().items():
            batches.add_metric([proxy], spool.report.batches)
            size.add_metric([proxy], spool.report.bytes)
            waits.add_metric([proxy], spool.waits_seconds or 0.0)
        yield from (batches, size, waits)

    def _clocks(self) -> Iterable[Metric]:
        proxies = GaugeMetricFamily("fjord_proxies_wrong_clock", "Proxies whose clock is wrong", labels=["fault"])
        found = Counter(self._parts.ingest.proxy_clocks.faults.values())
        for each in ClockFault:
            proxies.add_metric([each.value], found[each])
        sensors = GaugeMetricFamily("fjord_sensors_wrong_clock", "Sensors whose clock is wrong", labels=["fault"])
        for fault, count in self._parts.sensors.clock_faults().items():
            sensors.add_metric([fault], count)
        samples = GaugeMetricFamily(
            "fjord_sensors_rejected_samples",
            "Samples of present sensors with a wrong clock",
            labels=["fault"],
        )
        for fault, count in self._parts.sensors.samples_rejected().items():
            samples.add_metric([fault], count)
        yield from (proxies, sensors, samples)
