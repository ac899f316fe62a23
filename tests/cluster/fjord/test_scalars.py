"""Scalar expressions over columns as operators make them."""

from __future__ import annotations

import polars as pl
import pytest

from cluster.errors import PlanError
from cluster.fjord.scalars import compile_scalar
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

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
    found = REPEATED.select("s", compile_scalar(read_scalar(sql, FieldType.BOOLEAN)).alias("x"))
    assert found["x"].to_list() == [expected, expected]


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("EXP(1000)", FieldType.REAL, None), ("POWER(0, -1)", FieldType.REAL, None),
        ("POWER(-8, 0.5)", FieldType.REAL, None), ("CAST('nan' AS DOUBLE)", FieldType.REAL, None),
        ("CAST('inf' AS BIGINT)", FieldType.INTEGER, None), ("CAST(2.5 AS BIGINT)", FieldType.INTEGER, 2),
        ("CAST(' -3.5 ' AS BIGINT)", FieldType.INTEGER, -4), ("CAST('Yes' AS BOOLEAN)", FieldType.BOOLEAN, True),
        ("CAST('0' AS BOOLEAN)", FieldType.BOOLEAN, False), ("CAST('maybe' AS BOOLEAN)", FieldType.BOOLEAN, None),
        ("SUBSTRING('abc', 0, 2)", FieldType.TEXT, "a"), ("SUBSTRING('abc', -5)", FieldType.TEXT, "abc"),
        ("SUBSTRING('abc', 2, NULL)", FieldType.TEXT, None),
        ("CAST(CAST('0.000015' AS DOUBLE) AS TEXT)", FieldType.TEXT, "1.5e-05"),
        ("CAST(CAST('-1e-100' AS DOUBLE) AS TEXT)", FieldType.TEXT, "-1e-100"),
        ("CAST(CAST('0.0001' AS DOUBLE) AS TEXT)", FieldType.TEXT, "0.0001"),
        ("NULL % NULL", FieldType.INTEGER, None), ("-1 % NULL", FieldType.INTEGER, None),
    ],
)  # fmt: skip
def test_scalars_of_odd_arguments_have_these_values(sql: str, kind: FieldType, expected: object) -> None:
    found = REPEATED.select("s", compile_scalar(read_scalar(sql, kind)).alias("x"))
    assert found["x"].to_list() == [expected, expected]


def test_what_no_rule_knows_is_refused_by_its_text() -> None:
    with pytest.raises(PlanError, match="cannot be evaluated"):
        compile_scalar(read_scalar('ASINH("x")', FieldType.REAL))
