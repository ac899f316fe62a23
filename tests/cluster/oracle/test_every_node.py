"""Every node of the algebra has a specimen, and the oracles draw it, so that none is left without a meaning."""

from __future__ import annotations

from cluster.language.stream_item import ITEM_CLAUSES
from cluster.operators import NODES, Held, KeptExtent, Lookup, PatternMatch, Relation, StampJoin, Zip
from tests.cluster.oracle.strategies import KINDS
from tests.cluster.specimens import CLAUSES, SPECIMENS

ELSEWHERE = {Relation, Lookup, Held, StampJoin, Zip, PatternMatch, KeptExtent}
"""Drawn by the oracles of relations, of texts, of patterns and of what is kept; rows that flow by cluster/local."""


def test_every_node_has_a_specimen() -> None:
    assert set(SPECIMENS) == set(NODES.values())


def test_every_clause_with_a_quantity_is_drawn_in_texts() -> None:
    own = [(each.word, each.bounds) for each in ITEM_CLAUSES]
    assert [(word, each.bounds) for word, each in CLAUSES.items()] == own


def test_every_node_is_drawn() -> None:
    assert set(KINDS) == set(NODES.values()) - ELSEWHERE
