"""The oracle of plans draws every node of the algebra, so that none is left without a meaning."""

from __future__ import annotations

from typing import get_args

from cluster.language.algebra import Lookup, Node, Relation, Source, Zip
from tests.cluster.oracle import strategies
from tests.cluster.oracle.strategies import KINDS

ELSEWHERE = {Relation, Lookup, Zip}
"""Drawn by the oracle of relations, and by that of texts."""


def test_every_node_is_drawn() -> None:
    assert set(KINDS) == set(get_args(Node)) - ELSEWHERE
    assert {Source, *strategies._CHOICES} == set(KINDS)
