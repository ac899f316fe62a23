"""What sensors are asked to send never leaves out a sample that a condition chooses."""

from __future__ import annotations

import math

import pytest

from cluster.language.algebra import Column, Scalar, Source
from cluster.plan.push_down import Chosen, chosen_by
from protocols.programs import Band
from protocols.streams import FieldType

SOURCE = Source("traffic", (Column("r", FieldType.REAL), Column("i", FieldType.INTEGER)))
LARGEST = 1.7976931348623157e308


def chosen(sql: str) -> Chosen:
    return chosen_by(SOURCE, Scalar(sql, FieldType.BOOLEAN))


@pytest.mark.parametrize(
    ("sql", "bands"),
    [
        ('"r" >= -0.0', (Band("r", 0.0, None),)),
        ('"r" = -0.0', (Band("r", 0.0, 0.0),)),
        (f'"r" >= {LARGEST}', (Band("r", LARGEST, None),)),
        (f'"r" < {LARGEST}', (Band("r", None, math.nextafter(LARGEST, 0)),)),
        ('"i" <= 9007199254740991.0', (Band("i", None, 2.0**53 - 1),)),
    ],
)
def test_a_band(sql: str, bands: tuple[Band, ...]) -> None:
    found = chosen(sql)
    assert found == Chosen(bands)
    assert repr(found) == repr(Chosen(bands))  # a zero is positive


@pytest.mark.parametrize(
    "sql",
    [
        f'"r" > {LARGEST}', f'"r" < -{LARGEST}', '"r" < 1e999', '"r" > -1e999', '"r" * 10 > 5', 'NOT ("r" * 10 > 5)',
        '"r" IN (1, 1e308 * 10)', '"i" < 9007199254740992.0', '"i" = 1e300', '"r" IS NULL',
    ],
)  # fmt: skip
def test_what_no_sensor_can_decide_is_decided_here(sql: str) -> None:
    assert chosen(sql) == Chosen(exactly=False)
