"""What an expression means, value by value: a second definition in plain Python, for values DuckDB treats otherwise.

Integers wrap around at 64 bits; reals are finite or None, and no minus zero; text is a sequence of code points.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from sqlglot import exp

from cluster.expressions.called_functions import (
    CLASSES,
    BothTrim,
    FirstPlace,
    LeftPad,
    LeftTrim,
    RegexExtract,
    RegexMatches,
    RegexReplace,
    RightPad,
    RightTrim,
)
from protocols.wire.streams import FieldType
from tests.cluster.fjord.document_definition import OF_DOCUMENTS
from tests.cluster.scalar_rows import SCALAR_ROWS

Value = Any
Row = Mapping[str, Value]

NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
REALS = frozenset("rq")
"""Columns that are reals."""
WHOLE = re.compile(r"[+-]?[0-9]+")


def value_of(node: exp.Expr, row: Row) -> Value:
    """Return what an expression is for a row."""
    found = _value(node, row)
    return float(found) if isinstance(found, int) and not isinstance(found, bool) and is_real(node) else found


def is_real(node: exp.Expr) -> bool:
    """Return whether an expression is a real: what chooses is one if it may choose one."""
    match node:
        case exp.Column():
            return node.name in REALS
        case exp.Literal():
            return not node.is_string and not WHOLE.fullmatch(node.this)
        case exp.Cast():
            return bool(node.args["to"].this == exp.DType.DOUBLE)
        case exp.Div():
            return True
        case _ if type(node) in _REALS:
            return True
        case exp.Case():
            results = [branch.args["true"] for branch in node.args["ifs"]]
            return any(map(is_real, (*results, *([node.args["default"]] if node.args.get("default") else []))))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod() | exp.Coalesce() | exp.Least() | exp.Greatest():
            return any(map(is_real, _all(node)))
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Round() | exp.Floor() | exp.Ceil() | exp.Trunc() | exp.Nullif():
            return is_real(node.this)
        case _:
            return False


def _value(node: exp.Expr, row: Row) -> Value:  # noqa: C901, PLR0911, PLR0912 - one case per kind of expression
    match node:
        case exp.Column():
            return row[node.name]
        case exp.Paren():
            return value_of(node.this, row)
        case exp.Literal():
            return node.this if node.is_string else _number(node.this)
        case exp.Neg(this=exp.Literal() as literal):
            return _number(f"-{literal.this}")
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case exp.And() | exp.Or():
            sides = [value_of(node.this, row), value_of(node.expression, row)]
            decides = isinstance(node, exp.Or)
            return decides if decides in sides else None if None in sides else not decides
        case exp.Is():
            return value_of(node.this, row) == value_of(node.expression, row)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            left, right = value_of(node.this, row), value_of(node.expression, row)
            same = left is right if left is None or right is None else bool(_compared("=", left, right))
            return same == isinstance(node, exp.NullSafeEQ)
        case exp.In():
            value = value_of(node.this, row)
            tests = [_compared("=", value, value_of(each, row)) for each in node.expressions]
            return True if True in tests else None if None in tests else False
        case exp.Case():
            return _case(node, row)
        case exp.Coalesce():
            return next((found for each in _all(node) if (found := value_of(each, row)) is not None), None)
        case exp.Nullif():
            value = value_of(node.this, row)
            return None if _compared("=", value, value_of(node.expression, row)) else value
        case exp.Least() | exp.Greatest():
            known = [found for each in _all(node) if (found := value_of(each, row)) is not None]
            known = [float(each) for each in known] if is_real(node) else known
            return (min if isinstance(node, exp.Least) else max)(known) if known else None
        case exp.Concat():
            return short("".join(found for each in node.expressions if (found := value_of(each, row)) is not None))
        case exp.Cast():
            return cast(value_of(node.this, row), node.args["to"].this)
        case exp.Escape():
            text = value_of(node.this.this, row)
            return None if text is None else _like(text, _pattern(node.this.expression.this, node.expression.this))
        case exp.Like():
            text = value_of(node.this, row)
            return None if text is None else _like(text, _pattern(node.expression.this, None))
        case exp.ILike():
            text = value_of(node.this, row)
            return None if text is None else _like(_folded(text), _pattern(_folded(node.expression.this), None))
        case exp.Between():
            value, low, high = (value_of(node.args[part], row) for part in ("this", "low", "high"))
            tests = [_compared(">=", value, low), _compared("<=", value, high)]
            return False if False in tests else None if None in tests else True
        case _:
            values = [value_of(each, row) for each in _all(node)]
            return None if None in values else _STRICT[type(node)](*values)


def _all(node: exp.Expr) -> list[exp.Expr]:
    named = [node.args.get(part) for part in node.arg_types if part != "expressions"]
    return [*(each for each in named if isinstance(each, exp.Expr)), *node.expressions]


def _number(text: str) -> int | float | None:
    return int(text) if WHOLE.fullmatch(text) else settled(float(text))


def settled(number: float) -> float | None:
    """Return a real as it may be in a tuple."""
    return number + 0.0 if math.isfinite(number) else None


def short(text: str) -> str | None:
    """Return a text that is made of others as it may be in a tuple."""
    return text if len(text) <= 10_000 else None


def wrapped(number: int) -> int:
    """Return the integer of 64 bits that has the same last ones."""
    return (number + 2**63) % 2**64 - 2**63


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def found(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return wrapped(operation(left, right))
        return settled(operation(float(left), float(right)))

    return found


def _divided(left: float, right: float) -> float | None:
    try:
        return settled(float(left) / float(right))
    except ZeroDivisionError:
        return None


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return wrapped((abs(left) % abs(right)) * (-1 if left < 0 else 1))
    return settled(math.fmod(left, right))


def _signed(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: wrapped(change(value)) if isinstance(value, int) else settled(change(value))


def _whole(function: Callable[[float], int]) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, int) else settled(float(function(value)))


def _computed(function: Callable[..., float]) -> Callable[..., float | None]:
    def found(*values: float) -> float | None:
        try:
            return settled(function(*map(float, values)))
        except (ValueError, ArithmeticError):
            return None

    return found


def _mixed(values: list[Any]) -> bool:
    return len({type(value) for value in values}) > 1


def _compared(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if _mixed([left, right]):  # an integer beside a real counts as the nearest real
        left, right = float(left), float(right)
    return bool(_SIGNS[sign](left, right))


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _case(node: exp.Case, row: Row) -> Value:
    subject = node.args.get("this")
    for branch in node.args["ifs"]:
        condition = value_of(branch.this, row)
        if subject is not None:
            condition = _compared("=", value_of(subject, row), condition)
        if condition:
            return value_of(branch.args["true"], row)
    default = node.args.get("default")
    return None if default is None else value_of(default, row)


def cast(value: Any, kind: exp.DType) -> Any:
    """Return a value converted, None where that cannot be."""
    if value is None:
        return None
    if isinstance(value, str):
        value = value.strip() if kind is not exp.DType.TEXT else value
    match kind:
        case exp.DType.TEXT if isinstance(value, bool):
            return "true" if value else "false"
        case exp.DType.TEXT:
            return str(value)
        case exp.DType.DOUBLE:
            return _read(value)
        case exp.DType.BIGINT:
            if isinstance(value, str):
                number = Fraction(value) if _read(value) is not None else None
            else:
                number = value if isinstance(value, int) else _read(value)
            return None if number is None or not -(2**63) <= (found := round(number)) < 2**63 else int(found)
        case _:
            if isinstance(value, str) and value.lower() in ("true", "t", "yes", "y"):
                return True
            if isinstance(value, str) and value.lower() in ("false", "f", "no", "n"):
                return False
            number = _read(value)
            return None if number is None else number != 0


def _read(value: Any) -> float | None:
    if isinstance(value, str):
        return settled(float(value)) if NUMBER.fullmatch(value) else None
    return settled(float(value))


def _pattern(pattern: str, escape: str | None) -> list[str | None]:
    """Return letters; "" for any number of any, None for any one."""
    found: list[str | None] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            found.append(next(letters))
        else:
            found.append({"%": "", "_": None}.get(letter, letter))
    return found


def _like(text: str, pattern: list[str | None]) -> bool:
    reached = {0}
    for letter in pattern:
        if letter == "":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and letter in (None, text[at])}
    return len(text) in reached


def _folded(text: str) -> str:
    """Return a text whose letters compare without case, each still one code point."""
    return "".join(folded if len(folded := letter.casefold()) == 1 else letter for letter in text)


def _substring(text: str, start: int, length: int | None = None) -> str:
    until = len(text) + 1 if length is None else start + max(length, 0)
    return "".join(letter for place, letter in enumerate(text, start=1) if start <= place < until)


def _part(text: str, separator: str, number: int) -> str:
    parts = text.split(separator) if separator else [text]
    places = {**dict(enumerate(parts, start=1)), **dict(enumerate(parts, start=-len(parts)))}
    return places.get(number, "")


def _filling(text: str, length: int, letters: str) -> str | None:
    """Return what is missing from a text; None if the result would be too long."""
    missing = length - len(text) if letters else 0
    if min(len(text), max(length, 0)) + max(missing, 0) > 10_000:
        return None
    return "".join(letters[at % len(letters)] for at in range(missing))


def _filled_left(text: str, length: int, letters: str = " ") -> str | None:
    added = _filling(text, length, letters)
    return None if added is None else added + text[: max(length, 0)]


def _filled_right(text: str, length: int, letters: str = " ") -> str | None:
    added = _filling(text, length, letters)
    return None if added is None else text[: max(length, 0)] + added


def _replaced(text: str, old: str, new: str) -> str | None:
    return short(new.join(text.split(old))) if old else text


def _regex(pattern: str) -> re.Pattern[str]:
    """Return a pattern in Python's words: letters without (?i) are those of ASCII, and $ is the very end."""
    ascii_only = pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]").replace(r"\s", r"[\t\n\f\r ]")
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", ascii_only))


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    found = _regex(pattern).search(text)
    return found and found[group]


