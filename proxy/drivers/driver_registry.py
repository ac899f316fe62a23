"""The drivers of a proxy, and the motes that each of them drives."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.acquisition.program_reports import Abilities
from protocols.wire.packets import Announcement
from proxy.drivers.driver import Capabilities, Driver


def abilities(capabilities: Capabilities) -> Abilities:
    """Return what the merge of demands may use of a device; only Fjord's own motes run several reports at once.

    Examples
    --------
    >>> from proxy.drivers.driver import PASSIVE
    >>> abilities(PASSIVE).aggregates
    False
    """
    return Abilities(
        filters=capabilities.filters,
        sends_on_change=capabilities.sends_on_change,
        aggregates=capabilities.aggregates,
        detects_events=capabilities.detects_events,
        several=capabilities.listens and capabilities.aggregates and capabilities.detects_events,
    )


class DriverRegistry:
    """The drivers of one proxy. The first driver that delivers a mote drives it.

    Parameters
    ----------
    drivers
        Of the proxy.
    """

    def __init__(self, drivers: Iterable[Driver] = ()) -> None:
        self.drivers = tuple(drivers)
        self._of: dict[str, Driver] = {}

    def __contains__(self, mote: str) -> bool:
        """Return whether a mote is driven."""
        return mote in self._of

    @property
    def motes(self) -> tuple[tuple[str, Driver], ...]:
        """All driven motes, with their drivers."""
        return tuple(self._of.items())

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topic filters of all drivers, each once."""
        return tuple(dict.fromkeys(each for driver in self.drivers for each in driver.subscriptions))

    def abilities_of(self, mote: str) -> Abilities:
        """Return what a mote can do: everything, if it is not driven."""
        driver = self._of.get(mote)
        return Abilities() if driver is None else abilities(driver.capabilities_of(mote))

    def capabilities_of(self, mote: str) -> Capabilities | None:
        """Return what a driven device can do; None if the mote is not driven."""
        driver = self._of.get(mote)
        return None if driver is None else driver.capabilities_of(mote)

    def same_driver(self, mote: str, other: str) -> bool:
        """Return whether one driver drives both motes: what it announces of their stream holds for both."""
        driver = self._of.get(mote)
        return driver is not None and driver is self._of.get(other)

    def claim(self, driver: Driver, mote: str, announced: Announcement | None) -> str:
        """Let a driver drive a mote; return why it may not, or an empty text.

        Parameters
        ----------
        driver, mote
            Which driver for which mote.
        announced
            The announcement that the fleet has of the mote; drivers announce boot 0, Fjord's own motes boot 1 or more.
        """
        other = self._of.get(mote)
        if other is not None and other is not driver and other.owns(mote):
            return f"mote {mote!r} is a device of driver {other.name!r}: give {driver.name!r} a prefix"
        if other is None and announced is not None and announced.boot > 0:
            return f"mote {mote!r} is one of Fjord's own: give driver {driver.name!r} a prefix"
        self._of[mote] = driver
        return ""
