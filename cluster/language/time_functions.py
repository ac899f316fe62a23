"""Typing what is computed of timestamps and intervals: functions, arithmetic, patterns, and calls of plans. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from sqlglot import exp

from cluster.expressions import timestamps
from cluster.expressions.called_functions import RegexMatches, RegexReplace, TimeCall, TimeLiteral
from cluster.expressions.timestamps import LENGTHS_US, UNITS
from cluster.language.errors import suggest
from cluster.language.time_literals import interval_of
from cluster.language.typing_rules import Typed
from cluster.scalars.patterns import literal
from cluster.scalars.scalar_function import Family
from protocols.text.closeness import did_you_mean
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker
    from cluster.language.syntax import TimeFunction

INSTANTS = (FieldType.TIMESTAMP, FieldType.LOCAL_TIMESTAMP)
TIMES = frozenset((*INSTANTS, FieldType.INTERVAL))
"""Types about time."""
_NUMBERS = (FieldType.INTEGER, FieldType.REAL, None)
_WORDS: dict[type[exp.Expr], str] = {
    exp.Add: "added",
    exp.Sub: "subtracted",
    exp.Mul: "multiplied",
    exp.Div: "divided",
    exp.Mod: "divided",
}


def time_arithmetic(context: Context, at: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Return the sum, difference, product or quotient of two operands, one of which is about time.

    Raises
    ------
    FjordSqlError
        If there is none of their types.
    """
    kind = type(at)
    match kind, left.type, right.type:
        case (exp.Add, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL | None):
            return _call(timestamps.PLUS, left.type, left, right)
        case (exp.Add, FieldType.INTERVAL | None, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP):
            return _call(timestamps.PLUS, right.type, right, left)
        case (exp.Sub, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP, FieldType.INTERVAL):
            return _call(timestamps.PLUS, left.type, left, negative(right))
        case (exp.Sub, one, other) if one in INSTANTS and other in (one, None):
            return _call(timestamps.MINUS, FieldType.INTERVAL, left, right)
        case (exp.Sub, None, FieldType.TIMESTAMP | FieldType.LOCAL_TIMESTAMP):
            return _call(timestamps.MINUS, FieldType.INTERVAL, left, right)
        case (exp.Add, FieldType.INTERVAL | None, FieldType.INTERVAL | None):
            return _call(timestamps.INTERVAL_PLUS, FieldType.INTERVAL, left, right)
        case (exp.Sub, FieldType.INTERVAL | None, FieldType.INTERVAL | None):
            return _call(timestamps.INTERVAL_PLUS, FieldType.INTERVAL, left, negative(right))
        case (exp.Mul, FieldType.INTERVAL, number) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_TIMES, FieldType.INTERVAL, left, right)
        case (exp.Mul, number, FieldType.INTERVAL) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_TIMES, FieldType.INTERVAL, right, left)
        case (exp.Div, FieldType.INTERVAL, number) if number in _NUMBERS:
            return _call(timestamps.INTERVAL_PARTS, FieldType.INTERVAL, left, right)
        case _:
            names = [each.type.value if each.type else "null" for each in (left, right)]
            reason = f"{names[0]} and {names[1]} cannot be {_WORDS[kind]}"
            raise context.error(at, reason, _hint(kind, left.type, right.type))


def negative(typed: Typed) -> Typed:
    """Return an interval the other way."""
    inner = typed.expression
    inner = inner if isinstance(inner, exp.Func | exp.Column | exp.Paren | TimeLiteral) else exp.Paren(this=inner)
    return Typed(exp.Neg(this=inner), FieldType.INTERVAL, nullable=typed.nullable)


def _call(name: str, result: FieldType, *operands: Typed) -> Typed:
    return Typed(TimeCall(this=name, expressions=[each.expression for each in operands]), result)


def _hint(kind: type[exp.Expr], left: FieldType | None, right: FieldType | None) -> str:
    if {left, right} == {*INSTANTS}:
        return "x AT TIME ZONE 'Europe/Berlin' makes one of the other"
    if left in INSTANTS and right in INSTANTS:
        return "the difference of two timestamps is an interval"
    if kind in (exp.Add, exp.Sub):
        return "an interval is written INTERVAL '5' MINUTE"
    return "EXTRACT(EPOCH FROM x) gives seconds, as a real"


