"""Motes in virtual time: months in seconds, without a broker; the same for every run of a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firmware_sim.power.battery import Charges, Supply, seconds_until
from firmware_sim.power.many_motes import Activities, VirtualMote
from firmware_sim.power.surroundings import DAY_SECONDS
from protocols.errors import SettingsError
from protocols.power.costs import COMPONENTS, Component

Floats = npt.NDArray[np.float64]
HOUR_US = 3_600_000_000
MOST_POINTS = 200
"""Most points of a battery's curve; in a longer run they are further apart, so memory does not grow with time."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a run for its motes.

    Parameters
    ----------
    motes
        The given motes.
    days
        The length of the run.
    joules
        Energy by mote and component.
    drawn, lost, harvested, left, begun
        Joules through each battery: drawn by the mote, lost by itself, taken from the sun, left, and at the beginning.
    died_days
        The end of each mote; infinite if it still runs.
    expected_days
        The life of each mote: until its end, or extrapolated if it still runs.
    curve_days, curve
        Instants, and each battery's usable charge then (instant, mote) as a share.
    """

    motes: tuple[VirtualMote, ...]
    days: float
    joules: Floats
    drawn: Floats
    lost: Floats
    harvested: Floats
    left: Floats
    begun: Floats
    died_days: Floats
    expected_days: Floats
    curve_days: Floats
    curve: Floats

    @property
    def first(self) -> int:
        """The mote that dies first."""
        return int(np.argmin(self.expected_days))

    def draw_mw(self, place: int) -> Floats:
        """Return the mean draw of a mote by component, while it lived."""
        seconds = min(self.days, float(self.died_days[place])) * DAY_SECONDS
        return np.asarray(self.joules[place] / max(seconds, 1e-9) * 1e3, dtype=np.float64)

    def dearest(self, place: int) -> tuple[Component, float]:
        """Return the component on which a mote spends most, and its share of the total."""
        spent = self.joules[place]
        component = int(np.argmax(spent))
        return COMPONENTS[component], float(spent[component] / max(float(spent.sum()), 1e-300))


def run_motes(
    motes: Sequence[VirtualMote],
    *,
    days: float,
    seed: int = 1,
    begins_day: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Run motes for so many days.

    Parameters
    ----------
    motes
        The motes.
    days
        The number of days.
    seed
        The seed of all random values.
    begins_day
        Day of the year on which the run begins, for sun and season.
    progress
        Called now and then with the completed share.

    Raises
    ------
    SettingsError
        If there are no motes or no time.
    """
    if not motes or not 0 < days < math.inf:
        raise SettingsError(f"{len(motes)} motes for {days:g} days is no run", hint="give at least one mote and a time")
    generator = np.random.default_rng(seed)
    activities = Activities(motes, generator)
    charges = Charges([Supply(each.profile, each.battery, each.climate.mean_c) for each in motes])
    world = _World(motes, generator)
    spent = np.zeros((len(motes), len(COMPONENTS)))
    died_days = np.where(charges.alive, math.inf, 0.0)
    end_us = round(days * DAY_SECONDS * 1e6)
    steps = -(-end_us // HOUR_US)
    keep_every = -(-steps // MOST_POINTS)
    curve_days, curve = [0.0], [charges.share_left]
    for step in range(steps):
        begin_us, until_us = step * HOUR_US, min((step + 1) * HOUR_US, end_us)
        seconds = (until_us - begin_us) / 1e6
        middle = begins_day * DAY_SECONDS + (begin_us + until_us) / 2e6
        wanted = activities.step(begin_us, until_us)
        temperature = world.temperature_c(middle)
        before = charges.alive
        lived = charges.step(wanted.sum(axis=1), seconds, temperature, world.sun_mw(middle) * seconds / 1e3)
        spent += wanted * lived[:, None]
        stopped = before & ~charges.alive
        died_days[stopped] = (begin_us / 1e6 + lived[stopped] * seconds) / DAY_SECONDS
        if (step + 1) % keep_every == 0 or step + 1 == steps:
            curve_days.append(until_us / 1e6 / DAY_SECONDS)
            curve.append(charges.share_left)
            if progress is not None:
                progress((step + 1) / steps)
    return Outcome(
        motes=tuple(motes),
        days=days,
        joules=spent,
        drawn=charges.drawn,
        lost=charges.lost,
        harvested=charges.harvested,
        left=charges.left,
        begun=charges.begun,
        died_days=died_days,
        expected_days=np.array(
            [_expected(charges, place, days, float(died_days[place])) for place in range(len(motes))]
        ),
        curve_days=np.array(curve_days),
        curve=np.array(curve),
    )


def _expected(charges: Charges, place: int, days: float, died_days: float) -> float:
    """Return a mote's life in days: the actual one, or extrapolated from mean draw and losses."""
    if died_days < math.inf:
        return died_days
    seconds = days * DAY_SECONDS
    mean_charge = float(charges.begun[place] + charges.left[place]) / 2
    loss = float(charges.lost[place]) / seconds / mean_charge if mean_charge > 0 else 0.0
    watts = float(charges.drawn[place] - charges.harvested[place]) / seconds
    rest = seconds_until(float(charges.left[place]), float(charges.floor[place]), watts, max(loss, 0.0))
    return days + rest / DAY_SECONDS


class _World:
    """Temperature and sunlight at each mote."""

    def __init__(self, motes: Sequence[VirtualMote], generator: np.random.Generator) -> None:
        self._motes = motes
        self._generator = generator
        self._climates = {each.climate: np.array([mote.climate == each.climate for mote in motes]) for each in motes}
        self._panels = [(place, mote.solar) for place, mote in enumerate(motes) if mote.solar is not None]
        self._day = -1
        self._clearness: list[float] = []

    def temperature_c(self, seconds: float) -> Floats:
        """Return the temperature at each mote."""
        found = np.empty(len(self._motes))
        for climate, there in self._climates.items():
            found[there] = climate.temperature_c(seconds)
        return found

    def sun_mw(self, seconds: float) -> Floats:
        """Return the power of each mote's panel."""
        found = np.zeros(len(self._motes))
        if not self._panels:
            return found
        if int(seconds // DAY_SECONDS) != self._day:
            self._day = int(seconds // DAY_SECONDS)
            self._clearness = [solar.day_clearness(self._generator) for _, solar in self._panels]
        for (place, solar), clearness in zip(self._panels, self._clearness, strict=True):
            found[place] = solar.clear_sky_mw(seconds) * clearness
        return found
