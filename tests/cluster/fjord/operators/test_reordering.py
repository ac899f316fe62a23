"""Reorder: what the watermark has passed, in start order; late rows aside."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.reordering import Reorder
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import Column
from protocols.wire.streams import FieldType

SCHEMA = (Column("n", FieldType.INTEGER),)


def batch(rows: list[tuple[int, int]], watermark: int) -> Batch:
    frame = pl.DataFrame(
        {START: [at for at, _ in rows], END: [at + 1 for at, _ in rows], "n": [n for _, n in rows]},
        schema={START: pl.Int64, END: pl.Int64, "n": pl.Int64},
    )
    return Batch(frame, watermark)


def test_rows_wait_for_the_watermark_and_come_in_order() -> None:
    subject = Reorder(SCHEMA)
    assert subject.transition(0, batch([(5, 1), (3, 2)], 4)).rows["n"].to_list() == [2]
    assert subject.transition(0, batch([(4, 3), (5, 4)], 6)).rows["n"].to_list() == [3, 1, 4]
    assert subject.transition(0, batch([], NEVER)).rows.height == 0


def test_a_late_row_goes_aside() -> None:
    subject = Reorder(SCHEMA)
    subject.transition(0, batch([], 10))
    assert subject.transition(0, batch([(9, 1), (10, 2)], 11)).rows["n"].to_list() == [2]
    assert [late["n"].to_list() for late in subject.late] == [[1]]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=20), st.data())
def test_rows_come_in_order_whatever_the_disorder_cuts_and_restarts(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    rows = [(at, number) for number, (at, _) in enumerate(sorted(rows))]
    subject, found, low = Reorder(SCHEMA), [], 0
    while low <= 21:
        high = data.draw(st.integers(low + 1, 22))
        new = data.draw(st.permutations([row for row in rows if low <= row[0] < high]))
        emitted = subject.transition(0, batch(new, high))
        assert all(start < high for start in emitted.rows[START])
        found.extend(emitted.rows.select(START, "n").rows())
        low = high
        if data.draw(st.booleans()):
            again = Reorder(SCHEMA)
            again.restore(unpack_state(pack_state(subject.save())))
            subject = again
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert sorted(found) == rows
