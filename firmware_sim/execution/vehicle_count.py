"""The paper's counter: how many vehicles arrived in each interval."""

from __future__ import annotations

from firmware_sim.execution.reporter import Stamped, Values
from firmware_sim.execution.vehicles import VehicleDetector
from protocols.packets import VehicleTally
from protocols.programs import SamplingProgram, VehicleCount


class VehicleCountReporter:
    """Sends one number per interval, also when it is zero.

    Parameters
    ----------
    program, report
        What is asked for.
    began_us
        No sample before this is part of it.
    """

    suppressed = 0

    def __init__(self, program: SamplingProgram, report: VehicleCount, began_us: int) -> None:
        self._place = program.fields.index(report.threshold.field)
        self._detector = VehicleDetector(report.threshold)
        self._every_us = report.every_us
        self._begins_us = began_us
        self._ends_us = (began_us // report.every_us + 1) * report.every_us
        self._vehicles = 0

    @property
    def open_us(self) -> int | None:
        """Begin of the interval."""
        return self._begins_us

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Count; return the interval that ended before this sample, if one did."""
        done: list[Stamped] = []
        while instant_us >= self._ends_us:
            done += self.close(self._ends_us)
        arrived, _ = self._detector.take(instant_us, values[self._place])
        self._vehicles += arrived
        return done

    def close(self, until_us: int) -> list[Stamped]:
        """Return the count so far, and begin a new interval."""
        begins_us, vehicles = self._begins_us, self._vehicles
        if until_us <= begins_us:
            return []
        self._begins_us, self._vehicles = until_us, 0
        self._ends_us = (until_us // self._every_us + 1) * self._every_us
        return [(begins_us, VehicleTally(0, until_us - begins_us, vehicles))]
