"""Functions over tuples in order: names that are no words, warnings, types, and plans that are spread and folded."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from cluster.fjord.batch import START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import BaseStream, Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node, Sequence
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
    assert [column.name for column in found.node.schema] == [*NAMES, "over_2"]
    aliases = translate("SELECT t.lag AS lead, lead AS changed FROM odd AS t", ODD)
    assert [column.name for column in aliases.node.schema] == ["lead", "changed"]


def sequence_of(text: str) -> Sequence:
    return _below(translate(text, CATALOG).node)


def _below(node: Node) -> Sequence:
    while not isinstance(node, Sequence):
        (node,) = node.inputs
    return node


def test_ties_are_broken_by_the_columns_that_select_and_qualify_read() -> None:
    text = "SELECT speed, LAG(sensor) OVER () AS s FROM traffic WHERE flow > 1 QUALIFY CHANGED(lane) OVER ()"
    assert sequence_of(text).ties == ("sensor", "lane", "speed")
    (warning,) = translate(text, CATALOG).warnings
    assert warning.startswith("OVER takes tuples in the order of their stamps")
    assert translate(text.replace("OVER ()", "OVER (PARTITION BY lane)"), CATALOG).warnings != ()
    assert warning.endswith("in the order of their values: sensor, lane, speed")


def test_tuples_of_one_sensor_have_no_ties() -> None:
    fields = (Field("room", FieldType.TEXT, fixed=True), Field("level", FieldType.INTEGER))
    rooms = Catalog.of([BaseStream(StreamSchema("rooms", fields))])
    text = "SELECT LAG(level) OVER (PARTITION BY {}) AS b FROM rooms WHERE level > 1"
    assert translate(text.format("room"), rooms).warnings == ()
    assert len(translate(text.format("level"), rooms).warnings) == 1


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
    (column,) = translate(f"SELECT {call} AS x FROM traffic", CATALOG).node.schema
    assert (column.type, column.unit) == (kind, unit)


def test_a_column_is_called_like_the_function_and_what_it_reads() -> None:
    calls = (
        "LAG(lane) OVER ()",
        "CHANGED(lane, speed) OVER ()",
        "LAG(lane + 1) OVER ()",
        "SUM(lane) OVER (ROWS 1 PRECEDING)",
    )
    text = f"SELECT {', '.join(calls)} FROM traffic"
    names = [column.name for column in translate(text, CATALOG).node.schema]
    assert names == ["lag_lane", "changed_lane", "lag", "sum_lane"]


def test_equal_functions_are_computed_once() -> None:
    text = "SELECT LAG(lane) OVER () AS a, lane - LAG(lane) OVER () AS b FROM traffic QUALIFY CHANGED(lane) OVER ()"
    assert len(sequence_of(text).calls) == 1


def test_a_frame_that_ends_with_its_tuple_is_one_however_that_is_written() -> None:
    bounds = ("2 PRECEDING", "BETWEEN 2 PRECEDING AND CURRENT ROW", "BETWEEN 2 PRECEDING AND 0 PRECEDING")
    calls = [f"SUM(lane) OVER (ROWS {each}) AS c{number}" for number, each in enumerate(bounds)]
    assert len(sequence_of(f"SELECT {', '.join(calls)} FROM traffic").calls) == 1


@pytest.mark.parametrize(
    ("bounds", "begin", "end"),
    [
        ("ROWS BETWEEN 2 PRECEDING AND 2 PRECEDING", "rows", "until_rows"),
        ("RANGE BETWEEN INTERVAL '2' US PRECEDING AND 2 US PRECEDING", "range_us", "until_us"),
    ],
)
def test_a_frame_may_end_where_it_begins(bounds: str, begin: str, end: str) -> None:
    (call,) = sequence_of(f"SELECT SUM(lane) OVER ({bounds}) AS x FROM traffic").calls
    assert (getattr(call, begin), getattr(call, end)) == (2, 2)


def test_a_table_may_be_called_like_a_word_that_no_frame_has() -> None:
    following = Catalog.of([StreamSchema("following", (Field("x", FieldType.INTEGER),))])
    found = translate("SELECT SUM(x) OVER (ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) FROM following", following)
    assert _below(found.node).calls[0].until_rows == 1


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


PROBE = [(1, 10.0), (16, 12.0), (21, None), (49, 9.0), (71, 5.0), (86, None), (101, 7.0), (141, 8.0)]
"""Seconds and values of a probe whose signal is lost now and then (risingwavelabs/risingwave 25675)."""


@pytest.mark.parametrize("cuts", [(8,), (1, 1, 1, 1, 1, 1, 1, 1), (3, 2, 3)])
def test_a_frame_that_ends_before_its_tuple_has_the_older_ones(cuts: tuple[int, ...]) -> None:
    frame = "OVER (RANGE BETWEEN INTERVAL '30' SECOND PRECEDING AND INTERVAL '10' SECOND PRECEDING)"
    text = f"SELECT COUNT(*) {frame} AS n, AVG(v) {frame} AS a FROM probes"
    probes = Catalog.of([BaseStream(StreamSchema("probes", (Field("v", FieldType.REAL),)))])
    node = rewrite(translate(text, probes).node).node
    engine = LocalEngine(Plan(1, (PlannedQuery("q", 1, node),)))
    found: list[tuple[int, float | None]] = []
    rows = pl.DataFrame(
        {
            START: [seconds * 1_000_000 for seconds, _ in PROBE],
            DEFAULT_RATE_COLUMN: [True] * len(PROBE),
            "v": pl.Series([value for _, value in PROBE], dtype=pl.Float64),
        }
    )
    begin = 0
    for count in cuts:
        piece = rows.slice(begin, count)
        begin += count
        until_us = 2**62 if begin == len(PROBE) else int(rows[START][begin])
        answers = engine.run({"probes": Arrival((RowsInMemory(piece),), until_us)}).rows
        found += [tuple(msgspec.json.decode(row).values()) for row in answers["row"]]
    assert found == [(0, None), (1, 10.0), (1, 10.0), (1, None), (1, 9.0), (1, 5.0), (2, 5.0), (0, None)]
