"""Functions over tuples in order: names that are no words, warnings, types, and plans that are spread and folded."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Node, Sequence, inputs_of, schema_of
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pipelines import partition_keys
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG

NAMES = ("lag", "lead", "changed", "hysteresis", "first_value", "over", "preceding", "stamp", "ignore")
ODD = Catalog.of([StreamSchema("odd", tuple(Field(name, FieldType.INTEGER) for name in NAMES))])


def test_new_words_are_still_names() -> None:
    found = translate(f"SELECT {', '.join(NAMES)}, lag + lead AS over_2 FROM odd WHERE changed = hysteresis", ODD)
    assert [column.name for column in schema_of(found.node)] == [*NAMES, "over_2"]
    aliases = translate("SELECT t.lag AS lead, lead AS changed FROM odd AS t", ODD)
    assert [column.name for column in schema_of(aliases.node)] == ["lead", "changed"]


def sequence_of(text: str) -> Sequence:
    return _below(translate(text, CATALOG).node)


def _below(node: Node) -> Sequence:
    while not isinstance(node, Sequence):
        (node,) = inputs_of(node)
    return node


def test_ties_are_broken_by_the_columns_that_select_and_qualify_read() -> None:
    text = "SELECT speed, LAG(sensor) OVER () AS s FROM traffic WHERE flow > 1 QUALIFY CHANGED(lane) OVER ()"
    assert sequence_of(text).ties == ("sensor", "lane", "speed")
    (warning,) = translate(text, CATALOG).warnings
    assert warning.startswith("OVER takes tuples in the order of their stamps")
    assert warning.endswith("in the order of their values: sensor, lane, speed")


def test_frames_by_time_depend_on_no_order_of_equal_stamps() -> None:
    text = "SELECT SUM(lane) OVER (PARTITION BY sensor RANGE 5 MINUTES PRECEDING) AS n FROM traffic"
    assert translate(text, CATALOG).warnings == ()


@pytest.mark.parametrize(
    ("call", "kind", "unit"),
    [
        ("LAG(speed) OVER ()", FieldType.REAL, "mph"),
        ("LAG(lane, 1, 0.5) OVER ()", FieldType.REAL, ""),
        ("LAG(lane, 1, NULL) OVER ()", FieldType.INTEGER, ""),
        ("COUNT(speed) OVER (ORDER BY STAMP())", FieldType.INTEGER, ""),
        ("AVG(lane) OVER (ORDER BY STAMP())", FieldType.REAL, ""),
        ("MAX(speed) OVER (ORDER BY STAMP())", FieldType.REAL, "mph"),
        ("CHANGED(speed) OVER ()", FieldType.BOOLEAN, ""),
        ("HYSTERESIS(speed ABOVE 2) OVER ()", FieldType.BOOLEAN, ""),
    ],
)
def test_types_and_units(call: str, kind: FieldType, unit: str) -> None:
    (column,) = schema_of(translate(f"SELECT {call} AS x FROM traffic", CATALOG).node)
    assert (column.type, column.unit) == (kind, unit)


def test_a_column_is_called_like_the_function_and_what_it_reads() -> None:
    calls = (
        "LAG(lane) OVER ()",
        "CHANGED(lane, speed) OVER ()",
        "LAG(lane + 1) OVER ()",
        "SUM(lane) OVER (ROWS 1 PRECEDING)",
    )
    text = f"SELECT {', '.join(calls)} FROM traffic"
    names = [column.name for column in schema_of(translate(text, CATALOG).node)]
    assert names == ["lag_lane", "changed_lane", "lag", "sum_lane"]


def test_equal_functions_are_computed_once() -> None:
    text = "SELECT LAG(lane) OVER () AS a, lane - LAG(lane) OVER () AS b FROM traffic QUALIFY CHANGED(lane) OVER ()"
    assert len(sequence_of(text).calls) == 1


def test_a_plan_is_spread_by_the_keys_and_all_samples_are_asked_for() -> None:
    text = "SELECT sensor, lane FROM traffic WHERE speed > 5 QUALIFY CHANGED(lane) OVER (PARTITION BY sensor)"
    node = rewrite(translate(text, CATALOG).node).node
    assert partition_keys(node) == ("sensor",)
    ((stream, (demand,)),) = demands_of("q", node).items()
    assert (stream, demand.fields, demand.tolerances) == ("traffic", ("lane", "sensor", "speed"), ())
    assert [band.field for band in demand.bands] == ["speed"]


READINGS = Catalog.of([StreamSchema("readings", (Field("k", FieldType.TEXT), Field("n", FieldType.INTEGER)))])
CONDITIONS = {"all": "", "large": " WHERE n > 3", "others": " WHERE n % 2 = 0", "equal": " WHERE n > 3"}


def test_queries_that_differ_in_conditions_are_one_fragment_and_do_not_see_each_others_tuples() -> None:
    queries = [
        PlannedQuery(name, epoch, rewrite(translate(_lagged(where), READINGS).node).node)
        for epoch, (name, where) in enumerate(CONDITIONS.items(), 1)
    ]
    together = _answered(Plan(4, tuple(queries)))
    for query in queries:
        assert together[query.name] == _answered(Plan(4, (query,)))[query.name]
    assert together["large"] == together["equal"] != together["all"]


def _lagged(where: str) -> str:
    over = "OVER (PARTITION BY k ORDER BY STAMP())"
    return f"SELECT k, n, LAG(n) {over} AS before, SUM(n) {over} AS total FROM readings{where}"


def _answered(plan: Plan) -> dict[str, list[list[object]]]:
    engine = LocalEngine(plan, buckets=3)
    found: dict[str, list[list[object]]] = {query.name: [] for query in plan.queries}
    for first in range(0, 60, 20):
        rows = [(at, True, "abc"[at % 3], at * 7 % 11) for at in range(first, first + 20)]
        schema = {START: pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean, "k": pl.String, "n": pl.Int64}
        arrival = Arrival((RowsInMemory(pl.DataFrame(rows, schema=schema, orient="row")),), first + 15)
        for query, *_, kind, row in engine.run({"readings": arrival}).rows.iter_rows():
            assert kind == "row", row
            found[query].append([*msgspec.json.decode(row).values()])
    return {name: sorted(each, key=str) for name, each in found.items()}
