"""What every phenomenon offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from firmware_sim.mote_events import MoteDescription
from protocols.packets import SampleValue


class Phenomenon(Protocol):
    """A part of the world with places for sensors."""

    @property
    def motes(self) -> Sequence[MoteDescription]:
        """The motes that stand in it."""
        ...

    @property
    def begins_us(self) -> int | None:
        """Instant of its first reading; None for a world that is always there."""
        ...

    @property
    def ends_us(self) -> int | None:
        """Instant from which there is nothing more to sense; None if it never ends."""
        ...

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        """Return what a mote (by its position in `motes`) senses at an instant; None where it senses nothing."""
        ...