SPECIFIERS = "YmdHIMSfpjaAbBuGVFT%"
"""What may stand behind % in a pattern of STRFTIME."""
LONGEST_PATTERN = 200
"""Characters of a pattern."""

_OF_DATE_FORMAT = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "SSSSSS": "%f", "a": "%p",
    "DDD": "%j", "EEE": "%a", "EEEE": "%A", "MMM": "%b", "MMMM": "%B",
}  # fmt: skip
_OF_TO_CHAR = {
    "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "US": "%f",
    "AM": "%p", "PM": "%p", "DDD": "%j", "IYYY": "%G", "IW": "%V", "ID": "%u", "Dy": "%a", "Mon": "%b",
}  # fmt: skip
_IN_QUOTES = re.compile(r"'(?P<text>(?:[^']|'')*)'")
"""Text of DATE_FORMAT. Two quotes are one, in it and alone."""
_IN_DOUBLE_QUOTES = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"|\\(?P<quote>")', re.DOTALL)
"""Text of TO_CHAR: a backslash makes text of what is behind it; outside, of a quote only."""
_WORD = re.compile(r"[A-Za-z]+")
_REPEATED = re.compile(r"([A-Za-z])\1*")
_TO_CHAR_PIECE = re.compile("|".join(sorted(_OF_TO_CHAR, key=len, reverse=True)))


class PatternError(ValueError):
    """A part of a pattern that means nothing here."""

    def __init__(self, part: str, known: str) -> None:
        super().__init__(part)
        self.part = part
        self.known = known


def of_strftime(pattern: str) -> str:
    """Return a pattern of STRFTIME, all of whose specifiers there are.

    Raises
    ------
    PatternError
        If it has another one.
    """
    for found in re.finditer("%(.?)", pattern, re.DOTALL):
        if not found[1] or found[1] not in SPECIFIERS:
            raise PatternError(found[0], ", ".join(f"%{each}" for each in SPECIFIERS))
    return pattern


def of_date_format(pattern: str) -> str:
    """Return the pattern of STRFTIME that means the same as one of DATE_FORMAT, which Java's rules define.

    >>> of_date_format("yyyy-MM-dd'T'HH:mm"), of_date_format("hh 'o''clock'")
    ('%Y-%m-%dT%H:%M', "%I o'clock")

    Raises
    ------
    PatternError
        If it has letters that mean nothing here.
    """
    return _translated(pattern, _IN_QUOTES, _REPEATED, _OF_DATE_FORMAT)


def of_to_char(pattern: str) -> str:
    """Return the pattern of STRFTIME that means the same as one of TO_CHAR, which PostgreSQL's rules define.

    >>> of_to_char('YYYY-MM-DD"T"HH24:MI')
    '%Y-%m-%dT%H:%M'

    Raises
    ------
    PatternError
        If it has letters that mean nothing here.
    """
    return _translated(pattern, _IN_DOUBLE_QUOTES, _TO_CHAR_PIECE, _OF_TO_CHAR)


def _translated(pattern: str, quoted: re.Pattern[str], piece: re.Pattern[str], known: dict[str, str]) -> str:
    written: list[str] = []
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        if text := quoted.match(pattern, place):
            written.append(_text_of(text).replace("%", "%%"))
            place = text.end()
        elif letter == quoted.pattern[0]:
            raise PatternError(pattern[place:], ", ".join(known))
        elif _WORD.match(letter):
            found = piece.match(pattern, place)
            if found is None or found[0] not in known:
                raise PatternError(found[0] if found else letter, ", ".join(known))
            written.append(known[found[0]])
            place = found.end()
        else:
            written.append("%%" if letter == "%" else letter)
            place += 1
    return "".join(written)


def _text_of(quoted: re.Match[str]) -> str:
    if quoted.re is _IN_QUOTES:
        return quoted["text"].replace("''", "'") or "'"
    return quoted["quote"] or re.sub(r"\\(.)", r"\1", quoted["text"], flags=re.DOTALL)


