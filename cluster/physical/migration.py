"""Whether a query may go on with another plan, from which instant on, and whether its rows are cut there.

Pure; see papers/pipes_migration.md sections 3 and 3.1:

    stamps read         ----------|                                   by the old plan only
    new plan, full                 ~~~~~~ reach ~~~~~~|               nothing older matters to it from here on
    instant                                            T
    old plan, empty                                     ~ delay ~|    all rows that begin before T have flowed
"""

from __future__ import annotations

import math

from msgspec import UNSET

from cluster.errors import PlanError
from cluster.operators import Granularity, Node, TimeWindow
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import END_OF_TIME_US
from cluster.plan.epoch import Handover
from cluster.plan.history import EVER_US, has_own_beginning
from cluster.plan.pane_query import differ_in_families_only
from cluster.plan.pipelines import is_pipeline

DEADLINE_HINT = "state a deadline: how long after the last tuple that was read the new plan takes over, full or not"
LONGEST_GRID_US = 86_400_000_000
"""No instant is moved further than a day to lie on the borders of windows."""


class MigrationRefusedError(PlanError):
    """A query cannot go on with another plan."""


class Migration:
    """How a query goes on with another plan; a decision that holds for any instant at which it begins.

    Parameters
    ----------
    old, new
        Both plans, rewritten.
    deadline_us
        How long after the last tuple read the new plan takes over if nothing bounds how far back it reaches; None for
        not at all.

    Raises
    ------
    MigrationRefusedError
        If the query cannot; says why.
    """

    def __init__(self, old: Node, new: Node, *, deadline_us: int | None = None) -> None:
        _check_alike(old, new)
        if deadline_us is not None and deadline_us <= 0:
            raise MigrationRefusedError("a deadline is a time after the last tuple that was read: more than nothing")
        shape = old.interval_shape()
        alike = differ_in_families_only(old, new) if shape is None else shape == new.interval_shape()
        self.cut = not alike
        """Whether rows are cut at the instant; those that go on in both plans are put together again."""
        try:
            self.delay_us = old.delay_us()
            """How far the answers of the old plan may be behind its streams; where both put rows together, of both."""
        except UnboundedPlanError as error:
            raise MigrationRefusedError(
                f"the query cannot go on with another plan: {error.message}, so that no instant is known by which "
                "the present plan has answered everything before another one"
            ) from error
        try:
            self.reach_us = new.reach_us()
            """How far behind the last tuple read the instant is: where the new plan is full, and all rows that the old
            plan has published with their ends have ended, if rows are cut."""
        except UnboundedPlanError as error:
            if deadline_us is None:
                raise MigrationRefusedError(
                    f"the query cannot go on with this plan: {error.message}", hint=DEADLINE_HINT
                ) from error
            self.reach_us = deadline_us
        if self.cut:
            self.reach_us = max(self.reach_us, _published_us(old))
            self.delay_us = _delay_of_halves(self.delay_us, new)
        if self.reach_us + self.delay_us >= END_OF_TIME_US // 2:
            raise MigrationRefusedError(
                "the query cannot go on with this plan: its windows are so long together that it would never be full",
                hint=DEADLINE_HINT,
            )
        self._border = _border_of((old, new)) if self.cut else (1, 0)

    def handover(self, greatest_us: int | None, before: Handover | None = None) -> Handover:
        """Return the handover.

        Parameters
        ----------
        greatest_us
            The greatest stamp of all tuples that the old plan may have read and the new one has not; None if there is
            no such tuple.
        before
            The handover to the old plan: none of its own answers lies before that.
        """
        earliest = [] if greatest_us is None else [greatest_us + self.reach_us + 1]
        earliest += [] if before is None else [before.at_us]
        if not earliest:
            return Handover(EVER_US, EVER_US, self.cut)
        step_us, offset_us = self._border
        earliest_us = max(earliest)
        at_us = -((offset_us - earliest_us) // step_us) * step_us + offset_us
        return Handover(at_us, at_us + self.delay_us, self.cut)


def _published_us(old: Node) -> int:
    """Return how long after the last stamp read rows end that have been published: they cannot be cut any more."""
    try:
        return old.published_us()
    except UnboundedPlanError as error:
        raise MigrationRefusedError(
            f"the query cannot go on with another plan: {error.message}, so that no row of it can be cut"
        ) from error


def _delay_of_halves(delay_us_of_old: int, new: Node) -> int:
    """Return after which delay the rows that are cut have flowed in both plans, as far as they wait for each other."""
    if not delay_us_of_old:
        return 1  # those of the old plan have flowed before; the new one knows its own behind the instant, not at it
    try:
        return max(delay_us_of_old, new.delay_us())
    except UnboundedPlanError:
        return delay_us_of_old


def _check_alike(old: Node, new: Node) -> None:
    """Raise unless two plans are plans of one query, and can run beside each other."""
    columns, others = ([(each.name, each.type) for each in plan.schema] for plan in (old, new))
    if columns != others:
        raise MigrationRefusedError("the query cannot go on with this plan: its rows have other columns")
    if old.streams != new.streams:
        raise MigrationRefusedError("the query cannot go on with this plan: it reads other streams")
    if has_own_beginning(new):
        raise MigrationRefusedError("the query cannot go on with this plan: it reads a past, or rows of relations")
    if is_pipeline(old) != is_pipeline(new):
        raise MigrationRefusedError(
            "the query cannot go on with this plan: plans with state and without are run by different Spark queries, "
            "whose answers have no common order"
        )
    if is_pipeline(old) and old.interval_shape() != new.interval_shape():
        raise MigrationRefusedError(
            "the query cannot go on with this plan: it has another window, and keeps no state in which answers could "
            "wait for those of the present plan"
        )


def _border_of(plans: tuple[Node, Node]) -> tuple[int, int]:
    """Return (step, offset) of instants at which rows of both plans begin and end, as far as windows decide that."""
    windows = [each for plan in plans for each in nodes_of(plan)]
    granules = [each.granule_us for each in windows if isinstance(each, Granularity)]
    slides = [each.slide_us for each in windows if isinstance(each, TimeWindow) and each.grid is UNSET]
    step_us = math.lcm(*granules) if granules else math.lcm(*slides) if slides else 1
    if step_us > LONGEST_GRID_US:
        return 1, 0
    return step_us, 0 if granules else -1
