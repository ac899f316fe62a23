"""Batteries: their charge, their self-discharge, and the part that a mote can use.

Capacity is charge, as in data sheets: the energy a mote gets from it is that charge at the mote's supply voltage.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

YEAR_SECONDS = 365.25 * 86_400
RATED_C = 20.0
"""Temperature at which self-discharge is given."""
_MAH_COULOMBS = 3.6

Floats = npt.NDArray[np.float64]
Curve = Annotated[tuple[tuple[float, float], ...], Meta(min_length=1)]


class Battery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A battery.

    Parameters
    ----------
    title
        Its description.
    capacity_mah
        Charge from full until the cut-off voltage at 20 degC and a light load.
    voltage_at_depth
        Voltage by depth of discharge (0 full, 1 empty), points in order.
    cut_off_v
        The voltage at which it is empty.
    self_discharge_per_year
        Share of the remaining charge that it loses in a year at 20 degC.
    doubles_every_c
        Self-discharge doubles with every so many degrees.
    capacity_at_c
        Share of its capacity that it has at a temperature, points in order.
    rechargeable
        Whether the sun can recharge it; if not, it can only relieve it.
    """

    title: str
    capacity_mah: Annotated[float, Meta(gt=0)]
    voltage_at_depth: Curve = ((0.0, math.inf),)
    cut_off_v: Annotated[float, Meta(ge=0)] = 0.0
    self_discharge_per_year: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    doubles_every_c: Annotated[float, Meta(gt=0)] = 10.0
    capacity_at_c: Curve = ((RATED_C, 1.0),)
    rechargeable: bool = False

    def full_joules(self, supply_v: float, temperature_c: float = RATED_C) -> float:
        """Return the energy of its charge at a supply voltage and a temperature."""
        temperatures, shares = zip(*self.capacity_at_c, strict=True)
        share = float(np.interp(temperature_c, temperatures, shares))
        return self.capacity_mah * _MAH_COULOMBS * supply_v * share

    def usable_share(self, minimum_v: float) -> float:
        """Return the share of its charge that it gives before its voltage is too low for the mote."""
        lowest_v = max(minimum_v, self.cut_off_v)
        depths, volts = zip(*self.voltage_at_depth, strict=True)
        if lowest_v <= volts[-1]:
            return 1.0
        if lowest_v >= volts[0]:
            return 0.0
        return float(np.interp(-lowest_v, [-each for each in volts], depths))

    def usable_joules(self, supply_v: float, minimum_v: float) -> float:
        """Return the energy that it gives at 20 degC before its voltage is too low: what a mote announces."""
        return self.full_joules(supply_v) * self.usable_share(minimum_v)

    def loss_per_second(self, temperature_c: float | Floats) -> Floats:
        """Return the share of the remaining charge that it loses by itself each second."""
        rate = -math.log1p(-self.self_discharge_per_year) / YEAR_SECONDS
        exponent = (np.asarray(temperature_c, dtype=np.float64) - RATED_C) / self.doubles_every_c
        return np.asarray(rate * np.exp2(exponent), dtype=np.float64)

    def life_seconds(
        self, draw_mw: float, *, supply_v: float, minimum_v: float = 0.0, temperature_c: float = RATED_C
    ) -> float:
        """Return how long it supplies a steady draw; infinite without draw and self-discharge.

        Solves dq/dt = -draw - loss q from full down to the charge at which the voltage is too low.
        """
        full = self.full_joules(supply_v, temperature_c)
        return seconds_until(
            full,
            full * (1.0 - self.usable_share(minimum_v)),
            draw_mw / 1e3,
            float(self.loss_per_second(temperature_c)),
        )


def seconds_until(charge: float, floor: float, watts: float, loss_per_second: float) -> float:
    """Return when a charge in joules, with a steady draw and self-discharge, is down to `floor`."""
    if charge <= floor:
        return 0.0
    if loss_per_second <= 0:
        return math.inf if watts <= 0 else (charge - floor) / watts
    if floor + watts / loss_per_second <= 0:
        return math.inf
    level = watts / loss_per_second
    return math.log((charge + level) / (floor + level)) / loss_per_second


def ideal(capacity_mah: float) -> Battery:
    """Return a battery that gives all its charge at any temperature and has no self-discharge."""
    return Battery(title=f"ideal {capacity_mah:g} mAh", capacity_mah=capacity_mah)
