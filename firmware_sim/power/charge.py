"""The charge of many batteries over time: draw of motes, self-discharge, and power from the sun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from firmware_sim.power.battery import RATED_C, Battery
from protocols.power.profile import DeviceProfile

Floats = npt.NDArray[np.float64]
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
