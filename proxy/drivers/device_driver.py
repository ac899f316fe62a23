"""What drivers of devices do alike, however they read messages: they hold their devices, and answer for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from protocols.wire.packets import Packet
from proxy.drivers.device import Device, DeviceTraits
from proxy.drivers.driver import NOTHING, DriverOutput

Known = TypeVar("Known")


class DeviceDriver(ABC, Generic[Known]):
    """Devices by their motes, each with what its driver knows of it.

    Parameters
    ----------
    traits
        What the devices have in common.
    """

    def __init__(self, traits: DeviceTraits) -> None:
        self._traits = traits
        self._motes: dict[str, Known] = {}

    @staticmethod
    @abstractmethod
    def _unit(known: Known) -> Device:
        """Return the part that makes tuples of a device's values."""

    def _unit_of(self, mote: str) -> Device | None:
        known = self._motes.get(mote)
        return None if known is None else self._unit(known)

    def owns(self, mote: str) -> bool:
        """Return whether a mote is one of these devices."""
        return mote in self._motes

    def announce(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the announcement of a device again."""
        _ = radio_us, received_us
        unit = self._unit_of(mote)
        return NOTHING if unit is None else DriverOutput(frames=(unit.feed.announcement(),))

    def listen(self, mote: str, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return an empty packet with a listen window: what speaks for a device can receive at any time."""
        unit = self._unit_of(mote)
        if unit is None or unit.feed.offline:
            return NOTHING
        return DriverOutput(frames=(unit.feed.empty(radio_us=radio_us, received_us=received_us),))

    def time_passed(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the tuples that waited for the rest of their fields, and the empty packets that are due."""
        return DriverOutput(frames=tuple(self._due(radio_us, received_us)))

    def finish(self, *, radio_us: int, received_us: int) -> DriverOutput:
        """Return the tuples that wait for the rest of their fields: it does not come any more."""
        return DriverOutput(frames=tuple(self._due(radio_us, received_us, at_once=True)))

    def _due(self, radio_us: int, received_us: int, *, at_once: bool = False) -> Iterator[Packet]:
        for unit in map(self._unit, self._motes.values()):
            yield from unit.time_passed(radio_us=radio_us, received_us=received_us, at_once=at_once)

    def hold_promises(self, *, held: bool) -> None:
        """Let low watermarks stand, or move again."""
        self._traits.promises.held = held

    def waiting(self, mote: str) -> int | None:
        """Return the number of the tuple of a device that waits for the rest of its fields; None if none does."""
        unit = self._unit_of(mote)
        return None if unit is None else unit.feed.waiting

    def device_of(self, mote: str) -> str:
        """Return the name of a device in its own topics."""
        unit = self._unit_of(mote)
        return "" if unit is None else unit.name

    def state_of(self, mote: str) -> bytes:
        """Return the counters of a device, and what its driver keeps besides: see :meth:`_kept`."""
        known = self._motes.get(mote)
        return b"" if known is None else self._unit(known).state(self._kept(known))

    @abstractmethod
    def _kept(self, known: Known) -> bytes:
        """Return what is kept of a device for the next start of the proxy."""

    def counts_of(self, mote: str) -> Mapping[str, int]:
        """Return what became of a device's messages and values, by reason."""
        unit = self._unit_of(mote)
        return {} if unit is None else dict(unit.counts)

    def trouble_of(self, mote: str) -> str:
        """Return what keeps values of a device from their stream."""
        unit = self._unit_of(mote)
        return "" if unit is None else unit.trouble()
