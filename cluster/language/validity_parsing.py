"""Parsing what is written about validity: VALID UNTIL NEXT behind a stream, INTERSECT(...), and relations of intervals.

All of these words are names wherever nothing makes them more: VALID before UNTIL, INTERSECT before a parenthesis where
an operand begins, OVERLAPS and the like behind an interval.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import SensorClauseParsing
from cluster.language.validity_syntax import (
    INTERVAL_SHAPES,
    RELATIONS,
    VALID_SHAPE,
    CommonValidity,
    IntervalRelation,
    ValidClause,
    is_interval,
)

WRITTEN = f"it is written {VALID_SHAPE}"
_ENDS = (TokenType.FROM, TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON)
"""What stands behind a name that is given to an interval, and never behind a relation."""


class ValidityParsing(SensorClauseParsing):
    """The part of the parser that reads them."""

    def _parse_valid_clause(self) -> ValidClause:
        token = self._curr
        self._advance(2)
        if not self._match_text_seq("NEXT"):
            self.refuse("NEXT was expected here", hint=WRITTEN, words=("NEXT",))
        keys: list[exp.Expr] = []
        if self._match_text_seq("BY"):
            if self._match(TokenType.L_PAREN):
                keys = self._parse_csv(self._parse_column)
                if not self._match(TokenType.R_PAREN):
                    self.refuse("a closing parenthesis was expected here", hint=f"{WRITTEN}, or BY (a, b)")
            elif (key := self._parse_column()) is not None:
                keys = [key]
            if not keys:
                self.refuse("a column was expected behind BY", hint=WRITTEN)
        longest = self._parse_quantity(hint=WRITTEN) if self._match_text_seq("MAX") else None
        clause = self.expression(ValidClause(keys=keys, longest=longest), token)
        clause.meta["start"], clause.meta["end"] = token.start, self._prev.end
        return clause

    def _at_common_validity(self) -> bool:
        """Return whether INTERSECT(...) of intervals comes next, where an operand begins."""
        here = self._curr and self._curr.token_type == TokenType.INTERSECT
        return bool(here and self._next and self._next.token_type == TokenType.L_PAREN)

    def _parse_common_validity(self) -> exp.Expr:
        word = self._curr
        self._advance(2)
        parts = self._parse_csv(self._parse_disjunction)
        if len(parts) < 2 or not all(map(is_interval, parts)):  # noqa: PLR2004 - what two have in common
            self.refuse("INTERSECT takes two or more intervals", token=word, hint=f"there are {INTERVAL_SHAPES}")
        self._match_r_paren()
        return CommonValidity(expressions=parts)

    def _parse_relations(self, interval: exp.Expr) -> exp.Expr:
        """Return an interval, or how it is related to the one behind it."""
        word = self._curr.text.upper() if self._curr else ""
        if word not in RELATIONS or self._next is None or self._next.token_type in _ENDS:
            return interval
        self._advance()
        other = self._parse_bitwise()
        if other is None or not is_interval(other):
            hint = f"there are {INTERVAL_SHAPES}"
            self.refuse(f"an interval was expected behind {word}", token=self._prev, hint=hint)
        return IntervalRelation(this=interval, expression=other, kind=word)
