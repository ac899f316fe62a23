"""Entries of devices that drivers drive, for tests."""

from __future__ import annotations

from typing import Any

from protocols.wire.catalog import DeviceEntry, MoteState
from protocols.wire.packets import Health


def device(mote: str = "bell", *, stream: str = "traffic", proxy: str = "north", **changes: Any) -> DeviceEntry:
    """Return the entry of a device that publishes by its own rules, unless the changes say otherwise."""
    values: dict[str, Any] = {
        "version": 1, "mote": mote, "proxy": proxy, "kind": "bell", "stream": stream,
        "properties": {"sensor": mote}, "state": MoteState.SAMPLING, "period_us": 1, "default_period_us": 1,
        "minimum_period_us": 1, "program": 7, "packets_received": 9, "packets_lost": 0, "packets_rejected": 0,
        "samples_received": 9, "samples_late": 0, "health": Health(0.5, 0, 0, 0, 0),
        "heard_us": 1_330_560_000_000_000, "driver": "shed", "publishes": True,
    }  # fmt: skip
    return DeviceEntry(**values | changes)
