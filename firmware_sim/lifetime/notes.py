"""Notes of the lifetime report: what is not as queries or the fleet's file would have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firmware_sim.lifetime.fleet_file import FleetPlan
from firmware_sim.lifetime.folding import FleetFolding
from firmware_sim.lifetime.query_file import AskingQuery
from firmware_sim.power.virtual_run import Outcome
from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.stretching import stretched_need
from protocols.text.durations import format_duration

_DAY_US = 86_400_000_000


def notes_on_lifetimes(
    fleet: FleetPlan, folding: FleetFolding, queries: Sequence[AskingQuery], outcome: Outcome
) -> Iterator[str]:
    """Yield how periods are stretched so that batteries last as long as queries want, and whether they will."""
    wanted_us = max((demand.lifetime_us for each in queries for demand in each.demands), default=0)
    if not wanted_us:
        return
    wanted = f"the {format_duration(wanted_us)} of LIFETIME"
    seen: set[tuple[str, str]] = set()
    for place, mote in enumerate(fleet.motes):
        merged = folding.merged(mote)
        longer = _longer_periods(merged)
        if (mote.group, longer) in seen:
            continue
        seen.add((mote.group, longer))
        days = float(outcome.expected_days[place])
        if not merged.lifetime_kept:
            but = f" though it {longer}" if longer else ""
            yield f"{mote.group}: batteries will not last {wanted}{but}: queries allow no longer periods"
        elif longer:
            yield f"{mote.group}: {longer}, so that batteries last {wanted}"
        if merged.lifetime_kept and days < wanted_us / _DAY_US:
            yield (
                f"{mote.group}: periods are chosen as if there were no self-discharge, cold or lost packets; "
                f"with these {mote.description.name} lasts {days:.0f} days"
            )


def _longer_periods(merged: MergedProgram) -> str:
    """Return in words which samples are taken less often than demanded; empty if none are."""
    parts = [
        f"every {format_duration(longer)} instead of every {format_duration(need.period_us)}"
        for need, _ in merged.needs
        if (longer := stretched_need(need, merged.stretched).period_us) != need.period_us
    ]
    return f"samples {' and '.join(dict.fromkeys(parts))}" if parts else ""
