"""Events in samples of motes that send every one of them, as their programs or devices do not see events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.vehicles import VehicleDetector
from proxy.program_routes import Detection
from proxy.waiting_tuples import Aggregated


class EventDetection:
    """One detector at work on the samples of one mote."""

    def __init__(self, detection: Detection) -> None:
        self.detection = detection
        self._detector = VehicleDetector(detection.threshold)

    @property
    def open_us(self) -> int | None:
        """No event to come is stamped before this."""
        return self._detector.open_us

    def lost(self) -> None:
        """A packet is missing: what came before it says nothing about what comes after."""
        self._detector = VehicleDetector(self.detection.threshold)

    def take(self, instant_us: int, value: Value) -> Iterator[tuple[int, Aggregated]]:
        """Yield what a sample completes: stamps, and in what form they are told."""
        if instant_us % self.detection.period_us or isinstance(value, str):
            return
        arrived, passing = self._detector.take(instant_us, value)
        front_us = self._detector.front_us if passing is None else passing.front_us
        if arrived and front_us is not None:
            for form in self.detection.count_fingerprints:
                yield front_us, Aggregated(form, pane_us=1, samples=1)
        if passing is not None:
            for form in self.detection.event_fingerprints:
                yield passing.front_us, Aggregated(form, pane_us=passing.rear_us - passing.front_us, samples=1)
