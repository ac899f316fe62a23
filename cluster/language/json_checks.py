"""Checking calls and operators that read JSON: the path is written out, and can be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import JsonExists, JsonExtract, JsonExtractString, JsonQuery, JsonValue
from cluster.language.calls import check_cast, check_function
from cluster.language.syntax import JsonArrow, JsonTextArrow
from cluster.language.typing_rules import Typed
from cluster.scalars.json_paths import PathError, Step, limited, path_of, path_text
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker

OF_PATHS = (JsonValue, JsonQuery, JsonExists, JsonExtract, JsonExtractString)
ARROWS = (JsonArrow, JsonTextArrow)
_LONGEST_INDEX = 9
"""Digits."""


def check_of_path(checker: OperandChecker, call: exp.Expr) -> Typed:
    """Return a call of a function of JSON, resolved and typed; what it returns is converted as by CAST.

    Raises
    ------
    FjordSqlError
        If the arguments do not fit it, or its path is not written out or has no meaning.
    """
    returning = call.args.get("returning")
    if returning is None:
        found = check_function(checker, call)
        path = path_text(_path(checker.context, call.args["path"]))
        found.expression.set("path", exp.Literal.string(path))
        return found
    plain = type(call)(this=call.this, path=call.args["path"])
    plain.meta.update(call.meta)
    plain.parent = call.parent
    cast = exp.Cast(this=plain, to=returning)
    cast.meta.update(call.meta)
    return check_cast(checker, cast)


def check_arrow(checker: OperandChecker, arrow: exp.Expr) -> Typed:
    """Return the function for which a chain of ``->``, or of these and ``->>``, stands, resolved and typed.

    Raises
    ------
    FjordSqlError
        If the left side is no text, or the right one no key and no place that is written out.
    """
    steps: list[Step] = []
    part: exp.Expr = arrow
    while part is arrow or isinstance(part, JsonArrow):
        steps.insert(0, _step(checker.context, part.expression))
        part = part.this.unnest()
    document = checker.check_as(part, Family.TEXT)
    try:
        path = path_text(limited(steps))
    except PathError as error:
        raise checker.context.error(arrow, error.message, error.hint) from None
    kind = JsonExtract if isinstance(arrow, JsonArrow) else JsonExtractString
    return Typed(kind(this=document.expression, path=exp.Literal.string(path)), FieldType.TEXT)


def _path(context: Context, written: exp.Expr) -> tuple[Step, ...]:
    literal = written.unnest()
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        raise context.error(written, "the path must be written out, in quotes", "JSON_VALUE(text, '$.key')")
    try:
        return path_of(str(literal.this))
    except PathError as error:
        raise context.error(written, error.message, error.hint) from None


def _step(context: Context, written: exp.Expr) -> Step:
    literal = written.unnest()
    negative = isinstance(literal, exp.Neg)
    number = literal.this if isinstance(literal, exp.Neg) else literal
    if not isinstance(number, exp.Literal) or (number.is_string and negative):
        reason = "behind -> and ->> stands a key in quotes, or a place in an array, written out"
        raise context.error(written, reason, "text -> 'key' ->> 0")
    if number.is_string:
        if number.this.startswith("$"):
            hint = 'JSON_EXTRACT and JSON_EXTRACT_STRING take paths; in a path, ["$key"] is such a key'
            raise context.error(written, "a key that begins with $ is a path in other databases", hint)
        return str(number.this)
    if not number.is_int or len(number.this) > _LONGEST_INDEX:
        raise context.error(written, f"a place in an array is a whole number of at most {_LONGEST_INDEX} digits")
    return -int(number.this) if negative else int(number.this)


def json_beside_text(left: exp.Expr, right: exp.Expr) -> int | None:
    """Return which of two operands that are compared is JSON, if the other is a text that can be none; 0 or 1."""
    for place, (one, other) in enumerate(((left, right), (right, left))):
        written = isinstance(other, exp.Literal) and other.is_string
        if isinstance(one, JsonExtract) and written and not _BEGINS_JSON.match(other.this):
            return place
    return None


_BEGINS_JSON = re.compile(r"[\"{\[\-0-9]|(true|false|null)$")
