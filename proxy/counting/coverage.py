"""Which report of a mote's program covers the samples that a query needs, and how. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from protocols.acquisition.covering import answers
from protocols.acquisition.needs import Need
from protocols.wire.packets import Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, VehicleCount, reports_of


class Coverage(NamedTuple):
    """How a program covers a need.

    Parameters
    ----------
    report
        Number of the report that does.
    grid_us
        Samples are taken at whole multiples of this. More than the period of the need where the mote is too slow for
        that, or has to save its battery.
    pane_us
        Width of the panes that the mote aggregates: a pane is lost with its record. 0 if it does not aggregate.
    fills
        True if only changes are sent: after a loss, no value is known until the next change.
    """

    report: int
    grid_us: int
    pane_us: int = 0
    fills: bool = False

    def pane_of(self, instant_us: int) -> int:
        """Return the beginning of the pane of an instant: the pane's samples are received, or lost, together."""
        return instant_us // self.pane_us * self.pane_us if self.pane_us else instant_us

    def first_reported_us(self, packet: Packet) -> int | None:
        """Return the first instant that the report's records in a packet cover; None if there are none."""
        found = None
        for record in packet.records:
            match record:
                case Sample() if record.reports >> self.report & 1:
                    instant_us = packet.clock_us - record.age_us
                case Partial() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us - record.pane_us + 1
                case VehicleTally() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us - record.every_us + 1
                case VehicleEvent() if record.report == self.report:
                    instant_us = packet.clock_us - record.age_us
                case _:
                    continue
            found = instant_us if found is None else min(found, instant_us)
        return found


@lru_cache(maxsize=65_536)
def coverage_of(program: SamplingProgram, need: Need) -> Coverage | None:
    """Return how a program covers a need; None if it does not.

    Of several reports that do, it is the one whose records answer the need, as in
    :func:`proxy.records.program_routes.routes_of`.
    """
    if program.sleeping:
        return None
    found: list[tuple[int, bool, Coverage]] = []
    for number, alone in enumerate(reports_of(program)):
        grid_us = math.lcm(alone.period_us, need.period_us)
        if not answers(alone, replace(need, period_us=grid_us)):
            continue
        report = alone.report
        if isinstance(report, Panes | VehicleCount):
            width_us = report.pane_us if isinstance(report, Panes) else report.every_us
            found.append((grid_us, False, Coverage(number, grid_us, width_us)))
        else:
            sends_samples = report is None or isinstance(report, SendOnChange)
            found.append((grid_us, sends_samples, Coverage(number, grid_us, 0, isinstance(report, SendOnChange))))
    return min(found)[2] if found else None
