"""Printed reports: tables, or JSON."""

from __future__ import annotations

import json
import math
import statistics

from rich.console import Console
from rich.table import Column, Table

from firmware_sim.lifetime.report import LifetimeReport
from firmware_sim.power.battery import known_batteries
from firmware_sim.power.power_report import PowerReport
from protocols.power.costs import named
from protocols.power.estimate import NEVER_US
from protocols.power.profiles import find_profile, preset_names
from protocols.text.quantities import format_duration
from protocols.wire.programs import ListenSchedule

SMALLEST_COST_DAYS = 0.05
_WHY_LESS = (
    "a sleeping mote sends packets only to open listen windows; one that sends samples opens them with these, "
    "or listens less often"
)
_NAME_WIDTH = 24
"""Names of queries up to this long are on one line, however narrow the terminal."""


def print_power(report: PowerReport, *, as_json: bool) -> None:
    """Print the draw of a program."""
    if as_json:
        print_json(report.as_json())
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{report.profile.title}, program {report.question.program} at {report.rate_hz:g} Hz, "
        f"{_listening(report.program.listen)}"
    )
    table = Table("component", "mW", "share", box=None)
    total = float(report.draw_mw.sum())
    for name, draw in named(report.draw_mw).items():
        if draw > total * 1e-6:
            table.add_row(name.replace("_", " "), f"{draw:.4g}", f"{draw / total:.1%}")
    console.print(table)
    console.print(f"{report.battery.title} at {report.question.temperature_c:g} degC: {_life(report)}")


def print_lifetime(report: LifetimeReport, *, as_json: bool) -> None:
    """Print the lifetime of a fleet."""
    if as_json:
        print_json(report.as_json())
        return
    console = Console(highlight=False, soft_wrap=True)
    outcome, first = report.outcome, report.first
    console.print(f"{report.fleet.name}: {len(outcome.motes)} motes, {outcome.days:g} days simulated")
    groups = Table(Column("group", overflow="fold"), "motes", "dead", "first dies after", "median", "mean mW", box=None)
    for group in dict.fromkeys(mote.group for mote in report.fleet.motes):
        members = [place for place, mote in enumerate(report.fleet.motes) if mote.group == group]
        lives = [float(outcome.expected_days[place]) for place in members]
        draws = [float(outcome.draw_mw(place).sum()) for place in members]
        dead = sum(float(outcome.died_days[place]) <= outcome.days for place in members)
        groups.add_row(
            group,
            str(len(members)),
            str(dead),
            days_text(min(lives)),
            days_text(statistics.median(lives)),
            f"{statistics.mean(draws):.4g}",
        )
    console.print(groups)
    life = float(outcome.expected_days[first])
    if math.isinf(life):
        console.print("no mote dies: each battery gets at least as much as it gives")
    else:
        low, high = map(days_text, report.band_days)
        console.print(
            f"first to die: {outcome.motes[first].name} after {days_text(life)} "
            f"({low} to {high} if the draw is off by {report.uncertainty:.0%})"
        )
        console.print(f"because {report.why()}")
    longest = max((len(each.name) for each in report.queries), default=0)
    queries = Table(
        Column("query", overflow="fold", min_width=min(_NAME_WIDTH, longest)),
        Column("asks for", overflow="fold"),
        "costs the first mote",
        "the median mote",
        "saves mW",
        "alone mW",
        "every sample mW",
        box=None,
    )
    for each in sorted(report.queries, key=lambda query: -query.days_of_first):
        queries.add_row(
            each.name,
            each.asks,
            cost_text(each.days_of_first),
            cost_text(each.days_of_median),
            f"{each.saved_mw:.4g}",
            f"{each.alone_mw:.4g}",
            f"{each.every_sample_mw:.4g}",
        )
    console.print(queries)
    gaining = [each for each in report.queries if each.days_of_first <= -SMALLEST_COST_DAYS]
    less = [f"without {each.name} the first mote would live {days_text(-each.days_of_first)} less" for each in gaining]
    for note in (*report.notes, *(f"{each}, as {_WHY_LESS}" for each in less)):
        console.print(f"note: {note}", markup=False)


def print_known() -> None:
    """Print the device profiles and batteries that come with Fjord."""
    console = Console(highlight=False, soft_wrap=True)
    profiles = Table("preset", "is", "usual battery", box=None)
    for name in preset_names():
        profile = find_profile(name)
        profiles.add_row(name, profile.title, profile.battery)
    console.print(profiles)
    batteries = Table("battery", "is", box=None)
    for name, battery in known_batteries().items():
        batteries.add_row(name, battery.title)
    batteries.add_row("ideal:MAH", "so many mAh to the last drop")
    console.print(batteries)


def _life(report: PowerReport) -> str:
    days, minimum_v = report.lifetime_days(), report.profile.processor.minimum_v
    if days == 0:
        stops = f"the {minimum_v:g} V at which {report.profile.name} stops"
        return f"{days_text(days)}: even full, its voltage is not above {stops}"
    if math.isinf(days):
        return f"{days_text(days)}, as it draws nothing"
    low, high = map(days_text, report.lifetime_band())
    return f"{days_text(days)}, between {low} and {high} if the draw is off by {report.profile.uncertainty:.0%}"


def _listening(schedule: ListenSchedule) -> str:
    if schedule.every_us >= NEVER_US:
        return "never listening"
    return f"listening {format_duration(schedule.for_us)} every {format_duration(schedule.every_us)}"


def days_text(days: float) -> str:
    """Return a life in words, in a unit that fits its length.

    Examples
    --------
    >>> days_text(1.634), days_text(59.29), days_text(0.2), days_text(1500), days_text(float("inf"))
    ('1.6 days', '59 days', '4.8 hours', '4.1 years', 'for ever')
    """
    if math.isinf(days):
        return "for ever"
    if days < 1:
        return f"{days * 24:.1f} hours"
    if days < 10:  # noqa: PLR2004 - one digit after the point is worth it for short lives
        return f"{days:.1f} days"
    return f"{days:.0f} days" if days < 2 * 365.25 else f"{days / 365.25:.1f} years"


def cost_text(days: float) -> str:
    """Return the cost of a query in words; "nothing" if others need the same samples anyway.

    Examples
    --------
    >>> cost_text(59.29), cost_text(0.01), cost_text(-481.2)
    ('59 days', 'nothing', 'gains 481 days')
    """
    if math.isinf(days):
        return "for ever without it" if days > 0 else "for ever with it"
    if days <= -SMALLEST_COST_DAYS:
        return f"gains {days_text(-days)}"
    return days_text(days) if days >= SMALLEST_COST_DAYS else "nothing"


def print_json(value: object) -> None:
    """Print JSON to standard output."""
    print(json.dumps(value, indent=2))  # noqa: T201 - the output of a command
