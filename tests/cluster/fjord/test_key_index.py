"""The index on a key against a nested loop, for columns that are numbered and columns that are hashed."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fjord.lookup_tables import EXACT, KeyIndex

EDGES = (-(2**63), 2**63 - 1, -EXACT, EXACT, EXACT + 1)
near = st.integers(-4, 12)
integers = st.one_of(near, st.sampled_from(EDGES))
reals = st.one_of(
    near.map(float),
    st.sampled_from([0.5, -0.0, 2.0**53, -(2.0**63), 2.0**63, 1e300, float("inf"), float("-inf"), float("nan")]),
)


def _columns(values: st.SearchStrategy[Any], kind: Any) -> st.SearchStrategy[pl.Series]:
    return st.lists(st.none() | values, max_size=30).map(lambda drawn: pl.Series(drawn, dtype=kind))


INTEGERS = _columns(integers, pl.Int64)
NEAR = _columns(near, pl.Int64)
TEXTS = _columns(st.sampled_from("abcde"), pl.String)
FLAGS = _columns(st.booleans(), pl.Boolean)


def _expected(keys: pl.Series, probes: pl.Series) -> list[tuple[int, int]]:
    return [
        (asked, found)
        for asked, probe in enumerate(probes)
        for found, key in enumerate(keys)
        if probe is not None and key is not None and probe == key
    ]


def _found(keys: pl.Series, probes: pl.Series) -> list[tuple[int, int]]:
    matches = KeyIndex(keys).matches(probes)
    return list(zip(matches.probed.tolist(), matches.found.tolist(), strict=True))


@given(
    st.one_of(
        st.tuples(NEAR, NEAR),
        st.tuples(NEAR, INTEGERS),
        st.tuples(INTEGERS, INTEGERS),
        st.tuples(NEAR, _columns(reals, pl.Float64)),
        st.tuples(TEXTS, TEXTS),
        st.tuples(FLAGS, FLAGS),
    )
)
def test_finds_the_pairs_that_a_nested_loop_finds_in_the_same_order(columns: tuple[pl.Series, pl.Series]) -> None:
    keys, probes = columns
    pairs = _expected(keys, probes)
    assert _found(keys, probes) == pairs
    asked = {place for place, _ in pairs}
    assert KeyIndex(keys).contains(probes).tolist() == [place in asked for place in range(len(probes))]


@pytest.mark.parametrize("spread", [1, 1_000])
@pytest.mark.parametrize("copies", [1, 3])
def test_finds_each_row_of_a_large_table(spread: int, copies: int) -> None:
    dice = np.random.default_rng(5)
    keys = np.repeat(np.arange(5_000) * spread - 700, copies)
    dice.shuffle(keys)
    probes = dice.integers(-1_000, 6_000, 2_000) * spread
    pairs = pl.DataFrame({"k": keys}).with_row_index("found")
    asked = pl.DataFrame({"k": probes}).with_row_index("asked")
    joined = asked.join(pairs, on="k", maintain_order="left_right")
    matches = KeyIndex(pl.Series(keys)).matches(pl.Series(probes))
    assert matches.probed.tolist() == joined["asked"].to_list()
    assert matches.found.tolist() == joined["found"].to_list()


def test_numbers_close_together_are_not_hashed() -> None:
    index = KeyIndex(pl.Series([7, 9, 8, None]))
    assert type(index._numbers).__name__ == "_Distances"
    assert type(KeyIndex(pl.Series([7, 900]))._numbers).__name__ == "_Hashed"


def test_a_number_that_is_none_is_found_by_its_like_and_breaks_nothing() -> None:
    keys = pl.Series([1.5, float("nan"), 1.5, float("nan"), None])
    assert _found(keys, pl.Series([float("nan"), 1.5, 2.0])) == [(0, 1), (0, 3), (1, 0), (1, 2)]
