"""What ``GET /v1/status`` shows: whether all parts of a cluster run, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cluster.fjord.batch import instant_text
from cluster.service.publishing.lag import greatest

if TYPE_CHECKING:
    from cluster.service.running.parts import ClusterParts
    from cluster.storage.budgets import Blocked


def status_of(parts: ClusterParts) -> dict[str, Any]:
    """Return the state of a cluster."""
    ingest, registry, sensors = parts.ingest, parts.registry, parts.sensors
    counters = [writer.admission.counters for writer in ingest.writers.values()]
    lag = greatest(parts.lags.now().values())
    return {
        "name": parts.settings.name,
        "broker": _broker(parts),
        "fjord": {
            **parts.engine.as_json(),
            "overruns": parts.overruns.counts.total(),
            "epoch": registry.epoch,
            "lost": _lost_epochs(parts),
        },
        "queries": len(registry),
        "adding": _adding(parts),
        "lag": None if lag is None else lag.as_json(),
        "streams": sorted(ingest.schemas),
        "rows_stored": sum(each.rows for each in counters),
        "rows_rejected": sum(each.rejected_rows for each in counters),
        "rows_late": sum(each.late_rows for each in counters),
        "rows_published": parts.publishers.published_rows,
        "results": {**parts.publishers.status(), "dropped_rows": parts.results.retention.numbers.dropped_rows},
        "refused": dict(ingest.rejected),
        "contested": dict(sum((Counter(each.admission.contested_of) for each in ingest.writers.values()), Counter())),
        "storage": _storage(parts),
        "mismatches": len(ingest.offers.mismatches),
        "sensors": {
            "known": len(sensors),
            "refused": dict(sensors.rejected),
            "wrong_clocks": dict(sensors.clock_faults()),
            "samples_rejected": dict(sensors.samples_rejected()),
        },
        "proxy_clocks": {
            proxy: {"behind_seconds": behind_us / 1e6, "fault": ingest.proxy_clocks.faults.get(proxy)}
            for proxy, behind_us in ingest.proxy_clocks.behind_us.items()
        },
        "proxy_spools": {
            proxy: {
                "online": ingest.online(proxy),
                "batches": spool.report.batches,
                "bytes": spool.report.bytes,
                "file_bytes": spool.report.file_bytes,
                "waits_seconds": spool.waits_seconds,
                "heard": instant_text(spool.received_us),
            }
            for proxy, spool in ingest.proxy_spools.all().items()
        },
    }


def _adding(parts: ClusterParts) -> dict[str, int] | None:
    """Return how far the addition of several queries has come; None if there is none."""
    adding = parts.queries.adding
    return None if adding is None else {"queries": adding.queries, "planned": adding.planned}


def _broker(parts: ClusterParts) -> dict[str, Any]:
    return {
        "address": str(parts.settings.broker),
        "connected": parts.link.connected.is_set() and parts.publishers.connected,
        "trouble": parts.link.trouble or parts.publishers.trouble,
        "connects": parts.link.connects_total,
        "hangs": parts.link.hangs_total,
    }


def _lost_epochs(parts: ClusterParts) -> dict[str, Any]:
    lost = parts.registry.lost_epochs()
    return {"epochs": lost.epochs, "last": None if lost.seen_us is None else instant_text(lost.seen_us)}


def _storage(parts: ClusterParts) -> dict[str, Any]:
    damages = parts.ingest.damages
    return {
        **parts.registry.troubles.as_json(),
        "over_budget": {
            table: f"{blocked.bytes} bytes: {blocked.by}"
            for table, blocked in _over_budget(parts).items()
            if blocked.bytes
        },
        "damaged": {stream: str(damage) for stream, damage in damages.items()},
        "lost_commits": sum(damage.lost_commits for damage in damages.values()),
    }


def _over_budget(parts: ClusterParts) -> dict[str, Blocked]:
    """Return, by table, what is over its budget, as it still has to be read."""
    streams = {f"streams/{name}": each.retention.blocked for name, each in parts.ingest.tables().items()}
    return {"results": parts.results.retention.blocked, **streams}
