"""Hash partitioning at an exchange: by keys, by query group, or by the key of a lookup."""

from __future__ import annotations

from cluster.operators import Aggregate, Lookup, Node
from cluster.operators.columns import QUERY_GROUP, RIGHT
from cluster.physical.operations import Exchange
from cluster.plan.pipelines import partition_keys, partitioned_by


def exchange_of(plan: Node, stateless: Node, aggregate: Aggregate | None) -> Exchange:
    """Return the exchange above the pipeline next to the scan.

    Parameters
    ----------
    plan
        The whole plan of the fragment; its top operators decide.
    stateless
        The pipeline above the stream.
    aggregate
        The aggregate above the pipeline, whose first half runs next to the scan, too; None if there is none.
    """
    keys = partition_keys(plan)
    columns = stateless.schema
    if keys:
        return Exchange("lookup" if isinstance(partitioned_by(plan), Lookup) else "keys", keys, columns)
    crossing = {column.name for column in columns} if aggregate is None else set(aggregate.keys)
    marks = (QUERY_GROUP.name, RIGHT + QUERY_GROUP.name)
    return Exchange("group", tuple([mark for mark in marks if mark in crossing][:1]), columns)
