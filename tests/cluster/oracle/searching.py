"""Random plans over random streams, all from one seed."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, Phase, given, seed, settings

from cluster.language.algebra import Node
from tests.cluster.oracle.proving import Tally, prove
from tests.cluster.oracle.strategies import plans, random_streams, sensible


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
