"""Resolving and typing one scalar expression: syntax tree and scope -> :class:`Typed`.

**Rows of values in conditions: ``(a, b) IN ((1, 2), (3, 4))``.**

It is ``a = 1 AND b = 2 OR a = 3 AND b = 4``, also where values are NULL: so standard SQL defines it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from cluster.expressions.called_functions import (
    JsonExists,
    JsonExtract,
    JsonExtractString,
    JsonQuery,
    JsonValue,
    TimeCall,
)
from cluster.expressions.timestamps import OF_MICROSECONDS
from cluster.language.calls import check_case, check_cast, check_function, check_rounding, check_user_call, unsupported
from cluster.language.operand_checks import OperandChecker
from cluster.language.patterns import check_match, check_similar
from cluster.language.scope import NOWS, refuse_now
from cluster.language.syntax import (
    INTERVALS,
    AllenRelation,
    Duration,
    FoldedMatch,
    IntervalEnd,
    IntervalLiteral,
    IntervalRelation,
    JsonArrow,
    JsonTextArrow,
    Match,
    NearlyEqual,
    Slot,
    TimeFunction,
    TimestampLiteral,
    WindowBound,
    Within,
    span_of,
)
from cluster.language.time_functions import (
    TIMES,
    check_extract,
    check_time_function,
    check_zone,
    negative,
    time_arithmetic,
)
from cluster.language.time_literals import interval_literal, timestamp_literal
from cluster.language.typing_rules import Typed, common_type, common_unit
from cluster.language.validities import (
    check_allen,
    check_duration,
    check_interval,
    check_interval_end,
    check_nearly_equal,
    check_relation,
)
from cluster.language.window_bounds import without_window
from cluster.planning_budget import spend
from cluster.scalars.json_documents import PathError, Step, limited, path_of, path_text
from cluster.scalars.scalar_function import Family
from protocols.text.closeness import did_you_mean
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context

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


def row_in_list(checker: OperandChecker, expression: exp.In) -> Typed:
    """Return IN of a row over a list of rows, as comparisons connected by AND and OR.

    Raises
    ------
    FjordSqlError
        If the list holds something else than rows of as many values, or values do not compare.
    """
    if not expression.this.expressions:
        raise checker.context.error(expression, "a row has one value or more", "(a, b) IN ((1, 2), (3, 4))")
    values = [checker.check(each) for each in expression.this.expressions]
    nullable = any(value.nullable for value in values)
    rows: list[exp.Expr] = []
    for row in expression.expressions:
        if not isinstance(row, exp.Tuple) or len(row.expressions) != len(values):
            reason = f"a row of {len(values)} values was expected here"
            raise checker.context.error(row, reason, "(a, b) IN ((1, 2), (3, 4))")
        others = [checker.check(each) for each in row.expressions]
        nullable |= any(other.nullable for other in others)
        tests: list[exp.Expr] = []
        for value, other in zip(values, others, strict=True):
            spend()
            checker.common(row, [value, other], action="compare")
            left, right = (_apart(each.expression.copy()) for each in (value, other))
            tests.append(exp.EQ(this=left, expression=right))
        rows.append(exp.Paren(this=_connected(exp.And, tests)))
    return Typed(exp.Paren(this=_connected(exp.Or, rows)), FieldType.BOOLEAN, nullable=nullable)


def _apart(value: exp.Expr) -> exp.Expr:
    return value if isinstance(value, exp.Column | exp.Literal | exp.Null | exp.Boolean) else exp.Paren(this=value)


def _connected(word: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    """Return conditions connected in halves: lists may be long, and trees must not be deep."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return word(this=_connected(word, parts[:middle]), expression=_connected(word, parts[middle:]))


COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
DISTINCTIONS = (exp.NullSafeEQ, exp.NullSafeNEQ)
"""IS NOT DISTINCT FROM and IS DISTINCT FROM."""
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
LARGEST_INTEGER = 2**63 - 1
LONGEST_PATTERN = 1_000
"""Characters of a pattern of LIKE."""


