"""Parsing ORDER BY with LIMIT, OFFSET and FETCH at the end of a query, QUALIFY, and ranks with their OVER."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.call_parsing import CallParsing
from cluster.language.sensor_clauses import stands_for_number
from cluster.language.spelling import WORDS
from cluster.language.syntax import RANKS, OrderKey, RankCall, TopClause
from cluster.language.words import DISTINCT_ON, LAST_TUPLES, OVER_SHAPE, TOP_SHAPE

_BEFORE = (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY)
_NUMBERED = (TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH)
TOP = (TokenType.ORDER_BY, *_NUMBERED)
"""What the clause for the first rows may begin with."""
_FIRST_ROWS = "ORDER BY needs LIMIT: the rows of a snapshot have no order, but there are first ones"
_ANY_ROWS = "needs ORDER BY: without an order no row of a snapshot comes before another"


class OrderParsing(CallParsing):
    """The part of the parser that reads what is about the order of rows."""

    def _parse_top(self) -> tuple[str, TopClause]:
        """Return the clause for the first rows of every snapshot, which comes next."""
        start = self._curr
        keys: list[exp.Expr] = []
        words: list[str] = []
        if self._match(TokenType.ORDER_BY):
            keys = self._parse_order_keys(start)
            words += ["ORDER BY", *[","] * (len(keys) - 1)]
        elif start.token_type != TokenType.OFFSET:
            reason = f"{start.text.upper()} {_ANY_ROWS}"
            self.refuse(reason, hint=f"it is written {TOP_SHAPE}; {LAST_TUPLES}")
        top = TopClause(expressions=keys)
        while self._curr and self._curr.token_type in _NUMBERED:
            self._parse_numbered(top, words)
        if not keys:
            self.refuse(f"OFFSET {_ANY_ROWS}", token=start, hint=f"it is written {TOP_SHAPE}")
        if not top.args.get("limit") and not top.args.get("offset"):
            self._refuse_distinct_on()
            self.refuse(_FIRST_ROWS, token=start, hint=f"it is written {TOP_SHAPE}; sort where you receive rows")
        if self._curr and self._curr.token_type in _BEFORE:
            word = self._curr.text.upper()
            self.refuse(f"ORDER BY and LIMIT stand behind {word}", token=start, hint=f"it is written {TOP_SHAPE}")
        if self._match_set(self.SET_OPERATIONS, advance=False):
            reason = f"ORDER BY and LIMIT cannot stand before {self._curr.text.upper()} without parentheses"
            self.refuse(reason, token=start, hint="(SELECT ... ORDER BY speed LIMIT 10) UNION ...")
        top.meta[WORDS] = words
        self._spanning(start, top)
        return "top", self.expression(top)

    def _parse_order_keys(self, word: Token) -> list[exp.Expr]:
        keys: list[exp.Expr] = self._parse_csv(self._parse_order_key)
        if not keys:
            self.refuse("ORDER BY has nothing behind it", token=word, hint=f"it is written {TOP_SHAPE}")
        return keys

    def _parse_order_key(self) -> OrderKey | None:
        start = self._curr
        value = self._parse_disjunction()
        if value is None:
            return None
        words: list[str] = []
        descending = nulls_first = False
        if self._match(TokenType.ASC) or self._match(TokenType.DESC):
            descending = self._prev.token_type == TokenType.DESC
            words.append(self._prev.text.upper())
        if self._match_text_seq("NULLS"):
            if not (self._match(TokenType.FIRST) or self._match_text_seq("FIRST") or self._match_text_seq("LAST")):
                self.refuse("FIRST or LAST was expected here", hint="ORDER BY speed DESC NULLS LAST")
            nulls_first = self._prev.text.upper() == "FIRST"
            words += ["NULLS", "FIRST"] if nulls_first else []  # as in any other text, NULLS LAST changes nothing
        key = OrderKey(this=value, desc=descending or None, nulls_first=nulls_first or None)
        key.meta[WORDS] = words
        self._spanning(start, key)
        return self.expression(key)

    def _refuse_distinct_on(self) -> None:
        """Refuse DISTINCT ON, whose ORDER BY has no LIMIT, as what it is."""
        for token, following in pairwise(self._tokens[: self._index]):
            if token.token_type == TokenType.DISTINCT and following.token_type == TokenType.ON:
                reason, hint = DISTINCT_ON
                self.refuse_span(reason, token.start, following.end + 1, hint=hint)

    def _parse_numbered(self, top: TopClause, words: list[str]) -> None:
        """Attach the LIMIT, OFFSET or FETCH that comes next."""
        word = self._curr
        name = word.text.upper()
        part = "offset" if name == "OFFSET" else "limit"
        if top.args.get(part):
            self.refuse(f"this query has two {part.upper()} clauses")
        self._advance()
        words.append(name)
        if name == "FETCH":
            if not (self._match(TokenType.FIRST) or self._match_text_seq("FIRST") or self._match_text_seq("NEXT")):
                self.refuse("FIRST was expected here", hint="FETCH FIRST 10 ROWS ONLY")
            words.append(self._prev.text.upper())
        top.set(part, self._parse_row_count(name))
        rows = self._match_text_seq("ROWS") or self._match_text_seq("ROW") if name != "LIMIT" else None
        if rows:
            words.append(self._prev.text.upper())
        if name == "FETCH":
            if not rows or not self._match_text_seq("ONLY"):
                hint = "FETCH FIRST 10 ROWS ONLY; rows with equal places are kept by a condition on RANK() OVER (...)"
                self.refuse("ROWS ONLY was expected here", hint=hint)
            words.append("ONLY")
        if name == "LIMIT" and self._curr and self._curr.text.upper() in ("WITH", "ROWS", "ROW", "PERCENT"):
            hint = "rows with equal places are kept by a condition on RANK(): QUALIFY RANK() OVER (ORDER BY ...) <= 10"
            self.refuse(f"{self._curr.text.upper()} cannot stand behind LIMIT", hint=hint)
        if name == "LIMIT" and self._match(TokenType.COMMA, advance=False):
            self.refuse("a comma cannot stand in LIMIT", hint="LIMIT 10, 5 of other databases is LIMIT 5 OFFSET 10")

    def _parse_row_count(self, name: str) -> exp.Expr:
        if name == "FETCH" and self._curr and self._curr.text.upper() in ("ROW", "ROWS"):
            return exp.Literal.number("1")
        if not self._curr or not stands_for_number(self._curr):
            self.refuse(f"a whole number was expected behind {name}", hint=f"it is written {TOP_SHAPE}")
        found = self._parse_number()
        assert found is not None  # noqa: S101 - one stands here
        return found

    def _parse_window(
        self,
        this: exp.Expr | None,
        alias: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
    ) -> exp.Expr | None:
        if this is None or type(this) not in RANKS:
            return super()._parse_window(this, alias)
        name = RANKS[type(this)].upper()
        shape = f"it is written {OVER_SHAPE.format(name)}"
        if this.args.get("expressions"):
            self.refuse(f"{name} takes no argument", token=self._prev, hint=shape)
        if not self._match(TokenType.OVER):
            word = self._tokens[max(self._index - 3, 0)]  # before two parentheses
            self.refuse_span(f"{name} needs OVER with an order", word.start, self._prev.end + 1, hint=shape)
        over = self._prev
        if not self._match(TokenType.L_PAREN):
            self.refuse("an opening parenthesis was expected here", hint=shape)
        words = [name, "()", "OVER"]
        groups: list[exp.Expr] = []
        if self._match(TokenType.PARTITION_BY):
            word = self._prev
            groups = self._parse_csv(self._parse_disjunction)
            if not groups:
                self.refuse("PARTITION BY has nothing behind it", token=word, hint=shape)
            words += ["PARTITION BY", *[","] * (len(groups) - 1)]
        if not self._match(TokenType.ORDER_BY):
            self.refuse("ORDER BY was expected here: places are places in an order", hint=shape)
        keys = self._parse_order_keys(self._prev)
        words += ["ORDER BY", *[","] * (len(keys) - 1)]
        if not self._match(TokenType.R_PAREN):
            framed = self._curr and self._curr.text.upper() in ("ROWS", "RANGE", "GROUPS")
            reason = f"{name} has no frame: it is a place among all rows" if framed else None
            if not groups and self._curr and self._curr.token_type == TokenType.PARTITION_BY:
                reason = "PARTITION BY stands before ORDER BY"
            self.refuse(reason or "a closing parenthesis was expected here", hint=shape)
        call = RankCall(kind=name, partition=groups or None, expressions=keys)
        call.meta[WORDS] = words
        call.meta["start"], call.meta["end"] = this.meta.get("start", over.start), self._prev.end
        return self.expression(call)


def _top(self: Any) -> tuple[str, TopClause]:
    found: tuple[str, TopClause] = self._parse_top()
    return found


MODIFIERS: dict[TokenType, Any] = dict.fromkeys(TOP, _top)
"""How sqlglot's parser of what stands at the end of a query comes here."""
