"""Several parts of a program over the same samples: a sample that more than one of them sends goes out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import Health, Sample
from protocols.wire.programs import SamplingProgram, reports_of


class PartExecution(Protocol):
    """The execution of one part."""

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
    """Passes each sample to the parts that use it.

    Parameters
    ----------
    program
        The program with its parts.
    began_us
        Samples before this are not part of it.
    execute
        Returns the execution of one part.
    """

    def __init__(
        self, program: SamplingProgram, began_us: int, execute: Callable[[SamplingProgram, int], PartExecution]
    ) -> None:
        self._fields = program.fields
        self._parts = [
            (part, execute(part, began_us), [program.fields.index(name) for name in part.fields])
            for part in reports_of(program)
        ]

    @property
    def open_us(self) -> int | None:
        """Begin of the oldest open record."""
        begun = [execution.open_us for _, execution, _ in self._parts]
        return min((each for each in begun if each is not None), default=None)

    @property
    def suppressed(self) -> int:
        """Sum over the parts."""
        return sum(execution.suppressed for _, execution, _ in self._parts)

    @property
    def filtered(self) -> int:
        """Samples that were in no band of a part, summed over the parts."""
        return sum(execution.filtered for _, execution, _ in self._parts)

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Return the records that a sample completes, the sample itself last."""
        found: list[Stamped] = []
        sent_by = 0
        shown: set[int] = set()
        for number, (part, execution, places) in enumerate(self._parts):
            if instant_us % part.period_us:
                continue
            for stamped in execution.take(instant_us, tuple(values[place] for place in places)):
                if isinstance(stamped[1], Sample):
                    sent_by |= 1 << number
                    shown.update(places)
                else:
                    found.append(_of_part(stamped, number))
        found.sort(key=lambda stamped: stamped[0])
        if sent_by:
            found.append((instant_us, Sample(0, tuple(values[place] for place in sorted(shown)), sent_by)))
        return found

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open records of all parts."""
        found = [
            _of_part(stamped, number)
            for number, (_, execution, _) in enumerate(self._parts)
            for stamped in execution.close(until_us)
        ]
        return sorted(found, key=lambda stamped: stamped[0])


def _of_part(stamped: Stamped, number: int) -> Stamped:
    stamp_us, record = stamped
    if isinstance(record, Health | Sample):
        return stamped
    return stamp_us, msgspec.structs.replace(record, report=number)
