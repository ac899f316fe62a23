"""Which plans a query may go on with: joins may read their streams in any order."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.migration import MigrationRefusedError
from cluster.plan.alternatives import alternatives
from cluster.plan.rewrite import rewrite
from cluster.service.queries.migrations import planned_migration
from cluster.service.registry.running_queries import RegisteredQuery
from protocols.wire.streams import Field, FieldType, StreamSchema

FIELDS = (Field("k", FieldType.INTEGER), Field("x", FieldType.INTEGER))
CATALOG = Catalog.of([StreamSchema(name, FIELDS) for name in "abc"])
WINDOW = "WINDOW(RANGE 5 SECONDS)"
JOINED = f"SELECT a.x FROM a {WINDOW}, b {WINDOW}, c {WINDOW} WHERE a.k = b.k AND b.k = c.k"


def test_streams_may_be_joined_in_any_order() -> None:
    first, *others = alternatives(rewrite(translate(JOINED, CATALOG).node).node)
    orders = [each for each in others if each.words.startswith("streams are joined as")]
    assert len(orders) == 2
    for each in orders:
        planned_migration(RegisteredQuery("joined", "", first.node, 1, 0), each.node, None)


def test_a_plan_that_demands_other_samples_is_refused() -> None:
    first, second = (
        rewrite(translate(f"{JOINED} AND {condition}", CATALOG).node).node for condition in ("a.x < 3", "a.x < 4")
    )
    with pytest.raises(MigrationRefusedError, match="other samples of sensors"):
        planned_migration(RegisteredQuery("joined", "", first, 1, 0), second, None)
