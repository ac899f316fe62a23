"""Parsing GROUP BY with its sets, ORDER BY with LIMIT, OFFSET and FETCH, QUALIFY, and ranks with their OVER."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.call_parsing import CallParsing
from cluster.language.sensor_clauses import stands_for_number
from cluster.language.spelling import WORDS
from cluster.language.syntax import RANKS, OrderKey, RankCall, TopClause
from cluster.language.words import DISTINCT_ON, GROUPING_SHAPES, LAST_TUPLES, MISPLACED_WINDOW, OVER_SHAPE, TOP_SHAPE

_LISTS: dict[TokenType, type[exp.Rollup | exp.Cube]] = {TokenType.ROLLUP: exp.Rollup, TokenType.CUBE: exp.Cube}


class GroupingParsing(CallParsing):
    """The part of the parser that reads GROUP BY."""

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:  # noqa: FBT001, FBT002 - sqlglot's
        start = self._prev if skip_group_by_token else self._curr
        place = self._index + (0 if skip_group_by_token else 1)
        first = self._tokens[place : place + 2]
        if [each.token_type for each in first] == [TokenType.WINDOW, TokenType.L_PAREN]:
            reason, hint = MISPLACED_WINDOW
            self.refuse(reason, token=first[0], hint=hint)
        if first and first[0].token_type == TokenType.ALL:
            hint = "name what to group by, or its places in SELECT: GROUP BY 1, 2"
            self.refuse("GROUP BY ALL is not part of FjordSQL", token=first[0], hint=hint)
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            hint = "name columns to group by, or leave GROUP BY away"
            self.refuse("GROUP BY has nothing behind it", token=start, hint=hint)
        if group is not None:
            group.set("expressions", [_of_one_set(each) for each in group.expressions])
        return group

    def _parse_grouping_sets(self) -> exp.GroupingSets | None:
        start = self._curr
        if not self._match(TokenType.GROUPING_SETS):
            return None
        found = exp.GroupingSets(expressions=self._parse_sets(start))
        self._spanning(start, found)
        return self.expression(found)

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:  # noqa: FBT001, FBT002
        start = self._curr
        if with_prefix:  # WITH ROLLUP, which is refused later
            found = super()._parse_cube_or_rollup(with_prefix)
            self._spanning(start, found)
            return found
        kind = _LISTS.get(start.token_type) if start else None
        if kind is None or self._next is None or self._next.token_type != TokenType.L_PAREN:
            return None
        self._advance()
        found = kind(expressions=self._parse_sets(start))
        self._spanning(start, found)
        return self.expression(found)

    def _parse_sets(self, word: Token) -> list[exp.Expr]:
        """Return the keys, sets and lists in parentheses behind a word; sqlglot reads no comparisons there."""
        if not self._match(TokenType.L_PAREN):
            self.refuse(f"{word.text.upper()} is followed by sets of keys in parentheses", hint=GROUPING_SHAPES)
        found = self._parse_csv(
            lambda: self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )
        if not found:
            self.refuse(f"{word.text.upper()} has no keys", token=word, hint=GROUPING_SHAPES)
        self._match_r_paren()
        return [_of_one_set(each) for each in found]


def _of_one_set(element: exp.Expr) -> exp.Expr:
    """Return an element of GROUP BY without parentheses around those of a set, which change nothing."""
    inner = element.unnest() if isinstance(element, exp.Paren) else element
    return inner if isinstance(inner, exp.Tuple) else element


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
