"""What the API says of proxies that offer a stream: who feeds it, who does not, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.ingest.service import Ingest


def offers_of(ingest: Ingest, stream: str) -> list[dict[str, Any]]:
    """Return what proxies offer of a stream that proxies feed, by their names.

    Parameters
    ----------
    ingest
        Knows the offers.
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
    """Return, for the streams that a query reads, the offers that do not fit: nobody asks the sensors behind them.

    Parameters
    ----------
    ingest
        Knows the offers.
    streams
        Names of streams, with or without those that are derived.
    """
    return [
        {"stream": stream, "proxy": offer["proxy"], "online": offer["online"], "reasons": offer["reasons"]}
        for stream in sorted(set(streams) & ingest.writers.keys())
        for offer in offers_of(ingest, stream)
        if not offer["fits"]
    ]


def rejected_of(ingest: Ingest, stream: str) -> dict[str, Any]:
    """Return which samples of a stream have been rejected for good since the cluster was started, and why the last."""
    writer = ingest.writers[stream]
    counters = writer.admission.counters
    return {"batches": counters.rejected, "samples": counters.rejected_rows, "reason": writer.last_rejection}
