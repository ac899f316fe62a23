"""What sensors are asked to send never leaves out a sample that a condition chooses."""

from __future__ import annotations

import math

import pytest

from cluster.operators import Source
from cluster.operators.columns import Column
from cluster.plan.push_down import PushablePredicate, split_predicate
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.demands import PropertyBand
from protocols.wire.programs import Band
from protocols.wire.streams import FieldType

SOURCE = Source("traffic", (Column("r", FieldType.REAL), Column("i", FieldType.INTEGER)))
LARGEST = 1.7976931348623157e308


def chosen(sql: str) -> PushablePredicate:
    return split_predicate(SOURCE, read_scalar(sql, FieldType.BOOLEAN))


@pytest.mark.parametrize(
    ("sql", "bands"),
    [
        ('"r" >= -0.0', (Band("r", 0.0, None),)),
        ('"r" = -0.0', (Band("r", 0.0, 0.0),)),
        (f'"r" >= {LARGEST}', (Band("r", LARGEST, None),)),
        (f'"r" < {LARGEST}', (Band("r", None, math.nextafter(LARGEST, 0)),)),
        ('"i" <= 9007199254740991.0', (Band("i", None, 2.0**53 - 1),)),
        ('"i" > 3 AND "i" >= 3', (Band("i", 4.0, None),)),
        ('"i" >= 3 AND "i" > 3', (Band("i", 4.0, None),)),
        ('"i" < 3 AND "i" <= 3', (Band("i", None, 2.0),)),
        ('"i" > 3 AND "i" > 5 AND "i" > 4', (Band("i", 6.0, None),)),
        ('"i" < 9 AND "i" < 7 AND "i" < 8', (Band("i", None, 6.0),)),
        ('"i" > 3 AND "i" <= 7 AND "i" <> 5', (Band("i", 4.0, 4.0), Band("i", 6.0, 7.0))),
        ('"i" IN (1, 2, 3) AND "i" IN (2, 3, 4)', (Band("i", 2.0, 2.0), Band("i", 3.0, 3.0))),
        ('"r" BETWEEN 1 AND 2 AND "i" = 1', (Band("i", 1.0, 1.0), Band("r", 1.0, 2.0))),
        ('"r" > 1 AND "r" < 2', (Band("r", math.nextafter(1, 2), math.nextafter(2, 1)),)),
    ],
)
def test_conditions_on_one_field_become_bands(sql: str, bands: tuple[Band, ...]) -> None:
    found = chosen(sql)
    assert found == PushablePredicate(bands)
    assert repr(found) == repr(PushablePredicate(bands))  # a zero is positive


@pytest.mark.parametrize(
    "sql",
    [
        f'"r" > {LARGEST}', f'"r" < -{LARGEST}', '"r" < 1e999', '"r" > -1e999', '"r" * 10 > 5', 'NOT ("r" * 10 > 5)',
        '"r" IN (1, 1e308 * 10)', '"i" < 9007199254740992.0', '"i" = 1e300', '"r" IS NULL', '"i" > 5 AND "i" < 6',
        '"r" > 1 AND "r" < 1', '"r" >= 1 AND "r" < 1', '"i" = 9007199254740993', '"i" > -9007199254740993',
        'LOG10("r") > 1', 'TRUNC("r") = 2', 'DISTANCE_METRES("r", "r", 0, 0) < 1000', '"r" > SIN("i")',
    ],
)  # fmt: skip
def test_conditions_that_sensors_cannot_decide_become_no_bands(sql: str) -> None:
    assert chosen(sql) == PushablePredicate(exactly=False)


def test_fixed_fields_choose_sensors() -> None:
    source = Source("traffic", (Column("r", FieldType.REAL), Column("k", FieldType.TEXT)), fixed=("k",))
    about = read_scalar("\"k\" >= 'a' AND \"k\" < 'b'", FieldType.BOOLEAN)
    both = read_scalar(f'{about.sql} AND "r" >= 1', FieldType.BOOLEAN)
    assert split_predicate(source, about) == PushablePredicate((), (PropertyBand("k", "a", "b", False, True),), about)
    assert split_predicate(source, both) == PushablePredicate(
        (Band("r", 1.0, None),), (PropertyBand("k", "a", "b", False, True),), about
    )
    across = read_scalar('"k" = \'a\' OR "r" = 1', FieldType.BOOLEAN)
    assert split_predicate(source, across) == PushablePredicate(exactly=False)


def test_bands_are_sent_as_they_are_written() -> None:
    """They are part of the names of samples and of demands: the same for ever."""
    twice = read_scalar('"r" >= 1 OR ("r" >= 1)', FieldType.BOOLEAN)
    assert split_predicate(SOURCE, twice).bands == (Band("r", 1.0, None), Band("r", 1.0, None))
