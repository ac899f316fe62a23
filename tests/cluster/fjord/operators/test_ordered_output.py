"""Rows wait until nothing can come before them."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.errors import StateError
from cluster.fjord.batch import START
from cluster.fjord.operators.ordered_output import OrderedOutput, number_of, split_at, table_of
from cluster.fjord.saved_state import pack_state, unpack_state

EMPTY = pl.DataFrame(schema={START: pl.Int64, "x": pl.Int64})


def rows(*pairs: tuple[int, int]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema=EMPTY.schema, orient="row")


def test_rows_come_in_start_order_once_the_watermark_has_passed_them() -> None:
    output = OrderedOutput(EMPTY)
    output.add(rows((7, 1), (3, 2)))
    output.add(rows((5, 3), (9, 4)))
    assert output.release(7).rows.rows() == [(3, 2), (5, 3)]
    assert output.release(7).rows.height == 0
    assert output.release(2).watermark_us == 7
    restored = OrderedOutput(EMPTY)
    restored.restore(unpack_state(pack_state(output.save())))
    assert restored.watermark_us == 7
    assert restored.release(10).rows.rows() == [(7, 1), (9, 4)]


def test_rows_that_begin_together_come_as_they_were_added() -> None:
    output = OrderedOutput(EMPTY)
    many = pl.DataFrame({START: [number * 7_919 % 5 for number in range(20_000)], "x": range(20_000)})
    output.add(many)
    found = output.release(5).rows
    for start in range(5):
        assert found.filter(pl.col(START) == start)["x"].is_sorted()


@pytest.mark.parametrize(("instant_us", "before"), [(0, 0), (3, 0), (4, 1), (5, 1), (6, 2), (7, 2), (8, 3), (100, 3)])
def test_rows_are_split_at_an_instant(instant_us: int, before: int) -> None:
    found = rows((3, 1), (5, 2), (7, 3))
    earlier, later = split_at(found, instant_us)
    assert (earlier.rows(), later.rows()) == (found.rows()[:before], found.rows()[before:])
    assert [each.height for each in split_at(EMPTY, instant_us)] == [0, 0]


def test_a_state_without_what_is_asked_for_is_refused() -> None:
    for read in (table_of, number_of):
        with pytest.raises(StateError, match="'held'"):
            read({}, "held")
    with pytest.raises(StateError, match="no table"):
        table_of({"held": 1}, "held")
    with pytest.raises(StateError, match="no number"):
        number_of({"held": EMPTY}, "held")
