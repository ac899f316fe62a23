"""Parsing OVER, and the functions that stand before it and are written in a way of their own."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import SensorClauseParsing
from cluster.language.syntax import OF_GROUPS, Hysteresis, Over, Quantity, SequenceFrame, SequenceOrder
from cluster.language.words import FOREIGN_CLAUSES, FRAME_SHAPES, HYSTERESIS_SHAPE, LAG_SHAPE

ORDERED_BY_STAMPS = "ORDER BY STAMP(), or nothing: tuples have no other order here"
BEHIND = "a frame ends with the tuple itself: what comes behind it is not known yet"
ENDS_FIRST = "the frame ends before it begins"


class SequenceParsing(SensorClauseParsing):
    """The part of the parser that reads functions over the tuples of a stream in order."""

    def _parse_window(
        self,
        this: exp.Expr | None,
        alias: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
    ) -> exp.Expr | None:
        found = super()._parse_window(this, alias)
        while found is not None and self._match(TokenType.OVER):
            if isinstance(found, Over):
                self.refuse("this function has two OVER", token=self._prev)
            found = self._parse_over(found)
        if isinstance(found, exp.Filter):
            found.set("this", _of_group(found.this))
        return None if found is None else _of_group(found)

    def _parse_over(self, call: exp.Expr) -> Over:
        shape = f"it is written {LAG_SHAPE}"
        if not self._match(TokenType.L_PAREN):
            self.refuse("OVER is followed by parentheses", hint=shape)
        partition = self._parse_csv(self._parse_disjunction) if self._match(TokenType.PARTITION_BY) else None
        order = self._parse_sequence_order() if self._match(TokenType.ORDER_BY) else None
        frame = self._parse_frame() if self._match_set((TokenType.ROWS, TokenType.RANGE)) else None
        if not self._match(TokenType.R_PAREN):
            words = ("PARTITION BY", "ORDER BY", "ROWS", "RANGE")
            if self._match(TokenType.WHEN, advance=False):
                self.refuse("WHEN is not part of FjordSQL here", hint=FOREIGN_CLAUSES["WHEN"])
            if order is not None and self._curr and self._curr.token_type == TokenType.PARTITION_BY:
                self.refuse("PARTITION BY stands before ORDER BY", hint=shape)
            self.refuse("a closing parenthesis was expected here", hint=shape, words=words)
        within = None
        if self._at_word("WITHIN") and self._next and self._next.text.upper() != "GROUP":
            self._advance()
            within = self._parse_quantity(hint="LAG(x) OVER (PARTITION BY k) WITHIN 5 MINUTES")
        return self.expression(Over(this=call, partition=partition, order=order, frame=frame, within=within))

    def _parse_sequence_order(self) -> SequenceOrder:
        token = self._curr
        if self._at_clause("STAMP", "("):
            self._advance(2)
            if not self._match(TokenType.R_PAREN):
                self.refuse("tuples are ordered by stamps of their own", hint=f"write {ORDERED_BY_STAMPS}")
            order = self.expression(SequenceOrder(), token)
        else:
            name = self._parse_id_var(any_token=False)
            if not isinstance(name, exp.Identifier):
                self.refuse("a stamp was expected here", hint=f"write {ORDERED_BY_STAMPS}")
            order = self.expression(SequenceOrder(this=name), token)
        order.meta["end"] = self._prev.end
        if self._curr and self._curr.token_type == TokenType.DESC:
            self.refuse("DESC cannot stand here: tuples come in the order of their stamps", hint="LEAD looks ahead")
        if self._match(TokenType.ASC) or self._at_word("NULLS") or self._match(TokenType.COMMA, advance=False):
            self.refuse("tuples are ordered by their stamps alone", hint=f"write {ORDERED_BY_STAMPS}")
        return order

    def _parse_frame(self) -> SequenceFrame:
        token, kind = self._prev, self._prev.text.upper()
        between = bool(self._match(TokenType.BETWEEN))
        size, interval = self._parse_bound(kind, begin=True)
        until, until_interval = None, False
        if between:
            if not self._match(TokenType.AND):
                self.refuse("AND was expected here", hint=f"a frame is written {FRAME_SHAPES}", words=("AND",))
            if not self._match_text_seq("CURRENT", "ROW"):
                until, until_interval = self._parse_bound(kind, begin=False)
        frame = SequenceFrame(
            kind=kind, this=size, between=between, interval=interval, until=until, until_interval=until_interval
        )
        found = self.expression(frame, token)
        found.meta["end"] = self._prev.end
        return found

    def _parse_bound(self, kind: str, *, begin: bool) -> tuple[Quantity | None, bool]:
        """Return how far before its tuple a frame begins or ends, None for UNBOUNDED, and whether INTERVAL is there."""
        shapes = f"a frame is written {FRAME_SHAPES}"
        ahead = [token.text.upper() for token in self._tokens[self._index : self._index + 6]]
        ahead = ahead[: ahead.index(")")] if ")" in ahead else ahead
        own = ahead[: ahead.index("AND")] if "AND" in ahead and not self._at_word("CURRENT") else ahead
        if "FOLLOWING" in own:
            self.refuse(BEHIND, hint="LEAD(x) OVER (...) WITHIN 5 MINUTES looks ahead")
        other = "CURRENT" if begin else "UNBOUNDED"  # where the other bound is
        if self._at_word(other) and "PRECEDING" in ahead:
            self.refuse(ENDS_FIRST, hint=further_back_first(kind))
        if self._at_word(other) or self._at_word("CURRENT"):
            expected = "PRECEDING" if begin else "CURRENT ROW"
            self.refuse(f"{expected} was expected here", hint=shapes, words=(expected.partition(" ")[0],))
        size: Quantity | None = None
        interval = bool(self._match(TokenType.INTERVAL)) if kind == "RANGE" else False
        if interval and (self._curr and self._curr.token_type == TokenType.STRING):
            size = self._parse_quoted_quantity()
        elif interval or not begin or not self._match_text_seq("UNBOUNDED"):
            size = self._parse_quantity(hint=shapes, words=("UNBOUNDED", "CURRENT") if begin else ("CURRENT",))
        if not self._match_text_seq("PRECEDING"):
            self.refuse("PRECEDING was expected here", hint=shapes, words=("PRECEDING",))
        return size, interval

    def _parse_quoted_quantity(self) -> Quantity:
        """Return the quantity of ``INTERVAL '5' MINUTE`` or ``INTERVAL '5 minutes'``."""
        token = self._curr
        self._advance()
        number, _, word = token.text.strip().partition(" ")
        unit = exp.Var(this=word.strip()) if word.strip() else None
        following = self._curr
        if unit is None and following and following.token_type == TokenType.VAR:
            self._advance()
            unit = self.expression(exp.Var(this=following.text), following)
        literal = exp.Literal(this=number, is_string=False)
        return self.expression(Quantity(this=literal.update_positions(token), unit=unit))

    def _parse_hysteresis(self) -> Hysteresis:
        """Return what stands in the parentheses of HYSTERESIS."""
        value = self._parse_disjunction()
        if value is None:
            self.refuse("a value was expected here", hint=f"it is written {HYSTERESIS_SHAPE}")
        above, below = self._parse_levels(HYSTERESIS_SHAPE)
        return self.expression(Hysteresis(this=value, above=above, below=below))


def further_back_first(kind: str) -> str:
    """Return the hint for a frame whose bounds are in the wrong order."""
    bounds = "9 PRECEDING AND 1 PRECEDING" if kind == "ROWS" else "1 HOUR PRECEDING AND 5 MINUTES PRECEDING"
    return f"the bound that is further back stands first, {kind} BETWEEN {bounds}"


def _of_group(call: exp.Expr) -> exp.Expr:
    """Return the aggregate that a function over tuples in order is without OVER, or what was given."""
    if type(call) not in OF_GROUPS:
        return call
    grouped = OF_GROUPS[type(call)](**call.args)
    grouped.meta.update(call.meta)
    return grouped
