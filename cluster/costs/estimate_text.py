"""Estimates of a plan as text: a line for each node, in the form of the plan's tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.costs.estimates import NOTHING_MEASURED, UNKNOWN, Estimate, Totals, estimates_of, totals_of
from cluster.costs.prices import SHIPPED, Prices
from cluster.costs.selectivity import NO_PARTNERS, Partners
from cluster.expressions.nodes import Expression
from cluster.operators import Node
from cluster.plan.explain import tree_of

HEADINGS = ("rows/s", "valid for", "kept rows", "work/s")
MEASURED_HEADINGS = ("rows/s now", "work/s now", "us per row")
UNITS = (("d", 86_400e6), ("h", 3_600e6), ("m", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0))
"""Units of durations in microseconds, as durations are written."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the operators of a node did lately, in real time.

    Parameters
    ----------
    rows_per_second
        Rows that they made.
    work_us
        Microseconds of a processor that they took in a second.
    us_per_row
        Microseconds for each row that came; None if none came.
    """

    rows_per_second: float
    work_us: float
    us_per_row: float | None


def estimate_text(
    plan: Node,
    tuples_per_second: Mapping[str, float],
    selectivities: Mapping[tuple[str, Expression], float] = NOTHING_MEASURED,
    prices: Prices = SHIPPED,
    measured: Mapping[Node, Measured] | None = None,
    *,
    partners: Partners = NO_PARTNERS,
) -> str:
    """Return a table of what is expected of a plan; empty if nothing can be estimated.

    Parameters
    ----------
    plan
        The plan, rewritten.
    tuples_per_second, selectivities, prices, partners
        As for :func:`cluster.costs.estimates.estimates_of`.
    measured
        What runs, beside it; None if it does not run.
    """
    found = estimates_of(plan, tuples_per_second, selectivities, prices=prices, partners=partners)
    if all(each == UNKNOWN for each in found.values()):
        return ""
    tree = tree_of(plan)
    headings: tuple[str, ...] = HEADINGS if measured is None else HEADINGS + MEASURED_HEADINGS
    rows: list[tuple[str, ...]] = [headings]
    for _, node, again in tree:
        figures = _figures(found[node]) if measured is None else _figures(found[node]) + _now(measured.get(node))
        rows.append(("",) * len(headings) if again else figures)
    widths = [max(len(row[place]) for row in rows) for place in range(len(headings))]
    lines = ["", *(line for line, _, _ in tree)]
    table = [
        "  " + "  ".join(figure.rjust(width) for figure, width in zip(row, widths, strict=True)) + f"  {line}".rstrip()
        for row, line in zip(rows, lines, strict=True)
    ]
    return "\n".join([*table, f"  in all: {totals_words(totals_of(found.values()))}"])


def totals_words(totals: Totals) -> str:
    """Return what a plan costs in words."""
    least = "" if totals.known else "at least "
    kept = "ever more rows" if math.isinf(totals.kept) else f"{_count(totals.kept)} rows"
    work = "ever more" if math.isinf(totals.work_us) else duration_words(totals.work_us)
    return f"{least}{work} of a processor in a second, {kept} kept"


def _figures(estimate: Estimate) -> tuple[str, ...]:
    per_second = estimate.rows_per_second
    return (
        "?" if per_second is None else _count(per_second),
        "?" if estimate.flow is None else duration_words(estimate.flow.validity),
        "?" if estimate.kept is None else _kept(estimate.kept),
        "?" if estimate.work_us is None else duration_words(estimate.work_us),
    )


def _now(measured: Measured | None) -> tuple[str, ...]:
    if measured is None:
        return ("-",) * len(MEASURED_HEADINGS)
    per_row = "-" if measured.us_per_row is None else _count(measured.us_per_row)
    return _count(measured.rows_per_second), duration_words(measured.work_us), per_row


def _kept(rows: float) -> str:
    if math.isinf(rows):
        return "ever more"
    return _count(rows) if rows else "-"


def _count(number: float) -> str:
    if not number or number >= 100:  # noqa: PLR2004 - three digits are enough
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def duration_words(length_us: float) -> str:
    """Return a duration with three digits, in the largest unit of which it is one at least."""
    if math.isinf(length_us):
        return "ever"
    unit, unit_us = next(((unit, us) for unit, us in UNITS if length_us >= us), UNITS[-1])
    return f"{length_us / unit_us:.3g}{unit}"
