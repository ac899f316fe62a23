"""The offers of a stream as the API shows them: which proxies feed it, which do not, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest


def offers_of(ingest: Ingest, stream: str) -> list[dict[str, Any]]:
    """Return the offers of a base stream, in the order of the proxies' names.

    Parameters
    ----------
    ingest
        The ingest, which keeps the offers.
    stream
        Its name.
    """
    admission = ingest.writers[stream].admission
    return [
        {
            "proxy": each.proxy,
            "online": ingest.online(each.proxy),
            "fits": each.fits,
            "reasons": list(each.reasons),
            "ignored": list(each.ignored),
            "held": admission.holds(each.proxy),
        }
        for each in ingest.offers.of(stream)
    ]


def mismatches_of(ingest: Ingest, streams: Iterable[str]) -> list[dict[str, Any]]:
    """Return, for the streams that a query reads, the offers that do not fit: their sensors receive no demands.

    Parameters
    ----------
    ingest
        The ingest, which keeps the offers.
    streams
        Names of streams; derived ones are ignored.
    """
    return [
        {"stream": stream, "proxy": offer["proxy"], "online": offer["online"], "reasons": offer["reasons"]}
        for stream in sorted(set(streams) & ingest.writers.keys())
        for offer in offers_of(ingest, stream)
        if not offer["fits"]
    ]


def rejected_of(ingest: Ingest, stream: str) -> dict[str, Any]:
    """Return how many batches and samples of a stream were rejected since the cluster started, and the last reason."""
    writer = ingest.writers[stream]
    counters = writer.admission.counters
    return {"batches": counters.rejected, "samples": counters.rejected_rows, "reason": writer.last_rejection}
