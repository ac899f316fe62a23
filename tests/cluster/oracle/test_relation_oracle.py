"""Random queries over streams and changing relations against their definition, and proof that it can say no."""

from __future__ import annotations

import os
import random

import pytest

from cluster.fjord import relation_tables
from tests.cluster.oracle.proving import MismatchError
from tests.cluster.oracle.relation_proving import RelationTally, prove_history, search_relations
from tests.cluster.oracle.relation_queries import random_query
from tests.cluster.oracle.relation_world import random_history
from tests.examples import some_of

QUERIES = some_of(200)
"""``make oracle`` draws on and on."""
SEED = int(os.environ.get("FJORD_ORACLE_SEED", "20261121"))


@pytest.mark.examples
def test_random_queries_over_streams_and_relations_answer_what_they_mean() -> None:
    print(f"seed {SEED}")  # noqa: T201 - FJORD_ORACLE_SEED chooses another
    tally = search_relations(SEED, QUERIES)
    assert tally.queries >= QUERIES
    assert tally.answering >= QUERIES // 4
    assert tally.dropped > 0
    assert tally.failed > 0
    assert not tally.refused


def test_the_same_seed_draws_the_same() -> None:
    one, other = ([random_history(dice), random_query(dice, 3)] for dice in (random.Random(5), random.Random(5)))
    assert one == other


def _prove_some() -> None:
    search_relations(3, 64)


def test_a_version_that_begins_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    history = relation_tables.RelationTables._history

    def late(*arguments: object) -> object:
        return [(since + 1, version) for since, version in history(*arguments)]  # type: ignore[arg-type]

    monkeypatch.setattr(relation_tables.RelationTables, "_history", late)
    monkeypatch.setattr("tests.cluster.oracle.relation_proving.SHRINK_SECONDS", 0.0)
    with pytest.raises(MismatchError, match="expected"):
        _prove_some()


def test_meeting_the_newest_version_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    history = relation_tables.RelationTables._history

    def newest(*arguments: object) -> object:
        found = history(*arguments)  # type: ignore[arg-type]
        return [(found[0][0], found[-1][1])]

    monkeypatch.setattr(relation_tables.RelationTables, "_history", newest)
    monkeypatch.setattr("tests.cluster.oracle.relation_proving.SHRINK_SECONDS", 0.0)
    with pytest.raises(MismatchError, match="expected"):
        _prove_some()


def test_a_mismatch_names_the_query_and_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.cluster.oracle.relation_proving.differences", lambda *_: {0: "at instant 1"}
    )  # fmt: skip
    monkeypatch.setattr("tests.cluster.oracle.relation_proving.SHRINK_SECONDS", 0.0)
    dice = random.Random(1)
    history = random_history(dice)
    query = random_query(dice, len(history.steps))
    with pytest.raises(MismatchError, match="at instant 1") as mismatch:
        prove_history(history, [query], RelationTally())
    assert query.fjord in str(mismatch.value)
