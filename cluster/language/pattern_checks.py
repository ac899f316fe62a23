"""Checking calls and operators with regular expressions: the pattern is written out, and can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import RegexExtract, RegexMatches, RegexReplace
from cluster.language.syntax import FoldedMatch
from cluster.language.typing_rules import Typed
from cluster.scalars.patterns import FOLDING, Pattern, PatternError, pattern_of
from cluster.scalars.replacements import replacement_of
from cluster.scalars.scalar_function import Family
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