_WIDTHS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2, "%f": 6}
"""Digits of each part that can be read, by its specifier."""
_NEEDED = ("%Y", "%m", "%d")
_ISO = (("%Y", "-"), ("%m", "-"), ("%d", "T"), ("%H", ":"), ("%M", ":"), ("%S", "."), ("%f", ""))
_SPECIFIER = re.compile(r"%.|[^%]+", re.DOTALL)
_READ = "yyyy, MM and dd, and HH, mm, ss and SSSSSS, each once and with all of its digits"


def read_by(context: Context, at: exp.Expr, typed: Typed, pattern: str) -> Typed:
    """Return the timestamp, in UTC, that a text gives by a pattern of STRFTIME; NULL of any other text.

    Raises
    ------
    FjordSqlError
        If something in the pattern cannot be read, or no day is.
    """
    regex, groups = "", dict[str, int]()
    for piece in _SPECIFIER.findall(pattern):
        if piece in _WIDTHS and piece not in groups:
            groups[piece] = len(groups) + 1
            regex += rf"(\d{{{_WIDTHS[piece]}}})"
        elif piece.startswith("%") and piece != "%%":
            raise context.error(at, "not all of this pattern can be read", f"TO_TIMESTAMP reads {_READ}")
        else:
            regex += literal(piece.replace("%%", "%"))
    if not all(each in groups for each in _NEEDED):
        raise context.error(at, "no day can be read by this pattern", f"TO_TIMESTAMP reads {_READ}")
    iso = "".join(f"\\{groups[each]}{mark}" if each in groups else f"00{mark}" for each, mark in _ISO)
    constants = {"pattern": exp.Literal.string(f"^{regex}$")}
    found = RegexReplace(this=typed.expression.copy(), **constants, replacement=exp.Literal.string(iso))
    read = TimeCall(this=timestamps.OF_TEXT, expressions=[found])
    fits = RegexMatches(this=typed.expression, pattern=constants["pattern"].copy())
    return Typed(exp.Case(ifs=[exp.If(this=fits, true=read)]), FieldType.TIMESTAMP)


PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "ISOYEAR", "DAY", "DOY", "DOW", "ISODOW", "HOUR", "MINUTE", "SECOND")
"""Parts of a timestamp that EXTRACT gives as integers; EPOCH is a real."""
EPOCH = "EPOCH"
_TO_TIMESTAMP = "a timestamp was expected here"
_FROM_NUMBER = "TIMESTAMP_SECONDS(x), TIMESTAMP_MILLIS(x) and TIMESTAMP_MICROS(x) make one of a number since 1970"
_FROM_TEXT = "CAST(x AS TIMESTAMP) makes one of a text in ISO 8601"
TO_TIMESTAMP = "TO_TIMESTAMP"
PATTERN_SHAPE = "TO_TIMESTAMP(text, 'dd.MM.yyyy HH:mm')"


@dataclass(frozen=True, slots=True)
class FunctionOfTime:
    """A function about time.

    Parameters
    ----------
    name
        As written.
    shape
        How a call is written, with all its arguments.
    typed
        Returns a call of it, resolved and typed.
    """

    name: str
    shape: str
    typed: Callable[[OperandChecker, list[exp.Expr]], Typed]

    @property
    def arguments(self) -> int:
        """How many arguments it takes."""
        return 1 + self.shape.count(",")


def check_time_function(checker: OperandChecker, function: TimeFunction) -> Typed:
    """Return a call of a function about time, resolved and typed.

    Raises
    ------
    FjordSqlError
        If the arguments do not fit it.
    """
    name: str = function.this
    row = TIME_FUNCTIONS[name]
    arguments: list[exp.Expr] = function.expressions
    if name == TO_TIMESTAMP and len(arguments) == 2:  # noqa: PLR2004 - a text and a pattern
        text = checker.check_as(arguments[0], Family.TEXT, _FROM_NUMBER)
        return read_by(checker.context, arguments[1], text, _pattern(checker, name, arguments[1]))
    if len(arguments) != row.arguments:
        words = ("one argument", "two arguments", "three arguments")[row.arguments - 1]
        raise checker.context.error(function, f"{name} takes {words}", f"it is written {row.shape}")
    return row.typed(checker, arguments)


