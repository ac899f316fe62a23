"""What the catalog says about a mote. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.sensor_traits import SensorTraits
from protocols.wire.catalog import MoteEntry, MoteState
from protocols.wire.frames import VERSION
from protocols.wire.packets import Announcement, Health
from protocols.wire.programs import SamplingProgram
from proxy.mote_clock import MoteClock


@dataclass(slots=True)
class MoteCounters:
    """What happened to a mote's packets and samples since this proxy began."""

    packets_received: int = 0
    packets_lost: int = 0
    packets_rejected: int = 0
    samples_received: int = 0
    samples_late: int = 0
    samples_ahead: int = 0
    samples_behind: int = 0


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """What a mote does, and what it should do.

    Parameters
    ----------
    state
        In a word.
    running, program
        Its program, None if the proxy does not know it, and the program's number.
    desired, merged, traits
        What it should run, what that answers at what cost, and by which traits it was chosen; None if nobody asks.
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


def _energy(status: ProgramStatus) -> dict[str, Any]:
    """Return what the entry says about what the mote should do, and what that costs."""
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
