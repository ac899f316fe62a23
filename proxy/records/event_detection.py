"""Events found in the samples of a mote whose program or device does not detect events itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.vehicles import VehicleDetector
from proxy.records.program_routes import Detection
from proxy.records.waiting_tuples import Aggregated


class EventDetection:
    """The state of one detector for one mote."""

    def __init__(self, detection: Detection) -> None:
        self.detection = detection
        self._detector = VehicleDetector(detection.threshold)

    @property
    def open_us(self) -> int | None:
        """No later event is stamped before this; None if no event has begun."""
        return self._detector.open_us

    def lost(self) -> None:
        """Note that a packet is missing: an event that began before it cannot be continued."""
        self._detector = VehicleDetector(self.detection.threshold)

    def sample(self, instant_us: int, value: Value) -> Iterator[tuple[int, Aggregated]]:
        """Yield the events that a sample completes, with their stamps."""
        if instant_us % self.detection.period_us or isinstance(value, str):
            return
        arrived, passing = self._detector.take(instant_us, value)
        front_us = self._detector.front_us if passing is None else passing.front_us
        if arrived and front_us is not None:
            for fingerprint in self.detection.count_fingerprints:
                yield front_us, Aggregated(fingerprint, pane_us=1, samples=1)
        if passing is not None:
            for fingerprint in self.detection.event_fingerprints:
                yield passing.front_us, Aggregated(fingerprint, pane_us=passing.rear_us - passing.front_us, samples=1)
