"""A mote's life in closed form: mean draw, mean losses of the battery, mean sun."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from firmware_sim.power.battery import Battery, seconds_until
from firmware_sim.power.many_motes import VirtualMote
from firmware_sim.power.surroundings import DAY_SECONDS, YEAR_DAYS, Climate, Solar
from protocols.power.estimate import draw_mw

_HOURS = np.arange(0.0, YEAR_DAYS * DAY_SECONDS, 3600.0)


def predicted_days(mote: VirtualMote, factor: float = 1.0) -> float:
    """Return how long a mote lives, from the daily and yearly means of its surroundings.

    Parameters
    ----------
    mote
        The mote.
    factor
        How many times the estimate its draw is.
    """
    profile, battery, climate = mote.profile, mote.battery, mote.climate
    milliwatts = float(draw_mw(profile, mote.program, mote.workload).sum()) * factor
    if mote.solar is not None:
        milliwatts -= _mean_sun_mw(mote.solar, float("inf") if battery.rechargeable else milliwatts)
    supply_v, minimum_v = profile.processor.supply_v, profile.processor.minimum_v
    full = battery.full_joules(supply_v, climate.mean_c)
    floor = full * (1 - battery.usable_share(minimum_v))
    return seconds_until(full, floor, milliwatts / 1e3, _mean_loss(battery, climate)) / DAY_SECONDS


@lru_cache(maxsize=1024)
def _mean_loss(battery: Battery, climate: Climate) -> float:
    """Return the share that a battery loses by itself each second, over a year of warm and cold hours."""
    degrees = np.array([climate.temperature_c(each) for each in _HOURS])
    return float(battery.loss_per_second(degrees).mean())


@lru_cache(maxsize=1024)
def _mean_sun_mw(solar: Solar, most_mw: float) -> float:
    """Return the mean power of a panel over a year, if more than `most_mw` cannot be used."""
    sun = np.array([solar.clear_sky_mw(each) for each in _HOURS]) * (1 - solar.cloud_share)
    return float(np.minimum(sun, most_mw).mean())
