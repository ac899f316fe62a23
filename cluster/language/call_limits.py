"""Limits on arguments that are written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import LeftPad, RightPad
from cluster.language.pattern_checks import OF_PATTERNS, refuse_faulty_pattern
from cluster.scalars.numbers import MOST_DECIMALS
from cluster.scalars.texts import LONGEST_TEXT

if TYPE_CHECKING:
    from cluster.language.context import Context


def refuse_beyond_limits(context: Context, call: exp.Expr) -> None:
    """Do nothing if a call's arguments that are written out are within the limits.

    Raises
    ------
    FjordSqlError
        If one is not, or has to be written out and is not.
    """
    if (decimals := call.args.get("decimals")) is not None:
        _refuse_decimals(context, decimals)
    if isinstance(call, LeftPad | RightPad) and (length := _whole(call.args["length"])) and length > LONGEST_TEXT:
        reason = f"a text that is computed has {LONGEST_TEXT:,} characters at most"
        raise context.error(call.args["length"], reason, "longer ones are NULL")
    if isinstance(call, OF_PATTERNS):
        refuse_faulty_pattern(context, call)
    if isinstance(call, exp.SplitPart) and _whole(call.args["part_index"]) == 0:
        reason = "parts are counted from 1, or from the end: -1 is the last one"
        raise context.error(call.args["part_index"], reason, "SPLIT_PART(text, '-', 1)")


def _refuse_decimals(context: Context, decimals: exp.Expr) -> None:
    if isinstance(decimals, exp.Neg) and isinstance(decimals.this, exp.Literal):
        reason = f"ROUND keeps 0 to {MOST_DECIMALS} decimals, written out"
        raise context.error(decimals, reason, "for tens, write ROUND(x / 10) * 10")
    if not (isinstance(decimals, exp.Literal) and decimals.is_int):
        raise context.error(decimals, "the number of decimals must be written out", "ROUND(x, 2)")
    if len(decimals.this) > len(str(MOST_DECIMALS)) or int(decimals.this) > MOST_DECIMALS:
        raise context.error(decimals, f"ROUND keeps 0 to {MOST_DECIMALS} decimals")


def _whole(number: exp.Expr) -> int | None:
    """Return an integer that is written out; None for anything else, and for what fits no integer anyway."""
    written = isinstance(number, exp.Literal) and number.is_int
    return int(number.this) if written and len(number.this) < len(str(2**63)) else None
