"""Generated worlds by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from firmware_sim.mote.mote_events import MoteDescription
from firmware_sim.phenomena.indoor_climate import IndoorClimate
from firmware_sim.phenomena.road import LANE_MPH, Road, RoadSettings
from firmware_sim.phenomena.traffic import Traffic
from protocols.errors import SettingsError
from protocols.wire.packets import SampleValue


def make_world(name: str, *, motes: int, seed: int = 1, default_period_us: int | None = None) -> Phenomenon:
    """Return a generated world.

    Parameters
    ----------
    name
        ``traffic``, ``road`` or ``climate``.
    motes
        The number of motes; a road rounds it up to full stations.
    seed
        The seed of all random values.
    default_period_us
        Sample period for queries without one; None for the world's own.

    Raises
    ------
    SettingsError
        If there is no world of this name.
    """
    if name not in WORLDS:
        raise SettingsError(f"there is no world {name!r}", hint=f"there are {', '.join(WORLDS)}")
    return WORLDS[name](motes, seed, default_period_us)


def _traffic(motes: int, seed: int, period_us: int | None) -> Phenomenon:
    return Traffic(motes, seed=seed, default_period_us=period_us or 1_000_000)


def _climate(motes: int, seed: int, period_us: int | None) -> Phenomenon:
    return IndoorClimate(motes, seed=seed, default_period_us=period_us or 30_000_000)


def _road(motes: int, seed: int, period_us: int | None) -> Phenomenon:
    """Return a road with enough stations for so many motes, two motes in each lane of each station."""
    lanes = min(len(LANE_MPH), max(1, motes // 2))
    settings = RoadSettings(stations=max(1, motes // (2 * lanes)), lanes=lanes, rush=True)
    return Road(settings, seed=seed, default_period_us=period_us)


WORLDS: Mapping[str, Callable[[int, int, int | None], Phenomenon]] = MappingProxyType(
    {"traffic": _traffic, "road": _road, "climate": _climate}
)


class Phenomenon(Protocol):
    """A part of the world with places for sensors."""

    @property
    def motes(self) -> Sequence[MoteDescription]:
        """The motes in it."""
        ...

    @property
    def begins_us(self) -> int | None:
        """Instant of its first reading; None for a world without a beginning."""
        ...

    @property
    def ends_us(self) -> int | None:
        """Instant from which there are no values; None if the world never ends."""
        ...

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return the values that a mote (by position in `motes`) senses at an instant; None where there is none."""
        ...
