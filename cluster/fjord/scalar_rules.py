"""Rules for programs (:mod:`cluster.fjord.scalar_programs`): what an expression is computed of, and by what."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import polars as pl
from sqlglot import exp

from cluster.errors import PlanError
from cluster.fjord import scalar_functions as functions
from cluster.fjord import text_functions as texts
from cluster.fjord.scalar_functions import COMPARED, POLARS_TYPES, Written
from cluster.language.dialect import FIELD_TYPES, canonical
from protocols.streams import FieldType

Function = Callable[..., pl.Series]

SMALLEST, LARGEST = -(2**63), 2**63 - 1


class _Choice(exp.Expression):
    """One branch of CASE, and the rest of it."""


def value_of(node: exp.Expr) -> Written | None:
    """Return what is written out, with its type, None for that of NULL; None if it is more than that.

    Raises
    ------
    PlanError
        If it is an integer that does not fit 64 bits.
    """
    match node:
        case exp.Boolean():
            return FieldType.BOOLEAN, bool(node.this)
        case exp.Null():
            return None, None
        case exp.Literal() if node.is_string:
            return FieldType.TEXT, str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg(this=exp.Literal() as literal) if not literal.is_string:
            return _number(f"-{literal.this}")
        case _:
            return None


def series_of(written: Written) -> pl.Series:
    """Return what is written out as a series of one value."""
    kind, value = written
    return pl.Series([value]) if kind is None else pl.Series([value], dtype=POLARS_TYPES[kind])


def _number(text: str) -> Written:
    if not text.removeprefix("-").isdecimal():
        value = float(text) + 0.0
        return FieldType.REAL, value if math.isfinite(value) else None
    if not SMALLEST <= int(text) <= LARGEST:
        raise PlanError(f"the integer {text} does not fit 64 bits")
    return FieldType.INTEGER, int(text)


def operands_of(node: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return the parts of an expression that are computed before it, in order."""
    match node:
        case exp.Column() | exp.Literal() | exp.Boolean() | exp.Null():
            return ()
        case exp.Neg() if value_of(node) is not None:
            return ()
        case exp.Case():
            return (_choices(node),)
        case _Choice():
            # What stands last first: then no more than one branch is kept while the program runs.
            return (node.args["other"], node.args["condition"], node.args["chosen"])
        case exp.Like() | exp.Cast() | exp.Round():
            return (node.this,)
        case exp.Escape():
            return (node.this.this,)
        case exp.Between():
            return (node.this, node.args["low"], node.args["high"])
        case exp.Substring():
            parts = (node.this, node.args["start"], node.args.get("length"))
            return tuple(part for part in parts if part is not None)
        case exp.In():
            return (node.this, *(each for each in node.expressions if value_of(each) is None))
        case exp.Binary() | exp.Pow() | exp.Nullif():
            return (node.this, node.args["expression"])
        case _:
            first = [node.args["this"]] if isinstance(node.args.get("this"), exp.Expr) else []
            return (*first, *node.expressions)


def _choices(case: exp.Case) -> exp.Expr:
    """Return CASE as one choice in another, the first branch outermost."""
    subject, found = case.args.get("this"), case.args.get("default") or exp.Null()
    for branch in reversed(case.args["ifs"]):
        condition, chosen = branch.this, branch.args["true"]
        choice = _Choice()
        if subject is not None:
            compared = exp.EQ()
            compared.args.update(this=subject, expression=condition)
            condition = compared
        # Not by the constructor, which would make these parts of another tree.
        choice.args.update(condition=condition, chosen=chosen, other=found)
        found = choice
    return found


def function_of(node: exp.Expr) -> tuple[Function, Hashable]:
    """Return what computes an expression of its operands, and what tells it from other functions."""
    plain = _FUNCTIONS.get(type(node))
    if plain is not None:
        return plain, plain
    match node:
        case exp.Is():
            return functions.is_the_same, exp.Is
        case _Choice():
            return (lambda other, condition, chosen: functions.choice(condition, chosen, other)), _Choice
        case exp.Cast():
            kind = FIELD_TYPES.get(node.args["to"].this)
            if kind is None:
                raise PlanError(f"the type in {canonical(node)} is not one of FjordSQL's")
            return functions.cast_to(kind), (exp.Cast, kind)
        case exp.Round():
            decimals = node.args.get("decimals")
            if decimals is not None and not isinstance(decimals, exp.Literal):
                raise PlanError(f"the number of decimals in {canonical(node)} is not a constant")
            count = 0 if decimals is None else int(str(decimals.this))
            return functions.round_to(count), (exp.Round, count)
        case exp.Like():
            return _matching(node, None)
        case exp.Escape():
            return _matching(node.this, str(node.args["expression"].this))
        case _:
            raise PlanError(f"{canonical(node)} cannot be evaluated")


def _matching(like: exp.Expr, escape: str | None) -> tuple[Function, Hashable]:
    pattern = like.args["expression"]
    if not isinstance(pattern, exp.Literal):
        raise PlanError(f"the pattern in {canonical(like)} is not a constant text")
    text = str(pattern.this)
    return texts.matching(text, escape), (exp.Like, text, escape)


_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Add: functions.add,
    exp.Sub: functions.subtract,
    exp.Mul: functions.multiply,
    exp.Div: functions.divide,
    exp.Mod: functions.remainder,
    exp.Neg: functions.negate,
    exp.EQ: COMPARED["="],
    exp.NEQ: COMPARED["<>"],
    exp.LT: COMPARED["<"],
    exp.LTE: COMPARED["<="],
    exp.GT: COMPARED[">"],
    exp.GTE: COMPARED[">="],
    exp.And: functions.both,
    exp.Or: functions.either,
    exp.Not: functions.negation,
    exp.Between: functions.within,
    exp.Coalesce: functions.coalesce,
    exp.Nullif: functions.null_if,
    exp.Abs: functions.absolute,
    exp.Floor: functions.floor,
    exp.Ceil: functions.ceil,
    exp.Sqrt: functions.square_root,
    exp.Pow: functions.power,
    exp.Ln: functions.logarithm,
    exp.Exp: functions.exponential,
    exp.Least: functions.least,
    exp.Greatest: functions.greatest,
    exp.Upper: texts.upper,
    exp.Lower: texts.lower,
    exp.Length: texts.length,
    exp.Trim: texts.trim,
    exp.Substring: texts.substring,
    exp.Concat: texts.concatenated,
    exp.DPipe: texts.joined,
}
