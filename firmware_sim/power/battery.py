"""Batteries by name: their charge over time, their self-discharge, and the part that a mote can use.

Capacity is charge, as in data sheets: the energy a mote gets from it is that charge at the mote's supply voltage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from protocols.errors import SettingsError
from protocols.power.constants_file import convert, read_table, without_sources
from protocols.power.profiles import DeviceProfile

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


_FILE = "batteries.toml"

MOST_MAH = 1_000_000_000


@cache
def known_batteries() -> Mapping[str, Battery]:
    """Return the batteries that come with Fjord."""
    text = (resources.files("firmware_sim.power") / _FILE).read_text(encoding="utf-8")
    table, _ = without_sources(read_table(text, _FILE), _FILE)
    return MappingProxyType(convert(table, dict[str, Battery], text=text, origin=_FILE))


def find_battery(name: str) -> Battery:
    """Return a battery by name; ``ideal:100`` is an ideal one of 100 mAh.

    Raises
    ------
    SettingsError
        If there is no battery of this name; the error lists the known ones.
    """
    kind, _, capacity = name.partition(":")
    if kind == "ideal":
        try:
            capacity_mah = float(capacity)
        except ValueError:
            capacity_mah = 0.0
        if not 0.0 < capacity_mah < float("inf"):
            raise SettingsError(f"{name!r} has no capacity", hint="write ideal:2400 for 2400 mAh")
        if capacity_mah > MOST_MAH:
            raise SettingsError(f"{name!r} is more than {MOST_MAH:,} mAh")
        return ideal(capacity_mah)
    try:
        return known_batteries()[name]
    except KeyError:
        known = ", ".join([*known_batteries(), "ideal:MAH"])
        raise SettingsError(f"there is no battery {name!r}", hint=f"there are {known}") from None


_LEAST_LOSS = 1e-18
"""Share per second; replaces zero where a formula divides by it."""


@dataclass(frozen=True, slots=True, eq=False)
class Supply:
    """The supply of one mote: its profile's voltages, its battery, and the mean temperature there."""

    profile: DeviceProfile
    battery: Battery
    temperature_c: float = RATED_C


class Charges:
    """Batteries of many motes, each with its energy in and out, in joules at the mote's supply voltage.

    ``begun - left == drawn + lost - harvested`` holds for each to rounding.
    """

    def __init__(self, supplies: Sequence[Supply]) -> None:
        self.begun = np.array([_full(each) for each in supplies])
        self.left = self.begun.copy()
        usable = [each.battery.usable_share(each.profile.processor.minimum_v) for each in supplies]
        self.floor = self.begun * (1.0 - np.array(usable))
        self.alive = self.left > self.floor
        self.drawn = np.zeros(len(supplies))
        self.lost = np.zeros(len(supplies))
        self.harvested = np.zeros(len(supplies))
        self._loss = np.array([float(each.battery.loss_per_second(RATED_C)) for each in supplies])
        self._doubles = np.array([each.battery.doubles_every_c for each in supplies])
        self._rechargeable = np.array([each.battery.rechargeable for each in supplies])

    def step(self, drawn: Floats, seconds: float, temperature_c: Floats, harvested: Floats | float = 0.0) -> Floats:
        """Let time pass.

        Parameters
        ----------
        drawn
            The draw of each mote in this time.
        seconds
            The length of this time.
        temperature_c
            The temperature of each battery.
        harvested
            The energy that the sun offers each mote. A battery that cannot be recharged uses at most as much as is
            drawn.

        Returns
        -------
        Floats
            The share of this time in which each mote lived: 1 if it still lives, 0 if it was dead before.
        """
        offered = np.broadcast_to(np.asarray(harvested, dtype=np.float64), drawn.shape)
        taken = np.where(self._rechargeable, offered, np.minimum(offered, drawn))
        loss = np.maximum(self._loss * np.exp2((temperature_c - RATED_C) / self._doubles), _LEAST_LOSS)
        level = (drawn - taken) / seconds / loss
        # dq/dt = -watts - loss q. expm1 and log1p keep the digits of tiny losses.
        after = self.left + (self.left + level) * np.expm1(-loss * seconds)
        dies = self.alive & (after < self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.log1p((self.left - self.floor) / (self.floor + level)) / loss
        share = np.where(dies, np.clip(until / seconds, 0.0, 1.0), self.alive.astype(np.float64))
        after = np.where(dies, self.floor, after)
        taken = taken * share
        over = np.where(self.alive, np.maximum(after - self.begun, 0.0), 0.0)
        taken, after = taken - over, after - over
        out = drawn * share
        self.lost += np.where(self.alive, self.left - after - out + taken, 0.0)
        self.left = np.where(self.alive, after, self.left)
        self.drawn += out
        self.harvested += taken
        self.alive = self.alive & ~dies
        return np.asarray(share, dtype=np.float64)

    @property
    def share_left(self) -> Floats:
        """Remaining usable charge, as a share of that at the beginning."""
        usable = self.begun - self.floor
        return np.divide(self.left - self.floor, usable, out=np.zeros_like(usable), where=usable > 0)


def _full(supply: Supply) -> float:
    return supply.battery.full_joules(supply.profile.processor.supply_v, supply.temperature_c)
