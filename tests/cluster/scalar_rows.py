"""What tests know of scalar functions: a row for each, with arguments, meaning in DuckDB and in Python, and precision.

From a row follow the drawing of expressions and texts, the comparison with DuckDB and, for extremes, with Python, and
the statements that tests damage. Functions whose arguments have to be written out, or that look at NULLs, are drawn and
defined where they differ (tests/cluster/expressions, tests/cluster/oracle/text_operations.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from protocols.wire.streams import FieldType

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
NUMBERS = (INTEGER, REAL)
MOST_COMBINED = 2
IN_A_STATEMENT = 8
_LETTERS = {INTEGER: "{i}", REAL: "{r}", TEXT: "{s}", BOOLEAN: "{b}"}
_DAMAGED = {INTEGER: "lane", REAL: "speed", TEXT: "sensor", BOOLEAN: "speed > 3"}


@dataclass(frozen=True)
class FunctionRow:
    """A function that is NULL where an argument is.

    Parameters
    ----------
    name
        As written.
    takes
        The types of its arguments: those that each may have.
    gives
        The type of its result.
    duckdb
        In DuckDB, with a hole for each argument. A real that is not finite is NULL, and so is what DuckDB refuses.
    python
        The same of values that are not None; what it raises as a ValueError or ArithmeticError is NULL.
    others
        Other names that it can be called by.
    exact
        False if its last digits may differ.
    tame
        True if the result is never huge.
    extremes
        Calls with extremes, where columns of two values are not enough.
    """

    name: str
    takes: tuple[tuple[FieldType, ...], ...]
    gives: FieldType
    duckdb: str
    python: Callable[..., Any]
    others: tuple[str, ...] = ()
    exact: bool = True
    tame: bool = True
    extremes: tuple[str, ...] = ()

    @property
    def signatures(self) -> tuple[tuple[FieldType, ...], ...]:
        """Combinations of types that it takes: of more than two arguments, each type of each."""
        return tuple(product(*self.takes) if len(self.takes) <= MOST_COMBINED else zip(*self.takes, strict=True))

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way to call it, with a hole for each argument."""
        holes = ", ".join(f"{{{place}}}" for place in range(len(self.takes)))
        return tuple(f"{name}({holes})" for name in (self.name, *self.others))

    @property
    def of_extremes(self) -> Iterator[tuple[str, FieldType]]:
        """Yield calls with columns of each type, as letters in braces."""
        yield from ((each, self.gives) for each in self.extremes)
        for kinds in () if self.extremes else self.signatures:
            yield self.spellings[0].format(*(_LETTERS[kind] for kind in kinds)), self.gives


