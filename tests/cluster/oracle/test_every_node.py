"""The oracle of plans draws every node of the algebra, so that none is left without a meaning."""

from __future__ import annotations

from cluster.operators import NODES, Held, KeptExtent, Lookup, PatternMatch, Relation, Source, StampJoin, Zip
from tests.cluster.oracle import strategies
from tests.cluster.oracle.strategies import KINDS

ELSEWHERE = {Relation, Lookup, Held, StampJoin, Zip, PatternMatch, KeptExtent}
"""Drawn by the oracles of relations, of texts, of patterns and of what is kept; rows that flow by cluster/local."""


def test_every_node_is_drawn() -> None:
    assert set(KINDS) == set(NODES.values()) - ELSEWHERE
    assert {Source, *strategies._CHOICES} == set(KINDS)
