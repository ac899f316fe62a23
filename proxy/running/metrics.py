"""Metrics of a proxy for Prometheus: plain counters, from which families are made when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.errors import ConfigurationError
from proxy.fleet.fleet import Fleet
from proxy.running.link_interface import Link
from proxy.storage.stores import Stores

PREFIX = "fjord_proxy_"


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter: its help text, and the name of its label, empty for none."""

    help: str
    label: str = ""


COUNTERS: Mapping[str, Counted] = {
    "packets": Counted("Packets of motes."),
    "packets_refused": Counted("Packets, or samples of them, that were rejected, by reason.", "reason"),
    "packets_lost": Counted("Packets missing by their sequence numbers."),
    "frames_refused": Counted("Messages that are not valid frames, by reason.", "reason"),
    "announcements": Counted("Announcements of motes."),
    "announcements_refused": Counted("Announcements that were rejected, by reason.", "reason"),
    "demands": Counted("Changes of demand."),
    "demand_requests": Counted("Requests for pieces of demands that were missing for long."),
    "demands_refused": Counted("Demands of queries that cannot be answered."),
    "samples": Counted("Samples accepted into batches."),
    "samples_not_demanded": Counted("Tuples that devices published while no query read their stream."),
    "samples_late": Counted("Samples stamped before their stream's watermark."),
    "samples_rejected": Counted("Samples that a wrong clock stamped, by how it is wrong.", "reason"),
    "samples_dropped": Counted("Accepted samples dropped as there was no room, by stream.", "stream"),
    "controls": Counted("Control frames sent in listen windows, by instruction.", "instruction"),
    "controls_unsent": Counted("Control frames not sent: the window had closed, or there was no connection."),
    "device_messages": Counted("Messages of drivers to devices."),
    "device_messages_received": Counted("Messages of devices, by driver.", "driver"),
    "device_messages_used": Counted("Messages of devices that led to tuples at once, by driver.", "driver"),
    "device_messages_refused": Counted("Messages of devices that were rejected, by driver.", "driver"),
    "device_messages_not_demanded": Counted("Messages of devices that no query needed, by driver.", "driver"),
    "device_messages_without_tuple": Counted(
        "Messages of devices that led to nothing else at once, by driver.", "driver"
    ),
    "device_tuples": Counted("Tuples of devices accepted into batches, by driver.", "driver"),
    "device_name_clashes": Counted("Frames of devices whose name another mote has, by driver.", "driver"),
    "motes_unresponsive": Counted("Motes that did not start a program that they were sent several times."),
    "motes_silent_times": Counted("Times a mote fell silent."),
    "motes_wrong_clock_times": Counted("Times a mote's clock turned out to be wrong, ahead or behind.", "fault"),
    "mote_reboots": Counted("Reboots of motes."),
    "batches_spooled": Counted("Batches stored in the spool."),
    "batches_sent": Counted("Batches published, repetitions included."),
    "batches_acknowledged": Counted("Batches that the cluster has stored."),
    "batches_rejected": Counted("Batches that the cluster will never accept."),
    "batches_damaged": Counted("Batches whose bytes on disk have changed: they are skipped."),
    "rows_damaged": Counted("Rows of batches that were skipped."),
    "redelivered": Counted("Messages of devices that the broker sent again although what they led to is on disk."),
    "sessions_lost": Counted("Times the broker had forgotten the session in which it keeps messages of devices."),
    "resends": Counted("Times sending began again, by reason.", "reason"),
    "resumptions": Counted("Times a stream continued after the cluster had lost acknowledged batches."),
    "acks_refused": Counted("Invalid acknowledgements, by reason.", "reason"),
    "claims_refused": Counted("Times another proxy of the same name was started."),
    "spool_full": Counted("Flushes put off because the spool is full."),
    "held_back": Counted("Times messages were left with the broker until a slow disk made room."),
    "store_errors": Counted("Failed writes to the data folder; they are tried again."),
    "quarantined": Counted("Frames put into the quarantine."),
    "quarantine_dropped": Counted("Frames that were not kept: too many at once, or the disk was nearly full."),
}


