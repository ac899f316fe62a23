"""Trigonometry, logarithms and distances: known values, ends of their domains, and NULL beyond them."""

from __future__ import annotations

import math
import random

import polars as pl
import pytest

from cluster.fjord.scalars import compile_scalar
from cluster.plan.scalar_texts import read_scalar
from cluster.scalars.numbers import EARTH_RADIUS_METRES, NUMBER_FUNCTIONS, metres_between
from cluster.scalars.scalar_function import ScalarFunction
from protocols.wire.streams import FieldType

ROWS = pl.DataFrame({"x": [0.5]})
HALF_AROUND = math.pi * EARTH_RADIUS_METRES


def found(sql: str) -> float | None:
    answer: float | None = ROWS.select("x", compile_scalar(read_scalar(sql, FieldType.REAL)).alias("#x"))["#x"].item()
    return answer


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SIN(PI() / 6)", 0.5),
        ("COS(0)", 1.0),
        ("TAN(PI() / 4)", 1.0),
        ("COT(PI() / 4)", 1.0),
        ("SINH(1)", math.sinh(1)),
        ("COSH(x)", math.cosh(0.5)),
        ("TANH(-400)", -1.0),
        ("ASIN(1)", math.pi / 2),
        ("ACOS(-1)", math.pi),
        ("ATAN(1)", math.pi / 4),
        ("ATAN2(1, -1)", 3 * math.pi / 4),
        ("ATAN2(0, 0)", 0.0),
        ("RADIANS(180)", math.pi),
        ("DEGREES(PI())", 180.0),
        ("LOG10(1000)", 3.0),
        ("LOG2(0.125)", -3.0),
        ("TRUNC(-2.7)", -2.0),
        ("TRUNC(-x)", 0.0),
        ("SIN(x)", math.sin(0.5)),
    ],
)
def test_known_values(sql: str, expected: float) -> None:
    assert found(sql) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "sql",
    [
        "ASIN(1.1)", "ACOS(x + 1)", "LOG10(0)", "LOG10(-1)", "LOG2(x - 0.5)", "DEGREES(1e308)",
        "COT(0)", "SINH(800)", "COSH(-800)",
        "SIN(CAST(NULL AS REAL))",
        "ATAN2(x, CAST(NULL AS REAL))", "DISTANCE_METRES(90.1, 0, 0, 0)", "DISTANCE_METRES(0, 361, 0, 0)",
        "DISTANCE_METRES(0, 0, -90.1, x)", "DISTANCE_METRES(0, 0, x, -1e308)",
        "DISTANCE_METRES(x, x, x, CAST(NULL AS REAL))",
    ],
)  # fmt: skip
def test_what_has_no_result_is_null(sql: str) -> None:
    assert found(sql) is None


@pytest.mark.parametrize(
    ("one", "other", "metres"),
    [
        ((52.52, 13.405), (52.52, 13.405), 0.0),
        ((0, 0), (0, 180), HALF_AROUND),
        ((90, 5), (-90, -70), HALF_AROUND),
        ((0, -180), (0, 180), 0.0),
        ((0, 0), (0, 1), HALF_AROUND / 180),
        ((60, 0), (60, 360), 0.0),
        ((10, 20), (10.00001, 20), HALF_AROUND / 18_000_000),
        ((36.12, -86.67), (33.94, -118.40), 2_886_448.4),
    ],
)
def test_distances_on_the_sphere(one: tuple[float, float], other: tuple[float, float], metres: float) -> None:
    there, back = (
        metres_between(*(pl.Series([float(each)]) for each in places)).item() for places in (one + other, other + one)
    )
    assert there == pytest.approx(metres, rel=1e-7, abs=1e-6)
    assert back == pytest.approx(there, rel=1e-12, abs=1e-6)


def test_a_distance_is_that_of_directions_in_space() -> None:
    def direction(latitude: float, longitude: float) -> tuple[float, float, float]:
        north, east = math.radians(latitude), math.radians(longitude)
        return math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)

    def angle(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
        (a, b, c), (d, e, f) = one, other
        return math.atan2(math.hypot(b * f - c * e, c * d - a * f, a * e - b * d), a * d + b * e + c * f)

    dice = random.Random(22)
    places = [(lat, lon) for lat in (-89.0, -33.5, 0.0, 52.5) for lon in (-170.0, -0.5, 45.0, 179.0)]
    near = [(lat + dice.uniform(-1e-6, 1e-6), lon + dice.uniform(-1e-6, 1e-6)) for lat, lon in places]
    far = [(-lat + dice.uniform(-1e-3, 1e-3), lon - 180 + dice.uniform(-1e-3, 1e-3)) for lat, lon in places]
    for one in places:
        for other in (*places, *near, *far):
            expected = EARTH_RADIUS_METRES * angle(direction(*one), direction(*other))
            opposite = expected > 0.999 * HALF_AROUND
            found = metres_between(*(pl.Series([each]) for each in one + other)).item()
            assert found == pytest.approx(expected, abs=1.0 if opposite else 1e-6)


@pytest.mark.parametrize("function", [each for each in NUMBER_FUNCTIONS if each.slots], ids=lambda each: each.name)
def test_a_result_depends_on_nothing_but_its_arguments(function: ScalarFunction) -> None:
    """Vectorised code could compute the last values of an array, or values beside huge ones, in another way."""
    compute = function.compute(2) if function.of_constants else function.compute
    count = 1 if function.of_constants else len(function.slots)
    dice = random.Random(function.name)
    odd = (None, 1e300, 0.0, -1.0)
    rows = [
        [dice.choice(odd) if dice.random() < 0.2 else dice.uniform(-2, 2) for _ in range(count)] for _ in range(301)
    ]
    together = compute(*(pl.Series(each, dtype=pl.Float64) for each in zip(*rows, strict=True)))
    alone = [compute(*(pl.Series([each], dtype=pl.Float64) for each in row)).item() for row in rows]
    assert together.to_list() == alone
    assert any(each is not None for each in alone)


@pytest.mark.parametrize(
    "form", ["SIN(n)", "ATAN2(n, 3)", "TRUNC(n)", "LOG2(ABS(n) + 1)", "DISTANCE_METRES(n, 0, 1, n)"]
)
def test_an_integer_counts_as_the_real_that_it_is(form: str) -> None:
    kind = FieldType.INTEGER if form.startswith("TRUNC") else FieldType.REAL
    frame = pl.DataFrame({"n": [-5, 0, None, 7]})
    of_integers = frame.select(compile_scalar(read_scalar(form, kind))).to_series()
    of_reals = frame.cast(pl.Float64).select(compile_scalar(read_scalar(form, FieldType.REAL))).to_series()
    assert of_integers.dtype == (pl.Int64 if kind is FieldType.INTEGER else pl.Float64)
    assert of_integers.cast(pl.Float64).to_list() == of_reals.to_list()
    assert of_integers.is_null().to_list() == [False, False, True, False]
