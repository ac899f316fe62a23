"""One plan over many stream sets: oracle against operators, before and after rewriting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from cluster.errors import PlanError
from cluster.fjord.acceptance import check_supported
from cluster.operators import Node
from cluster.physical.errors import UnsupportedPlanError
from cluster.physical.rules.pieces import MOST_LAG_US
from cluster.plan.explain import explain
from cluster.plan.rewrite import rewrite
from tests.cluster.oracle.comparison import bags, difference_of_rows, first_difference, report
from tests.cluster.oracle.definition import Streams, evaluate, horizon_of
from tests.cluster.oracle.running import MicroBatch, deliveries, run_plan
from tests.cluster.oracle.strategies import below
from tests.cluster.specimens.drawing import LAST

LAGS_US = (0, 3, MOST_LAG_US)
"""How far windows by count may stay behind: they are cut in every micro-batch, now and then, never."""


@dataclass
class Tally:
    """What has been proven."""

    plans: int = 0
    pairs: int = 0
    rewritten: int = 0
    ambiguous: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    """Query-stream pairs that ran, by kind of node in the query."""
    rules: Counter[str] = field(default_factory=Counter)
    """Plans to which a rewriting rule was applied."""
    unsupported: Counter[str] = field(default_factory=Counter)
    """Plans left out, by reason."""

    def __iadd__(self, other: Self) -> Self:
        """Add what another search has proven."""
        self.plans += other.plans
        self.pairs += other.pairs
        self.rewritten += other.rewritten
        self.ambiguous += other.ambiguous
        self.by_kind.update(other.by_kind)
        self.rules.update(other.rules)
        self.unsupported.update(other.unsupported)
        return self


class MismatchError(AssertionError):
    """A plan whose answer is not what it means; the message is a report."""


def prove(node: Node, runs: Sequence[Streams], dice: random.Random, tally: Tally, last: int = LAST) -> None:
    """Run a plan, as it is or rewritten, over each stream set; compare with what it means.

    Raises
    ------
    MismatchError
        With the smallest streams for which it still happens.
    """
    better = rewrite(node)
    runnable = []
    for plan in dict.fromkeys((node, better.node)):
        try:
            check_supported(plan)
        except PlanError as error:
            reason = str(error) if isinstance(error, UnsupportedPlanError) else f"{error} (PlanError)"
            tally.unsupported[reason] += 1
        else:
            runnable.append(plan)
    instants = max(horizon_of(node, last), horizon_of(better.node, last))
    meaning = evaluate(node, runs, instants)
    tally.plans += 1
    tally.rewritten += better.node != node
    tally.rules.update(set(better.applied))
    tally.ambiguous += len(meaning.ambiguous)
    clear = [number for number in range(len(runs)) if number not in meaning.ambiguous]
    if better.node != node:
        other = evaluate(better.node, runs, instants)
        for number in clear:
            expected, found = meaning.snapshots[number], other.snapshots[number]
            at = first_difference(expected, found, meaning.granule)
            if at is not None and number not in other.ambiguous:
                small = _smallest(
                    runs[number], lambda streams: _rewriting_differs(node, better.node, streams, instants)
                )
                difference = _rewriting_differs(node, better.node, small, instants)
                raise MismatchError(
                    "rewriting changes the meaning: " + ", ".join(better.applied)
                    + report(node, small, difference or bags(at, expected[at], found[at]))
                    + f"\nrewritten\n{explain(better.node)}"
                )  # fmt: skip
    for number in clear if runnable else ():
        plan = dice.choice(runnable)
        seed = dice.getrandbits(32)
        difference = running_differs(plan, runs[number], meaning.snapshots[number], meaning.granule, seed)
        if difference is not None:
            _fail(plan, runs[number], instants, seed)
            raise MismatchError(f"delivery seed {seed}" + report(plan, runs[number], difference))
        tally.pairs += 1
        tally.by_kind.update({type(each).__name__ for each in below(plan)})


def running_differs(plan: Node, streams: Streams, expected: list, granule: int, seed: int) -> str | None:
    """Run a plan with micro-batches and restarts that follow from a seed; return what is wrong, or None."""
    batches, restarts = delivered(streams, seed)
    try:
        rows = run_plan(plan, batches, restart_after=restarts, lag_us=LAGS_US[seed % len(LAGS_US)])
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is a finding
        return f"{type(error).__name__}: {error}"
    return difference_of_rows(rows, expected, granule)


def delivered(streams: Streams, seed: int) -> tuple[list[MicroBatch], frozenset[int]]:
    """Return the micro-batches, and after which of them there is a restart."""
    dice = random.Random(seed)
    batches = deliveries(streams, dice)
    restarting = dice.random() < 0.3
    return batches, frozenset(number for number in range(len(batches)) if restarting and dice.random() < 0.7)


def _fail(plan: Node, streams: Streams, instants: int, seed: int) -> None:
    """Look for the smallest streams, and the simplest delivery, that still go wrong; raise."""

    def wrong(smaller: Streams) -> str | None:
        meaning = evaluate(plan, [smaller], instants)
        if meaning.ambiguous:
            return None
        for attempt in (seed, *range(8)):
            found = running_differs(plan, smaller, meaning.snapshots[0], meaning.granule, attempt)
            if found is not None:
                batches, restarts = delivered(smaller, attempt)
                shown = "".join(f"\n  {number}: {dict(batch)}" for number, batch in enumerate(batches))
                return f"{found}\nmicro-batches (restart after {sorted(restarts)}){shown}"
        return None

    small = _smallest(streams, wrong)
    if (difference := wrong(small)) is not None:
        raise MismatchError(report(plan, small, difference))


def _rewriting_differs(node: Node, better: Node, streams: Streams, instants: int) -> str | None:
    one, other = evaluate(node, [streams], instants), evaluate(better, [streams], instants)
    if one.ambiguous or other.ambiguous:
        return None
    at = first_difference(one.snapshots[0], other.snapshots[0], one.granule)
    return None if at is None else bags(at, one.snapshots[0][at], other.snapshots[0][at])


def _smallest(streams: Streams, wrong: object) -> Streams:
    """Leave out tuple after tuple while it still goes wrong."""
    smaller = {name: list(rows) for name, rows in streams.items()}
    changed = True
    while changed:
        changed = False
        for name in list(smaller):
            for place in reversed(range(len(smaller[name]))):
                attempt = {**smaller, name: smaller[name][:place] + smaller[name][place + 1 :]}
                if wrong(attempt) is not None:
                    smaller, changed = attempt, True
    return smaller
