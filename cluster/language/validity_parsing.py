"""Parsing what is written about validity: VALID UNTIL NEXT behind a stream, INTERSECT(...), and relations of intervals.

All of these words are names wherever nothing makes them more: VALID before UNTIL, INTERSECT before a parenthesis where
an operand begins, OVERLAPS and the like behind an interval.
"""

from __future__ import annotations

from sqlglot import exp, parser
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import SensorClauseParsing, stands_for_number
from cluster.language.syntax import (
    COALESCE_SHAPE,
    INTERVAL_SHAPES,
    KEEP_SHAPE,
    RELATIONS,
    VALID_SHAPE,
    CoalesceClause,
    CoalescedAttribute,
    CommonValidity,
    IntervalRelation,
    KeepClause,
    Match,
    NearlyEqual,
    Previous,
    Quantity,
    ValidClause,
    is_interval,
)

WRITTEN = f"it is written {VALID_SHAPE}"
COALESCED = f"it is written {COALESCE_SHAPE}"
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

    def _parse_coalesce_clause(self) -> CoalesceClause:
        token = self._curr
        self._advance(2)
        attributes = self._parse_csv(self._parse_coalesced_attribute)
        keys = self._parse_csv(self._parse_key) if self._match_text_seq("BY") else []
        condition = self._parse_while() if self._match_text_seq("WHILE") else None
        if not self._match(TokenType.R_PAREN):
            words = (*(() if keys else ("BY",)), *(() if condition else ("WHILE",)))
            self.refuse("a closing parenthesis was expected here", hint=COALESCED, words=words)
        clause = self.expression(CoalesceClause(expressions=attributes, keys=keys, condition=condition), token)
        clause.meta["start"], clause.meta["end"] = token.start, self._prev.end
        return clause

    def _at_keep(self) -> bool:
        """Return whether the clause KEEP comes next, and not a name."""
        following = self._next
        begins = following and (following.token_type == TokenType.DASH or stands_for_number(following))
        return bool(begins and self._curr and self._curr.token_type == TokenType.KEEP)

    def _parse_keep_clause(self) -> KeepClause:
        token = self._curr
        self._advance()
        written = f"it is written {KEEP_SHAPE}"
        at = self._curr
        number = self._parse_number()
        if number is None:
            self.refuse("the number of tuples that are kept is not a positive whole number", hint=written)
        if not self._match_text_seq("TUPLES"):
            self.refuse("TUPLES was expected here", hint=written, words=("TUPLES",))
        clause = self.expression(KeepClause(this=self.expression(Quantity(this=number), at)), token)
        clause.meta["end"] = self._prev.end
        return clause

    def _parse_coalesced_attribute(self) -> CoalescedAttribute:
        return self.expression(CoalescedAttribute(this=self._parse_key(), tolerance=self._parse_tolerance()))

    def _parse_key(self) -> exp.Column:
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            self.refuse("a column was expected here", hint=COALESCED)
        return self.expression(exp.Column(this=name))

    def _parse_tolerance(self) -> exp.Expr | None:
        """Return the number behind TOLERANCE; None if there is none, or if the word is a name."""
        following = self._next
        begins = following and (following.token_type == TokenType.DASH or stands_for_number(following))
        if not (begins and self._at_word("TOLERANCE")):
            return None
        self._advance()
        return self._parse_level("TOLERANCE 2")

    def _parse_while(self) -> exp.Expr:
        """Return a condition in which PREV(x) is a value of the tuple before."""
        condition = self._parse_disjunction()
        if condition is None:
            self.refuse("a condition was expected behind WHILE", hint=f"{COALESCED}, or WHILE x >= PREV(x)")

        def previous(part: exp.Expr) -> exp.Expr:
            if not (isinstance(part, exp.Anonymous) and part.name.upper() == "PREV"):
                return part
            call = Previous(expressions=part.expressions)
            call.meta.update(part.meta)
            return call

        return condition.transform(previous, copy=False)

    def parse_nearly_equal(self, this: exp.Expr | None) -> exp.Expr | None:
        """Return ``a ~= b``, or a regular expression; the tilde has been read."""
        if not self._match(TokenType.EQ):
            return parser.binary_range_parser(Match)(self, this)
        other = self._parse_bitwise()
        if other is None:
            self.refuse("a value was expected behind ~=", hint="it is written a ~= b TOLERANCE 2")
        return self.expression(NearlyEqual(this=this, expression=other, tolerance=self._parse_tolerance()))

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
