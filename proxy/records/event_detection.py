"""Events found in the samples of a mote whose program or device does not detect events itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from protocols.wire.frames import Value
from protocols.wire.vehicles import VehicleDetector
from proxy.records.program_routes import Detection
from proxy.records.waiting_tuples import Aggregated


class EventDetection:
    """The state of one detector for one mote.

    Parameters
    ----------
    detection
        What it finds.
    published
        Whether the samples are tuples that a device stamped at instants of its own. Then it looks at the first tuple of
        each period; of a device that publishes freely, at all if no period is demanded.
    """

    def __init__(self, detection: Detection, *, published: bool = False) -> None:
        self.detection = detection
        self._published = published
        self._latest_us: int | None = None
        """Stamp of the last published tuple that the detector has looked at."""
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
        if isinstance(value, str) or not self._looks_at(instant_us):
            return
        arrived, passing = self._detector.take(instant_us, value)
        front_us = self._detector.front_us if passing is None else passing.front_us
        if arrived and front_us is not None:
            for fingerprint in self.detection.count_fingerprints:
                yield front_us, Aggregated(fingerprint, pane_us=1, samples=1)
        if passing is not None:
            for fingerprint in self.detection.event_fingerprints:
                yield passing.front_us, Aggregated(fingerprint, pane_us=passing.rear_us - passing.front_us, samples=1)

    def _looks_at(self, instant_us: int) -> bool:
        period_us = self.detection.period_us
        if not self._published:
            return instant_us % period_us == 0
        latest_us = self._latest_us
        # A detector needs its samples in order: one that comes behind a later one is in no event.
        if latest_us is not None and (instant_us < latest_us or _share_period(latest_us, instant_us, period_us)):
            return False
        self._latest_us = instant_us
        return True


def _share_period(one_us: int, other_us: int, period_us: int) -> bool:
    return period_us > 0 and one_us // period_us == other_us // period_us
