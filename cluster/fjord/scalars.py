"""Scalar expressions: canonical FjordSQL text -> Polars, with one meaning everywhere.

Three-valued logic; `/` is real division; division and remainder by zero are NULL; a failed cast is NULL; text is
ordered by code point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import polars as pl
from sqlglot import exp

from cluster.errors import PlanError
from cluster.language.algebra import Scalar
from cluster.language.dialect import FIELD_TYPES, canonical, parse_scalar
from protocols.streams import FieldType

POLARS_TYPES: dict[FieldType, type[pl.DataType]] = {
    FieldType.BOOLEAN: pl.Boolean,
    FieldType.INTEGER: pl.Int64,
    FieldType.REAL: pl.Float64,
    FieldType.TEXT: pl.String,
}


@lru_cache(maxsize=16_384)
def compile_scalar(scalar: Scalar) -> pl.Expr:
    """Return the Polars expression of a scalar; its columns are those of the text.

    Raises
    ------
    PlanError
        If the text has something this compiler does not know; names it.
    """
    return _compile(parse_scalar(scalar.sql)).cast(POLARS_TYPES[scalar.type])


def _compile(node: exp.Expr) -> pl.Expr:
    rule = _RULES.get(type(node))
    if rule is None:
        raise PlanError(f"{canonical(node)} cannot be evaluated")
    found = rule(node)
    return found if found.meta.root_names() else _folded(found)


def _folded(constant: pl.Expr) -> pl.Expr:
    """Return the value of an expression without columns: Polars stretches literals, and only them, to any length."""
    value = pl.select(constant).to_series()
    return pl.lit(None) if value.dtype == pl.Null else pl.lit(value.item(), value.dtype)


def _literal(node: exp.Expr) -> pl.Expr:
    text = str(node.this)
    if node.is_string:
        return pl.lit(text, pl.String)
    return pl.lit(int(text), pl.Int64) if text.isdecimal() else pl.lit(float(text), pl.Float64)


def _binary(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[exp.Expr], pl.Expr]:
    return lambda node: combine(_compile(node.args["this"]), _compile(node.args["expression"]))


_COMPARED: dict[str, tuple[Callable[[pl.Expr, pl.Expr], pl.Expr], str]] = {
    "=": (lambda left, right: left == right, "="),
    "<>": (lambda left, right: left != right, "<>"),
    "<": (lambda left, right: left < right, ">"),
    "<=": (lambda left, right: left <= right, ">="),
    ">": (lambda left, right: left > right, "<"),
    ">=": (lambda left, right: left >= right, "<="),
}
"""How values are compared, and the sign that says the same with the sides exchanged."""


def _compare(left: pl.Expr, sign: str, right: pl.Expr) -> pl.Expr:
    """Compare with the column on the left: with a constant there, Polars 2.1 sometimes gives one value for all rows."""
    compared, mirrored = _COMPARED[sign]
    if left.meta.root_names() or not right.meta.root_names():
        return compared(left, right)
    return _COMPARED[mirrored][0](right, left)


def _comparison(sign: str) -> Callable[[exp.Expr], pl.Expr]:
    return lambda node: _compare(_compile(node.args["this"]), sign, _compile(node.args["expression"]))


def _divide(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    divisor = right.cast(pl.Float64)
    return pl.when(divisor != 0).then(left.cast(pl.Float64) / divisor)


def _remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    # SQL's remainder has the sign of the dividend, Polars' that of the divisor.
    safe = pl.when(right != 0).then(right)
    truncated = left.abs() % safe.abs()
    return pl.when(left < 0).then(-truncated).otherwise(truncated)


def _in(node: exp.Expr) -> pl.Expr:
    value = _compile(node.this)
    return pl.any_horizontal([_compare(value, "=", _compile(choice)) for choice in node.expressions])


def _case(node: exp.Expr) -> pl.Expr:
    subject = node.args.get("this")
    chosen: pl.Expr = pl.lit(None) if node.args.get("default") is None else _compile(node.args["default"])
    for branch in reversed(node.args["ifs"]):
        condition = _compile(branch.this)
        if subject is not None:
            condition = _compare(_compile(subject), "=", condition)
        chosen = pl.when(condition).then(_compile(branch.args["true"])).otherwise(chosen)
    return chosen


def _cast(node: exp.Expr) -> pl.Expr:
    kind = FIELD_TYPES.get(node.args["to"].this)
    if kind is None:
        raise PlanError(f"the type in {canonical(node)} is not one of FjordSQL's")
    value = _compile(node.this)
    text = value.cast(pl.String)
    if kind is FieldType.TEXT:
        return text
    trimmed = text.str.strip_chars()
    number = pl.coalesce(value.cast(pl.Float64, strict=False), trimmed.cast(pl.Float64, strict=False))
    finite = _finite(number)
    match kind:
        case FieldType.INTEGER:
            # What is no integer is rounded to the nearest one, a half to the even one.
            rounded = finite.round(mode="half_to_even").cast(pl.Int64, strict=False)
            return pl.coalesce(trimmed.cast(pl.Int64, strict=False), rounded)
        case FieldType.BOOLEAN:
            word = trimmed.str.to_lowercase()
            return pl.when(word.is_in(_TRUE + _FALSE)).then(word.is_in(_TRUE)).otherwise(finite != 0)
        case _:
            return finite


_TRUE, _FALSE = ("true", "t", "yes", "y"), ("false", "f", "no", "n")


def _like(node: exp.Expr) -> pl.Expr:
    pattern = node.args["expression"]
    if not isinstance(pattern, exp.Literal):
        raise PlanError(f"the pattern in {canonical(node)} is not a constant text")
    return _compile(node.this).str.contains(like_to_regex(str(pattern.this)))


def like_to_regex(pattern: str, escape: str | None = None) -> str:
    r"""Return the regular expression of a LIKE pattern.

    Examples
    --------
    >>> like_to_regex("a%_.")
    '(?s)^a.*.\\.$'
    """
    pieces = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            pieces.append(_quoted(next(letters, "")))
        else:
            pieces.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return f"(?s)^{''.join(pieces)}$"


def _quoted(letter: str) -> str:
    return "\\" + letter if letter in r"\.+*?()|[]{}^$#&-~" else letter


def _escaped_like(node: exp.Expr) -> pl.Expr:
    like, escape = node.this, node.args["expression"]
    return _compile(like.this).str.contains(like_to_regex(str(like.args["expression"].this), str(escape.this)))


def _between(node: exp.Expr) -> pl.Expr:
    value = _compile(node.this)
    low, high = _compile(node.args["low"]), _compile(node.args["high"])
    return _compare(value, ">=", low) & _compare(value, "<=", high)


def _is(node: exp.Expr) -> pl.Expr:
    value, wanted = _compile(node.this), node.args["expression"]
    if isinstance(wanted, exp.Null):
        return value.is_null()
    return value.eq_missing(_compile(wanted))


def _arguments(node: exp.Expr) -> list[pl.Expr]:
    first = [node.args["this"]] if node.args.get("this") is not None else []
    return [_compile(argument) for argument in (*first, *node.expressions)]


def _round(node: exp.Expr) -> pl.Expr:
    decimals = node.args.get("decimals")
    if decimals is not None and not isinstance(decimals, exp.Literal):
        raise PlanError(f"the number of decimals in {canonical(node)} is not a constant")
    return _compile(node.this).round(int(str(decimals.this)) if decimals is not None else 0, mode="half_away_from_zero")


def _substring(node: exp.Expr) -> pl.Expr:
    """Standard SQL: places before the first count towards the length, and there is nothing there."""
    value, first = _compile(node.this), _compile(node.args["start"]) - 1
    offset = first.clip(lower_bound=0)
    length = node.args.get("length")
    if length is None:
        return value.str.slice(offset)
    letters = (_compile(length) + first.clip(upper_bound=0)).clip(lower_bound=0)
    # Polars takes a length of NULL for no length.
    return pl.when(letters.is_not_null()).then(value.str.slice(offset, letters))


def _square_root(node: exp.Expr) -> pl.Expr:
    value = _compile(node.this).cast(pl.Float64)
    return pl.when(value >= 0).then(value.sqrt())


def _logarithm(node: exp.Expr) -> pl.Expr:
    value = _compile(node.this).cast(pl.Float64)
    return pl.when(value > 0).then(value.log())


def _power(node: exp.Expr) -> pl.Expr:
    return _finite(_compile(node.this).cast(pl.Float64).pow(_compile(node.args["expression"]).cast(pl.Float64)))


def _finite(number: pl.Expr) -> pl.Expr:
    """Return NULL for infinities and what is no number."""
    return pl.when(number.is_finite()).then(number)


def _nullif(node: exp.Expr) -> pl.Expr:
    value = _compile(node.this)
    same = _compare(value, "=", _compile(node.args["expression"]))
    return pl.when(same.fill_null(value=False)).then(None).otherwise(value)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr], pl.Expr]] = {
    exp.Column: lambda node: pl.col(node.name),
    exp.Literal: _literal,
    exp.Boolean: lambda node: pl.lit(bool(node.this)),
    exp.Null: lambda _: pl.lit(None),
    exp.Paren: lambda node: _compile(node.this),
    exp.Add: _binary(lambda left, right: left + right),
    exp.Sub: _binary(lambda left, right: left - right),
    exp.Mul: _binary(lambda left, right: left * right),
    exp.Div: _binary(_divide),
    exp.Mod: _binary(_remainder),
    exp.Neg: lambda node: -_compile(node.this),
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.And: _binary(lambda left, right: left & right),
    exp.Or: _binary(lambda left, right: left | right),
    exp.Not: lambda node: ~_compile(node.this),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.Escape: _escaped_like,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Coalesce: lambda node: pl.coalesce(_arguments(node)),
    exp.Nullif: _nullif,
    exp.Abs: lambda node: _compile(node.this).abs(),
    exp.Round: _round,
    exp.Floor: lambda node: _compile(node.this).floor(),
    exp.Ceil: lambda node: _compile(node.this).ceil(),
    exp.Sqrt: _square_root,
    exp.Pow: _power,
    exp.Ln: _logarithm,
    exp.Exp: lambda node: _finite(_compile(node.this).cast(pl.Float64).exp()),
    exp.Least: lambda node: pl.min_horizontal(_arguments(node)),
    exp.Greatest: lambda node: pl.max_horizontal(_arguments(node)),
    exp.Upper: lambda node: _compile(node.this).str.to_uppercase(),
    exp.Lower: lambda node: _compile(node.this).str.to_lowercase(),
    exp.Length: lambda node: _compile(node.this).str.len_chars().cast(pl.Int64),
    exp.Trim: lambda node: _compile(node.this).str.strip_chars(" "),
    exp.Substring: _substring,
    exp.Concat: lambda node: pl.concat_str(_arguments(node), ignore_nulls=True),
    exp.DPipe: _binary(lambda left, right: pl.concat_str([left, right])),
}
