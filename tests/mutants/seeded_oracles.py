"""Random queries against their definitions, few of them and always the same: the random part of the suite.

Not collected with the other tests, which draw many more; the suite names this file. Other oracles belong here, too: one
test for each, of about ten seconds.
"""

from __future__ import annotations

import pytest

from tests.cluster.oracle import proving, relation_proving
from tests.cluster.oracle.relation_proving import search_relations
from tests.cluster.oracle.searching import search
from tests.cluster.oracle.text_proving import search_texts

SEED = 20_261_121


@pytest.fixture(autouse=True)
def reports_as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a mismatch as it was drawn: the report is not read, and searching for the smallest takes long."""
    monkeypatch.setattr(proving, "_fail", lambda *_: None)
    monkeypatch.setattr(proving, "_smallest", lambda streams, _: streams)
    monkeypatch.setattr(relation_proving, "_smallest", lambda history, queries: (history, queries, "as drawn"))


def test_plans() -> None:
    search(SEED, plan_count=16, stream_sets=6)


def test_texts() -> None:
    search_texts(SEED, 20, shrink=False)


def test_queries_over_relations() -> None:
    search_relations(SEED, 12)
