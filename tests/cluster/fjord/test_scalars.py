"""Scalar expressions over columns as operators make them."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.scalars import compile_scalar
from cluster.language.algebra import Scalar
from protocols.streams import FieldType

REPEATED = pl.DataFrame({"s": [1], "k": [3], "n": [2]}).with_columns(pl.col("s").repeat_by("n").alias("s")).explode("s")
"""Two rows that Polars holds as one value of k, repeated."""


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('2 = "k"', False), ('2 < "k"', True), ('2 <> "k"', True), ('2 >= "k"', False), ('3 <= "k"', True),
        ('4 > "k"', True), ('3 IN ("k", 1)', True), ('3 BETWEEN "k" AND 5', True),
        ('NULLIF(3, "k") IS NULL', True), ('CASE 3 WHEN "k" THEN TRUE ELSE FALSE END', True),
    ],
)  # fmt: skip
def test_a_constant_is_compared_with_every_row(sql: str, expected: bool) -> None:
    found = REPEATED.select("s", compile_scalar(Scalar(sql, FieldType.BOOLEAN)).alias("x"))
    assert found["x"].to_list() == [expected, expected]
