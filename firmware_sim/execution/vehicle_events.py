"""The paper's event detector: a pair of times per vehicle."""

from __future__ import annotations

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import VehicleEvent
from protocols.wire.programs import SECOND_US, SamplingProgram, VehicleEvents
from protocols.wire.vehicles import VehicleDetector


class VehicleEventReporter:
    """Sends the arrival of each vehicle's front and how long it took to pass; at most so many a second."""

    def __init__(self, program: SamplingProgram, report: VehicleEvents) -> None:
        self._place = program.fields.index(report.threshold.field)
        self._detector = VehicleDetector(report.threshold)
        self._most = report.at_most_per_second
        self._second = -(2**62)
        self._in_second = 0
        self.suppressed = 0

    @property
    def open_us(self) -> int | None:
        """The arrival of the vehicle over the sensor, or the last sample without one."""
        return self._detector.open_us

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the vehicle whose rear has just left, if one has."""
        _, passing = self._detector.take(instant_us, values[self._place])
        if passing is None:
            return []
        second = passing.front_us // SECOND_US
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > self._most:
            self.suppressed += 1
            return []
        return [(passing.front_us, VehicleEvent(0, passing.rear_us - passing.front_us))]

    def close(self, until_us: int) -> list[Stamped]:
        """Return no records: a vehicle that is still over the sensor has no second time."""
        _ = until_us
        self.suppressed += self._detector.front_us is not None
        return []