def check_extract(checker: OperandChecker, extract: exp.Extract) -> Typed:
    """Return EXTRACT(part FROM x), resolved and typed.

    Raises
    ------
    FjordSqlError
        If there is no such part, or x has none.
    """
    word = extract.this
    if not isinstance(word, exp.Var):
        raise checker.context.error(extract, "EXTRACT takes the name of a part", "it is written EXTRACT(HOUR FROM x)")
    return _part(checker, extract, word.name.upper(), extract.expression)


def check_zone(checker: OperandChecker, expression: exp.AtTimeZone) -> Typed:
    """Return x AT TIME ZONE, resolved and typed.

    Raises
    ------
    FjordSqlError
        If x is no timestamp, or there is no such zone.
    """
    context, zone = checker.context, expression.args["zone"]
    typed = instant(checker, expression.this)
    if not (isinstance(zone, exp.Literal) and zone.is_string):
        hint = "x AT TIME ZONE 'Europe/Berlin'"
        raise context.error(zone, "the time zone must be written out, in quotes", hint)
    if not _is_zone(zone.this):
        hint = did_you_mean(zone.this, available_timezones()) or "zones are called 'Europe/Berlin' or 'UTC'"
        raise context.error(zone, f"there is no time zone {zone.this!r}", hint)
    if typed.type is FieldType.LOCAL_TIMESTAMP:
        return _constant_call(timestamps.OF_LOCAL, typed, zone.this, FieldType.TIMESTAMP)
    return _constant_call(timestamps.TO_LOCAL, typed, zone.this, FieldType.LOCAL_TIMESTAMP)


@lru_cache(maxsize=1024)
def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return name in available_timezones()


def instant(checker: OperandChecker, expression: exp.Expr) -> Typed:
    """Return a timestamp, local or not.

    Raises
    ------
    FjordSqlError
        If it is none.
    """
    return instant_of(checker.context, expression, checker.check(expression))


def instant_of(context: Context, at: exp.Expr, typed: Typed) -> Typed:
    """Return what has been checked, if it is a timestamp, local or not.

    Raises
    ------
    FjordSqlError
        If it is none.
    """
    if typed.type not in (*INSTANTS, None):
        found = typed.type.value if typed.type else "null"
        hint = _FROM_TEXT if typed.type is FieldType.TEXT else _FROM_NUMBER
        raise context.error(at, f"{_TO_TIMESTAMP}, but this is {found}", hint)
    return typed


def as_timestamp(context: Context, at: exp.Expr, typed: Typed) -> Typed:
    """Return what CAST AS TIMESTAMP makes of a value: of a text in ISO 8601, and of nothing else.

    Raises
    ------
    FjordSqlError
        If its type is another one.
    """
    match typed.type:
        case FieldType.TIMESTAMP:
            return typed
        case FieldType.TEXT | None:
            return of_text(typed)
        case FieldType.LOCAL_TIMESTAMP:
            reason = "a local timestamp is not an instant: it depends on the place of the clock"
            raise context.error(at, reason, "write x AT TIME ZONE 'Europe/Berlin'")
        case _:
            reason = f"{typed.type.value} cannot be converted to timestamp"
            raise context.error(at, reason, _FROM_NUMBER)


def of_text(typed: Typed) -> Typed:
    """Return the timestamp that a text in ISO 8601 gives."""
    return Typed(TimeCall(this=timestamps.OF_TEXT, expressions=[typed.expression]), FieldType.TIMESTAMP)


def _constant_call(name: str, typed: Typed, constant: str, result: FieldType) -> Typed:
    call = TimeCall(this=name, expressions=[typed.expression, exp.Literal.string(constant)])
    return Typed(call, result)


