"""What a proxy's gauges show when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.fleet import Fleet
from proxy.link_seam import Link
from proxy.stores import Stores

Gauges = Mapping[str, tuple[str, str, Mapping[str, float]]]
"""By name: the help text, the label's name, and the value by label."""


def read_gauges(fleet: Fleet, stores: Stores, link: Link) -> Gauges:
    """Return what they show now."""
    streams = fleet.streams.items()
    return {
        "motes": ("Motes by state.", "state", {each.value: n for each, n in fleet.states().items()}),
        "motes_wrong_clock": ("Motes whose clock is wrong, ahead or behind.", "fault", fleet.clock_faults()),
        "spool_batches": ("Batches that wait for the cluster.", "", {"": stores.spool.batches}),
        "spool_bytes": ("Size of the batches that wait.", "", {"": stores.spool.size_bytes}),
        "demands_unanswered": (
            "Queries whose demands are left out now.",
            "stream",
            {name: len({refused.query for refused in each.refused}) for name, each in streams},
        ),
        "samples_waiting": ("Accepted samples in memory.", "stream", {name: each.waiting for name, each in streams}),
        "watermark_seconds": (
            "Low watermark, seconds of application time since 1970.",
            "stream",
            {name: each.watermark_us / 1e6 for name, each in streams if each.watermark_us is not None},
        ),
        "broker_hangs": ("Times the broker was given up because it sent nothing any more.", "", {"": link.hangs_total}),
        "connected": ("1 while there is a connection to the broker.", "", {"": float(link.connected.is_set())}),
    }
