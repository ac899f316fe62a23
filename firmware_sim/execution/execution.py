"""The execution of a program: filter, then report."""

from __future__ import annotations

from firmware_sim.execution.bands import in_bands
from firmware_sim.execution.every_sample import EverySample
from firmware_sim.execution.panes import PaneReporter
from firmware_sim.execution.reporter import Reporter, Stamped, Values
from firmware_sim.execution.send_on_change import ChangeReporter
from firmware_sim.execution.several import SeveralReporter
from firmware_sim.execution.vehicle_count import VehicleCountReporter
from firmware_sim.execution.vehicle_events import VehicleEventReporter
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, Several, VehicleCount, VehicleEvents


class Execution:
    """Executes one program from its first sample on.

    Parameters
    ----------
    program
        The program; not one that sleeps.
    began_us
        Instant of the first sample.
    """

    def __init__(self, program: SamplingProgram, began_us: int) -> None:
        self._counts = in_bands(program) if program.bands else None
        self._reporter = _reporter(program, began_us)
        self._filtered = 0

    @property
    def filtered(self) -> int:
        """Samples that were in no band."""
        return self._filtered + (self._reporter.filtered if isinstance(self._reporter, SeveralReporter) else 0)

    @property
    def open_us(self) -> int | None:
        """No later record of earlier samples is stamped before this; None if no record is open."""
        return self._reporter.open_us

    @property
    def suppressed(self) -> int:
        """Records that were left out although events occurred."""
        return self._reporter.suppressed

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        if self._counts is None or self._counts(values):
            return self._reporter.take(instant_us, values)
        self._filtered += 1
        if isinstance(self._reporter, PaneReporter):
            return self._reporter.pass_by(instant_us)
        return []

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record, cut off at the instant from which no more samples are taken."""
        return self._reporter.close(until_us)


def _reporter(program: SamplingProgram, began_us: int) -> Reporter:
    match program.report:
        case None:
            return EverySample()
        case SendOnChange():
            return ChangeReporter(program, program.report)
        case Panes():
            return PaneReporter(program, program.report, began_us)
        case VehicleEvents():
            return VehicleEventReporter(program, program.report)
        case Several():
            return SeveralReporter(program, began_us, Execution)
        case VehicleCount():
            return VehicleCountReporter(program, program.report, began_us)
