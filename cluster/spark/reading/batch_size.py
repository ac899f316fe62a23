"""How many rows of a stream a micro-batch reads when there are many: more, if a plan makes little of each.

A micro-batch has costs of its own, about 0.1 s, and 0.3 s with state, so few large ones are quicker than many. What
bounds them is memory: answers of a micro-batch pass through the driver's, and what it reads through the workers'.
"""

from __future__ import annotations

from collections.abc import Collection

from cluster.physical.nodes import Fragment, PhysicalPlan
from cluster.physical.operations import (
    Columns,
    Exchange,
    GroupedFilter,
    PaneAggregate,
    Panes,
    PartialAggregate,
    PerQueryFilter,
    Project,
    Sample,
    Scan,
    Sink,
)

MOST_TIMES = 4
"""Times the rows of a micro-batch that any plan may read."""
AFTER_AN_OVERRUN = 8
"""Part of the rows of a micro-batch that are read once a fragment of the plan has taken too much."""
COLUMNS = 4
"""A stream of which more columns are read counts as several."""
_NO_ROW_BECOMES_MANY = (
    Scan, Sample, Columns, GroupedFilter, PerQueryFilter, Project, Panes, PartialAggregate, Exchange, PaneAggregate,
    Sink,
)  # fmt: skip


def rows_at_once(plan: PhysicalPlan | None, max_rows: int, overran: Collection[str] = ()) -> int:
    """Return how many rows of a stream a micro-batch of a plan reads at most.

    Where a fragment has overrun a limit, only an eighth: that what has waited during an outage is more than it can take
    at once is no reason to lose it, nor to set its query aside.

    Parameters
    ----------
    plan
        Of one of the two Spark queries; None if there is none yet.
    max_rows
        The bound for any plan.
    overran
        Fragments that have overrun a limit lately.
    """
    if plan is not None and any(fragment.identity in overran for fragment in plan.fragments):
        return max(1, max_rows // AFTER_AN_OVERRUN)
    if plan is None or not plan.fragments or not all(map(_is_frugal, plan.fragments)):
        return max_rows
    read = {column for fragment in plan.fragments for column in _columns(fragment)}
    copies = sum(1 if _adds_up(fragment) else len(fragment.subscribers) for fragment in plan.fragments)
    return max_rows * max(1, MOST_TIMES // (copies * -(-len(read) // COLUMNS) or 1))


def _is_frugal(fragment: Fragment) -> bool:
    return all(isinstance(node.operation, _NO_ROW_BECOMES_MANY) for node in fragment.nodes)


def _adds_up(fragment: Fragment) -> bool:
    """Return whether rows are added up next to the scan, for all of its queries at once."""
    return any(isinstance(node.operation, PartialAggregate) for node in fragment.next_to_scan)


def _columns(fragment: Fragment) -> list[tuple[str, str]]:
    scans = [node.operation for node in fragment.nodes if isinstance(node.operation, Scan)]
    return [(scan.stream, column.name) for scan in scans for column in scan.columns]