class Checker(OperandChecker):
    """Checks expressions against one scope."""

    __slots__ = ()

    def check(self, expression: exp.Expr) -> Typed:
        """Return `expression`, resolved and typed.

        Raises
        ------
        FjordSqlError
            If a name is unknown, types do not fit, or it is no scalar expression of FjordSQL.
        """
        spend()
        rule = _rule_for(type(expression))
        if rule is None:
            raise unsupported(self.context, expression)
        return rule(self, expression)

    def column(self, reference: exp.Column) -> Typed:
        """Return the column a name means."""
        if isinstance(reference.this, exp.Star):
            raise unsupported(self.context, reference)
        found = self.scope.find(reference, self.context)
        if found.is_stamp:
            stamp = exp.column(found.internal, quoted=True)
            return Typed(TimeCall(this=OF_MICROSECONDS, expressions=[stamp]), found.type)
        return Typed(exp.column(found.internal, quoted=True), found.type, found.unit, found.nullable)

    def slot(self, slot: Slot) -> Typed:
        """Return the column an aggregate or * stands for."""
        found = self.scope.of_plan(slot.this)
        if found is None:
            raise self.context.error(slot, "* cannot be selected beside aggregates", "name the columns you group by")
        return Typed(exp.column(found.internal, quoted=True), found.type, found.unit, found.nullable)

    def within(self, within: Within) -> Typed:
        """Return the field; the error allowed on it is noted at its stream."""
        return self.check_as(within.this, Family.NUMBER)

    def boolean(self, boolean: exp.Boolean) -> Typed:
        """Return TRUE or FALSE."""
        return Typed(exp.Boolean(this=boolean.this), FieldType.BOOLEAN, nullable=False)

    def null(self, _null: exp.Null) -> Typed:
        """Return NULL, which has no type of its own."""
        return Typed(exp.Null(), None)

    def now(self, now: exp.Expr) -> Typed:
        """Refuse NOW(): where it has a meaning, it has been replaced by a window."""
        raise refuse_now(self.context, now)

    def negative(self, expression: exp.Neg) -> Typed:
        """Return a number with its sign changed."""
        if _is_smallest(expression):
            return Typed(exp.Neg(this=expression.this.copy()), FieldType.INTEGER, nullable=False)
        inner = self.check(expression.this)
        if inner.type is FieldType.INTERVAL:
            return negative(inner)
        inner = self.belonging(inner, expression.this, Family.NUMBER)
        return Typed(exp.Neg(this=grouped(inner.expression)), inner.type, inner.unit, inner.nullable)

    def negation(self, expression: exp.Not) -> Typed:
        """Return NOT."""
        inner = self.check_as(expression.this, Family.BOOLEAN)
        return Typed(exp.Not(this=inner.expression), FieldType.BOOLEAN, nullable=inner.nullable)

    def literal(self, literal: exp.Literal) -> Typed:
        """Return a number or text."""
        if literal.is_string:
            return Typed(exp.Literal.string(literal.this), FieldType.TEXT, nullable=False)
        if literal.is_int:
            if int(literal.this) > LARGEST_INTEGER:
                raise self.context.error(literal, "this number does not fit 64 bits", "write it as a real, with a dot")
            return Typed(exp.Literal.number(int(literal.this)), FieldType.INTEGER, nullable=False)
        if not math.isfinite(float(literal.this)):
            raise self.context.error(literal, "this number is larger than every real", "the largest is about 1.8e308")
        return Typed(exp.Literal.number(literal.this.lower()), FieldType.REAL, nullable=False)  # 1E1 is 1e1

    def paren(self, paren: exp.Paren) -> Typed:
        """Return what is in parentheses."""
        inner = self.check(paren.this)
        return Typed(grouped(inner.expression), inner.type, inner.unit, inner.nullable)

    def connector(self, connector: exp.Connector) -> Typed:
        """Return AND or OR."""
        left = self.check_as(connector.this, Family.BOOLEAN)
        right = self.check_as(connector.expression, Family.BOOLEAN)
        built = type(connector)(this=left.expression, expression=right.expression)
        return Typed(built, FieldType.BOOLEAN, nullable=left.nullable or right.nullable)

    def is_null(self, expression: exp.Is) -> Typed:
        """Return IS NULL, IS TRUE or IS FALSE."""
        other = expression.expression
        if isinstance(other, exp.Boolean):
            asked = self.check_as(expression.this, Family.BOOLEAN)
            built = exp.Is(this=asked.expression, expression=exp.Boolean(this=other.this))
            return Typed(built, FieldType.BOOLEAN, nullable=False)
        if not isinstance(other, exp.Null):
            words = ("NULL", "TRUE", "FALSE", "UNKNOWN")
            hint = did_you_mean(other.name, words) if isinstance(other, exp.Column) else None
            reason = "IS is followed by [NOT] NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM"
            if isinstance(other, exp.JSON):
                hint = "JSON_EXISTS(x, '$') IS TRUE says whether a text is a document"
            raise self.context.error(expression, reason, hint or "compare with =, or IS NOT DISTINCT FROM")
        inner = self.check(expression.this)
        return Typed(exp.Is(this=inner.expression, expression=exp.Null()), FieldType.BOOLEAN, nullable=False)

    def distinction(self, expression: exp.NullSafeEQ | exp.NullSafeNEQ) -> Typed:
        """Return IS [NOT] DISTINCT FROM."""
        sides = span_of(expression.this), span_of(expression.expression)
        if sides[0] and sides[1] and "<=>" in self.context.words[sides[0][1] : sides[1][0]]:
            raise unsupported(self.context, expression)
        operands = [self.check(each) for each in (expression.this, expression.expression)]
        self.common(expression, operands, action="compare")
        built = type(expression)(this=operands[0].expression, expression=operands[1].expression)
        return Typed(built, FieldType.BOOLEAN, nullable=False)

    def in_list(self, expression: exp.In) -> Typed:
        """Return IN over a list."""
        if expression.args.get("query"):
            raise unsupported(self.context, expression)
        if not expression.expressions:
            raise self.context.error(expression, "the list behind IN is empty", "x IN (1, 2)")
        if isinstance(expression.this, exp.Tuple):
            return row_in_list(self, expression)
        operands = [self.check(each) for each in (expression.this, *expression.expressions)]
        self.common(expression, operands, action="compare")
        built = exp.In(this=operands[0].expression, expressions=[each.expression for each in operands[1:]])
        return Typed(built, FieldType.BOOLEAN, nullable=any(each.nullable for each in operands))

    def between(self, expression: exp.Between) -> Typed:
        """Return BETWEEN."""
        operands = [self.check(expression.args[part]) for part in ("this", "low", "high")]
        self.common(expression, operands, action="compare")
        value, low, high = (each.expression for each in operands)
        built: exp.Expr = exp.Between(this=value, low=low, high=high)
        if expression.args.get("symmetric"):
            other = exp.Between(this=value.copy(), low=high.copy(), high=low.copy())
            built = exp.Paren(this=exp.Or(this=built, expression=other))
        return Typed(built, FieldType.BOOLEAN, nullable=any(each.nullable for each in operands))

    def escaped(self, expression: exp.Escape) -> Typed:
        """Return LIKE, ILIKE or SIMILAR TO with ESCAPE."""
        return check_similar(self, expression) if isinstance(expression.this, exp.SimilarTo) else self.like(expression)

    def like(self, expression: exp.Like | exp.ILike | exp.Escape) -> Typed:
        """Return LIKE or ILIKE, with or without ESCAPE."""
        like = expression.this if isinstance(expression, exp.Escape) else expression
        if not isinstance(like, exp.Like | exp.ILike):
            raise unsupported(self.context, like)
        value, pattern = (self.check_as(each, Family.TEXT) for each in (like.this, like.expression))
        if not isinstance(pattern.expression, exp.Literal):
            raise self.context.error(like.expression, "the pattern of LIKE must be written out, in quotes")
        if len(pattern.expression.this) > LONGEST_PATTERN:
            raise self.context.error(like.expression, f"the pattern of LIKE has at most {LONGEST_PATTERN:,} characters")
        built: exp.Expr = type(like)(this=value.expression, expression=pattern.expression)
        if isinstance(expression, exp.Escape):
            escape = expression.expression
            if not (isinstance(escape, exp.Literal) and escape.is_string and len(escape.this) == 1):
                raise self.context.error(escape, "ESCAPE is followed by one character in quotes")
            if _ends_escaping(pattern.expression.this, escape.this):
                reason = f"the pattern ends with {escape.this!r}, behind which a character was expected"
                raise self.context.error(like.expression, reason, f"{escape.this * 2} stands for the character itself")
            built = exp.Escape(this=built, expression=exp.Literal.string(escape.this))
        return Typed(built, FieldType.BOOLEAN, nullable=value.nullable or pattern.nullable)

    def concatenation(self, expression: exp.DPipe) -> Typed:
        """Return `||`."""
        # Each side once: what is checked twice at every level takes time that doubles with each.
        first, second = self.check(expression.this), self.check(expression.expression)
        types = {first.type, second.type}
        compared = isinstance(expression.parent, COMPARISONS) and not types & {FieldType.TEXT, None}
        conditions = FieldType.BOOLEAN in types or compared
        hint = "|| joins texts; conditions are connected by OR" if conditions else None
        left = self.belonging(first, expression.this, Family.TEXT, hint)
        right = self.belonging(second, expression.expression, Family.TEXT, hint)
        built = exp.DPipe(this=left.expression, expression=right.expression, safe=True)
        return Typed(built, FieldType.TEXT, nullable=left.nullable or right.nullable)

    def comparison(self, expression: exp.Expr) -> Typed:
        """Return a comparison."""
        operands = [self.check(each) for each in (expression.this, expression.expression)]
        self.common(expression, operands, action="compare")
        if any(each.type is None for each in operands):
            written = self.context.source_text(expression)
            self.context.warn(f"{written} is never true, whatever it is: IS NULL and IS NOT NULL ask for NULL")
        if (document := json_beside_text(*(each.expression for each in operands))) is not None:
            written = self.context.source_text((expression.this, expression.expression)[document])
            self.context.warn(
                f"{written} is JSON, in which texts have quotes: write ->> or JSON_VALUE for the text itself"
            )
        if isinstance(expression.this, COMPARISONS):
            first, second = (self.context.source_text(each) for each in (expression.this, expression.expression))
            self.context.warn(f"whether {first} is compared with {second}: write AND to compare more than two values")
        built = type(expression)(this=operands[0].expression, expression=operands[1].expression)
        return Typed(built, FieldType.BOOLEAN, nullable=any(each.nullable for each in operands))

    def arithmetic(self, expression: exp.Expr) -> Typed:
        """Return +, -, *, / or %."""
        hint = "texts are joined by ||" if isinstance(expression, exp.Add) else None
        # One after the other, not in a comprehension: chains are long, and each link takes its frames.
        left = self.check(expression.this)
        right = self.check(expression.expression)
        if left.type in TIMES or right.type in TIMES:
            return time_arithmetic(self.context, expression, left, right)
        left = self.belonging(left, expression.this, Family.NUMBER, hint)
        right = self.belonging(right, expression.expression, Family.NUMBER, hint)
        result = FieldType.REAL if isinstance(expression, exp.Div) else common_type((left.type, right.type))
        unit = ""
        if isinstance(expression, exp.Add | exp.Sub):
            self.common(expression, [left, right], action="add")
            unit = common_unit([left, right])
        built = type(expression)(this=left.expression, expression=right.expression)
        if isinstance(built, exp.Div):
            built.set("typed", False)  # noqa: FBT003 - sqlglot's names for what `/` means here
            built.set("safe", True)  # noqa: FBT003
        # A real may leave the range of reals, and nothing is divided by zero.
        may_fail = result is not FieldType.INTEGER or isinstance(expression, exp.Mod)
        return Typed(built, result, unit, nullable=may_fail or left.nullable or right.nullable)


