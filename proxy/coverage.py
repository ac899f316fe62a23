"""Which part of a mote's program looks at the samples that a need is about, and how that is heard of. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from protocols.acquisition.covering import answers
from protocols.acquisition.needs import Need
from protocols.wire.packets import Packet, Partial, Sample, VehicleEvent, VehicleTally
from protocols.wire.programs import Panes, SamplingProgram, SendOnChange, VehicleCount, parts_of


class Coverage(NamedTuple):
    """How a program covers a need.

    Parameters
    ----------
    part
        Number of the part that does.
    grid_us
        It looks at the samples at whole multiples of this. More than the period of the need where the mote is too slow
        for that, or was told to save its battery.
    pane_us
        If it aggregates on the mote: what is lost with a record is a pane of this width; else 0.
    fills
        True if it sends changes only: after a loss, nothing is known until it sends again.
    """

    part: int
    grid_us: int
    pane_us: int = 0
    fills: bool = False

    def pane_of(self, instant_us: int) -> int:
        """Return from where on an instant's sample is told together with others: it comes, or is lost, with them."""
        return instant_us // self.pane_us * self.pane_us if self.pane_us else instant_us

    def first_reported_us(self, packet: Packet) -> int | None:
        """Return the first instant that the part's records in a packet tell of; None if there are none."""
        found = None
        for record in packet.records:
            match record:
                case Sample() if record.parts >> self.part & 1:
                    instant_us = packet.clock_us - record.age_us
                case Partial() if record.part == self.part:
                    instant_us = packet.clock_us - record.age_us - record.pane_us + 1
                case VehicleTally() if record.part == self.part:
                    instant_us = packet.clock_us - record.age_us - record.every_us + 1
                case VehicleEvent() if record.part == self.part:
                    instant_us = packet.clock_us - record.age_us
                case _:
                    continue
            found = instant_us if found is None else min(found, instant_us)
        return found


@lru_cache(maxsize=65_536)
def coverage_of(program: SamplingProgram, need: Need) -> Coverage | None:
    """Return how a program covers a need; None if it does not.

    Of several parts that do, it is the one by whose records the need is told: as :func:`proxy.program_routes.routes_of`
    has it.
    """
    if program.sleeping:
        return None
    found: list[tuple[int, bool, Coverage]] = []
    for number, part in enumerate(parts_of(program)):
        grid_us = math.lcm(part.period_us, need.period_us)
        if not answers(part, replace(need, period_us=grid_us)):
            continue
        report = part.report
        if isinstance(report, Panes | VehicleCount):
            width_us = report.pane_us if isinstance(report, Panes) else report.every_us
            found.append((grid_us, False, Coverage(number, grid_us, width_us)))
        else:
            sends_samples = report is None or isinstance(report, SendOnChange)
            found.append((grid_us, sends_samples, Coverage(number, grid_us, 0, isinstance(report, SendOnChange))))
    return min(found)[2] if found else None
