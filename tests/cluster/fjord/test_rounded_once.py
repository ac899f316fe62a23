"""Texts as numbers, against fractions: no digit is lost on the way."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.scalars.numbers import round_to
from cluster.scalars.operators import cast_to
from cluster.scalars.real_values import nearest_integer
from protocols.wire.streams import FieldType

DIGITS = st.text("0123456789", max_size=25)
NUMBERS = st.one_of(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "+", "-"]),
        DIGITS.map(lambda text: text or "0"),
        st.one_of(st.just(""), DIGITS.map(".{}".format)),
        st.one_of(st.just(""), st.integers(-40, 40).map("e{}".format), st.integers(-400, 400).map("E{:+05d}".format)),
    ),
    st.builds("{}{}".format, st.integers(-(2**63) - 3, -(2**63) + 3), st.sampled_from(["", ".5", ".49", ".50", ".51"])),
    st.builds("{}{}".format, st.integers(2**63 - 3, 2**63 + 3), st.sampled_from(["", ".5", ".49", ".50", ".51"])),
    st.builds("{}.{}".format, st.integers(-(2**54), 2**54), st.sampled_from(["5", "4999999999999999999", "50001"])),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


def integer(text: str) -> int | None:
    """Return the integer next to a text's number, of two the even one, if that is a real and fits 64 bits."""
    found = round(Fraction(text))
    return found if -(2**63) <= found < 2**63 else None


@given(st.lists(NUMBERS, min_size=1, max_size=6))
@example(
    ["-9223372036854775809", "9007199254740993.2", "9223372036854775807.4999", "4611686018427387905e0", "2.5", "3.5"]
)
@example(["0.49999999999999999999", "0.50000000000000000001", "-1.5", "1e-5", "922e16", ".5", "5.", "-0"])
def test_a_text_becomes_the_integer_next_to_it(texts: list[str]) -> None:
    assert [nearest_integer(text) for text in texts] == [integer(text) for text in texts]
    column = pl.Series([*texts, None, "garbage", " 7 ", "1_0", "0x1F", "nan"])
    found = cast_to(FieldType.INTEGER)(column).to_list()
    assert found == [*map(integer, texts), None, None, 7, None, None, None]


@given(st.lists(NUMBERS, min_size=1, max_size=6))
@example(["9007199254740993", "9007199254740992.9999999999999999", "2.4703282292062327e-324", "1.7976931348623159e308"])
def test_a_text_becomes_the_real_next_to_it(texts: list[str]) -> None:
    meant = [found + 0.0 if math.isfinite(found := float(text)) else None for text in texts]
    assert cast_to(FieldType.REAL)(pl.Series(texts)).to_list() == meant


def test_a_long_text_or_exponent_takes_no_time_of_its_own() -> None:
    longest = "9" * 9_000
    assert nearest_integer(f"1e{longest}") is nearest_integer(longest) is None
    assert (
        nearest_integer(f"1e-{longest}") == nearest_integer(f"0.{longest}e-1") == nearest_integer(f"0e{longest}") == 0
    )
    assert nearest_integer(f"0.{longest}") == 1
    assert nearest_integer(f"{'0' * 9_000}12.5") == 12


REALS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda units, power: units / 10**power, st.integers(-(10**8), 10**8), st.integers(0, 9)),
    st.builds(lambda units, power: units / 10**power, st.integers(-(10**18), 10**18), st.integers(0, 20)),
    st.builds(math.nextafter, st.sampled_from([2.675, 0.05, 1.005]), st.floats(-9, 9)),
)
"""Half of those with few decimals are in the middle for some number of them."""


def rounded(number: float, decimals: int) -> float:
    """Return the real next to the decimal that is next to what is written of a number."""
    with localcontext(prec=700):
        return float(Decimal(repr(number)).quantize(Decimal(f"1e-{decimals}"), ROUND_HALF_UP)) + 0.0


@settings(max_examples=400)
@given(st.lists(REALS, min_size=1, max_size=6), st.sampled_from([0, 1, 2, 3, 6, 15, 22, 23, 40, 300]))
@example([2.675, 1.005, 0.285, 1.115, 2.5, -0.05, 0.15, 1e15 / 3, 450359962737049.56, 5e-324, 1.7e308], 2)
@example([0.15, 0.25, 0.35, 450359962737049.56, 45035996273704.95, 4503599627370.45, 9007199254740993.0], 1)
@example([0.5, 1.5, -2.5, 0.49999999999999994, 4503599627370495.5, 4503599627370497.0], 0)
def test_a_real_is_rounded_by_what_is_written_of_it(numbers: list[float], decimals: int) -> None:
    found = round_to(decimals)(pl.Series([*numbers, None])).to_list()
    assert found == [*(rounded(number, decimals) for number in numbers), None]


def test_hundredths_are_rounded_as_they_are_seen() -> None:
    thousandths = [number / 1000 for number in range(-20_000, 20_001)]
    found = round_to(2)(pl.Series(thousandths)).to_list()
    assert found == [rounded(number, 2) for number in thousandths]
    assert round_to(2)(pl.Series([2.675, 1.005, 0.615, -1.115])).to_list() == [2.68, 1.01, 0.62, -1.12]