def _rewritten(text: str, pattern: str, replacement: str) -> str | None:
    parts = re.split(r"\\(\d)", replacement)  # texts and groups by turns
    pieces, end = [], 0
    for found in _regex(pattern).finditer(text):
        made = [part if turn % 2 == 0 else found[int(part)] or "" for turn, part in enumerate(parts)]
        pieces += [text[end : found.start()], *made]
        end = found.end()
    return short("".join([*pieces, text[end:]]))


_REALS = {CLASSES[row.name] for row in SCALAR_ROWS if row.gives is FieldType.REAL}
_STRICT: dict[type[exp.Expr], Callable[..., Any]] = {
    **{CLASSES[row.name]: _computed(row.python) if row.gives is FieldType.REAL else row.python for row in SCALAR_ROWS},
    exp.Add: _arithmetic(lambda left, right: left + right),
    exp.Sub: _arithmetic(lambda left, right: left - right),
    exp.Mul: _arithmetic(lambda left, right: left * right),
    exp.Div: _divided,
    exp.Mod: _remainder,
    exp.Neg: _signed(lambda value: -value),
    exp.Abs: _signed(abs),
    exp.Floor: _whole(math.floor),
    exp.Ceil: _whole(math.ceil),
    exp.Trunc: _whole(math.trunc),
    exp.EQ: lambda left, right: _compared("=", left, right),
    exp.NEQ: lambda left, right: _compared("<>", left, right),
    exp.LT: lambda left, right: _compared("<", left, right),
    exp.LTE: lambda left, right: _compared("<=", left, right),
    exp.GT: lambda left, right: _compared(">", left, right),
    exp.GTE: lambda left, right: _compared(">=", left, right),
    exp.Not: lambda value: not value,
    exp.Upper: str.upper,
    exp.Lower: str.lower,
    BothTrim: lambda text, letters=" ": text.strip(letters),
    LeftTrim: lambda text, letters=" ": text.lstrip(letters),
    RightTrim: lambda text, letters=" ": text.rstrip(letters),
    FirstPlace: lambda text, part: next((at + 1 for at in range(len(text) + 1) if text[at:].startswith(part)), 0),
    exp.Substring: _substring,
    exp.Left: lambda text, count: text[: max(len(text) + count, 0) if count < 0 else count],
    exp.Right: lambda text, count: text[-count if count < 0 else max(len(text) - count, 0) :],
    exp.SplitPart: _part,
    exp.Replace: _replaced,
    LeftPad: _filled_left,
    RightPad: _filled_right,
    RegexMatches: lambda text, pattern: _regex(pattern).search(text) is not None,
    RegexExtract: _extracted,
    RegexReplace: _rewritten,
    **OF_DOCUMENTS,
    exp.DPipe: lambda left, right: short(left + right),
}
"""What is None if one of its operands is."""
