"""`fjord query explain` says how relations are looked up, and why."""

from __future__ import annotations

import pytest

from tests.cluster.service.conftest import Service
from tests.cluster.service.relation_cases import JOINED, Relations


@pytest.mark.asyncio
async def test_explain_says_it_with_the_figures_of_the_newest_version(service: Service, tmp_path) -> None:  # type: ignore[no-untyped-def]
    relations = Relations(service, tmp_path / "relations")
    await relations.create()
    explained = await relations.queries.explain(JOINED)
    assert "It would look up\n  look up in roads on sensor = roads.segment\n    roads: 1 row, " in explained
    assert "whole in the memory of each worker (up to 256.0 MiB), by a hash table on roads.segment" in explained
