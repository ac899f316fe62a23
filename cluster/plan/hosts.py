"""Which of the two Spark queries of an engine answers a query: the one that keeps nothing, or the one that keeps state.

A stateless pipeline above one stream needs no shuffle and no state if its tuples are read in the order of their stamps;
its micro-batches then cost about half. Both run the same plan epochs, each its own part of them.
"""

from __future__ import annotations

from enum import StrEnum

from cluster.language.algebra import Node
from cluster.plan.pipelines import is_pipeline


class Host(StrEnum):
    """One of the two."""

    STATELESS = "stateless"
    STATEFUL = "stateful"


def host_of(node: Node) -> Host:
    """Return which one answers a query, given its plan."""
    return Host.STATELESS if is_pipeline(node) else Host.STATEFUL
