"""Parsing the clauses for sensors (SAMPLE, EVENTS, WITHIN, LIFETIME) and for history (SINCE), and quantities."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp, parser
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.quantities import CALENDAR_UNITS, DURATION_UNITS, FREQUENCY_UNITS
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.syntax import (
    EventsClause,
    KeepClause,
    LifetimeClause,
    Quantity,
    SampleClause,
    SinceClause,
    Within,
)
from cluster.language.tokens import is_mark
from cluster.language.words import EVENTS_SHAPE, SINCE_SHAPE

if TYPE_CHECKING:
    from collections.abc import Iterable

AFTER_QUANTITY = (
    *("SLIDE", "SLIDES", "MAX", "SAMPLE", "EVENTS", "AT", "LIFETIME"),
    *("KEEP", "TO", "STALE", "SINCE", "AGO", "EARLY", "OFFSET", "PRECEDING", "FOLLOWING"),
    *(word for each in ITEM_CLAUSES for word in each.words),
)
UNITS = frozenset((*DURATION_UNITS, *CALENDAR_UNITS, *FREQUENCY_UNITS))
LIFETIME_SHAPE = "SELECT ... FROM ... LIFETIME 90 DAYS"
GOES_ON = (TokenType.COMMA, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.JOIN, TokenType.WINDOW)
"""Tokens behind LIFETIME which show that the query had not ended."""


def stands_for_number(token: Token) -> bool:
    """Return whether a token is a number, or the parameter in its place."""
    return token.token_type == TokenType.NUMBER or is_mark(token)


def placeholder(self: parser.Parser, token: Token) -> exp.Placeholder:
    """Return the node of a parameter; it has no name for a mark that is none."""
    return self.expression(exp.Placeholder(this=token.text[1:] if is_mark(token) else None), token)


class SensorClauseParsing(parser.Parser):
    """The part of the parser that reads the clauses for sensors."""

    def refuse(
        self, reason: str, *, token: Token | None = None, hint: str | None = None, words: Iterable[str] = ()
    ) -> NoReturn:
        """Raise an error about `token`, or about the next token; `words` are suggestions."""
        raise NotImplementedError

    def refuse_span(self, reason: str, start: int, end: int, *, hint: str | None = None) -> NoReturn:
        """Raise an error about a part of the text."""
        raise NotImplementedError

    def refuse_word(self, token: Token) -> NoReturn:
        """Raise an error about `token`, which makes no sense at its place, or about a word before it."""
        raise NotImplementedError

    def refuse_misspelled(self, token: Token) -> None:
        """Raise an error if `token`, or the word before it, is a misspelled word of the language."""
        raise NotImplementedError

    def _at_keep(self) -> bool:
        """Return whether the clause KEEP comes next, and not a name."""
        raise NotImplementedError

    def _parse_keep_clause(self) -> KeepClause:
        """Return KEEP number TUPLES."""
        raise NotImplementedError

    def _at_clause(self, word: str, *following: str) -> bool:
        return bool(
            self._curr and self._curr.text.upper() == word and self._next and self._next.text.upper() in following
        )

    def _at_word(self, word: str) -> bool:
        """Return whether a word comes next that is not a name in quotes."""
        return bool(self._curr and self._curr.token_type == TokenType.VAR and self._curr.text.upper() == word)

    def _at_lifetime(self) -> bool:
        """Return whether the clause LIFETIME comes next, and not a name."""
        return bool(
            self._curr
            and self._curr.text.upper() == "LIFETIME"
            and self._next
            and (self._next.token_type == TokenType.DASH or stands_for_number(self._next))
        )

    def _at_since(self) -> bool:
        """Return whether the clause SINCE comes next, and not a name."""
        return bool(
            self._curr
            and self._curr.text.upper() == "SINCE"
            and self._next
            and (
                self._next.token_type == TokenType.DASH
                or stands_for_number(self._next)
                or self._next.text.upper() == "BEGINNING"
            )
        )

    def _parse_since(self) -> SinceClause:
        token = self._curr
        self._advance()
        if self._match_text_seq("BEGINNING"):
            since = self.expression(SinceClause(), token)
        else:
            since = self.expression(SinceClause(this=self._parse_quantity()), token)
            if not self._match_text_seq("AGO"):
                self.refuse("AGO was expected here", hint=f"it is written {SINCE_SHAPE}", words=("AGO",))
        since.meta["end"] = self._prev.end
        return since

    def _parse_number(self) -> exp.Literal | exp.Placeholder | None:
        """Return the number that comes next, or the parameter in its place; None if something else does."""
        token = self._curr
        if is_mark(token):
            self._advance()
            return placeholder(self, token)
        if not self._match(TokenType.NUMBER):
            return None
        return self.expression(exp.Literal(this=token.text, is_string=False), token)

    def _parse_quantity(self, *, hint: str | None = None, words: Iterable[str] = ()) -> Quantity:
        token = self._curr
        value = self._parse_number()
        if value is None:
            hint = hint or "it is a number with a unit, such as 5 MINUTES"
            self.refuse("a positive number was expected here", hint=hint, words=words)
        unit = None
        following = self._curr
        if (
            following
            and following.start == token.end + 1
            and not following.text.isalpha()
            and self._match(TokenType.VAR)
        ):
            # For their author 1_000 and 0x10 are one number; reading the quantity then fails.
            value.set("this", token.text + following.text)
            value.meta["end"] = following.end
            following = self._curr
        # The value of a parameter may have a unit: then what comes next is none.
        no_unit = isinstance(value, exp.Placeholder) and following and following.text.upper() not in UNITS
        if (
            following
            and following.token_type == TokenType.VAR
            and following.text.upper() not in AFTER_QUANTITY
            and not no_unit
        ):
            self._advance()
            unit = self.expression(exp.Var(this=following.text), following)
        return self.expression(Quantity(this=value, unit=unit))

    def _parse_sample_clause(self) -> SampleClause | None:
        token = self._curr
        if not (token and self._at_clause("SAMPLE", "EVERY", "RATE")):
            return None
        kind = self._next.text.upper()
        self._advance(2)
        sample = SampleClause(kind=kind, this=self._parse_quantity())
        if self._match_text_seq("AT", "LEAST"):
            sample.set("slowest", self._parse_slowest())
        return self.expression(sample, token)

    def _parse_slowest(self) -> SampleClause:
        token = self._curr
        if not (self._match_text_seq("EVERY") or self._match_text_seq("RATE")):
            hint = "it is written SAMPLE EVERY 30 SECONDS AT LEAST EVERY 5 MINUTES"
            self.refuse("EVERY or RATE was expected here", hint=hint, words=("EVERY", "RATE"))
        return self.expression(SampleClause(kind=token.text.upper(), this=self._parse_quantity()), token)

    def _parse_query_end(self, query: exp.Expr) -> None:
        """Attach to `query` the clauses at its end, in any order: SAMPLE and KEEP, of a SELECT only, and LIFETIME."""
        while self._curr:
            token = self._curr
            if isinstance(query, exp.Select) and (sample := self._parse_sample_clause()) is not None:
                self._set_at_end(query, "sample", token, sample)
            elif isinstance(query, exp.Select) and self._at_keep():
                self._set_at_end(query, "keep", token, self._parse_keep_clause())
            elif self._at_lifetime():
                self._advance()
                lifetime = self.expression(LifetimeClause(this=self._parse_quantity()), token)
                if self._curr and self._curr.token_type in GOES_ON:
                    self.refuse("LIFETIME stands at the end of a query", token=token, hint=LIFETIME_SHAPE)
                self._set_at_end(query, "lifetime", token, lifetime)
            elif self._at_clause("SAMPLE", "EVERY", "RATE"):
                reason = "SAMPLE is about one SELECT, not about several that are combined"
                self.refuse(reason, token=token, hint="write it within the parentheses, or behind a stream")
            elif self._at_keep():
                reason = "KEEP is about one SELECT, not about several that are combined"
                self.refuse(reason, token=token, hint="write it within the parentheses, or behind COALESCE")
            elif self._at_since():
                self.refuse("SINCE stands behind a stream in FROM", token=token, hint=f"it is written {SINCE_SHAPE}")
            else:
                return

    def _set_at_end(self, query: exp.Expr, part: str, token: Token, clause: exp.Expr) -> None:
        if query.args.get(part):
            self.refuse(f"this query has two {part} clauses", token=token)
        query.set(part, clause)

    def _parse_events(self) -> EventsClause:
        token = self._curr
        self._advance(2)
        field = self._parse_id_var(any_token=False)
        if not isinstance(field, exp.Identifier):
            self.refuse("a field was expected here", hint=f"it is written {EVENTS_SHAPE}")
        above, below = self._parse_levels(EVENTS_SHAPE)
        if not self._match(TokenType.R_PAREN):
            words = ("BELOW",) if below is None else ()
            self.refuse("a closing parenthesis was expected here", hint=f"it is written {EVENTS_SHAPE}", words=words)
        events = self.expression(EventsClause(this=field, above=above, below=below), token)
        events.meta["end"] = self._prev.end
        return events

    def _parse_levels(self, shape: str) -> tuple[exp.Expr, exp.Expr | None]:
        """Return the numbers of ``ABOVE number [BELOW number]``, of a clause of a shape."""
        if not self._match_text_seq("ABOVE"):
            self.refuse("ABOVE was expected here", hint=f"it is written {shape}", words=("ABOVE",))
        above = self._parse_level(shape)
        return above, self._parse_level(shape) if self._match_text_seq("BELOW") else None

    def _parse_level(self, shape: str) -> exp.Expr:
        start = self._curr
        negative = self._match(TokenType.DASH)
        level = self._parse_number()
        if level is None:
            self.refuse("a number was expected here", hint=f"it is written {shape}")
        return self._negative(level, start) if negative else level

    def _negative(self, number: exp.Expr, start: Token) -> exp.Expr:
        """Return a number of a clause with the sign before it."""
        if isinstance(number, exp.Placeholder):
            self.refuse("a sign cannot stand before a parameter here", token=start, hint="put it into the value")
        number.set("this", f"-{number.this}")
        number.meta["start"] = start.start
        return number

    def _parse_within(self, column: exp.Column) -> Within | exp.Column:
        """Return a column with its allowed error; the column alone if WITHIN is a name."""
        token = self._next
        if token.token_type == TokenType.DASH and (number := self._tokens[self._index + 2 : self._index + 3]):
            self.refuse_span("the error allowed must be greater than zero", token.start, number[0].end + 1)
        if not stands_for_number(token):
            return column
        self._advance()
        return self.expression(Within(this=column, expression=self._parse_number()))