class ProxyMetrics(Collector):
    """The counters of one proxy, and gauges that are read when they are scraped.

    Parameters
    ----------
    gauges
        Returns, by name, the help text, the label's name and the value by label.
    """

    def __init__(self, gauges: Callable[[], Mapping[str, tuple[str, str, Mapping[str, float]]]] | None = None) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._gauges = gauges

    def count(self, name: str, label: str = "", by: int = 1) -> int:
        """Add to a counter of :data:`COUNTERS` and return its new value."""
        key = name, label
        total = self._counts[key] = self._counts.get(key, 0) + by
        return total

    def value(self, name: str, label: str | None = None) -> int:
        """Return a counter; without a label, the sum over all labels."""
        if label is not None:
            return self._counts[name, label]
        return sum(count for (each, _), count in self._counts.items() if each == name)

    def collect(self) -> Iterable[Metric]:
        """Return the metric families, for the registry of Prometheus."""
        counts = dict(self._counts)
        for name, what in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, what.help, labels=[what.label] if what.label else [])
            if what.label:
                for (each, label), count in counts.items():
                    if each == name:
                        family.add_metric([label], count)
            else:
                family.add_metric([], counts.get((name, ""), 0))
            yield family
        for name, (text, label, values) in (self._gauges() if self._gauges else {}).items():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=[label] if label else [])
            for each, value in values.items():
                gauge.add_metric([each] if label else [], value)
            yield gauge


def serve_metrics(metrics: ProxyMetrics, port: int, *others: Collector) -> Callable[[], None]:
    """Serve the metrics, and those of other collectors, on 127.0.0.1; return a function that ends it.

    Raises
    ------
    ConfigurationError
        The port cannot be used.
    """
    registry = CollectorRegistry()
    for each in (metrics, *others):
        registry.register(each)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve metrics on 127.0.0.1 port {port}: {error.strerror}", hint="choose another --metrics-port"
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


Gauges = Mapping[str, tuple[str, str, Mapping[str, float]]]
"""By name: the help text, the label's name, and the value by label."""


def read_gauges(fleet: Fleet, stores: Stores, link: Link, *, away_us: int = 0) -> Gauges:
    """Return the gauges as of now."""
    streams = fleet.streams.items()
    return {
        "motes": ("Motes by state.", "state", {each.value: n for each, n in fleet.states().items()}),
        "motes_wrong_clock": ("Motes whose clock is wrong, ahead or behind.", "fault", fleet.clock_faults()),
        "spool_batches": ("Batches that wait for the cluster.", "", {"": stores.spool.batches}),
        "spool_bytes": ("Size of the batches that wait.", "", {"": stores.spool.size_bytes}),
        "spool_file_bytes": ("Size of the spool's files: database and log.", "", {"": stores.spool.room.file_bytes}),
        "demands_unanswered": (
            "Queries whose demands are rejected now.",
            "stream",
            {name: len({rejected.query for rejected in each.rejected_demands}) for name, each in streams},
        ),
        "samples_waiting": ("Accepted samples in memory.", "stream", {name: each.waiting for name, each in streams}),
        "watermark_seconds": (
            "Low watermark, seconds of application time since 1970.",
            "stream",
            {name: each.watermark_us / 1e6 for name, each in streams if each.watermark_us is not None},
        ),
        "broker_hangs": (
            "Times the connection was dropped because the broker sent nothing any more.",
            "",
            {"": link.hangs_total},
        ),
        "away_seconds": ("How long before its start the proxy last wrote to its spool.", "", {"": away_us / 1e6}),
        "connected": ("1 while there is a connection to the broker.", "", {"": float(link.connected.is_set())}),
    }
