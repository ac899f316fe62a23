"""What the motes of the demonstration spend, beside motes that take the same samples and send every one of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from protocols.errors import FjordError
from protocols.power.estimate import Workload, draw_mw
from protocols.power.profiles import find_profile
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.programs import SamplingProgram

JOULES_A_DAY = 86.4
"""Of a milliwatt."""
_LEAST_DAYS = 0.1


@dataclass(frozen=True, slots=True)
class Mission:
    """The figures of a fleet: of its motes as they are, and as they would be if they sent everything.

    Parameters
    ----------
    samples_per_second
        How many samples all of them take.
    packets
        How many packets the proxy has received from them.
    draw_mw, all_mw
        Mean draw of a mote, by the energy model.
    days, all_days
        How long the battery of the mote in the middle lasts; None if that is not known.
    """

    samples_per_second: float
    packets: int
    draw_mw: float
    all_mw: float
    days: float | None
    all_days: float | None

    @property
    def words(self) -> str:
        """The draw and the life of a battery, beside those of motes that send every sample."""
        if not self.samples_per_second:
            return "no query demands anything: motes sleep"
        if not self.draw_mw:
            return "what they draw is not known yet"
        drawn = f"{self.draw_mw:.3g} mW a mote, {_days_text(self.days)}"
        return f"{drawn}; sending every sample {self.all_mw:.3g} mW, {_days_text(self.all_days)}"


def mission_of(entries: Iterable[MoteEntry], fields: tuple[str, ...]) -> Mission:
    """Return the figures of some motes; `fields` are those that each samples, of its stream."""
    known = list(entries)
    drawn, days = [], []
    for each in known:
        pair = _draws_mw(each, fields)
        if pair is None:
            continue
        drawn.append(pair)
        if each.battery_joules:
            days.append(tuple(each.battery_joules / (milliwatts * JOULES_A_DAY) for milliwatts in pair))
    sampling = [each for each in known if each.period_us and each.state is not MoteState.SILENT]
    return Mission(
        samples_per_second=sum(1e6 / each.period_us for each in sampling),
        packets=sum(each.packets_received for each in known),
        draw_mw=statistics.mean(own for own, _ in drawn) if drawn else 0.0,
        all_mw=statistics.mean(other for _, other in drawn) if drawn else 0.0,
        days=statistics.median(own for own, _ in days) if days else None,
        all_days=statistics.median(other for _, other in days) if days else None,
    )


def _draws_mw(entry: MoteEntry, fields: tuple[str, ...]) -> tuple[float, float] | None:
    """Return what a mote draws, and what it would if it sent every sample; None if its device is not known."""
    wanted = entry.wanted or SamplingProgram()
    period_us = wanted.period_us or entry.period_us or entry.default_period_us
    try:
        profile = find_profile(entry.device)
        own = entry.milliwatts or float(draw_mw(profile, wanted, Workload()).sum())
        program = SamplingProgram(wanted.fields or fields, period_us, listen=wanted.listen)
        return own, float(draw_mw(profile, program, Workload()).sum())
    except FjordError:
        return None


def _days_text(days: float | None) -> str:
    if days is None:
        return "without a limit"
    return f"{days:.0f} days" if days >= 10 else f"{max(days, _LEAST_DAYS):.1f} days"  # noqa: PLR2004 - two digits
