"""Every query in the table of features is accepted and can run, or is refused, as the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cluster.fjord.acceptance import check_supported
from cluster.language.catalog import BaseStream, Catalog, StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.parameters import bind
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "features.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.partition("\n## Windows\n")[2].splitlines()
    if line.startswith("|") and not line.startswith(("| feature", "|---"))
]
PEERS = {"yes", "no", "partly", "expr", "?"}
TEXT, INTEGER, REAL, BOOLEAN = FieldType.TEXT, FieldType.INTEGER, FieldType.REAL, FieldType.BOOLEAN
CATALOG = Catalog.of(
    [
        BaseStream(
            StreamSchema(
                "traffic",
                (
                    Field("sensor", TEXT, fixed=True),
                    Field("lane", INTEGER),
                    Field("speed", REAL, "mph"),
                    Field("open", BOOLEAN),
                    Field("note", TEXT),
                ),
            ),
            "ts",
        ),
        BaseStream(
            StreamSchema("weather", (Field("sensor", TEXT, fixed=True), Field("wind", REAL, "mph"))), "measured_at"
        ),
        StaticRelation("places", "places@1", (Column("sensor", TEXT), Column("segment", INTEGER))),
        StaticRelation("sensors", "sensors@0", (Column("sensor", TEXT), Column("battery", REAL))),
    ]
)


def planned(text: str) -> None:
    bound = bind(text, {"limit": 20}).text if ":limit" in text else text
    node = rewrite(translate(bound, CATALOG).node).node
    check_supported(node)
    lower(Plan(1, (PlannedQuery("q", 1, node),)))


def test_every_row_has_a_cell_for_each_system() -> None:
    assert {len(row) for row in ROWS} == {6}
    assert len(ROWS) >= 40
    odd = {cell for row in ROWS for cell in row[2:] if cell not in PEERS and not re.match(r"(by|in|within) ", cell)}
    assert not odd


@pytest.mark.parametrize("cell", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_feature_is_there_or_refused_as_the_table_has_it(cell: str) -> None:
    queries = [each.replace("\\|", "|") for each in re.findall(r"`([^`]+)`", cell)]
    assert queries
    for query in queries:
        if cell.startswith("refused: "):
            with pytest.raises(FjordSqlError):
                planned(query)
        else:
            planned(query)
