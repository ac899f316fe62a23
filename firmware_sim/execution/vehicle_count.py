"""The paper's counter: the number of vehicles that arrived in each interval."""

from __future__ import annotations

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import VehicleTally
from protocols.wire.programs import SamplingProgram, VehicleCount
from protocols.wire.vehicles import VehicleDetector


class VehicleCountReporter:
    """Sends one number per interval, even if it is zero, stamped with its last instant.

    Parameters
    ----------
    program, report
        The report to make.
    began_us
        Samples before this are not part of it.
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
        """Last instant of the interval."""
        return self._ends_us - 1

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Count; return the interval that ended before this sample, if one did."""
        arrived, _ = self._detector.take(instant_us, values[self._place])
        front_us = self._detector.front_us
        # Its front may have passed after the previous sample, before this interval began.
        before = arrived and front_us is not None and front_us < self._ends_us <= instant_us
        self._vehicles += before
        done: list[Stamped] = []
        while instant_us >= self._ends_us:
            done += self.close(self._ends_us)
        self._vehicles += arrived and not before
        return done

    def close(self, until_us: int) -> list[Stamped]:
        """Return the count so far, and begin a new interval."""
        begins_us, ends_us, vehicles = self._begins_us, self._ends_us, self._vehicles
        if until_us <= begins_us:
            return []
        self._begins_us, self._vehicles = until_us, 0
        self._ends_us = (until_us // self._every_us + 1) * self._every_us
        return [(min(until_us, ends_us - 1), VehicleTally(0, min(until_us, ends_us) - begins_us, vehicles))]
