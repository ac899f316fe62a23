"""The oracle of plans draws every node of the algebra, so that none is left without a meaning."""

from __future__ import annotations

from typing import get_args

from cluster.language.algebra import Held, KeptExtent, Lookup, Node, PatternMatch, Relation, Source, StampJoin, Zip
from tests.cluster.oracle import strategies
from tests.cluster.oracle.strategies import KINDS

ELSEWHERE = {Relation, Lookup, Held, StampJoin, Zip, PatternMatch, KeptExtent}
"""Drawn by the oracles of relations, of texts, of patterns and of what is kept; rows that flow by cluster/local."""


def test_every_node_is_drawn() -> None:
    assert set(KINDS) == set(get_args(Node)) - ELSEWHERE
    assert {Source, *strategies._CHOICES} == set(KINDS)