def _of_number(name: str, checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    typed = checker.check_as(arguments[0], Family.INTEGER, "ROUND, FLOOR and CAST(x AS INTEGER) make one of a real")
    return Typed(TimeCall(this=name, expressions=[typed.expression]), FieldType.TIMESTAMP)


def _part(checker: OperandChecker, at: exp.Expr, part: str, value: exp.Expr) -> Typed:
    context = checker.context
    if part not in (*PARTS, EPOCH):
        raise context.error(
            at, f"there is no part {part} of a timestamp", suggest(part, (*PARTS, EPOCH), what="parts are")
        )
    typed = checker.check(value)
    if part == EPOCH:
        typed = typed if typed.type is FieldType.INTERVAL else instant_of(checker.context, value, typed)
        return Typed(TimeCall(this=timestamps.EPOCH, expressions=[typed.expression]), FieldType.REAL, "s")
    if typed.type is FieldType.INTERVAL:
        hint = "EXTRACT(EPOCH FROM x) gives its seconds, TIMESTAMPDIFF(HOUR, a, b) whole hours between two timestamps"
        raise context.error(value, f"an interval has no {part.lower()}: it is a length", hint)
    return _constant_call(timestamps.PART, instant_of(checker.context, value, typed), part, FieldType.INTEGER)


def _unit(checker: OperandChecker, written: exp.Expr, units: tuple[str, ...], shape: str, *, bare: bool = False) -> str:
    """Return a unit that is an argument: a text, or a bare word."""
    is_text = isinstance(written, exp.Literal) and written.is_string
    is_word = isinstance(written, exp.Column) and len(written.parts) == 1
    word = str(written.name).upper() if (is_word if bare else is_text) else ""
    if word not in units:
        reason = f"there is no unit {word} here" if word else "a unit was expected here, written out"
        shown = tuple(each.lower() for each in units)
        hint = suggest(word, shown, what="units are") if word else f"it is written {shape}"
        raise checker.context.error(written, reason, hint)
    return word


def _floor(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    unit = _unit(checker, arguments[0], UNITS, TIME_FUNCTIONS["DATE_TRUNC"].shape)
    typed = instant(checker, arguments[1])
    return _constant_call(timestamps.FLOOR, typed, unit, typed.type or FieldType.TIMESTAMP)


def _part_named(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    part = _unit(checker, arguments[0], (*PARTS, EPOCH), TIME_FUNCTIONS["DATE_PART"].shape)
    return _part(checker, arguments[0], part, arguments[1])


def _both(checker: OperandChecker, arguments: list[exp.Expr]) -> list[Typed]:
    found = [instant(checker, each) for each in arguments]
    checker.common(arguments[1], found, action="compare")
    return found


def _steps(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    unit = _unit(checker, arguments[0], UNITS, TIME_FUNCTIONS["DATE_DIFF"].shape)
    one, other = (
        _constant_call(timestamps.NUMBER, each, unit, FieldType.INTEGER).expression
        for each in _both(checker, arguments[1:])
    )
    return Typed(exp.Paren(this=exp.Sub(this=other, expression=one)), FieldType.INTEGER)


def _whole_units(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    word = str(arguments[0].name).upper()
    if word in timestamps.MONTHS:
        reason = f"TIMESTAMPDIFF counts whole units, and not every {word.lower()} is as long"
        raise checker.context.error(
            arguments[0], reason, f"DATE_DIFF('{word.lower()}', a, b) counts beginnings of them"
        )
    unit = _unit(checker, arguments[0], tuple(LENGTHS_US), TIME_FUNCTIONS["TIMESTAMPDIFF"].shape, bare=True)
    one, other = _both(checker, arguments[1:])
    between = TimeCall(this=timestamps.MINUS, expressions=[other.expression, one.expression])
    return _constant_call(timestamps.COUNT, Typed(between, FieldType.INTERVAL), unit, FieldType.INTEGER)


def _added(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    """Return TIMESTAMPADD(UNIT, n, x), which is x + INTERVAL '1' UNIT * n."""
    word = str(arguments[0].name).upper()
    if word in timestamps.MONTHS:
        reason = f"TIMESTAMPADD adds a length, and not every {word.lower()} is as long"
        raise checker.context.error(arguments[0], reason, "add days, or compare DATE_TRUNC('month', x)")
    unit = _unit(checker, arguments[0], tuple(LENGTHS_US), TIME_FUNCTIONS["TIMESTAMPADD"].shape, bare=True)
    count, typed = checker.check_as(arguments[1], Family.INTEGER), instant(checker, arguments[2])
    length = TimeCall(this=timestamps.INTERVAL_TIMES, expressions=[interval_of(LENGTHS_US[unit]), count.expression])
    return Typed(
        TimeCall(this=timestamps.PLUS, expressions=[typed.expression, length]), typed.type or FieldType.TIMESTAMP
    )  # fmt: skip


def _formatted(name: str, checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    typed = instant(checker, arguments[0])
    return _constant_call(timestamps.FORMAT, typed, _pattern(checker, name, arguments[1]), FieldType.TEXT)


def _pattern(checker: OperandChecker, name: str, pattern: exp.Expr) -> str:
    """Return a pattern that is written out, with the specifiers of STRFTIME."""
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        reason = f"the pattern of {name} must be written out, in quotes"
        raise checker.context.error(
            pattern, reason, f"it is written {PATTERN_SHAPE if name == TO_TIMESTAMP else TIME_FUNCTIONS[name].shape}"
        )
    if len(pattern.this) > LONGEST_PATTERN:
        raise checker.context.error(pattern, f"a pattern has at most {LONGEST_PATTERN} characters")
    try:
        return _PATTERNS[name](pattern.this)
    except PatternError as error:
        reason = f"{error.part!r} means nothing in a pattern of {name}"
        raise checker.context.error(pattern, reason, f"there are {error.known}") from None


def _to_timestamp(checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    return of_text(checker.check_as(arguments[0], Family.TEXT, _FROM_NUMBER))


def _part_called(part: str, checker: OperandChecker, arguments: list[exp.Expr]) -> Typed:
    return _part(checker, arguments[0], part, arguments[0])


_PATTERNS: dict[str, Callable[[str], str]] = {
    "STRFTIME": of_strftime,
    "DATE_FORMAT": of_date_format,
    "TO_CHAR": of_to_char,
    TO_TIMESTAMP: of_date_format,
}
_PARTS_CALLED = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "WEEK")},
    "DAYOFYEAR": "DOY",
    "DAYOFMONTH": "DAY",
    **{name: name for name in ("DAY", "HOUR", "MINUTE", "SECOND")},
}
"""Parts that are called as functions, by the name of the function."""
_ROWS = (
    FunctionOfTime("TIMESTAMP_MICROS", "TIMESTAMP_MICROS(integer)", partial(_of_number, timestamps.OF_MICROSECONDS)),
    FunctionOfTime("TIMESTAMP_MILLIS", "TIMESTAMP_MILLIS(integer)", partial(_of_number, timestamps.OF_MILLISECONDS)),
    FunctionOfTime("TIMESTAMP_SECONDS", "TIMESTAMP_SECONDS(integer)", partial(_of_number, timestamps.OF_SECONDS)),
    FunctionOfTime(TO_TIMESTAMP, "TO_TIMESTAMP(text)", _to_timestamp),
    FunctionOfTime("DATE_TRUNC", "DATE_TRUNC('hour', timestamp)", _floor),
    FunctionOfTime("DATE_PART", "DATE_PART('hour', timestamp)", _part_named),
    FunctionOfTime("DATE_DIFF", "DATE_DIFF('minute', earlier, later)", _steps),
    FunctionOfTime("TIMESTAMPDIFF", "TIMESTAMPDIFF(MINUTE, earlier, later)", _whole_units),
    FunctionOfTime("TIMESTAMPADD", "TIMESTAMPADD(MINUTE, integer, timestamp)", _added),
    FunctionOfTime("STRFTIME", "STRFTIME(timestamp, '%Y-%m-%d %H:%M')", partial(_formatted, "STRFTIME")),
    FunctionOfTime("DATE_FORMAT", "DATE_FORMAT(timestamp, 'yyyy-MM-dd HH:mm')", partial(_formatted, "DATE_FORMAT")),
    FunctionOfTime("TO_CHAR", "TO_CHAR(timestamp, 'YYYY-MM-DD HH24:MI')", partial(_formatted, "TO_CHAR")),
    *(FunctionOfTime(name, f"{name}(timestamp)", partial(_part_called, part)) for name, part in _PARTS_CALLED.items()),
)
TIME_FUNCTIONS: Mapping[str, FunctionOfTime] = {row.name: row for row in _ROWS}
"""Functions about time, by name."""
