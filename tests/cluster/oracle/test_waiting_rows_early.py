"""Rows that wait and are looked up are given early with what they have in the end, though relations change."""

from __future__ import annotations

import random
import re

import pytest

from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import MemoryTables
from cluster.operators.columns import Column
from cluster.plan.rewrite import rewrite
from cluster.testing import ScriptedRelation
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.local.test_waiting_rows_meet_relations import QUERIES
from tests.cluster.oracle.early_running import compare_early
from tests.cluster.oracle.relation_running import LAG_US, cutting_after
from tests.cluster.oracle.running import deliveries
from tests.examples import some_of

LAST = 40
HISTORIES = 12
"""Of each query: some have rows that wait."""
FEWEST = 4
FIELDS = (Field("k", FieldType.TEXT), Field("v", FieldType.INTEGER))
CATALOG = Catalog.of(
    [
        *(StreamSchema(name, FIELDS) for name in "st"),
        StaticRelation("r", "r@1", (Column("k", FieldType.TEXT), Column("c", FieldType.INTEGER))),
    ]
)
BEGIN_WITH_EVERYTHING = {"relation held against what waits"}
"""Queries whose rows begin where their streams do, which has to be given to their operators."""

NEVER_LATE = {"distinct of windows"}
"""Queries whose rows have an end as soon as they begin."""


def in_microseconds(sql: str) -> str:
    for text, short in (("1 SECOND", "10 US"), ("2 SECONDS", "20 US"), ("3 SECONDS", "30 US")):
        sql = re.sub(rf"\b{text}\b", short, sql)
    return sql.replace("500 MS", "5 US").replace("300 MS", "3 US")


@pytest.mark.examples
@pytest.mark.parametrize("name", sorted({*QUERIES} - BEGIN_WITH_EVERYTHING))
def test_what_is_given_early_stays(name: str) -> None:
    dice = random.Random(name)
    node = rewrite(translate(in_microseconds(QUERIES[name]), CATALOG).node).node
    opened = 0
    for number in range(max(HISTORIES, some_of(HISTORIES, FEWEST))):
        if number >= some_of(HISTORIES, FEWEST) and (opened or name in NEVER_LATE):
            break
        streams = {
            stream: [
                (dice.randrange(LAST), (dice.choice("aabc"), dice.randrange(3))) for _ in range(dice.choice((4, 9, 15)))
            ]
            for stream in "st"
        }
        rows = [[{"k": k, "c": dice.randrange(5)} for k in "abc" if dice.random() < 0.8] for _ in range(4)]
        changes = dict(zip(dice.sample(range(1, LAST), 3), rows[1:], strict=True))
        versions = ScriptedRelation({"k": str, "c": int}, rows[0], changes).versions(streams)
        batches = deliveries({name: sorted(each) for name, each in streams.items()}, dice, most=8)
        restarts = frozenset(dice.sample(range(len(batches)), len(batches) // 3))
        with cutting_after(LAG_US):
            found = compare_early(
                node,
                batches,
                restart_after=restarts,
                tables=lambda versions=versions: MemoryTables({"r@1": versions}),
                buckets=dice.choice((1, 3)),
            )
        assert found.wrong is None, (found.wrong, batches, changes)
        opened += found.opened
    assert opened > 0 or name in NEVER_LATE
