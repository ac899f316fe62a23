"""Random plans over random streams, all from one seed; and what the workers of ``make oracle`` do in turn."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Self

from hypothesis import HealthCheck, Phase, given, seed, settings

from cluster.operators import Node
from tests.cluster.oracle.proving import Tally, prove
from tests.cluster.oracle.relation_proving import RelationTally, search_relations
from tests.cluster.oracle.strategies import plans, random_streams, sensible
from tests.cluster.oracle.text_differences import TextTally
from tests.cluster.oracle.text_proving import search_texts

PLANS_PER_ROUND = 40
STREAM_SETS_PER_PLAN = 12
TEXTS_PER_ROUND = 40
RELATION_QUERIES_PER_ROUND = 64
ROUNDS = ("texts", "texts", "plans", "texts", "relations")
"""What is searched, by the remainder of the seed: texts have the most that plans cannot have."""


@dataclass
class Searched:
    """What all searches have proven."""

    texts: TextTally = field(default_factory=TextTally)
    plans: Tally = field(default_factory=Tally)
    relations: RelationTally = field(default_factory=RelationTally)

    @property
    def pairs(self) -> int:
        """Queries with stream sets, or with a history."""
        return self.texts.pairs + self.plans.pairs + self.relations.queries

    def __iadd__(self, other: Self) -> Self:
        """Add what another search has proven."""
        self.texts += other.texts
        self.plans += other.plans
        self.relations += other.relations
        return self


def search_round(round_seed: int) -> Searched:
    """Search one round; the seed decides what.

    Raises
    ------
    MismatchError
        With a report.
    """
    match ROUNDS[round_seed % len(ROUNDS)]:
        case "texts":
            return Searched(texts=search_texts(round_seed, TEXTS_PER_ROUND))
        case "plans":
            return Searched(plans=search(round_seed, PLANS_PER_ROUND, STREAM_SETS_PER_PLAN))
        case _:
            return Searched(relations=search_relations(round_seed, RELATION_QUERIES_PER_ROUND))


def search(round_seed: int, plan_count: int, stream_sets: int) -> Tally:
    """Prove `plan_count` random plans, each on `stream_sets` random stream sets.

    Raises
    ------
    MismatchError
        With a report.
    """
    tally = Tally()

    @seed(round_seed)
    @settings(
        max_examples=plan_count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(plans())
    def every_plan(node: Node) -> None:
        if sensible(node):
            # Of the plan's own: Hypothesis tries a plan that fails again, and must see it fail again.
            dice = random.Random(f"{round_seed} {node}")
            prove(node, [random_streams(dice) for _ in range(stream_sets)], dice, tally)

    every_plan()
    return tally
