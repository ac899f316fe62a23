"""How the plan came to be: a line for each of its last epochs, from the plan files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.physical.difference import fragments_changed, operators_between
from cluster.physical.nodes import Fragment, PhysicalPlan, Subscriber
from cluster.physical.plan_files import PlanFiles
from cluster.physical.words import named


class PlanStep(msgspec.Struct, frozen=True):
    """What changed with one epoch.

    Parameters
    ----------
    epoch
        The epoch.
    at_seconds
        When its plan was written, in seconds since 1970.
    queries_come, queries_go
        Names of the queries that came and went.
    operators_come, operators_go
        How many operators came and went; those that others use, too, stay.
    migrations_begin, migrations_end
        Names of the queries that began to hand over to another plan, and of those that have.
    why
        Why one began to.
    """

    epoch: int
    at_seconds: float
    queries_come: tuple[str, ...]
    queries_go: tuple[str, ...]
    operators_come: int
    operators_go: int
    migrations_begin: tuple[str, ...] = ()
    migrations_end: tuple[str, ...] = ()
    why: str = ""

    @property
    def words(self) -> str:
        """Which queries came and went."""
        come = f"{named([*self.queries_come])} added" if self.queries_come else ""
        go = f"{named([*self.queries_go])} dropped" if self.queries_go else ""
        why = f" ({self.why})" if self.why else ""
        begin = f"{named([*self.migrations_begin])} migrating{why}" if self.migrations_begin else ""
        end = f"{named([*self.migrations_end])} migrated" if self.migrations_end else ""
        nothing = "no query came or went" if self.epoch > 1 else "first plan, without queries: Spark starts with it"
        return "; ".join(each for each in (come, go, begin, end) if each) or nothing


def plan_history(files: PlanFiles, newest: int, last: int) -> Iterator[PlanStep]:
    """Yield the changes of the last epochs, oldest first; those whose files are no longer there are left out.

    Parameters
    ----------
    files
        The plans; read one after the other, so that each costs no more than its change.
    newest
        The newest epoch.
    last
        How many epochs.

    Raises
    ------
    PlanError
        If a plan cannot be read.
    """
    for epoch in range(max(newest - last, 0) + 1, newest + 1):
        if files.exists(epoch - 1) and files.exists(epoch):
            before = files.read(epoch - 1)
            yield _step(before, files.read(epoch), files.path(epoch).stat().st_mtime)


def _step(before: PhysicalPlan, after: PhysicalPlan, at_seconds: float) -> PlanStep:
    changed = fragments_changed(before, after)
    had, has = map(_queries, changed)
    operators = operators_between(*changed)
    come = [each for identity, each in has.items() if identity not in had]
    gone = [each for identity, each in had.items() if identity not in has]
    dropped = {each.query for each in gone if each.until is None}
    return PlanStep(
        after.epoch,
        at_seconds,
        tuple(each.query for each in come if each.since is None),
        tuple(each.query for each in gone if each.until is None),
        operators["operators_come"],
        operators["operators_go"],
        tuple(each.query for each in come if each.since is not None),
        tuple(each.query for each in gone if each.until is not None and each.query not in dropped),
    )


def _queries(fragments: tuple[Fragment, ...]) -> dict[str, Subscriber]:
    return {each.identity: each for fragment in fragments for each in fragment.subscribers}
