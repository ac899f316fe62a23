"""What is wrong with a deployment, in sentences, below the lists in which people look first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from cluster.errors import ClusterError

if TYPE_CHECKING:
    from cluster.service.client.api_client import ApiClient

RECENT_SECONDS = 60.0
"""A failed write that is older is over: what could not be written is tried again at once."""


def fault_texts(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each fault that a cluster's status shows, as ``GET /v1/status`` returns it.

    Examples
    --------
    >>> away = {"connected": False, "address": "10.0.0.2:1883", "trouble": "connection refused"}
    >>> list(fault_texts({"broker": away}))
    ['the broker at 10.0.0.2:1883 is away, samples and results wait: connection refused']
    """
    broker = status.get("broker", {})
    if not broker.get("connected", True):
        reason = f": {broker['trouble']}" if broker.get("trouble") else ""
        yield f"the broker at {broker['address']} is away, samples and results wait{reason}"
    engine = status.get("fjord", {})
    if engine.get("starts") and not engine.get("running", True):
        yield "the engine does not run, and is started again: rows are stored, answers wait"
    publisher = status.get("results", {}).get("publisher", {})
    if publisher.get("trouble"):
        yield f"results are not published: {publisher['trouble']}"
    yield from _of_disks(status.get("storage", {}))
    for name, spool in status.get("proxy_spools", {}).items():
        if not spool["online"]:
            received = spool.get("heard")
            last = f", its last report came at {received}" if received else ""
            batches = "1 batch was" if spool["batches"] == 1 else f"{spool['batches']:,} batches were"
            yield f"proxy {name} is offline{last}; {batches} in its spool"
    for name, clock in status.get("proxy_clocks", {}).items():
        if clock.get("fault"):
            yield f"the clock of proxy {name} is wrong: {clock['fault']}"


def _of_disks(storage: Mapping[str, Any]) -> Iterator[str]:
    age_seconds = storage.get("last_seconds_ago")
    if storage.get("last") and age_seconds is not None and age_seconds < RECENT_SECONDS:
        yield f"something failed {age_seconds:.0f} s ago, and is tried again: {storage['last']}"
    for stream, reason in storage.get("damaged", {}).items():
        yield f"the table of stream {stream} is damaged: {reason}"
    for table, words in storage.get("over_budget", {}).items():
        yield f"{table} is over its budget by {words}"


def print_faults(client: ApiClient) -> None:
    """Print what is wrong to standard error; nothing if the status may not be read."""
    try:
        found = client.status()
    except ClusterError:
        return
    for text in fault_texts(found):
        typer.echo(f"fault: {text}", err=True)
