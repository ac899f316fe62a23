"""What a fleet knows of a device of another maker, besides its announcement. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.wire.streams import FieldName
from proxy.records.published_tuples import Publishing


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """The traits of a device, as its driver gives them.

    Parameters
    ----------
    driver
        The driver's name.
    publishes
        Whether it publishes by its own rules: it is sent no program, and each of its messages is a tuple.
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
    def publishing(self) -> Publishing:
        """How its tuples are read."""
        return Publishing(self.publishes, () if self.publishes else self.event_fields)
