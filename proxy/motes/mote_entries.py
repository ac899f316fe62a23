"""Catalog entries of motes, and what a fleet knows of devices that are none. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.program_reports import SensorTraits
from protocols.wire.catalog import DeviceEntry, MoteEntry, MoteState
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Health
from protocols.wire.programs import SamplingProgram
from protocols.wire.streams import FieldName
from proxy.motes.mote_clock import MoteClock
from proxy.records.waiting_tuples import Publishing


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


PUBLISHES = "publishes by its own rules"
"""What a device does that is sent no program."""
_LONGEST_TROUBLE = 512


@dataclass(slots=True)
class MoteCounters:
    """Statistics of a mote: its packets and samples since the proxy's start."""

    packets_received: int = 0
    packets_lost: int = 0
    packets_rejected: int = 0
    samples_received: int = 0
    samples_late: int = 0
    samples_ahead: int = 0
    samples_behind: int = 0
    samples_not_demanded: int = 0


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """The program that a mote runs, and the one it should run.

    Parameters
    ----------
    state
        Of the mote.
    running, program
        The program it runs, None if the proxy does not know it, and the program's number.
    desired, merged, traits
        The program it should run, the demands it answers and its cost, and the traits by which it was chosen; None if
        no query demands anything.
    """

    state: MoteState
    running: SamplingProgram | None
    program: int
    desired: SamplingProgram
    merged: MergedProgram | None
    traits: SensorTraits | None


def make_entry(
    proxy: str,
    announcement: Announcement,
    *,
    status: ProgramStatus,
    counters: MoteCounters,
    clock: MoteClock,
    health: Health | None,
    received_us: int,
) -> MoteEntry:
    """Return the catalog entry of a mote that has announced itself."""
    running = status.running
    return MoteEntry(
        version=VERSION,
        mote=announcement.mote,
        proxy=proxy,
        kind=announcement.kind,
        stream=announcement.stream.name,
        properties=announcement.properties,
        state=status.state,
        period_us=0 if running is None else running.period_us,
        default_period_us=announcement.default_period_us,
        minimum_period_us=announcement.minimum_period_us,
        program=status.program,
        packets_received=counters.packets_received,
        packets_lost=counters.packets_lost,
        packets_rejected=counters.packets_rejected,
        samples_received=counters.samples_received,
        samples_late=counters.samples_late,
        health=health,
        heard_us=received_us,
        device=announcement.device,
        battery_joules=announcement.battery_joules,
        lifetime_us=announcement.lifetime_us,
        samples_ahead=counters.samples_ahead,
        samples_behind=counters.samples_behind,
        clock_offset_us=clock.offset_us,
        clock_fault=clock.fault,
        **_energy(status),
    )


def device_entry(
    entry: MoteEntry, device: DeviceTraits, counters: MoteCounters, counts: Mapping[str, int], trouble: str
) -> DeviceEntry:
    """Return the entry of a driven device.

    Parameters
    ----------
    entry
        As that of any mote.
    device
        Its traits.
    counters
        Of the mote.
    counts, trouble
        Of its driver: what became of its messages, by reason, and what keeps them from their stream.
    """
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    if device.publishes:
        fields |= {"period_us": 0, "doing": PUBLISHES}  # it is sent no program, so it is not known what it draws
    found = dict(counts)
    if counters.samples_not_demanded:
        found["not_demanded"] = found.get("not_demanded", 0) + counters.samples_not_demanded
    return DeviceEntry(
        **fields,
        driver=device.driver,
        publishes=device.publishes,
        mains=device.mains,
        expected_every_us=device.expected_every_us or 0,
        counts=found,
        trouble=trouble[:_LONGEST_TROUBLE],
    )


def _energy(status: ProgramStatus) -> dict[str, Any]:
    """Return the fields of the entry about the desired program and its cost."""
    merged, traits = status.merged, status.traits
    if merged is None or traits is None:
        return {}
    days = traits.days(merged.milliwatts)
    return {
        "doing": merged.reason,
        "milliwatts": merged.milliwatts,
        "lifetime_days": days if math.isfinite(days) else None,
        "stretched": merged.stretched,
        "lifetime_kept": merged.lifetime_kept,
        "wanted": status.desired,
    }
