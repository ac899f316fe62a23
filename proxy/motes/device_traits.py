"""What a fleet knows of what is no mote that samples at whole multiples of a period, besides its announcement. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.packets import Announcement
from protocols.wire.streams import FieldName
from proxy.records.published_tuples import Publishing


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """The traits of a device of another maker, as its driver gives them; or of a mote that replays a recording.

    Parameters
    ----------
    driver
        The driver's name; empty for a mote of Fjord.
    publishes
        Whether it publishes by its own rules: each of its messages is a tuple, and it is sent no program, or one that
        only lets it begin if it is a mote.
    stored_always
        Whether its tuples are stored even while no query reads their stream.
    event_fields
        The fields of which each change counts for a query without SAMPLE.
    expected_every_us
        It publishes at least once in each period of this length; None if that is not known.
    mains
        Whether it has no battery.
    """

    driver: str
    publishes: bool = False
    stored_always: bool = False
    event_fields: tuple[FieldName, ...] = ()
    expected_every_us: int | None = None
    mains: bool = False

    @property
    def driven(self) -> bool:
        """Whether it is a device of another maker."""
        return bool(self.driver)

    @property
    def publishing(self) -> Publishing:
        """How its tuples are read."""
        return Publishing(self.publishes, () if self.publishes else self.event_fields)


RECORDED = DeviceTraits("", publishes=True)
"""The traits of a mote of Fjord that replays a recording as it is."""


def traits_of_mote(announcement: Announcement) -> DeviceTraits | None:
    """Return the traits of a mote that no driver drives; None for one that samples at its program's period."""
    return RECORDED if announcement.as_recorded else None
