"""Parsing calls of functions of texts that the SQL standard writes with words: TRIM and POSITION."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.expressions.called_functions import BothTrim, FirstPlace, LeftTrim, RegexExtract, RightTrim
from cluster.language.call_parsing import ArgumentsError, CallParsing
from cluster.language.spelling import WORDS

SIDES: dict[str, type[exp.Func]] = {"BOTH": BothTrim, "LEADING": LeftTrim, "TRAILING": RightTrim}
_BEHIND_NAMES = (
    *(TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT, TokenType.DPIPE, TokenType.DCOLON),
    *(TokenType.ARROW, TokenType.DARROW),
)
"""What stands behind such a word if it is the name of a column."""
POSITION_SHAPE = "POSITION(part IN text)"


class TextCallParsing(CallParsing):
    """The part of the parser that reads these."""

    def parse_trim(self) -> exp.Expr:
        """Return TRIM; its parenthesis is open."""
        words = ["TRIM"]
        kind: type[exp.Func] = BothTrim
        word = self._curr.text.upper() if self._curr else ""
        if word in SIDES and self._next and self._next.token_type not in _BEHIND_NAMES:
            self._advance()
            words.append(word)
            kind = SIDES[word]
        text, characters = self._parse_bitwise(), None
        if self._match(TokenType.FROM):
            words.append("FROM")
            text, characters = self._parse_bitwise(), text
        elif len(words) > 1:
            self.refuse("FROM was expected here", hint="it is written TRIM(LEADING '0' FROM text)", words=("FROM",))
        elif self._match(TokenType.COMMA):
            characters = self._parse_bitwise()
            words.append(",")
        if text is None or (self._prev.token_type == TokenType.COMMA) or self._match(TokenType.COMMA):
            raise ArgumentsError
        call = kind(this=text, characters=characters)
        call.meta[WORDS] = words
        return self.expression(call)

    def parse_position(self) -> exp.Expr:
        """Return POSITION(part IN text); its parenthesis is open."""
        part = self._parse_bitwise()
        if part is None:
            self.refuse("a text was expected here", hint=f"it is written {POSITION_SHAPE}")
        if not self._match(TokenType.IN):
            self.refuse("IN was expected here", hint=f"it is written {POSITION_SHAPE}", words=("IN",))
        text = self._parse_bitwise()
        if text is None:
            self.refuse("a text was expected here", hint=f"it is written {POSITION_SHAPE}")
        call = FirstPlace(this=text, part=part)
        call.meta[WORDS] = ["POSITION", "IN"]
        return self.expression(call)


def place_of_part(arguments: list[exp.Expr]) -> exp.Expr:
    """Return LOCATE(part, text)."""
    found: exp.Expr = FirstPlace.from_arg_list([*reversed(arguments[:2]), *arguments[2:]])
    return found


def first_match(arguments: list[exp.Expr]) -> exp.Expr:
    """Return REGEXP_SUBSTR(text, 'pattern'), whose third argument would be another one than that of REGEXP_EXTRACT."""
    if len(arguments) > 2:  # noqa: PLR2004 - a text and a pattern
        raise ArgumentsError
    found: exp.Expr = RegexExtract.from_arg_list(arguments)
    return found
