"""What came of random migrations, and what is wrong with them: compared with both plans, each alone.

one plan alone      a |-------------------|
migrated            a |-------------------|      the same row: rows that go on at the instant are not cut
                              T
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cluster.fjord.batch import ALWAYS, NEVER
from cluster.plan.epoch import Handover
from tests.cluster.local.migrating import (
    STREAMS,
    Answered,
    Batches,
    Migrated,
    Row,
    Setting,
    all_alone,
    migrated,
    random_setting,
)
from tests.cluster.local.migrating_plans import KINDS, Case


def seam_of(case: Case, setting: Setting, ran: Migrated, old: Answered, new: Answered) -> str | None:
    """Return what is wrong with where rows of a migration that cuts begin and end; None if nothing is.

    Of those before the instant and of those after it, none begins or ends where its plan has none that does. At the
    instant, a row that goes on is one row, unless both plans end and begin one there, or it could not be held back.
    """
    at = ran.handover.at_us
    for name, found, of_plan in (
        ("before", [row for row in ran.answered.rows if row[1] < at], [row for row in old.rows if row[1] < at]),
        ("after", [row for row in ran.answered.rows if row[0] > at], [row for row in new.rows if row[0] > at]),
    ):
        # A plan that begins later may cut fewer rows, as it has not seen why; snapshots are compared before.
        if more := _edges(found) - _edges(of_plan):
            return f"more rows {name} the instant: {more}"
    ends, begins = (Counter(row[2] for row in ran.answered.rows if row[edge] == at) for edge in (1, 0))
    own_ends = Counter(row for _, end, row in old.rows if end == at)
    own_begins = Counter(row for start, _, row in new.rows if start == at)
    halves = (ends & begins) - (own_ends & own_begins) - _not_held(case, setting, ran, old, new)
    return f"rows are cut that go on: {halves}" if halves else None


def _edges(rows: Iterable[Row]) -> Counter[tuple[int, int, str]]:
    """Return when rows begin and end: of equal ones that overlap, it is all the same which of them ends first."""
    return Counter((edge, row[edge], row[2]) for row in rows for edge in (0, 1))


def _not_held(case: Case, setting: Setting, ran: Migrated, old: Answered, new: Answered) -> Counter[str]:
    """Return the rows that are cut because one half is given out before the other one is there, if not early.

    They have flowed with their ends, or follow a plan whose rows do, before the streams came to the instant: they are
    not held back, because all behind them would be, too.
    """
    if setting.early:
        return Counter()
    reached, passed = dict.fromkeys(case.old.streams, ALWAYS), []
    for batch in setting.batches:
        reached = {name: max(each, batch[name][1]) for name, each in reached.items()}
        passed.append(min(reached.values()))
    at = ran.handover.at_us
    found = Counter(row for number, (start, end, row) in old.flowed if start < at <= end and passed[number] < at)
    if ran.handover.opens_us <= at + 1:  # the plan before is never behind
        gate = next(number for number, each in enumerate(passed) if each >= ran.handover.opens_us)
        found += Counter(row for number, (start, end, row) in new.flowed if start <= at < end and number > gate)
    return found


@dataclass(frozen=True)
class Outcome:
    """What came of a random migration.

    Parameters
    ----------
    kind
        Which plans it was about.
    at_us
        The instant.
    way
        What became of rows at the instant: ``whole`` if the migration cuts none; else ``fused`` if any lasts across
        it, and ``cut`` if none does.
    fused, left
        How many rows last across it, if the migration cuts rows, and how many end there while an equal one begins.
    wrong
        What is wrong with it; None if nothing is.
    """

    kind: str
    at_us: int
    way: str
    fused: int
    left: int
    wrong: str | None


def outcome_of(seed: int, *, spoil: Callable[[Handover], Handover] | None = None) -> Outcome:
    """Run a random migration; `spoil` is for tests of the tests."""
    dice = random.Random(seed)
    kind = dice.choice(KINDS)
    case, setting = kind(dice), random_setting(dice)
    at = dice.randrange(1, len(setting.batches) // 2)
    ran = migrated(case, setting, at, spoil=spoil)
    plans, undivided = (case.old, case.new), replace(setting, buckets=1, parts=1)
    # What plans answer hardly ever depends on how streams are cut into micro-batches; one is quicker than many.
    at_once = replace(undivided, batches=_at_once(setting.batches))
    wrong = _wrong(case, at_once, ran, *all_alone(plans, at_once))
    if wrong is not None:
        wrong = _wrong(case, undivided, ran, *all_alone(plans, undivided))
    if wrong is None:
        wrong = _out_of_order(case, setting, ran)
    published = [row for number, row in ran.answered.flowed if number < at and row[1] > ran.handover.at_us]
    if wrong is None and ran.cut and published:
        wrong = f"rows that end behind the instant had been given out before: {published}"
    named = f"seed {seed}: {kind.__name__}, from micro-batch {at} on, at {ran.handover}: {wrong}"
    instant = ran.handover.at_us
    across = Counter(row for start, end, row in ran.answered.rows if start < instant < end)
    halves = Counter(row for _, end, row in ran.answered.rows if end == instant)
    halves &= Counter(row for start, _, row in ran.answered.rows if start == instant)
    fused = across.total() if ran.cut else 0
    way = "whole" if not ran.cut else "fused" if fused else "cut"
    return Outcome(kind.__name__, instant, way, fused, halves.total(), None if wrong is None else named)


def _at_once(batches: Batches) -> Batches:
    """Return micro-batches as one, with all that comes."""
    rows = {name: [row for batch in batches for row in batch[name][0]] for name in STREAMS}
    return [{name: (rows[name], NEVER) for name in STREAMS}]


def _out_of_order(case: Case, setting: Setting, ran: Migrated) -> str | None:
    """Return what is wrong with the order of a migration's answers; None if nothing is."""
    behind = [start >= ran.handover.at_us for start in ran.answered.starts]
    if behind != sorted(behind):
        return "rows of the plan before come after those of the next one"
    if not ran.answered.ordered and all(each.ordered for each in all_alone((case.old, case.new), setting)):
        return "rows are out of order"
    return f"rows were never closed: {ran.answered.open}" if ran.answered.open else None


def _wrong(case: Case, setting: Setting, ran: Migrated, one: Answered, other: Answered) -> str | None:
    """Return what is wrong with what a migration answers, given what both plans answer alone; None if nothing is."""
    instant = ran.handover.at_us
    expected = one.snapshots()
    if case.changes:
        parts = one.snapshots(below=instant), other.snapshots(since=instant)
        expected = [first + second for first, second in zip(*parts, strict=True)]
    if not ran.cut and sorted(ran.answered.rows) != sorted(one.rows):
        return f"other rows: {Counter(ran.answered.rows)} in place of {Counter(one.rows)}"
    for place, (should, is_) in enumerate(zip(expected, ran.answered.snapshots(), strict=True)):
        if should != is_:
            return f"at {place} there is {is_} in place of {should}"
    return seam_of(case, setting, ran, one, other) if ran.cut and not case.changes else None


def wrong_with(seed: int, *, spoil: Callable[[Handover], Handover] | None = None) -> str | None:
    """Run a random migration; return what is wrong with it, or None."""
    return outcome_of(seed, spoil=spoil).wrong


def outcomes(first: int, count: int) -> list[Outcome]:
    """Run some migrations, up to the first that is wrong."""
    found = []
    for seed in range(first, first + count):
        found.append(outcome_of(seed))
        if found[-1].wrong is not None:
            break
    return found
