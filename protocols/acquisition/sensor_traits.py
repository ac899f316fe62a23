"""The traits of a sensor that determine its program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from protocols.acquisition.program_reports import Abilities
from protocols.power.profile import DeviceProfile
from protocols.power.profiles import find_profile, is_preset
from protocols.wire.catalog import DeviceEntry, MoteEntry
from protocols.wire.packets import Announcement

DAY_SECONDS = 86_400.0
ASSUMED_DEVICE = "telosb"
"""The profile that is assumed for a mote that announces none."""


@dataclass(frozen=True, slots=True)
class SensorTraits:
    """The traits of a sensor that determine its program; many sensors have the same.

    Parameters
    ----------
    default_period_us, minimum_period_us
        As announced.
    profile
        Its energy model.
    battery_joules
        Usable energy of a full battery; None for mains or unknown.
    lifetime_us
        How long that should last by its owner's lifetime hint; 0 for none.
    abilities
        What it can do.
    """

    default_period_us: int
    minimum_period_us: int
    profile: DeviceProfile = field(compare=False)
    battery_joules: float | None = None
    lifetime_us: int = 0
    abilities: Abilities = field(default_factory=Abilities)
    device: str = ""
    """Name of the profile."""

    def days(self, milliwatts: float) -> float:
        """Return how many days a full battery lasts at a mean draw."""
        if self.battery_joules is None or milliwatts <= 0:
            return math.inf
        return self.battery_joules / (milliwatts / 1e3) / DAY_SECONDS


def traits_of(mote: Announcement | MoteEntry, abilities: Abilities | None = None) -> SensorTraits:
    """Return the traits of a mote by its announcement or catalog entry; `abilities` of None are all."""
    device = mote.device if is_known(mote.device) else ASSUMED_DEVICE
    return SensorTraits(
        mote.default_period_us,
        mote.minimum_period_us,
        find_profile(device),
        mote.battery_joules,
        mote.lifetime_us,
        abilities or Abilities(),
        device,
    )


def has_energy_model(mote: MoteEntry) -> bool:
    """Return whether a model says what a mote draws under a program.

    Of motes that announce no device, one is assumed. Of a device of another maker nothing is assumed: one on mains has
    no battery, one that publishes by its own rules draws the same whatever is demanded, and of others the profile must
    be known.
    """
    if not isinstance(mote, DeviceEntry):
        return True
    return not (mote.mains or mote.publishes) and is_known(mote.device)


def is_known(device: str) -> bool:
    """Return whether a device has an energy model; else one is assumed."""
    return is_preset(device)
