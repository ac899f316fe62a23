"""Notes of the lifetime report: what is not as queries or the fleet's file would have it."""

from __future__ import annotations

from collections.abc import Iterator

from firmware_sim.lifetime.fleet_file import FleetPlan
from firmware_sim.lifetime.folding import FleetFolding
from firmware_sim.power.virtual_run import Outcome
from protocols.acquisition.merging import MergedProgram
from protocols.acquisition.needs import NeedKind
from protocols.acquisition.stretching import stretched_need
from protocols.power.limits import most_records
from protocols.text.durations import format_duration
from protocols.wire.programs import SamplingProgram

_DAY_US = 86_400_000_000


def notes_on_lifetimes(fleet: FleetPlan, folding: FleetFolding, outcome: Outcome) -> Iterator[str]:
    """Yield how periods are stretched so that batteries last as long as queries want, and whether they will."""
    seen: set[tuple[str, str]] = set()
    for place, mote in enumerate(fleet.motes):
        merged = folding.merged(mote)
        wanted_us = max((each.demand.lifetime_us for _, classes in merged.needs for each in classes), default=0)
        longer = _longer_periods(merged)
        if not wanted_us or (mote.group, longer) in seen:
            continue
        wanted = f"the {format_duration(wanted_us)} of LIFETIME"
        seen.add((mote.group, longer))
        days = float(outcome.expected_days[place])
        if not merged.lifetime_kept:
            even = f", even with {longer}" if longer else ""
            yield f"{mote.group}: batteries will not last {wanted}{even}: queries allow no longer periods"
        elif longer:
            yield f"{mote.group}: {longer}, so that batteries last {wanted}"
        if merged.lifetime_kept and days < wanted_us / _DAY_US:
            yield (
                f"{mote.group}: periods are chosen as if there were no self-discharge, cold or lost packets; "
                f"with these {mote.description.name} lasts {days:.0f} days"
            )


def notes_on_packets(fleet: FleetPlan, folding: FleetFolding) -> Iterator[str]:
    """Yield what limits, or makes useless, how many samples the fleet's file puts in a packet."""
    most = fleet.samples_per_packet
    useless: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for mote in fleet.motes:
        merged, kind = folding.merged(mote), (mote.group, mote.profile.name)
        useless.update(_with_useless_tolerances(merged))
        if kind in seen or merged.program.sleeping:
            continue
        seen.add(kind)
        smallest = SamplingProgram(merged.program.fields[:1], merged.program.period_us)
        holds = most_records(mote.profile, smallest)
        if holds < most:
            yield (
                f"{mote.group}: samples_per_packet = {most} is more than a packet of {mote.profile.name} holds, "
                f"which is {holds} samples of one field"
            )
    for query in sorted(useless):
        yield (
            f"{query}: WITHIN saves nothing with samples_per_packet = {most}, as no sample waits for the next one; "
            "with 2 or more, motes leave out samples that differ too little"
        )


def _with_useless_tolerances(merged: MergedProgram) -> Iterator[str]:
    """Yield the queries whose samples may be inexact, but must come too soon for that to save any."""
    for need, classes in merged.needs:
        waits_us = max(need.silence_us, need.patience_us)
        if need.kind is NeedKind.SAMPLES and need.tolerances and waits_us < 2 * need.period_us:
            for each in classes:
                if each.demand.tolerances:
                    yield from each.queries


def _longer_periods(merged: MergedProgram) -> str:
    """Return in words which samples are taken less often than demanded; empty if none are."""
    parts = [
        f"every {format_duration(longer)} instead of every {format_duration(need.period_us)}"
        for need, _ in merged.needs
        if (longer := stretched_need(need, merged.stretched).period_us) != need.period_us
    ]
    return f"samples {' and '.join(dict.fromkeys(parts))}" if parts else ""
