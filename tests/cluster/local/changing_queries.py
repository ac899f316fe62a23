"""Queries over one stream that begin and end while the local engine runs, and what each of them answers.

Each sees the tuples that come from its first micro-batch on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from cluster.fjord.batch import ALWAYS, NEVER
from cluster.local.engine import LocalEngine
from cluster.operators import Node
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.local.migrating import INSTANTS, Answered, Batches, Stamped, arrivals
from tests.cluster.local.plans_cut_apart import tables

LAST = INSTANTS + 100
"""Snapshots are compared before this instant."""


@dataclass
class Query:
    """A query, the micro-batches in which it begins and ends, and what it has answered."""

    name: str
    plan: Node
    begins: int
    ends: int | None
    early: bool = False
    answered: Answered = field(default_factory=Answered)

    def runs_in(self, number: int) -> bool:
        """Return whether it runs in a micro-batch."""
        return self.begins <= number and (self.ends is None or number < self.ends)

    def seen(self, batches: Batches) -> list[Stamped]:
        """Return the tuples that it sees, in the order in which they come."""
        return [row for batch in batches[self.begins :] for row in batch["a"][0]]

    def snapshots(self, scale: int = 1) -> list[Counter[object]]:
        """Return what it has answered, where an instant of the batches was so long in the run."""
        found: list[Counter[object]] = [Counter() for _ in range(LAST)]
        for start, end, row in self.answered.rows:
            assert start % scale == 0
            for instant in range(start // scale, min(-(-end // scale), LAST)):
                found[instant][tuple(msgspec.json.decode(row).values())] += 1
        return found


def run(dice: random.Random, queries: Sequence[Query], batches: Batches, scale: int = 1) -> None:
    """Run queries, each as long as it runs; now and then operators are made anew.

    Parameters
    ----------
    dice
        Draws how.
    queries
        The queries, called q0, q1 and so on; they are given what they answer.
    batches
        Micro-batches of the stream `a`.
    scale
        How many microseconds an instant of the batches lasts.
    """
    engine = LocalEngine(_plan(queries, 0), buckets=dice.choice((1, 3)), tables=tables)
    for number, batch in enumerate(batches):
        if dice.random() < 0.2:
            engine.forget()
        rows, watermark_us = batch["a"]
        long = {"a": ([(at * scale, values) for at, values in rows], _scaled(watermark_us, scale))}
        answers = engine.run(arrivals(long), plan=_plan(queries, number), parts=dice.choice((1, 2))).rows
        for each in queries:
            each.answered.read(number, answers.filter(pl.col("query") == each.name))


def _plan(queries: Sequence[Query], number: int) -> Plan:
    """Return the plan of a micro-batch."""
    running = (
        PlannedQuery(each.name, 10 * each.begins + int(each.name[1:]), each.plan, each.early)
        for each in queries
        if each.runs_in(number)
    )
    return Plan(10 * number + 9, tuple(sorted(running, key=lambda each: each.since_epoch)))


def _scaled(at_us: int, scale: int) -> int:
    return at_us if at_us in (ALWAYS, NEVER) else at_us * scale