def _is_smallest(negative: exp.Neg) -> bool:
    """Return whether this is the least integer there is, the number of which is none without its sign."""
    number = negative.this
    return isinstance(number, exp.Literal) and number.is_int and number.this == str(LARGEST_INTEGER + 1)


def _ends_escaping(pattern: str, escape: str) -> bool:
    """Return whether the last character of a pattern escapes the one behind it."""
    escaping = False
    for letter in pattern:
        escaping = letter == escape and not escaping
    return escaping


ATOMS = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Func, exp.Paren)


def grouped(expression: exp.Expr) -> exp.Expr:
    """Return `expression` in parentheses if it could be torn apart by what is written around it."""
    if isinstance(expression, ATOMS) and not isinstance(expression, exp.Binary | exp.Connector):
        return expression
    return exp.Paren(this=expression)


_RULES: dict[type[exp.Expr], Callable[[Checker, Any], Typed]] = {
    **dict.fromkeys(INTERVALS, check_interval),
    IntervalEnd: check_interval_end,
    Duration: check_duration,
    AllenRelation: check_allen,
    IntervalRelation: check_relation,
    NearlyEqual: check_nearly_equal,
    exp.Column: Checker.column,
    Slot: Checker.slot,
    Within: Checker.within,
    exp.Literal: Checker.literal,
    exp.Boolean: Checker.boolean,
    exp.Null: Checker.null,
    exp.Paren: Checker.paren,
    exp.Neg: Checker.negative,
    exp.Not: Checker.negation,
    exp.And: Checker.connector,
    exp.Or: Checker.connector,
    exp.Is: Checker.is_null,
    **dict.fromkeys(DISTINCTIONS, Checker.distinction),
    exp.In: Checker.in_list,
    exp.Between: Checker.between,
    exp.Like: Checker.like,
    exp.ILike: Checker.like,
    exp.SimilarTo: check_similar,
    exp.Escape: Checker.escaped,
    Match: check_match,
    FoldedMatch: check_match,
    **dict.fromkeys(ARROWS, check_arrow),
    **dict.fromkeys(OF_PATHS, check_of_path),
    exp.DPipe: Checker.concatenation,
    exp.Case: check_case,
    exp.If: check_case,
    exp.Cast: check_cast,
    **dict.fromkeys(COMPARISONS, Checker.comparison),
    **dict.fromkeys(ARITHMETIC, Checker.arithmetic),
    TimeFunction: check_time_function,
    exp.Extract: check_extract,
    exp.AtTimeZone: check_zone,
    **dict.fromkeys(NOWS, Checker.now),
    TimestampLiteral: lambda checker, literal: timestamp_literal(checker.context, literal),
    IntervalLiteral: lambda checker, literal: interval_literal(checker.context, literal),
    WindowBound: without_window,
    **dict.fromkeys((exp.Floor, exp.Ceil), check_rounding),
    exp.Anonymous: check_user_call,
    exp.Func: check_function,
}
"""The rule for each kind of expression; the first that fits is taken, so functions come last."""


_rules_found: dict[type[exp.Expr], Callable[[Checker, Any], Typed] | None] = {}


def _rule_for(kind: type[exp.Expr]) -> Callable[[Checker, Any], Typed] | None:
    if kind not in _rules_found:
        _rules_found[kind] = next((rule for each, rule in _RULES.items() if issubclass(kind, each)), None)
    return _rules_found[kind]
