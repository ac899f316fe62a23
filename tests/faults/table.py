"""Outcomes of schedules as a table, as totals and as JSON. Pure."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.faults.running import Outcome


def table(outcomes: Iterable[Outcome]) -> Table:
    """Return a table with a line for each schedule."""
    made = Table("seed", "parts", "faults", "outage, s", "recovery, s", "answers", "verdict", box=None)
    for number in (0, 3, 4, 5):
        made.columns[number].justify = "right"
    for each in outcomes:
        recovery = "none" if each.recovery is None else f"{each.recovery:.1f}"
        verdict = "[red]failed[/red]" if each.problems else "kept"
        schedule = each.schedule
        made.add_row(
            str(schedule.seed), schedule.setting, str(schedule), f"{each.outage:.1f}", recovery, str(each.rows), verdict
        )
    return made


def line(outcome: Outcome) -> str:
    """Return the outcome of a schedule in a line."""
    verdict = "failed" if outcome.problems else "kept"
    recovery = "none" if outcome.recovery is None else f"{outcome.recovery:.1f} s"
    schedule = outcome.schedule
    return f"seed {schedule.seed} {verdict}: {schedule}; outage {outcome.outage:.1f} s, recovery {recovery}"


def totals(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the totals of all schedules, line by line."""
    if not outcomes:
        return ["no schedule has run"]
    failed = [each for each in outcomes if each.problems]
    recoveries = [each.recovery for each in outcomes if each.recovery is not None]
    longest = max(outcomes, key=lambda each: each.outage)
    lines = [f"{len(outcomes)} schedules, {len(failed)} failed; {sum(each.rows for each in outcomes)} answers compared"]
    lines.append(f"longest outage: {longest.outage:.1f} s (seed {longest.schedule.seed})")
    if recoveries:
        lines.append(f"recovery: {statistics.median(recoveries):.1f} s in the median, {max(recoveries):.1f} s at worst")
    for each in failed:
        lines.append(f"seed {each.schedule.seed} failed: {each.problems[0]}")
        if each.logs is not None:
            lines.append(f"  its logs: {each.logs}")
    return lines


def as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return outcomes as JSON has them."""
    return [
        {
            "seed": each.schedule.seed,
            "parts": str(each.schedule.setting),
            "faults": [
                {**asdict(fault), "kind": str(fault.kind), "part": str(fault.part)} for fault in each.schedule.faults
            ],
            "outage_seconds": round(each.outage, 2),
            "recovery_seconds": None if each.recovery is None else round(each.recovery, 2),
            "answers": each.rows,
            "problems": list(each.problems),
            "logs": None if each.logs is None else str(each.logs),
        }
        for each in outcomes
    ]
