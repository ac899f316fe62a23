"""Statements that are right, which tests damage in every way: together they have all that a query may hold."""

from __future__ import annotations

from pathlib import Path

from cluster.expressions.user_functions import UserFunction
from cluster.language.catalog import StaticRelation
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.translation import translate_derived
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS
from tests.cluster.language.example_catalog import CATALOG as STREAMS
from tests.cluster.scalar_rows import statements

PLACES = StaticRelation(
    "places",
    "places@1",
    (Column("sensor", FieldType.TEXT), Column("km", FieldType.REAL, "km"), Column("closed", FieldType.BOOLEAN)),
)
MINUTES = translate_derived(
    "CREATE STREAM minute_load AS SELECT sensor, COUNT(*) AS cars "
    "FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY sensor",
    STREAMS,
)
WEAR = UserFunction(
    "wear", "wear@1", "roads.wear", "score", (FieldType.REAL, FieldType.TEXT), FieldType.REAL, names=("speed", "")
)
CATALOG = STREAMS.with_stream(PLACES).with_stream(MINUTES).with_functions([WEAR])

_LINES = (Path(__file__).parent / "valid_statements.sql").read_text(encoding="utf-8").splitlines()
STATEMENTS = [line for line in _LINES if line and not line.startswith("--")]
STATEMENTS += statements()
AGGREGATES = [name for row in AGGREGATE_ROWS.values() for name in row.written]
STATEMENTS += [f"SELECT {name}(speed) AS x FROM traffic WINDOW(RANGE 1 HOUR)" for name in AGGREGATES]
STATEMENTS += [f"SELECT lane FROM traffic WINDOW(RANGE 1 HOUR) {each.example}" for each in ITEM_CLAUSES]
QUERIES = [statement for statement in STATEMENTS if not statement.startswith(("CREATE", "DROP"))]
DECLARATIONS = [statement for statement in STATEMENTS if statement not in QUERIES]
