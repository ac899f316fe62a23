"""The demands of a query on sensors: derived once, and part of the plan from then on."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Node
from cluster.physical.nodes import SensorDemands
from cluster.plan.demand import demands_of
from cluster.plan.epoch import PlannedQuery
from cluster.planning_budget import PlanningLimitError
from cluster.shared_nodes import remembered
from protocols.errors import FjordError
from protocols.wire.demands import encode_query_demand

ANY_NAME = "é" * 64
"""Stands for the name of a query that has none yet: none is longer."""


def sensor_demands(query: PlannedQuery) -> SensorDemands:
    """Return what a query demands of its streams' sensors, or why no sensor can answer it.

    If they cannot, the query misses what sensors send for it alone; the plan does not change.
    """
    found = _sensor_demands(query.node)
    streams = tuple(
        (stream, tuple(replace(each, query=query.name) for each in demands)) for stream, demands in found.streams
    )
    return SensorDemands(streams, found.refused)


@remembered
def _sensor_demands(node: Node) -> SensorDemands:
    try:
        found = tuple(demands_of(ANY_NAME, node).items())
        for _, demands in found:
            for each in demands:
                encode_query_demand(each)
    except PlanningLimitError:
        raise  # about the statement, not about its demands
    except FjordError as error:
        return SensorDemands(refused=error.message)
    return SensorDemands(found)
