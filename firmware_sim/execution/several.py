"""Several reports of a program on the same samples: a sample that several of them send goes out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import Health, Sample
from protocols.wire.programs import SamplingProgram, reports_of


class ReportExecution(Protocol):
    """The execution of one report."""

    @property
    def filtered(self) -> int:
        """Samples that were in no band."""
        ...

    @property
    def open_us(self) -> int | None:
        """See :class:`firmware_sim.execution.reporter.Reporter`."""
        ...

    @property
    def suppressed(self) -> int:
        """See :class:`firmware_sim.execution.reporter.Reporter`."""
        ...

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes."""
        ...

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open record."""
        ...


class SeveralReporter:
    """Passes each sample to the reports that use it.

    Parameters
    ----------
    program
        The program with its reports.
    began_us
        Samples before this are not part of it.
    execute
        Returns the execution of one report.
    """

    def __init__(
        self, program: SamplingProgram, began_us: int, execute: Callable[[SamplingProgram, int], ReportExecution]
    ) -> None:
        self._fields = program.fields
        self._reports = [
            (alone, execute(alone, began_us), [program.fields.index(name) for name in alone.fields])
            for alone in reports_of(program)
        ]

    @property
    def open_us(self) -> int | None:
        """Start of the oldest open record."""
        begun = [execution.open_us for _, execution, _ in self._reports]
        return min((each for each in begun if each is not None), default=None)

    @property
    def suppressed(self) -> int:
        """Sum over the reports."""
        return sum(execution.suppressed for _, execution, _ in self._reports)

    @property
    def filtered(self) -> int:
        """Samples that were in no band of a report, summed over the reports."""
        return sum(execution.filtered for _, execution, _ in self._reports)

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes, the sample itself last."""
        found: list[Stamped] = []
        sent_by = 0
        shown: set[int] = set()
        for number, (alone, execution, places) in enumerate(self._reports):
            if instant_us % alone.period_us:
                continue
            for stamped in execution.take(instant_us, tuple(values[place] for place in places)):
                if isinstance(stamped[1], Sample):
                    sent_by |= 1 << number
                    shown.update(places)
                else:
                    found.append(_of_report(stamped, number))
        found.sort(key=lambda stamped: stamped[0])
        if sent_by:
            found.append((instant_us, Sample(0, tuple(values[place] for place in sorted(shown)), sent_by)))
        return found

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open records of all reports."""
        found = [
            _of_report(stamped, number)
            for number, (_, execution, _) in enumerate(self._reports)
            for stamped in execution.close(until_us)
        ]
        return sorted(found, key=lambda stamped: stamped[0])


def _of_report(stamped: Stamped, number: int) -> Stamped:
    stamp_us, record = stamped
    if isinstance(record, Health):
        return stamped
    if isinstance(record, Sample):
        return stamp_us, msgspec.structs.replace(record, reports=1 << number)
    return stamp_us, msgspec.structs.replace(record, report=number)