def _metres(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    if max(abs(lat1), abs(lat2)) > 90 or max(abs(lon1), abs(lon2)) > 360:
        raise ValueError
    north, east = math.sin(math.radians(lat2 - lat1) / 2), math.sin(math.radians(lon2 - lon1) / 2)
    part = north**2 + math.cos(math.radians(lat1)) * math.cos(math.radians(lat2)) * east**2
    return 6_371_008.8 * 2 * math.atan2(math.sqrt(part), math.sqrt(max(1 - part, 0)))


def _of_number(
    name: str, duckdb: str, python: Callable[[float], float], *, exact: bool = False, tame: bool = True
) -> FunctionRow:
    """Return a function from numbers to reals, which DuckDB computes in reals."""
    return FunctionRow(name, (NUMBERS,), REAL, duckdb.format("CAST({0} AS DOUBLE)"), python, exact=exact, tame=tame)


SCALAR_ROWS: tuple[FunctionRow, ...] = (
    FunctionRow("SIGN", (NUMBERS,), INTEGER, "CAST(sign({0}) AS BIGINT)", lambda value: (value > 0) - (value < 0)),
    _of_number("SQRT", "CASE WHEN {0} >= 0 THEN sqrt({0}) END", math.sqrt, exact=True, tame=False),
    _of_number("LN", "CASE WHEN {0} > 0 THEN ln({0}) END", math.log),
    _of_number("LOG10", "CASE WHEN {0} > 0 THEN log10({0}) END", math.log10),
    _of_number("LOG2", "CASE WHEN {0} > 0 THEN log2({0}) END", math.log2),
    _of_number("EXP", "exp({0})", math.exp, tame=False),
    _of_number("SIN", "sin({0})", math.sin),
    _of_number("COS", "cos({0})", math.cos),
    _of_number("TAN", "tan({0})", math.tan, tame=False),
    _of_number("COT", "cot({0})", lambda value: 1 / math.tan(value), tame=False),
    _of_number("ASIN", "CASE WHEN abs({0}) <= 1 THEN asin({0}) END", math.asin),
    _of_number("ACOS", "CASE WHEN abs({0}) <= 1 THEN acos({0}) END", math.acos),
    _of_number("ATAN", "atan({0})", math.atan),
    _of_number("SINH", "sinh({0})", math.sinh, tame=False),
    _of_number("COSH", "cosh({0})", math.cosh, tame=False),
    _of_number("TANH", "tanh({0})", math.tanh),
    _of_number("RADIANS", "({0} * (pi() / 180))", math.radians, tame=False),
    _of_number("DEGREES", "({0} * (180 / pi()))", math.degrees, tame=False),
    FunctionRow("PI", (), REAL, "pi()", lambda: math.pi, exact=False, extremes=("({r} + PI())",)),
    FunctionRow(
        "ATAN2", (NUMBERS, NUMBERS), REAL, "atan2(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE))", math.atan2, exact=False
    ),
    FunctionRow(
        "POWER", (NUMBERS, NUMBERS), REAL, "pow(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE))", math.pow, ("POW",),
        exact=False, tame=False,
    ),
    FunctionRow(
        "DISTANCE_METRES", (NUMBERS,) * 4, REAL,
        "f_metres(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE), CAST({2} AS DOUBLE), CAST({3} AS DOUBLE))", _metres,
        exact=False,
        extremes=(
            "DISTANCE_METRES({r}, {i}, 0.5, 7)",
            "DISTANCE_METRES({r}, 1, {r}, 1)",
            "DISTANCE_METRES(89.9, {r}, -1, {r})",
        ),
    ),
    FunctionRow("REVERSE", ((TEXT,),), TEXT, "f_reverse({0})", lambda text: "".join(reversed(text))),
    FunctionRow(
        "LENGTH", ((TEXT,),), INTEGER, "length({0})", len, ("LEN", "CHAR_LENGTH", "CHARACTER_LENGTH")
    ),
    FunctionRow(
        "STARTS_WITH", ((TEXT,), (TEXT,)), BOOLEAN, "starts_with({0}, {1})",
        lambda text, part: text[: len(part)] == part, ("STARTSWITH",),
    ),
    FunctionRow(
        "ENDS_WITH", ((TEXT,), (TEXT,)), BOOLEAN, "ends_with({0}, {1})",
        lambda text, part: len(part) <= len(text) and text[len(text) - len(part) :] == part, ("ENDSWITH",),
    ),
)  # fmt: skip
OF_NAME = {row.name: row for row in SCALAR_ROWS}


def statements() -> Iterator[str]:
    """Yield queries that call them under all their names, some in each."""
    calls = [
        call.format(*(_DAMAGED[kinds[-1]] for kinds in row.takes)) for row in SCALAR_ROWS for call in row.spellings
    ]
    for first in range(0, len(calls), IN_A_STATEMENT):
        some = calls[first : first + IN_A_STATEMENT]
        yield f"SELECT {', '.join(f'{call} AS x{place}' for place, call in enumerate(some))} FROM traffic"


MACROS = """
CREATE MACRO f_haversine(a, b, c, d) AS pow(sin((c - a) * (pi() / 180) / 2), 2)
    + cos(a * (pi() / 180)) * cos(c * (pi() / 180)) * pow(sin((d - b) * (pi() / 180) / 2), 2);
CREATE MACRO f_metres(a, b, c, d) AS CASE
    WHEN abs(a) <= 90 AND abs(c) <= 90 AND abs(b) <= 360 AND abs(d) <= 360
    THEN 6371008.8 * 2 * atan2(sqrt(f_haversine(a, b, c, d)), sqrt(greatest(1 - f_haversine(a, b, c, d), 0)))
END;
-- DuckDB's own reverse keeps marks behind their letters.
CREATE MACRO f_reverse(s) AS array_to_string(list_reverse(regexp_extract_all(s, '(?s).')), '');
"""
"""What rows say and DuckDB does not have."""
