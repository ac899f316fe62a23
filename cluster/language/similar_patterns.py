"""``x SIMILAR TO 'pattern'``: patterns of the SQL standard, which match whole texts, as regular expressions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import RegexMatches
from cluster.language.typing_rules import Typed
from cluster.scalars.patterns import PatternError, literal, pattern_of
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.operand_checks import OperandChecker

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
