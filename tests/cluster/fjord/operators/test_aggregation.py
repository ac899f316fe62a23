"""Aggregates, both halves: by definition at every instant, however the stream is cut, saved and restored.

window of 10 that slides by 5      stamps  0   3        9 10
answers for key a                  [4, 9): {0, 3}   [9, 14): {0, 3, 9}   [14, 19): {9, 10} ...
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import PlanError, StateError
from cluster.fjord.aggregates import keeps_values, split_aggregate
from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.filtering import Filter
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.time_window import TimeWindow
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import AggregateCall, Column
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.batches import EXPECTED_COLUMN, MISSING_COLUMN, SAMPLES_COLUMN, measure_column
from protocols.wire.programs import Measure
from protocols.wire.streams import FieldType

KEYS = (Column("k", FieldType.TEXT),)
X = read_scalar('"x"', FieldType.INTEGER)
Row = tuple[int, str | None, int | None]


def call(function: str, kind: FieldType = FieldType.REAL, **more: Any) -> AggregateCall:
    return AggregateCall(function + ("_distinct" if more.get("distinct") else ""), function, X, kind, **more)


def test_rows_of_one_instant_are_merged_once_the_watermark_has_passed_them() -> None:
    calls = (call("sum", FieldType.INTEGER),)
    first, second = PartialAggregate(("k",), calls), MergeAggregate(KEYS, calls)
    answers = []
    for value, watermark_us in ((1, 10), (2, 11)):
        row = pl.DataFrame([(10, 11, "a", value)], schema=[START, END, "k", "x"], orient="row")
        answers += second.transition(0, first.transition(0, Batch(row, watermark_us))).rows.rows()
    assert answers == [(10, 11, "a", 3)]


def known(values: list[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def if_any(function: Callable[[list[int]], float], least: int = 1) -> Callable[[list[int | None]], float | None]:
    return lambda values: function(known(values)) if len(known(values)) >= least else None


SQUARE = read_scalar('"x" * "x"', FieldType.INTEGER)


def squared(value: int) -> tuple[int, int]:
    """Of equal squares the least value is first, the greatest last."""
    return value * value, value


CALLS: dict[str, tuple[AggregateCall, Callable[[list[int | None]], float | None]]] = {
    "count(*)": (AggregateCall("all", "count", None, FieldType.INTEGER), len),
    "count": (call("count", FieldType.INTEGER), lambda values: len(known(values))),
    "sum": (call("sum", FieldType.INTEGER), if_any(sum)),
    "avg": (call("avg"), if_any(statistics.fmean)),
    "min": (call("min", FieldType.INTEGER), if_any(min)),
    "max": (call("max", FieldType.INTEGER), if_any(max)),
    "variance": (call("variance"), if_any(statistics.variance, 2)),
    "stddev": (call("stddev"), if_any(statistics.stdev, 2)),
    "var_pop": (call("var_pop"), if_any(statistics.pvariance)),
    "stddev_pop": (call("stddev_pop"), if_any(statistics.pstdev)),
    "median": (call("median"), if_any(statistics.median)),
    "arg_min": (call("arg_min", FieldType.INTEGER, by=SQUARE), if_any(lambda values: min(values, key=squared))),
    "arg_max": (call("arg_max", FieldType.INTEGER, by=SQUARE), if_any(lambda values: max(values, key=squared))),
    "mode": (call("mode", FieldType.INTEGER), if_any(lambda values: min(statistics.multimode(values)))),
    "half": (call("percentile_disc", FieldType.INTEGER), if_any(lambda values: sorted(values)[(len(values) - 1) // 2])),
    "count distinct": (call("count", FieldType.INTEGER, distinct=True), lambda values: len(set(known(values)))),
    "sum distinct": (call("sum", FieldType.INTEGER, distinct=True), if_any(lambda values: sum(set(values)))),
    "avg distinct": (call("avg", distinct=True), if_any(lambda values: statistics.fmean(set(values)))),
}
ALL = tuple(each for each, _ in CALLS.values())


def chronons(rows: list[Row], watermark: int) -> Batch:
    frame = pl.DataFrame(
        {START: [at for at, _, _ in rows], END: [at + 1 for at, _, _ in rows], "k": [k for _, k, _ in rows],
         "x": [x for _, _, x in rows]},
        schema={START: pl.Int64, END: pl.Int64, "k": pl.String, "x": pl.Int64},
    )  # fmt: skip
    return Batch(frame, watermark)


class Chain:
    """Window, first half, second half."""

    def __init__(self, size: int, slide: int, calls: tuple[AggregateCall, ...] = ALL, *, keyed: bool = True) -> None:
        keys = KEYS if keyed else ()
        self._window = TimeWindow(size, slide)
        self._partial = PartialAggregate(tuple(key.name for key in keys), calls)
        self._make = lambda: MergeAggregate(keys, calls, slide_us=slide)
        self._merge = self._make()

    def feed(self, rows: list[Row], watermark: int) -> Batch:
        return self._merge.transition(
            0, self._partial.transition(0, self._window.transition(0, chronons(rows, watermark)))
        )

    def restart(self) -> None:
        state = unpack_state(pack_state(self._merge.save()))
        self._merge = self._make()
        self._merge.restore(state)


def window_content(rows: list[Row], instant: int, size: int, slide: int) -> list[Row]:
    """Section 3, time window with advance."""
    k = (instant + 1) // slide * slide
    return [row for row in rows if instant >= slide - 1 and max(k - size, 0) <= row[0] <= k - 1]


def same(found: Any, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)


STREAM = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(["a", "b", None]), st.none() | st.integers(-3, 3)), max_size=14
)


@given(STREAM, st.integers(1, 12), st.sampled_from([1, 2, 3, 5]), st.booleans(), st.data())
def test_aggregates_are_as_defined_at_every_instant_however_the_stream_is_cut(
    rows: list[Row], size: int, slide: int, keyed: bool, data: st.DataObject
) -> None:
    chain, emitted, low, promised = Chain(size, slide, keyed=keyed), [], 0, -(2**62)
    while low <= 26:
        high = data.draw(st.integers(low + 1, 27))
        found = chain.feed(data.draw(st.permutations([row for row in rows if low <= row[0] < high])), high)
        starts = found.rows[START].to_list()
        assert starts == sorted(starts)
        assert all(start >= promised for start in starts), "no row before an earlier watermark"
        assert found.watermark_us >= promised
        promised = found.watermark_us
        emitted.extend(found.rows.iter_rows(named=True))
        low = high
        if data.draw(st.booleans()):
            chain.restart()
    emitted.extend(chain.feed([], NEVER).rows.iter_rows(named=True))
    assert all(row[START] < row[END] for row in emitted)
    for instant in range(45):
        content = window_content(rows, instant, size, slide)
        groups = {k for _, k, _ in content} if keyed else ({None} if content else set())
        answers = {row.get("k"): row for row in emitted if row[START] <= instant < row[END]}
        assert answers.keys() == groups
        assert len(answers) == sum(row[START] <= instant < row[END] for row in emitted)
        for key in groups:
            values = [x for _, k, x in content if not keyed or k == key]
            for each, defined in CALLS.values():
                assert same(answers[key][each.name], defined(values)), (instant, key, each.name, values)


def test_one_row_per_key_and_slide_even_where_nothing_changes() -> None:
    chain = Chain(20, 5, (CALLS["count(*)"][0],))
    found = chain.feed([(0, "a", 1)], 100)
    assert found.rows.select(START, END, "all").rows() == [(4, 9, 1), (9, 14, 1), (14, 19, 1), (19, 24, 1)]


def test_an_answer_comes_as_soon_as_its_window_is_complete() -> None:
    chain = Chain(10, 10, (CALLS["sum"][0],))
    assert chain.feed([(0, "a", 1), (9, "a", 2)], 9).rows.height == 0
    assert chain.feed([], 10).rows.select(START, END, "sum").rows() == [(9, 19, 3)]
    assert chain.feed([(10, "a", 4)], 19).rows.height == 0


def test_a_huge_value_that_leaves_the_window_takes_no_digits_with_it() -> None:
    """A huge value that leaves the window takes no digits of the others with it."""
    rows = pl.DataFrame({START: [0, 1, 2], END: [1, 2, 3], "k": ["a"] * 3, "x": [1e17, 1.0, 2.0]})
    calls = (AggregateCall("sum", "sum", read_scalar('"x"', FieldType.REAL), FieldType.REAL),)
    window, partial, merge = TimeWindow(2, 1), PartialAggregate(("k",), calls), MergeAggregate(KEYS, calls)
    found = merge.transition(0, partial.transition(0, window.transition(0, Batch(rows, NEVER))))
    assert found.rows.filter(pl.col(START) == 2)["sum"].to_list() == [3.0]


def test_state_is_bounded_by_the_window() -> None:
    chain = Chain(10, 5, (CALLS["sum"][0],))
    sizes = []
    for begin in range(0, 2000, 10):
        chain.feed([(at, "a", 1) for at in range(begin, begin + 10)], begin + 10)
        pending = chain._merge.save()["pending"]
        assert isinstance(pending, pl.DataFrame)
        sizes.append(pending.height)
    assert max(sizes) <= 3, "the panes of one window"


def test_what_cannot_be_evaluated_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="KURTOSIS"):
        PartialAggregate((), (call("kurtosis"),))


def test_state_of_another_kind_is_refused() -> None:
    with pytest.raises(StateError, match="keeps no state"):
        Filter(read_scalar("TRUE", FieldType.BOOLEAN)).restore({"pending": 1})
    with pytest.raises(StateError, match="format 9"):
        unpack_state(b"\x93\x09\x80\x80")
    with pytest.raises(StateError, match="cannot be read"):
        unpack_state(b"\xc1")


@pytest.mark.parametrize(("reported", "share"), [
    ([(3, 4, 1)], 0.75),
    ([(3, 4, 1), (2, None, None)], 0.75),
    ([(3, 4, 1), (0, 4, 4)], 0.375),
    ([(0, 4, 4)], 0.0),
    ([(2, None, None)], None),
    ([(2, 0, 0)], None),
])  # fmt: skip
def test_completeness_is_of_what_proxies_report(reported: list[tuple[int | None, ...]], share: float | None) -> None:
    split = split_aggregate(AggregateCall("share", "completeness", None, FieldType.REAL))
    rows = pl.DataFrame(reported, schema=dict.fromkeys((SAMPLES_COLUMN, EXPECTED_COLUMN, MISSING_COLUMN), pl.Int64),
                        orient="row")  # fmt: skip
    from_sensors = rows.select(each.from_sensors for each in split.columns)
    from_samples = pl.DataFrame({START: [1, 2]}).select(each.begin for each in split.columns)
    for partial in (from_sensors, pl.concat([from_sensors, from_samples]), pl.concat([from_samples, from_sensors])):
        merged = partial.select(each.merge for each in split.columns)
        assert merged.select(split.final).item() == share


@pytest.mark.parametrize(("function", "answer"), [
    ("count", 3), ("sum", 4.5), ("avg", 1.5), ("min", -1.0), ("max", 4.0),
])  # fmt: skip
def test_what_sensors_have_aggregated_counts_as_their_samples_do(function: str, answer: float) -> None:
    kind = FieldType.INTEGER if function == "count" else FieldType.REAL
    split = split_aggregate(AggregateCall("a", function, read_scalar('"x"', FieldType.REAL), kind))
    reported = {Measure.COUNT: 2, Measure.SUM: 0.5, Measure.MIN: -1.0, Measure.MAX: 1.5}
    sensors = pl.DataFrame(
        {SAMPLES_COLUMN: [2], **{measure_column(each, "x"): [value] for each, value in reported.items()}}
    )
    samples = pl.DataFrame({START: [5], "x": [4.0]})
    from_sensors = sensors.select(each.from_sensors for each in split.columns)
    partial = pl.concat([from_sensors, samples.select(each.begin for each in split.columns)])
    assert partial.select(each.merge for each in split.columns).select(split.final).item() == answer


@pytest.mark.parametrize("function", ["count", "sum", "avg"])
def test_a_pane_keeps_a_distinct_value_once_however_many_micro_batches_bring_it(function: str) -> None:
    (column,) = split_aggregate(call(function, distinct=True)).columns
    merged = pl.DataFrame({column.name: [[2, 1]]})
    for _ in range(50):
        merged = pl.concat([merged, pl.DataFrame({column.name: [[1, 3], [2]]})]).select(column.merge)
    assert merged.item().to_list() == [2, 1, 3]


def test_a_share_is_the_decimal_that_is_written() -> None:
    assert math.ceil(0.55 * 100) == 56
    split = split_aggregate(call("percentile_disc", FieldType.INTEGER, parameter=0.55))
    values = pl.DataFrame({START: range(100), "x": [(each * 37) % 100 + 1 for each in range(100)]})
    partial = values.select(each.begin for each in split.columns)
    assert partial.select(each.merge for each in split.columns).select(split.final).item() == 55


@pytest.mark.parametrize("name", CALLS)
def test_what_keeps_all_values_is_known_by_its_name(name: str) -> None:
    listed = [column for column in split_aggregate(CALLS[name][0]).columns if isinstance(column.type, pl.List)]
    assert keeps_values(CALLS[name][0]) == bool(listed)


@pytest.mark.parametrize(("function", "found"), [("arg_max", [4, None, 8]), ("arg_min", [1, None, 7])])
def test_the_value_at_an_extreme_is_of_a_row_where_neither_is_null(function: str, found: list[int | None]) -> None:
    groups = [[(1, 5), (None, 9), (None, 1), (3, None), (4, 5)], [(None, 2), (6, None)], [(8, 0), (None, 3), (7, 0)]]
    split = split_aggregate(call(function, FieldType.INTEGER, by=read_scalar('"y"', FieldType.INTEGER)))
    for rows, expected in zip(groups, found, strict=True):
        schema = {START: pl.Int64, "x": pl.Int64, "y": pl.Int64}
        single = [pl.DataFrame([(0, *row)], schema=schema, orient="row") for row in rows]
        partials = pl.concat(each.select(column.begin for column in split.columns) for each in single)
        whole = pl.concat(single).select(column.begin for column in split.columns)
        for partial in (partials, whole):
            assert partial.select(each.merge for each in split.columns).select(split.final).item() == expected
