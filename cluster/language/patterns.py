"""Patterns that are written out: regular expressions, and those of SIMILAR TO as regular expressions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import RegexExtract, RegexMatches, RegexReplace
from cluster.language.syntax import FoldedMatch
from cluster.language.typing_rules import Typed
from cluster.scalars.patterns import FOLDING, Pattern, PatternError, literal, pattern_of
from cluster.scalars.scalar_function import Family
from cluster.scalars.text_patterns import replacement_of
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker
    from cluster.language.syntax import Match

OF_PATTERNS = (RegexMatches, RegexExtract, RegexReplace)
PATTERN = "the pattern must be written out, in quotes"


def refuse_faulty_pattern(context: Context, call: exp.Expr) -> None:
    """Do nothing if a call's pattern, its number of a group and its replacement are written out, and have a meaning.

    Raises
    ------
    FjordSqlError
        If one has not; the error stands at its place.
    """
    pattern = _pattern(context, call.args["pattern"])
    group, replacement = call.args.get("group"), call.args.get("replacement")
    if group is not None:
        written = group.unnest()
        if not (isinstance(written, exp.Literal) and written.is_int):
            raise context.error(group, "the number of the group must be written out", "0 stands for the whole match")
        if len(written.this) > len(str(pattern.groups)) or int(written.this) > pattern.groups:
            hint = f"they are counted from 1 to {pattern.groups}; 0 stands for the whole match"
            hint = hint if pattern.groups else "a group stands in parentheses"
            raise context.error(group, "the pattern has no such group", hint)
    if replacement is not None:
        text = _text(context, replacement, "the replacement must be written out, in quotes")
        try:
            replacement_of(text, pattern.groups)
        except PatternError as error:
            raise context.error(replacement, error.message, error.hint) from None


def check_match(checker: OperandChecker, match: Match) -> Typed:
    """Return the function for which ``~`` or ``~*`` stands, resolved and typed.

    Raises
    ------
    FjordSqlError
        If the left side is no text, or the right one no pattern that is written out.
    """
    value = checker.check_as(match.this, Family.TEXT)
    pattern = _text(checker.context, match.expression, PATTERN)
    folds = isinstance(match, FoldedMatch) and not pattern.startswith(FOLDING)
    # As it is written first: then an error counts its characters. With case folded it is larger.
    for each in dict.fromkeys((pattern, FOLDING * folds + pattern)):
        _read(checker.context, match.expression, each)
    written = exp.Literal.string(FOLDING * folds + pattern)
    return Typed(
        RegexMatches(this=value.expression, pattern=written), FieldType.BOOLEAN, nullable=value.nullable
    )  # fmt: skip


def _pattern(context: Context, written: exp.Expr) -> Pattern:
    return _read(context, written, _text(context, written, PATTERN))


def _read(context: Context, written: exp.Expr, text: str) -> Pattern:
    try:
        return pattern_of(text)
    except PatternError as error:
        raise context.error(written, error.message, error.hint) from None


def _text(context: Context, written: exp.Expr, reason: str) -> str:
    literal = written.unnest()
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        raise context.error(written, reason)
    return str(literal.this)


_ANY = r"(?:.|\n)"
_TAKEN = {"%": f"{_ANY}*", "_": _ANY, "(": "(?:", **{mark: mark for mark in "|*+?{},)"}}
"""What a character outside brackets stands for, unless it stands for itself."""


class SimilarError(ValueError):
    """A pattern of SIMILAR TO without a meaning."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def regex_of(pattern: str, escape: str | None = None) -> str:
    r"""Return the regular expression that matches as a pattern of SIMILAR TO does.

    >>> regex_of("I-(5|80)_?")
    '^(?:I-(?:5|80)(?:.|\\n)?)$'
    >>> regex_of("100!%", "!")
    '^(?:100%)$'

    Raises
    ------
    SimilarError
        If it is none.
    """
    found: list[str] = []
    place = 0
    while place < len(pattern):
        mark = pattern[place]
        if mark == escape:
            if place + 1 == len(pattern):
                raise SimilarError("nothing stands behind the last character of ESCAPE", "write it twice for itself")
            found.append(literal(pattern[place + 1]))
            place += 2
        elif mark == "\\":
            hint = r"write '%\%%' ESCAPE '\', or x ~ 'pattern' for a regular expression"
            raise SimilarError("\\ stands for nothing in a pattern without ESCAPE", hint)
        elif mark == "[":
            text, place = _class(pattern, place, escape)
            found.append(text)
        else:
            found.append(_TAKEN.get(mark) or literal(mark))
            place += 1
    return f"^(?:{''.join(found)})$"


def _class(pattern: str, start: int, escape: str | None) -> tuple[str, int]:
    """Return the characters in brackets that begin at a place, and where they end."""
    place = start + 1
    found = ["["]
    if pattern[place : place + 1] == "^":
        found.append("^")
        place += 1
    while place < len(pattern) and pattern[place] != "]":
        mark = pattern[place]
        if pattern.startswith("[:", place):
            raise SimilarError("classes with names are not part of FjordSQL's patterns", "write [A-Za-z] or [0-9]")
        if mark == escape and place + 1 < len(pattern):
            place += 1
            found.append(_in_class(pattern[place]))
        else:
            found.append("-" if mark == "-" else _in_class(mark))
        place += 1
    if place >= len(pattern):
        raise SimilarError("this bracket is never closed", "it is written [a-z0-9]")
    return "".join([*found, "]"]), place + 1


def _in_class(mark: str) -> str:
    return f"\\{mark}" if mark in r"\[]^-&~" else mark


def check_similar(checker: OperandChecker, expression: exp.SimilarTo | exp.Escape) -> Typed:
    """Return SIMILAR TO, with or without ESCAPE, as the match of a regular expression, resolved and typed.

    Raises
    ------
    FjordSqlError
        If the left side is no text, or the pattern is not written out or has no meaning.
    """
    similar = expression.this if isinstance(expression, exp.Escape) else expression
    escape = None
    if isinstance(expression, exp.Escape):
        written = expression.expression
        if not (isinstance(written, exp.Literal) and written.is_string and len(written.this) == 1):
            raise checker.context.error(written, "ESCAPE is followed by one character in quotes", "ESCAPE '!'")
        escape = str(written.this)
    value, literal = checker.check_as(similar.this, Family.TEXT), similar.expression.unnest()
    if not (isinstance(literal, exp.Literal) and literal.is_string):
        reason = "the pattern of SIMILAR TO must be written out, in quotes"
        raise checker.context.error(similar.expression, reason, "x SIMILAR TO 'I-(5|80)%'")
    try:
        regex = regex_of(literal.this, escape)
        pattern_of(regex)
    except SimilarError as error:
        raise checker.context.error(similar.expression, error.reason, error.hint) from None
    except PatternError as error:
        reason = f"this is no pattern of SIMILAR TO, as the regular expression {regex} shows: {error.message}"
        raise checker.context.error(similar.expression, reason, error.hint) from None
    found = RegexMatches(this=value.expression, pattern=exp.Literal.string(regex))
    return Typed(found, FieldType.BOOLEAN, nullable=value.nullable)
