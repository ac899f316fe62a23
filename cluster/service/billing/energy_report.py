"""The answer to EXPLAIN ENERGY: figures with their error bands, by kind of mote, and what they assume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from protocols.acquisition.observed import UNKNOWN_KEPT
from protocols.acquisition.program_reports import ProgramStyle
from protocols.text.quantities import format_duration

MOST_EXAMPLES = 3


class Figure(msgspec.Struct, frozen=True):
    """A figure with its error band."""

    value: float
    low: float
    high: float


class Draw(msgspec.Struct, frozen=True):
    """What a program draws, and how long a battery lasts with it.

    Parameters
    ----------
    does
        The program, in words.
    reason
        The same, and why.
    milliwatts, joules_per_day
        Mean draw; None if the device cannot run the program.
    days
        How long a full battery lasts; None if the battery is unknown.
    stretched
        By what factor sample periods are longer than demanded, to save the battery.
    lifetime_kept
        False if the battery will not last as long as a query or its owner demands.
    """

    does: str
    reason: str
    milliwatts: float | None
    joules_per_day: Figure | None
    days: Figure | None
    stretched: int = 1
    lifetime_kept: bool = True


class EnergyLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a query costs each of some motes that are alike.

    Parameters
    ----------
    stream, motes, examples
        The stream they feed, how many there are, and the names of some.
    device, device_assumed, battery_joules
        Their device, whether it is assumed, and the capacity of their batteries.
    alone
        For this query only.
    before, after
        For the queries that run, without and with this one.
    adds_joules_per_day
        What it adds.
    measured_motes, measured_milliwatts
        How many of them have reported what they have drawn, and the average of it.
    """

    stream: str
    motes: int
    examples: tuple[str, ...]
    device: str
    device_assumed: bool
    battery_joules: float | None
    alone: Draw
    before: Draw
    after: Draw
    adds_joules_per_day: Figure | None
    measured_motes: int = 0
    measured_milliwatts: float | None = None


class EnergyTotals(msgspec.Struct, frozen=True):
    """Totals over all motes that a query affects, except those that cannot run a program.

    Parameters
    ----------
    motes
        How many.
    alone, before, after, adds
        Joules per day.
    first_dies_before, first_dies_after
        Shortest life of a battery, in days; None if no battery is known.
    """

    motes: int
    alone: Figure
    before: Figure
    after: Figure
    adds: Figure
    first_dies_before: Figure | None
    first_dies_after: Figure | None


class RefusedPart(msgspec.Struct, frozen=True):
    """A part of a query that no mote can answer."""

    stream: str
    reason: str


class EnergyAnswer(msgspec.Struct, frozen=True):
    """What a query would cost.

    Parameters
    ----------
    streams
        The streams that it reads.
    lines, totals
        By kind of mote, and altogether.
    untouched
        How many motes of these streams it demands nothing of.
    refused
        What cannot be answered.
    assumptions
        What the figures assume.
    without_model
        How many devices it would use that are on mains, or of which no model says what they draw; they are in no line.
    """

    streams: tuple[str, ...]
    lines: tuple[EnergyLine, ...]
    totals: EnergyTotals
    untouched: int
    refused: tuple[RefusedPart, ...]
    assumptions: tuple[str, ...]
    without_model: int = 0


def figure(value: float, uncertainty: float) -> Figure:
    """Return a figure that may be off by a factor of one plus `uncertainty` either way.

    >>> figure(100.0, 0.25)
    Figure(value=100.0, low=80.0, high=125.0)
    """
    ends = sorted((value / (1 + uncertainty), value * (1 + uncertainty)))
    return Figure(value, *ends)


def joules_a_day(milliwatts: float) -> float:
    """Return joules per day.

    >>> joules_a_day(1.0)
    86.4
    """
    return milliwatts * 86.4


def totals_of(lines: Sequence[EnergyLine]) -> EnergyTotals:
    """Return the totals of lines. Errors of a model are taken to be the same in all motes, and so add up."""
    before = [line.before.days for line in lines if line.before.days is not None]
    after = [line.after.days for line in lines if line.after.days is not None]
    return EnergyTotals(
        sum(line.motes for line in lines),
        _total((line.motes, line.alone.joules_per_day) for line in lines),
        _total((line.motes, line.before.joules_per_day) for line in lines),
        _total((line.motes, line.after.joules_per_day) for line in lines),
        _total((line.motes, line.adds_joules_per_day) for line in lines),
        min(before, key=lambda days: days.value, default=None),
        min(after, key=lambda days: days.value, default=None),
    )


def merged_lines(lines: Iterable[EnergyLine]) -> list[EnergyLine]:
    """Return lines, merged where they are equal for their motes: different demands may lead to one program."""
    by_content: dict[EnergyLine, EnergyLine] = {}
    for line in lines:
        content = msgspec.structs.replace(
            line,
            motes=0,
            examples=(),
            measured_motes=0,
            measured_milliwatts=None,
            **{name: msgspec.structs.replace(getattr(line, name), reason="") for name in ("alone", "before", "after")},
        )
        found = by_content.get(content)
        by_content[content] = line if found is None else _sum_of(found, line)
    return sorted(by_content.values(), key=lambda line: (line.stream, -line.motes, line.examples))


def _sum_of(one: EnergyLine, other: EnergyLine) -> EnergyLine:
    measured = one.measured_motes + other.measured_motes
    drawn = [(each.measured_motes, each.measured_milliwatts) for each in (one, other)]
    total = sum(motes * milliwatts for motes, milliwatts in drawn if milliwatts is not None)
    return msgspec.structs.replace(
        one,
        motes=one.motes + other.motes,
        examples=tuple(sorted({*one.examples, *other.examples})[:MOST_EXAMPLES]),
        measured_motes=measured,
        measured_milliwatts=total / measured if measured else None,
    )


def assumptions_of(lines: Sequence[EnergyLine], without_style: Collection[str]) -> tuple[str, ...]:
    """Return the assumptions behind the figures of lines; `without_style` are proxies of which no program is known."""
    found = []
    guessed = sorted({line.device for line in lines if line.device_assumed})
    if guessed:
        motes = sum(line.motes for line in lines if line.device_assumed)
        found.append(f"{_motes(motes)} not report a device: assumed to be {', '.join(guessed)} (marked ?)")
    no_battery = sum(line.motes for line in lines if line.battery_joules is None)
    if no_battery:
        found.append(f"{_motes(no_battery)} not report a battery: the lifetime is unknown")
    if without_style:
        usual = ProgramStyle()
        listen = f"{format_duration(usual.listen.for_us)} every {format_duration(usual.listen.every_us)}"
        found.append(
            f"how {', '.join(sorted(without_style))} fills packets and lets motes listen is unknown while all motes "
            f"sleep: {usual.samples_per_packet} sample a packet, {listen}"
        )
    if lines:
        found += [
            f"measured values are unknown here: of each field with bands, {UNKNOWN_KEPT:.0%} of samples lie in them",
            "every sample differs from the one before, there is one event a second, and no packet is lost",
            "batteries are full, at 20 degC, and lose nothing by themselves",
        ]
    return tuple(found)


def _total(amounts: Iterable[tuple[int, Figure | None]]) -> Figure:
    value = low = high = 0.0
    for motes, each in amounts:
        if each is not None:
            value, low, high = value + motes * each.value, low + motes * each.low, high + motes * each.high
    return Figure(value, low, high)


def _motes(count: int) -> str:
    return "1 mote does" if count == 1 else f"{count:,} motes do"
