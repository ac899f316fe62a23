"""Detecting vehicles in the samples of a sensor (papers/fjords.md section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.packets import SampleValue
from protocols.wire.programs import Threshold


@dataclass(frozen=True, slots=True)
class Passing:
    """A vehicle has passed: its front arrived, its rear left."""

    front_us: int
    rear_us: int


class VehicleDetector:
    """Finds the instants at which a level crosses the threshold.

    The instant of a crossing is interpolated between two samples: at 180 Hz and 60 mph a car moves half a foot between
    them.
    """

    def __init__(self, threshold: Threshold) -> None:
        self._above = threshold.above
        self._below = threshold.below
        self._before: tuple[int, float] | None = None
        self.front_us: int | None = None
        """When the vehicle over the sensor arrived; None if there is none."""

    @property
    def open_us(self) -> int | None:
        """No later vehicle is stamped before this instant."""
        if self.front_us is not None:
            return self.front_us
        return None if self._before is None else self._before[0]

    def take(self, instant_us: int, value: SampleValue) -> tuple[bool, Passing | None]:
        """Return whether a vehicle arrived, and the vehicle that left, if any. NULL counts as the previous sample."""
        if not isinstance(value, int | float):
            return False, None
        level, arrived, passing = float(value), False, None
        if self.front_us is None and level >= self._above:
            self.front_us, arrived = self._crossing(instant_us, level, self._above), True
        elif self.front_us is not None and level <= self._below:
            passing = Passing(self.front_us, self._crossing(instant_us, level, self._below))
            self.front_us = None
        self._before = (instant_us, level)
        return arrived, passing

    def _crossing(self, instant_us: int, level: float, threshold: float) -> int:
        if self._before is None or self._before[1] == level:
            return instant_us
        before_us, before = self._before
        share = min(max((threshold - before) / (level - before), 0.0), 1.0)
        return before_us + round((instant_us - before_us) * share)
