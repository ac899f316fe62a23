"""What is run to measure what steps of operators cost: queries for each kind of operator.

Texts differ in what the operator is given, keeps and makes, so that the parts of a price can be kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """How much comes.

    Parameters
    ----------
    rate
        Tuples of each stream in a second.
    window_s
        The size of windows.
    """

    rate: int
    window_s: int


LOADS = (Load(20, 20), Load(400, 1), Load(400, 5), Load(3_000, 3))

WORKLOADS: Mapping[str, tuple[str, ...]] = {
    "Filter": ("SELECT x FROM readings WHERE x < 0.1", "SELECT x FROM readings WHERE x < 0.9 AND k < 900"),
    "Project": ("SELECT x + 1 AS y FROM readings",),
    "TimeWindow": ("SELECT DISTINCT k FROM {one}",),
    "CountWindow": (
        "SELECT x FROM readings WINDOW(ROWS 10)",
        "SELECT x FROM readings WINDOW(ROWS 1000) WHERE x < 0.5",
    ),
    "PartitionedWindow": (
        "SELECT x FROM readings WINDOW(PARTITION BY k ROWS 1)",
        "SELECT x FROM readings WINDOW(PARTITION BY k ROWS 5)",
    ),
    "Aggregate": (
        "SELECT k, AVG(x) AS m FROM {one} GROUP BY k",
        "SELECT k, MAX(x) AS m, COUNT(*) AS n FROM {one} WHERE x < 0.3 GROUP BY k",
    ),
    "TotalAggregate": (
        "SELECT COUNT(*) AS n FROM {one} WHERE x < 0.2",
        "SELECT COUNT(*) AS n, MAX(x) AS m FROM {one} GRANULARITY(200 MS)",
        "SELECT COUNT(*) AS n FROM {one} GRANULARITY(50 MS)",
    ),
    "SteppedAggregate": (
        "SELECT k, MAX(x) AS m FROM readings WINDOW(RANGE {window} SLIDE 1 SECOND) GROUP BY k",
        "SELECT k, AVG(x) AS m, COUNT(*) AS n FROM readings WINDOW(RANGE {window} SLIDE 1 SECOND) GROUP BY k",
        "SELECT SUM(x) AS s FROM readings WINDOW(RANGE {window} SLIDE 500 MS)",
    ),
    "Granularity": ("SELECT MAX(x) AS m FROM {one} GRANULARITY(500 MS)",),
    "Distinct": ("SELECT DISTINCT k FROM {one} WHERE x < 0.3", "SELECT DISTINCT k, x FROM {one}"),
    "Join": (
        "SELECT a.k, a.x, b.x AS y FROM {both} WHERE a.k = b.k",
        "SELECT a.k, b.x AS y FROM {both} WHERE a.k = b.k AND a.x < 0.2",
        "SELECT a.k, a.x, b.x AS y FROM {both} WHERE a.k = b.k AND a.x < 0.1 AND b.x < 0.5",
    ),
    "JoinOfAll": (
        "SELECT a.k, b.x AS y FROM {both} WHERE a.x < 0.05 AND b.x < 0.05 AND a.k < b.k",
        "SELECT a.k, b.x AS y FROM {both} WHERE a.x < 0.2 AND b.x < 0.1 AND a.k + 900 < b.k",
        "SELECT a.x, b.x AS y FROM {both} WHERE a.k < 50 AND b.x < 0.1 AND b.x - a.x > 0.09",
    ),
    "SemiJoin": (
        "SELECT k, x FROM {one} WHERE k IN (SELECT k FROM {other} WHERE x < 0.1)",
        "SELECT k, x FROM {one} WHERE x < 0.2 AND k IN (SELECT k FROM {other})",
    ),
    "AntiJoin": (
        "SELECT k, x FROM {one} WHERE k NOT IN (SELECT k FROM {other} WHERE x < 0.1)",
        "SELECT k, x FROM {one} WHERE x < 0.2 AND k NOT IN (SELECT k FROM {other})",
    ),
    "Union": ("SELECT k FROM {one} UNION ALL SELECT k FROM {other}",),
    "Difference": (
        "SELECT k FROM {one} EXCEPT ALL SELECT k FROM {other}",
        "SELECT k FROM {one} WHERE x < 0.2 EXCEPT ALL SELECT k FROM {other}",
    ),
    "Intersection": (
        "SELECT k FROM {one} INTERSECT ALL SELECT k FROM {other}",
        "SELECT k FROM {one} WHERE x < 0.2 INTERSECT ALL SELECT k FROM {other}",
    ),
    "Ranked": (
        "SELECT k, x FROM {one} ORDER BY x DESC, k LIMIT 10",
        "SELECT k, x FROM {one} ORDER BY x DESC, k LIMIT 100",
    ),
    "Istream": ("SELECT k FROM ISTREAM((SELECT k, COUNT(*) AS n FROM {one} GROUP BY k) AS counted)",),
    "Sequence": ("SELECT k, x - LAG(x) OVER (PARTITION BY k) AS d FROM readings",),
    "Lookup": ("SELECT r.x, p.y FROM readings r JOIN places p ON r.k = p.k",),
}
"""Texts over streams ``readings`` and ``others`` with k from 0 to 999 and x from 0 to 1, and a relation ``places``."""


def written(text: str, load: Load) -> str:
    """Return a text with windows of a load."""
    window = f"{load.window_s} SECONDS"
    one, other = (f"{stream} WINDOW(RANGE {window})" for stream in ("readings", "others"))
    both = f"readings a WINDOW(RANGE {window}), others b WINDOW(RANGE {window})"
    return text.format(window=window, one=one, other=other, both=both)
