"""Groups of needs become parts of a program, parts become a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from protocols.acquisition.needs import MOST_INTERVALS, Bands, Need, NeedKind, bands_of, fewer, united
from protocols.wire.programs import (
    DeadBand,
    ListenSchedule,
    Measure,
    Panes,
    Part,
    SamplingProgram,
    SendOnChange,
    Several,
    VehicleCount,
    VehicleEvents,
)
from protocols.wire.streams import FieldName

_DIVISORS = (1, 2, 3)
MOST_VEHICLES_PER_SECOND = 1_000
"""A mote that left out vehicles would change answers."""


@dataclass(frozen=True, slots=True)
class ProgramStyle:
    """What the deployer, not a query, decides about every program."""

    samples_per_packet: int = 1
    listen: ListenSchedule = field(default_factory=ListenSchedule)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a device can do besides sampling at a rate; what it cannot, the proxy does."""

    filters: bool = True
    sends_on_change: bool = True
    aggregates: bool = True
    detects_events: bool = True
    several: bool = True
    """More than one of these at a time."""


def sampling_part(needs: Sequence[Need], order: Sequence[FieldName]) -> Part:
    """Return the part that sends every sample any of these needs is about."""
    # By what samples are chosen has to be told with them: a part for several needs chooses less than each of them.
    chosen_by = {name for need in needs for name, _ in need.bands}
    fields = tuple(name for name in order if name in chosen_by or name in _fields(needs, order)) or tuple(order[:1])
    every_us = math.gcd(*(need.period_us for need in needs))
    return Part(fields, every_us, bands_of(_bands_for_all(needs)))


def changing_part(needs: Sequence[Need], order: Sequence[FieldName]) -> Part | None:
    """Return the part that sends these samples only when they have changed; None if that would not do.

    Who receives them fills in what was left out, so nothing is lost but on the air: what has not changed by more than a
    query's tolerance, which may be none at all, is as good as sent.
    """
    plain = sampling_part(needs, order)
    patience_us = min(need.patience_us for need in needs)
    if plain.bands or patience_us < 2 * plain.every_us or any(need.threshold is not None for need in needs):
        return None
    widths: dict[FieldName, float] = {}
    for need in needs:
        allowed = dict(need.tolerances)
        for name in dict.fromkeys((*need.fields, *(name for name, _ in need.bands))):
            width = allowed.get(name, 0.0)
            widths[name] = min(widths.get(name, width), width)
    dead_bands = tuple(DeadBand(name, widths.get(name, 0.0)) for name in plain.fields)
    return Part(plain.fields, plain.every_us, (), SendOnChange(dead_bands, patience_us))


def aggregating_parts(needs: Sequence[Need], order: Sequence[FieldName], listen_every_us: int = 0) -> list[Part]:
    """Return the parts that send panes of which all windows of these needs can be made; none if none would do.

    Panes further apart than `listen_every_us` may cost less if they are divided: where they come, nobody has to ask,
    and those that come together with others need no packet of their own.
    """
    first = needs[0]
    if any(
        need.kind is not NeedKind.PANES or (need.period_us, need.bands) != (first.period_us, first.bands)
        for need in needs
    ):
        return []
    measures = tuple(each for each in Measure if any(each in need.measures for need in needs))
    wanted = _fields(needs, order) or tuple(order[:1])
    looked_at = tuple(name for name in order if name in wanted or name in dict(first.bands))
    return [
        Part(looked_at, first.period_us, bands_of(first.bands), Panes(pane_us, measures))
        for pane_us in _widths(needs, listen_every_us)
    ]


def detecting_parts(needs: Sequence[Need], listen_every_us: int = 0) -> list[Part]:
    """Return the parts that see the events of these needs; none if they are not about the same events.

    Where vehicles are rare, telling of each costs less than telling how many there were in every pane.
    """
    first = needs[0]
    if first.threshold is None or any(
        (need.threshold, need.period_us) != (first.threshold, first.period_us) for need in needs
    ):
        return []
    events = Part(first.fields, first.period_us, (), VehicleEvents(first.threshold, MOST_VEHICLES_PER_SECOND))
    if any(need.kind is NeedKind.EVENTS for need in needs):
        return [events]
    counts = [
        Part(first.fields, first.period_us, (), VehicleCount(first.threshold, pane_us))
        for pane_us in _widths(needs, listen_every_us)
    ]
    return [events, *counts]


def assembled(parts: Sequence[Part], order: Sequence[FieldName], style: ProgramStyle, packet: int) -> SamplingProgram:
    """Return the program of these parts.

    Parameters
    ----------
    parts
        At least one.
    order
        Sampled fields in schema order.
    style
        Its listen schedule.
    packet
        Records per packet.
    """
    if len(parts) == 1:
        (part,) = parts
        return SamplingProgram(part.fields, part.every_us, packet, style.listen, part.bands, part.report)
    wanted = {name for part in parts for name in part.fields}
    fields = tuple(name for name in order if name in wanted)
    tick_us = math.gcd(*(part.every_us for part in parts))
    return SamplingProgram(fields, tick_us, packet, style.listen, report=Several(tuple(parts)))


def parts_as_parts(program: SamplingProgram) -> tuple[Part, ...]:
    """Return what a program does, part by part; a program without parts is its own one."""
    if isinstance(program.report, Several):
        return program.report.parts
    return (Part(program.fields, program.period_us, program.bands, program.report),)


def sends_samples(part: Part) -> bool:
    """Return whether a part sends samples, changed ones or all."""
    return part.report is None or isinstance(part.report, SendOnChange)


def _widths(needs: Sequence[Need], listen_every_us: int) -> list[int]:
    """Return how wide panes may be, the widest first."""
    widest_us = math.gcd(*(need.pane_us for need in needs))
    divisors = _DIVISORS if 0 < listen_every_us < widest_us else (1,)
    widths = [widest_us // divisor for divisor in divisors if widest_us % divisor == 0]
    return [width for width in widths if width >= needs[0].period_us]


def _fields(needs: Iterable[Need], order: Sequence[FieldName]) -> tuple[FieldName, ...]:
    """Return the fields that needs read."""
    wanted = {name for need in needs for name in need.fields}
    return tuple(name for name in order if name in wanted)


def _bands_for_all(needs: Sequence[Need]) -> Bands:
    """Return bands that hold every sample any of the needs is about."""
    if any(need.threshold is not None for need in needs):
        return ()
    every = [dict(need.bands) for need in needs]
    names = set(every[0]).intersection(*every[1:])
    found = {name: united(each for bands in every for each in bands[name]) for name in sorted(names)}
    return tuple((name, fewer(intervals, MOST_INTERVALS)) for name, intervals in found.items())
