"""Conditions on the rows of relations, and which reals they may have."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from cluster.language.comparisons import Comparison
from cluster.operators.columns import Column
from cluster.relations.fitting import predicate, settled
from protocols.wire.streams import FieldType

ROWS = pl.DataFrame(
    {
        "i": [1, 2**53 + 1, None, 3],
        "r": [1.0, 2.0**53, 0.0, None],
        "s": ["a", "b", None, "1"],
        "b": [True, False, None, True],
    }
)


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("i", (1, 2.5), [1]), ("i", (2.0**53,), [2**53 + 1]), ("i", (2**53,), []), ("i", (1, 3), [1, 3]),
        ("r", (2**53 + 1,), [2.0**53]), ("r", (1, -0.0), [1.0, 0.0]), ("r", (1.0,), [1.0]),
        ("s", ("a", "x"), ["a"]), ("b", (True,), [True, True]),
    ],
)  # fmt: skip
def test_in_takes_numbers_of_both_types(column: str, values: tuple[Any, ...], expected: list[Any]) -> None:
    found = ROWS.lazy().filter(predicate([Comparison(column, "in", values)])).collect()
    assert found[column].to_list() == expected


def test_reals_are_finite_and_have_one_zero() -> None:
    rows = pl.DataFrame({"r": [-0.0, math.inf, math.nan, None, 1.5], "s": ["-0.0"] * 5})
    columns = (Column("r", FieldType.REAL), Column("s", FieldType.TEXT))
    found = settled(rows, columns, ())
    assert repr(found["r"].to_list()) == "[0.0, None, None, None, 1.5]"
    assert settled(rows, columns, (Comparison("r", "<", (1,)),))["r"].to_list() == [0.0]
