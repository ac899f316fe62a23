"""The three sampling programs of the paper, at any rate (papers/fjords.md section 6)."""

from __future__ import annotations

from protocols.errors import SettingsError
from protocols.power.estimate import NEVER_US
from protocols.power.limits import most_records
from protocols.power.profile import DeviceProfile
from protocols.wire.programs import (
    ListenSchedule,
    SamplingProgram,
    Threshold,
    VehicleCount,
    VehicleEvents,
)

SLOWEST_HZ, FASTEST_HZ = 1e-9, 1e6
"""One sample in thirty years, and in the shortest period there is."""
"""Periods are whole microseconds."""
FIELD = "level"
"""The field of the paper's sensor: how much of a vehicle is over it."""
OVER = Threshold(FIELD, above=0.6, below=0.4)
PAPER_PROGRAMS = ("raw", "events", "count")
VEHICLES_PER_SECOND = 5.0
"""The paper's worst case, at most five vehicles a second."""
NO_LISTENING = ListenSchedule(NEVER_US, 1)
"""The paper's figure leaves listening out."""


def paper_program(
    name: str, profile: DeviceProfile, rate_hz: float, *, listen: ListenSchedule = NO_LISTENING
) -> SamplingProgram:
    """Return one of the paper's programs.

    As many raw samples as fit travel in a packet, but none waits for more than a second.

    Raises
    ------
    SettingsError
        If there is no such program, or the rate is not positive.
    """
    period_us = period_of(rate_hz)
    fields = (FIELD,)
    match name:
        case "raw":
            single = SamplingProgram(fields, period_us)
            fitting = max(1, min(most_records(profile, single), round(rate_hz), 1024))
            return SamplingProgram(fields, period_us, fitting, listen)
        case "events":
            return SamplingProgram(fields, period_us, 1, listen, report=VehicleEvents(OVER))
        case "count":
            return SamplingProgram(fields, period_us, 1, listen, report=VehicleCount(OVER, max(1_000_000, period_us)))
        case _:
            raise SettingsError(f"there is no program {name!r}", hint=f"there are {', '.join(PAPER_PROGRAMS)}")


def period_of(rate_hz: float) -> int:
    """Return the sample period of a rate, in whole microseconds.

    Raises
    ------
    SettingsError
        If it is not a possible sample rate.
    """
    if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
        raise SettingsError(f"{rate_hz:g} Hz is no rate", hint=f"give one from {SLOWEST_HZ:g} to {FASTEST_HZ:,.0f} Hz")
    return max(1, round(1e6 / rate_hz))
