"""The cheapest program by trying everything: shares no code with the search but the energy model and the programs.

For every way to divide the needs among reports, every kind of report, every pane width and every packet size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache

from protocols.acquisition.needs import Need, NeedKind
from protocols.acquisition.observed import Observed
from protocols.errors import FjordError
from protocols.power.estimate import Shares, Workload, draw_mw, is_regular, rates_of
from protocols.power.payload import check_program
from protocols.power.profiles import DeviceProfile
from protocols.wire.programs import (
    Band,
    DeadBand,
    ListenSchedule,
    Measure,
    Panes,
    ProgramReport,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
)


def least_milliwatts(
    needs: Sequence[Need],
    order: Sequence[str],
    profile: DeviceProfile,
    *,
    most_per_packet: int,
    listen: ListenSchedule,
    observed: Observed,
) -> float:
    """Return the draw of the cheapest program that answers all needs; infinite if there is none."""
    best = math.inf
    patience_us = min(need.patience_us for need in needs)
    shares = cache(lambda report: _shares(report, observed))
    idle, kinds_of, tried = cache(_idle), cache(lambda group: list(kinds(group, order))), set()
    for colours in itertools.product(range(len(needs)), repeat=len(needs)):
        if any(colour > max(colours[:place], default=-1) + 1 for place, colour in enumerate(colours)):
            continue  # the same division with other names
        groups = [
            tuple(need for need, of in zip(needs, colours, strict=True) if of == colour) for colour in set(colours)
        ]
        for reports in itertools.product(*map(kinds_of, groups)):
            if frozenset(reports) in tried:
                continue
            tried.add(frozenset(reports))
            senders = [report for report in reports if report.kind is None or isinstance(report.kind, SendOnChange)]
            if len(senders) > 1 and any(report.kind is not None for report in senders):
                continue
            if any(idle(report, other) for report in reports for other in reports):
                continue
            for packet in range(1, most_per_packet + 1):
                found = cost(
                    reports,
                    [shares(report) for report in reports],
                    order,
                    packet,
                    patience_us,
                    profile,
                    listen,
                    observed,
                )
                best = min(best, found)
    return best


def cost(
    reports: Sequence[ProgramReport],
    shares: Sequence[Shares],
    order: Sequence[str],
    packet: int,
    patience_us: int,
    profile: DeviceProfile,
    listen: ListenSchedule,
    observed: Observed,
) -> float:
    """Return the draw of one program; infinite if it is invalid, or records arrive too late."""
    try:
        if len(reports) == 1:
            (report,) = reports
            program = SamplingProgram(report.fields, report.every_us, packet, listen, report.bands, report.kind)
            workload = Workload(
                observed.vehicles_per_second, shares[0].kept, shares[0].changed, observed.loss, shares[0].following
            )
        else:
            tick_us = math.gcd(*(report.every_us for report in reports))
            fields = tuple(name for name in order if any(name in report.fields for report in reports))
            program = SamplingProgram(fields, tick_us, packet, listen, report=Several(tuple(reports)))
            workload = Workload(observed.vehicles_per_second, loss=observed.loss, reports=tuple(shares))
        if is_regular(program):
            if packet > 1 and packet / rates_of(program, workload).records * 1e6 > patience_us * (1 + 1e-9):
                return math.inf
        elif packet > 1:
            program = SamplingProgram(
                program.fields, program.period_us, packet, listen, program.bands, program.report, patience_us
            )
        check_program(profile, program)
        return float(draw_mw(profile, program, workload).sum())
    except FjordError:
        return math.inf


def kinds(group: Sequence[Need], order: Sequence[str]) -> Iterator[ProgramReport]:
    """Yield every report that answers a group of needs."""
    wanted = {name for need in group for name in need.fields}
    fields = tuple(name for name in order if name in wanted) or tuple(order[:1])
    every_us = math.gcd(*(need.period_us for need in group))
    banded = set.intersection(*(set(dict(need.bands)) for need in group))
    if any(need.threshold for need in group):
        banded = set()
    bands = [
        Band(name, None if low == -math.inf else low, None if high == math.inf else high)
        for name in sorted(banded)
        for low, high in _joined(interval for need in group for interval in dict(need.bands)[name])
    ]
    yield ProgramReport(fields, every_us, tuple(bands))
    if bands:
        yield ProgramReport(fields, every_us)
    silence_us = min(need.patience_us for need in group)
    if all(need.silence_us for need in group):
        silence_us = max(silence_us, min(need.silence_us for need in group))
    elif any(need.silence_us for need in group):
        silence_us = 0  # one of them needs each sample
    if not bands and not any(need.threshold for need in group):
        widths = [min(dict(need.tolerances).get(name, 0.0) for need in group if name in need.fields) for name in fields]
        if silence_us >= 2 * every_us:
            dead = tuple(DeadBand(name, width) for name, width in zip(fields, widths, strict=True))
            yield ProgramReport(fields, every_us, (), SendOnChange(dead, silence_us))
    first = group[0]
    same = all(
        (need.period_us, need.bands, need.threshold) == (first.period_us, first.bands, first.threshold)
        for need in group
    )
    if same and all(need.kind is NeedKind.PANES for need in group):
        looked_at = tuple(name for name in order if name in fields or name in dict(first.bands))
        measures = tuple(each for each in Measure if any(each in need.measures for need in group))
        for pane_us in _panes(group):
            yield ProgramReport(looked_at, every_us, tuple(_all(first)), Panes(pane_us, measures))
    if same and first.threshold is not None:
        yield ProgramReport(first.fields, every_us, (), VehicleEvents(first.threshold, 1_000))
        if all(need.kind is NeedKind.TALLIES for need in group):
            for pane_us in _panes(group):
                yield ProgramReport(first.fields, every_us, (), VehicleCount(first.threshold, pane_us))


def _shares(report: ProgramReport, observed: Observed) -> Shares:
    return Shares(
        observed.kept_share(_by_field(report.bands)),
        observed.changed_share((each.field, each.width) for each in report.kind.dead_bands)
        if isinstance(report.kind, SendOnChange)
        else 1.0,
        observed.following_share(_by_field(report.bands), report.every_us),
    )


def _idle(report: ProgramReport, other: ProgramReport) -> bool:
    """Return whether a report sends only samples that another one sends anyway: no program has such a report."""
    if report == other or report.kind is not None or other.kind is not None or report.every_us % other.every_us:
        return False
    if not set(report.fields) <= set(other.fields):
        return False
    inner, outer = dict(_by_field(report.bands)), dict(_by_field(other.bands))
    return all(
        name in inner and all(any(low <= a and b <= high for low, high in outer[name]) for a, b in inner[name])
        for name in outer
    )


def _panes(group: Sequence[Need]) -> list[int]:
    widest = math.gcd(*(need.pane_us for need in group))
    return [
        widest // divisor for divisor in (1, 2, 3) if widest % divisor == 0 and widest // divisor >= group[0].period_us
    ]


def _all(need: Need) -> list[Band]:
    return [
        Band(name, None if low == -math.inf else low, None if high == math.inf else high)
        for name, intervals in need.bands
        for low, high in intervals
    ]


def _joined(intervals: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _by_field(bands: Sequence[Band]) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    names = sorted({band.field for band in bands})
    return tuple(
        (
            name,
            tuple(
                (-math.inf if band.low is None else band.low, math.inf if band.high is None else band.high)
                for band in bands
                if band.field == name
            ),
        )
        for name in names
    )
