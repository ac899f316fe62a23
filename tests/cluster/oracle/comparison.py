"""Rows against snapshots: equal at every promised instant, or a report one can read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET

from cluster.fjord.batch import NEVER
from cluster.operators import Node, TimeWindow
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import HOUR_US
from cluster.plan.explain import explain
from tests.cluster.oracle.definition import Bag, Row, Snapshots, Streams

SAME = 1e-9
"""Reals that differ relatively by less are equal: sums may be added up in another order."""


def snapshots_of(rows: Sequence[Row], instants: int) -> Snapshots:
    """Return what physical rows (start, end, values) say at each instant."""
    found: Snapshots = [Counter() for _ in range(instants)]
    for start, end, *values in rows:
        row = tuple(values)
        for instant in range(max(start, 0), min(end, instants)):
            found[instant][row] += 1
    return found


def first_difference(expected: Snapshots, found: Snapshots, granule: int = 1) -> int | None:
    """Return the first promised instant at which the bags differ; None if there is none."""
    for instant in range(0, len(expected), granule):
        if expected[instant] != found[instant] and not _nearly(expected[instant], found[instant]):
            return instant
    return None


def difference_of_rows(rows: Sequence[Row], expected: Snapshots, granule: int = 1) -> str | None:
    """Return in what way physical rows are not what is expected; None if they are."""
    instants = len(expected)
    found = snapshots_of(rows, instants)
    instant = first_difference(expected, found, granule)
    if instant is not None:
        return bags(instant, expected[instant], found[instant])
    # Rows may be cut anywhere, but nothing changes any more.
    last = expected[(instants - 1) // granule * granule]
    edges = {edge for row in rows for edge in row[:2] if instants <= edge < NEVER}
    for later in sorted({-(-edge // granule) * granule for edge in edges}):
        bag = Counter(tuple(row[2:]) for row in rows if row[0] <= later < row[1])
        if bag != last and not _nearly(last, bag):
            return bags(later, last, bag)
    return None


def in_the_first_hour(rows: Sequence[Row], plan: Node) -> Sequence[Row]:
    """Return rows as they are in the hour of the stamps: other boundaries of the calendar are later than that."""
    windows = [each.grid for each in nodes_of(plan) if isinstance(each, TimeWindow) and each.grid is not UNSET]
    if not any(grid.step.calendar for grid in windows):
        return rows
    return [(row[0], row[1] if row[1] < HOUR_US else NEVER, *row[2:]) for row in rows if row[0] < HOUR_US]


def assert_equal_snapshots(
    node: Node, streams: Streams, expected: Snapshots, rows: Sequence[Row], granule: int = 1
) -> None:
    """Fail with a report if rows say something else than expected at any instant."""
    difference = difference_of_rows(rows, expected, granule)
    assert difference is None, report(node, streams, difference)


def bags(instant: int, expected: Bag, found: Bag) -> str:
    """Return what differs at an instant."""
    return (
        f"at instant {instant}\n  expected {_listed(expected)}\n  found    {_listed(found)}\n"
        f"  missing  {_listed(expected - found)}\n  too many {_listed(found - expected)}"
    )


def report(node: Node, streams: Streams, difference: str) -> str:
    """Return everything one needs to understand a mismatch."""
    lines = [f"  {name}: {list(rows)}" for name, rows in streams.items()]
    return f"\nplan\n{explain(node)}\nstreams, in order of arrival\n" + "\n".join(lines) + f"\n{difference}"


def _listed(bag: Bag) -> str:
    return ", ".join(f"{row}" + (f" x{count}" if count > 1 else "") for row, count in sorted(bag.items(), key=repr))


def _nearly(expected: Bag, found: Bag) -> bool:
    """Match what is left after taking away what is exactly equal, real by real."""
    missing, surplus = list((expected - found).elements()), list((found - expected).elements())
    if len(missing) != len(surplus):
        return False
    for row in missing:
        twin = next((other for other in surplus if _same(row, other)), None)
        if twin is None:
            return False
        surplus.remove(twin)
    return True


def _same(row: Row, other: Row) -> bool:
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=SAME, abs_tol=SAME))
        for a, b in zip(row, other, strict=True)
    )
