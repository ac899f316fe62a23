"""Streams as the API shows them: which proxies feed one, what it waits for, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cluster.fjord.batch import instant_text

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


def wait_of(ingest: Ingest, stream: str) -> dict[str, Any] | None:
    """Return what a base stream waits for; None for nothing, or if it has not begun.

    Parameters
    ----------
    ingest
        The ingest, which knows how far proxies have come, and what they report.
    stream
        Its name.
    """
    found = ingest.writers[stream].waited_for
    if found is None:
        return None
    now_us = ingest.now_us()
    reported = ingest.stream_waits.of(found.proxy, stream)
    mote = None
    if reported is not None:
        wait, received_us = reported
        waits_us = wait.waits_us + max(0, now_us - received_us)
        mote = {"mote": wait.mote, "silent": wait.silent, **_since(now_us, waits_us)}
    waits_us = round(found.waits_seconds * 1e6)
    return {"proxy": found.proxy, "online": not found.away, **_since(now_us, waits_us), "mote": mote}


def waits_of(ingest: Ingest, streams: Iterable[str]) -> list[dict[str, Any]]:
    """Return what each of some streams waits for, of those that wait; derived ones are ignored."""
    return [
        {"stream": stream, **found}
        for stream in sorted(set(streams) & ingest.writers.keys())
        if (found := wait_of(ingest, stream)) is not None
    ]


def absences_of(ingest: Ingest, stream: str) -> dict[str, Any]:
    """Return the proxies that a base stream has gone on without, and which rows came too late, by proxy."""
    admission = ingest.writers[stream].admission
    return {"proxies": admission.gone(), "late_rows": dict(sorted(admission.late_of.items()))}


def _since(now_us: int, waits_us: int) -> dict[str, Any]:
    return {"since": instant_text(now_us - waits_us), "seconds": round(waits_us / 1e6, 3)}
