"""Samples: each is sent."""

from __future__ import annotations

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import Sample


class EverySample:
    """Sends samples unchanged."""

    open_us: int | None = None
    suppressed = 0

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the sample."""
        return [(instant_us, Sample(0, values))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return no records: none is ever open."""
        _ = until_us
        return []
