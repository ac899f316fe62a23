"""Partial aggregates per pane."""

from __future__ import annotations

from dataclasses import dataclass, field

from firmware_sim.execution.reporter import Stamped, Values
from protocols.wire.packets import Partial
from protocols.wire.programs import Measure, Panes, SamplingProgram


@dataclass(slots=True)
class _Sums:
    """Running measures of one field."""

    count: int = 0
    sum: int | float = 0
    sum_of_squares: int | float = 0
    min: int | float | None = None
    max: int | float | None = None

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self.sum_of_squares += value * value
        self.min = value if self.min is None or value < self.min else self.min
        self.max = value if self.max is None or value > self.max else self.max

    def measure(self, name: Measure) -> int | float | None:
        found: int | float | None = getattr(self, name.value)
        return found


@dataclass(slots=True)
class _Pane:
    begins_us: int
    ends_us: int
    samples: int
    sums: list[_Sums] = field(default_factory=list)


class PaneReporter:
    """Aggregates samples pane by pane. A pane that began or ended with the program has the period that it covers.

    A pane is stamped with its last instant, or that of the change of program that ended it, so that an open pane does
    not hold back watermarks.

    Parameters
    ----------
    program, report
        The report to make.
    began_us
        Samples before this are not part of it.
    """

    suppressed = 0

    def __init__(self, program: SamplingProgram, report: Panes, began_us: int) -> None:
        self._fields = len(program.fields)
        self._report = report
        self._began_us = began_us
        self._pane: _Pane | None = None

    @property
    def open_us(self) -> int | None:
        """Last instant of the open pane."""
        return None if self._pane is None else self._pane.ends_us - 1

    def pass_by(self, instant_us: int) -> list[Stamped]:
        """Count a sample outside the bands; return the pane that ended before it, if one did.

        The pane of the sample is open from now on: a later sample in the bands will be part of it.
        """
        done = self.close(self._pane.ends_us) if self._pane and instant_us >= self._pane.ends_us else []
        if self._pane is None:
            begins_us = instant_us // self._report.pane_us * self._report.pane_us
            sums = [_Sums() for _ in range(self._fields)]
            self._pane = _Pane(max(begins_us, self._began_us), begins_us + self._report.pane_us, 0, sums)
        return done

    def take(self, instant_us: int, values: Values) -> list[Stamped]:
        """Add a sample; return the pane that ended before it, if one did."""
        done = self.pass_by(instant_us)
        if self._pane is not None:
            self._pane.samples += 1
            for total, value in zip(self._pane.sums, values, strict=True):
                if isinstance(value, int | float):
                    total.add(value)
        return done

    def close(self, until_us: int) -> list[Stamped]:
        """Return the open pane up to now, if it has a sample in the bands."""
        pane, self._pane = self._pane, None
        if pane is None or pane.samples == 0:
            return []
        covered_us = max(min(until_us, pane.ends_us) - pane.begins_us, 1)
        measures = tuple(tuple(sums.measure(name) for name in self._report.measures) for sums in pane.sums)
        return [(min(until_us, pane.ends_us - 1), Partial(0, covered_us, measures, pane.samples))]
