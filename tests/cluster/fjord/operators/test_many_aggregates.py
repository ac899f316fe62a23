"""What a column more of an aggregate takes in each micro-batch, however few rows come: few calls."""

from __future__ import annotations

import polars as pl

from cluster.fjord.aggregates import partial_columns
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operators.pane_aggregation import FEWEST_KEYS, PaneGrid
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.operators import Aggregate
from cluster.operators.columns import AggregateCall
from cluster.operators.walks import nodes_of
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.counted_calls import calls

FIELDS = (Field("sensor", FieldType.TEXT, fixed=True), Field("speed", FieldType.REAL))
CATALOG = Catalog.of([StreamSchema("traffic", FIELDS)])


def different(count: int) -> tuple[AggregateCall, ...]:
    columns = ", ".join(f"STDDEV(speed + {number}) AS c{number}" for number in range(count))
    text = f"SELECT sensor, {columns} FROM traffic WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND) GROUP BY sensor"
    (node,) = (each for each in nodes_of(translate(text, CATALOG).node) if isinstance(each, Aggregate))
    return node.calls


def rows() -> pl.DataFrame:
    at = pl.Series(START, [0, 0, 1], pl.Int64)
    return pl.DataFrame([at, (at + 1).rename(END), pl.Series("sensor", ["a", "b", "a"])]).with_columns(speed=1.5)


def test_an_aggregate_next_to_a_scan_is_not_made_anew_in_each_micro_batch() -> None:
    made = different(50)
    first = calls(lambda: PartialAggregate(("sensor",), made))
    again = calls(lambda: PartialAggregate(("sensor",), made))
    assert first > len(partial_columns(made))
    assert again <= len(made) + 20  # it is looked up by its calls


def test_beginning_a_column_more_takes_few_calls() -> None:
    few, many = different(10), different(60)

    def begun(calls_of: tuple[AggregateCall, ...]) -> int:
        operator = PartialAggregate(("sensor",), calls_of)
        batch = Batch(rows(), 2)
        operator.transition(0, batch)
        return calls(lambda: operator.transition(0, batch))

    for_each = (begun(many) - begun(few)) / 50
    assert for_each < 60


def test_a_column_more_in_a_grid_takes_few_calls() -> None:
    def made(count: int) -> int:
        columns = partial_columns(different(count))
        keys = pl.Series("sensor", [f"s{number}" for number in range(FEWEST_KEYS)])
        values = {each.name: pl.Series([1.0] * FEWEST_KEYS).cast(each.type) for each in columns}
        panes = pl.DataFrame([pl.Series(START, [9] * FEWEST_KEYS, pl.Int64), keys]).with_columns(**values)
        return calls(lambda: PaneGrid.of(panes, ["sensor"], columns))

    assert (made(60) - made(10)) / 50 < 100
