"""Which of the two Spark queries of a Fjord answers a query: the one that keeps nothing, or the one that keeps state.

A stateless chain above one stream needs no shuffle and no state if its tuples are read in the order of their stamps;
its micro-batches then cost about half. Both run the same plan epochs, each its own part of them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

from cluster.language.algebra import Node
from cluster.plan.cuts import is_chain
from cluster.plan.epoch import Plan


class Host(StrEnum):
    """One of the two."""

    STATELESS = "stateless"
    STATEFUL = "stateful"


def host_of(node: Node) -> Host:
    """Return which one answers a query, given its plan."""
    return Host.STATELESS if is_chain(node) else Host.STATEFUL


def hosted_by(plan: Plan, host: Host) -> Plan:
    """Return one's part of a plan."""
    return replace(plan, queries=tuple(query for query in plan.queries if host_of(query.node) is host))
