"""Pairs of rows and the spans that they cover, in blocks of any size."""

from __future__ import annotations

import itertools
import random

import polars as pl
import pytest

from cluster.fjord import row_order
from cluster.fjord.batch import END, START
from cluster.fjord.operators.aggregation import Coverings


def _drawn(dice: random.Random) -> tuple[pl.DataFrame, list[tuple[int, int, int]]]:
    """Return rows of a few keys, and for each key the spans between its cuts, some behind the last of them left out."""
    rows = [
        (dice.randrange(3), start := dice.randrange(12), start + dice.randint(1, 9)) for _ in range(dice.randrange(9))
    ]
    until = dice.choice((6, 30))
    spans = []
    for key in sorted({key for key, _, _ in rows}):
        cuts = sorted({edge for own, *edges in rows if own == key for edge in edges if edge <= until})
        spans += [(key, *each) for each in itertools.pairwise(cuts)]
    rows = [each for each in rows if each[1] <= until]
    return pl.DataFrame(rows, schema={"key": pl.UInt32, START: pl.Int64, END: pl.Int64}, orient="row"), spans


@pytest.mark.parametrize("at_once", [1, 2, 7, 1_000])
def test_each_span_is_paired_with_the_rows_that_cover_it(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(row_order, "AT_ONCE", at_once)
    several = 0
    for seed in range(200):
        rows, spans = _drawn(random.Random(seed))
        frame = pl.DataFrame([each[:2] for each in spans], schema={"key": pl.UInt32, START: pl.Int64}, orient="row")
        blocks = list(Coverings.of(rows, frame, key="key").blocks())
        several += len(blocks) > 1
        pairs = [pair for block in blocks for pair in zip(*(each.tolist() for each in block), strict=True)]
        assert sorted(pairs) == [
            (row, place)
            for row, (key, start, end) in enumerate(rows.rows())
            for place, (own, since, until) in enumerate(spans)
            if own == key and start <= since and until <= end
        ]
        places = [set(of_span.tolist()) for _, of_span in blocks]
        assert sum(map(len, places)) == len(set().union(*places)), "all pairs of a span are in one block"
    assert several == 0 if at_once == 1_000 else several > 10


def test_there_is_a_block_even_if_nothing_is_covered() -> None:
    nothing = pl.DataFrame(schema={"key": pl.UInt32, START: pl.Int64, END: pl.Int64})
    ((of_row, of_span),) = Coverings.of(nothing, nothing.drop(END), key="key").blocks()
    assert len(of_row) == len(of_span) == 0
