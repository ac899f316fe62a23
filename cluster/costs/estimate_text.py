"""Estimates of a plan as text: a line for each node, in the form of the plan's tree."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cluster.costs.estimates import NOTHING_MEASURED, UNKNOWN, Estimate, estimates_of
from cluster.expressions.nodes import Expression
from cluster.language.algebra import Node
from cluster.plan.explain import tree_of

HEADINGS = ("rows/s", "valid for", "kept rows")
UNITS = (("d", 86_400e6), ("h", 3_600e6), ("m", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0))
"""Units of durations in microseconds, as durations are written."""


def estimate_text(
    plan: Node,
    tuples_per_second: Mapping[str, float],
    selectivities: Mapping[tuple[str, Expression], float] = NOTHING_MEASURED,
) -> str:
    """Return a table of what is expected of a plan; empty if nothing can be estimated.

    Parameters
    ----------
    plan
        The plan, rewritten.
    tuples_per_second, selectivities
        As for :func:`cluster.costs.estimates.estimates_of`.
    """
    found = estimates_of(plan, tuples_per_second, selectivities)
    if all(each is UNKNOWN for each in found.values()):
        return ""
    tree = tree_of(plan)
    rows = [HEADINGS, *(("", "", "") if again else _figures(found[node]) for _, node, again in tree)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEADINGS))]
    lines = ["", *(line for line, _, _ in tree)]
    return "\n".join(
        "  " + "  ".join(figure.rjust(width) for figure, width in zip(row, widths, strict=True)) + f"  {line}".rstrip()
        for row, line in zip(rows, lines, strict=True)
    )


def _figures(estimate: Estimate) -> tuple[str, str, str]:
    per_second = estimate.rows_per_second
    return (
        "?" if per_second is None else _count(per_second),
        "?" if estimate.flow is None else _duration(estimate.flow.validity),
        "?" if estimate.kept is None else _kept(estimate.kept),
    )


def _kept(rows: float) -> str:
    if math.isinf(rows):
        return "ever more"
    return _count(rows) if rows else "-"


def _count(number: float) -> str:
    if not number or number >= 100:  # noqa: PLR2004 - three digits are enough
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def _duration(validity_us: float) -> str:
    """Return a duration with three digits, in the largest unit of which it is one at least."""
    if math.isinf(validity_us):
        return "ever"
    unit, length_us = next(((unit, us) for unit, us in UNITS if validity_us >= us), UNITS[-1])
    return f"{validity_us / length_us:.3g}{unit}"
