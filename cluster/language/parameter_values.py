"""Values of parameters: as people write them, and as literals of FjordSQL."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

from sqlglot import exp

from cluster.language.quantities import MOST_DIGITS
from cluster.language.syntax import Quantity
from protocols.errors import FjordError

Value = bool | int | float | str | None
"""A value of a parameter: BOOLEAN, INTEGER, REAL, TEXT or NULL."""
NO_VALUES: Mapping[str, Value] = MappingProxyType({})
"""The values of a text without parameters."""
SHOWN = 40
"""Characters of a value that an error shows."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_LONGEST = 10**MOST_DIGITS
_INTEGERS = f"integers are from {-(2**63)} to {2**63 - 1}"
_WORDS: dict[str, Value] = {"TRUE": True, "FALSE": False, "NULL": None}
_DURATION = re.compile(r"\s*(?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[A-Za-z]+)\s*")


class ValueRefusedError(FjordError):
    """A value that cannot stand at a place."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A value as it stands in a text, and the syntax tree that it must become there."""

    text: str
    tree: exp.Expr


def value_of_word(word: str) -> Value:
    """Return the value that a word of a command line stands for.

    It is written as in FjordSQL; what is no number, quoted text, TRUE, FALSE or NULL is a text as it stands.

    >>> [value_of_word(word) for word in ("40", "1.5", "true", "NULL", "A 7", "'40'", "O'Hare", "5 MINUTES")]
    [40, 1.5, True, None, 'A 7', '40', "O'Hare", '5 MINUTES']
    """
    if len(word) <= MOST_DIGITS:
        if _INTEGER.fullmatch(word):
            return int(word)
        if _REAL.fullmatch(word):
            return float(word)
        if word.upper() in _WORDS:
            return _WORDS[word.upper()]
    quoted = _QUOTED.fullmatch(word)
    return quoted[1].replace("''", "'") if quoted else word


def is_value(value: object) -> TypeGuard[Value]:
    """Return whether something is of a type that a parameter may have."""
    return value is None or isinstance(value, bool | int | float | str)


def check_is_value(value: object) -> None:
    """Do nothing if something is a value of a parameter.

    Raises
    ------
    ValueRefusedError
        If it is of another type, such as a list.
    """
    if not is_value(value):
        kind = "a list" if isinstance(value, list) else "an object"
        raise ValueRefusedError(f"a parameter is a number, a text, TRUE, FALSE or NULL, not {kind}")


def described(value: Value) -> str:
    """Return a value with its type, for an error.

    >>> described(40), described("A 7"), described(None)
    ('the INTEGER 40', "the TEXT 'A 7'", 'NULL')
    """
    if value is None:
        return "NULL"
    kind = {bool: "BOOLEAN", int: "INTEGER", float: "REAL", str: "TEXT"}[type(value)]
    written = spelled(value).text
    shown = written if len(written) <= SHOWN else f"{written[: SHOWN * 3 // 4]} ... {written[-SHOWN // 4 :]}"
    return f"the {kind} {shown}"


def spelled(value: Value) -> Spelled:
    """Return a value as a literal.

    Raises
    ------
    ValueRefusedError
        If it is no value of FjordSQL: a real that is not finite, or an integer of too many digits.
    """
    match value:
        case None:
            return Spelled("NULL", exp.Null())
        case bool():
            return Spelled("TRUE" if value else "FALSE", exp.Boolean(this=value))
        case str():
            return Spelled("'" + value.replace("'", "''") + "'", exp.Literal.string(value))
        case _:
            number = _number(abs(value))
            negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
            literal: exp.Expr = exp.Literal(this=number, is_string=False)
            return Spelled(f"-{number}", exp.Neg(this=literal)) if negative else Spelled(number, literal)


def spelled_level(value: Value) -> Spelled:
    """Return a value as a number of a clause, of which its sign is a part.

    Raises
    ------
    ValueRefusedError
        If it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueRefusedError(f"a number was expected here, not {described(value)}")
    text = spelled(value).text
    return Spelled(text, exp.Literal(this=text, is_string=False))


def spelled_quantity(value: Value, unit: exp.Expr | None) -> Spelled:
    """Return a value as the quantity of a clause: a number, also as text before a unit, or a text of both.

    Parameters
    ----------
    value
        The value.
    unit
        The unit that stands behind the parameter.

    Raises
    ------
    ValueRefusedError
        If it is neither, or both it and the text have a unit.
    """
    if not isinstance(value, str):
        try:
            number = spelled_level(value)
        except ValueRefusedError:
            raise _no_quantity(value) from None
        return Spelled(number.text, Quantity(this=number.tree, unit=unit))
    if unit is not None and len(value) <= MOST_DIGITS and _REAL.fullmatch(value):
        return Spelled(value, Quantity(this=exp.Literal(this=value, is_string=False), unit=unit))  # INTERVAL '5' SECOND
    found = _DURATION.fullmatch(value)
    if found is None or len(value) > MOST_DIGITS:
        raise _no_quantity(value)
    if unit is not None:
        reason = f"{described(value)} cannot stand before {unit.name}, which is a unit already"
        raise ValueRefusedError(reason, hint=f"give a number, or leave {unit.name} out of the text of the query")
    literal = exp.Literal(this=found["number"], is_string=False)
    return Spelled(f"{found['number']} {found['unit']}", Quantity(this=literal, unit=exp.Var(this=found["unit"])))


def _no_quantity(value: Value) -> ValueRefusedError:
    reason = f"a number was expected here, perhaps with a unit, not {described(value)}"
    return ValueRefusedError(reason, hint="such as 10, or 5 MINUTES")


def _number(value: float) -> str:
    """Return a number without a sign, so that it can be read back."""
    if isinstance(value, int):
        if value >= _LONGEST:  # compared, not converted: neither a real nor a text need exist of it
            raise ValueRefusedError("an integer of this many digits is no number of FjordSQL", hint=_INTEGERS)
        return str(value)
    if math.isinf(value):
        raise ValueRefusedError("this number is larger than any REAL", hint="the largest is about 1.8e308")
    if math.isnan(value):
        raise ValueRefusedError("nan is no number of FjordSQL", hint="write NULL for an unknown value")
    return repr(value)
