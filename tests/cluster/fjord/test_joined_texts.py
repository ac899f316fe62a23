"""STRING_AGG: by definition whatever the batches and their order, and never longer than it may be."""

from __future__ import annotations

import random

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fjord.batch import END, NEVER, START, Batch
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.operators.columns import AggregateCall, Joining
from cluster.plan.scalar_texts import read_scalar
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType
from tests.peak_memory import growth_kib

TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "b", "é", "ab", "👧", "a" * 4_000, "b" * 10_000]), max_size=7)


def joined(batches: list[list[str | None]], joining: Joining, *, distinct: bool) -> str | None:
    """What STRING_AGG is of texts that come in some batches."""
    argument = read_scalar('"x"', FieldType.TEXT)
    calls = (AggregateCall("joined", "string_agg", argument, FieldType.TEXT, distinct, joining=joining),)
    partial, merge = PartialAggregate((), calls), MergeAggregate((), calls)
    rows: list[pl.DataFrame] = []
    for number, batch in enumerate(batches):
        schema = {START: pl.Int64, END: pl.Int64, "x": pl.String}
        frame = pl.DataFrame([(0, 10, value) for value in batch], schema=schema, orient="row")
        watermark = NEVER if number == len(batches) - 1 else -1
        rows.append(merge.transition(0, partial.transition(0, Batch(frame, watermark))).rows)
    found: str | None = pl.concat(rows)["joined"].item()
    return found


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["", ", ", "é" * 5_000]), st.booleans(), st.booleans(), st.integers(0, 7), st.randoms())
def test_texts_are_joined_in_their_order_however_they_come(
    texts: list[str | None], separator: str, descending: bool, distinct: bool, cut: int, dice: random.Random
) -> None:
    kept = [text for text in texts if text is not None]
    kept = sorted(set(kept) if distinct else kept, reverse=descending)
    expected = separator.join(kept) if kept and len(separator.join(kept)) <= LONGEST_TEXT else None
    mixed = dice.sample(texts, len(texts))
    for batches in ([["z"], texts], [mixed[:cut], mixed[cut:], ["z"]]):
        ours = joined(batches, Joining(separator, descending), distinct=distinct)
        with_z = sorted(({*kept, "z"} if distinct else [*kept, "z"]), reverse=descending)
        whole = separator.join(with_z)
        assert ours == (whole if len(whole) <= LONGEST_TEXT else None)
    if texts:
        assert joined([texts], Joining(separator, descending), distinct=distinct) == expected


def test_a_text_that_would_be_too_long_is_never_made() -> None:
    texts: list[str | None] = ["x" * LONGEST_TEXT] * 3_000
    assert growth_kib(lambda: joined([texts], Joining("y" * 10_000), distinct=False)) < 150_000
