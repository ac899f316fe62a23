"""What a query asks of sensors: derived once, and part of the plan from then on."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.language.algebra import Node
from cluster.physical.nodes import Asked
from cluster.plan.demand import demands_of
from cluster.plan.epoch import PlannedQuery
from cluster.planning_budget import PlanningLimitError
from cluster.shared_nodes import remembered
from protocols.errors import FjordError
from protocols.wire.demands import encode_query_demand

ANY_NAME = "q" * 64
"""Stands for the name of a query that has none yet: none is longer."""


def asked_of_sensors(query: PlannedQuery) -> Asked:
    """Return what a query needs of its streams' sensors, or why these cannot be asked for it.

    Where it cannot be asked for, that costs the query what sensors send for no other, and the plan nothing.
    """
    found = _asked_of_sensors(query.node)
    streams = tuple(
        (stream, tuple(replace(each, query=query.name) for each in demands)) for stream, demands in found.streams
    )
    return Asked(streams, found.refused)


@remembered
def _asked_of_sensors(node: Node) -> Asked:
    try:
        found = tuple(demands_of(ANY_NAME, node).items())
        for _, demands in found:
            for each in demands:
                encode_query_demand(each)
    except PlanningLimitError:
        raise  # of the statement, not of what sensors can be asked
    except FjordError as error:
        return Asked(refused=error.message)
    return Asked(found)
