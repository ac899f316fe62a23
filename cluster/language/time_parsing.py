"""Parsing what is written about time: TIMESTAMP '...', INTERVAL '5' MINUTE, NOW()."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.call_parsing import CallParsing
from cluster.language.quantities import DURATION_UNITS
from cluster.language.syntax import IntervalLiteral
from cluster.language.time_literals import FIELDS, INTERVAL_SHAPE

_NUMBERS = (TokenType.STRING, TokenType.NUMBER)


class TimeParsing(CallParsing):
    """The part of the parser that reads intervals. The word is a name unless a text or a number follows it."""

    def _parse_interval(self, *_arguments: Any, **_options: Any) -> Any:
        token = self._curr
        if token is None or token.token_type != TokenType.INTERVAL or not self._next:
            return None
        if self._next.token_type not in _NUMBERS:
            return None
        self._advance(2)
        number = self._prev
        literal = exp.Literal(this=number.text, is_string=number.token_type == TokenType.STRING)
        unit = None
        if self._at_unit(literal):
            unit = exp.Var(this=self._curr.text.upper()).update_positions(self._curr)
            self._advance()
        until = None
        ahead = self._next.text.upper() if self._next else ""
        if unit is not None and self._curr and self._curr.text.upper() == "TO" and ahead in FIELDS:
            self._advance()
            until = exp.Var(this=ahead).update_positions(self._curr)
            self._advance()
        elif self._curr and self._curr.text.upper() == "TO":
            reason = "an interval has one unit behind its number, or two of DAY, HOUR, MINUTE and SECOND"
            self.refuse(reason, hint=f"it is written {INTERVAL_SHAPE}")
        found = IntervalLiteral(this=literal.update_positions(number), unit=unit, until=until)
        return self._spanning(token, found)

    def _at_unit(self, number: exp.Literal) -> bool:
        """Return whether a unit comes next: behind a text that has one, no word is a unit that is none anywhere."""
        if self._curr is None or self._curr.token_type != TokenType.VAR:
            return False
        word = self._curr.text.upper()
        whole = number.is_string and any(letter.isalpha() for letter in number.name)
        return word in DURATION_UNITS if whole else word not in _NO_UNITS


_NO_UNITS = ("AT", "TO", "WITHIN")
"""Words that may stand behind an interval and are no unit of it."""
