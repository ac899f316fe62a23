"""Parsing calls of functions, quantified subqueries, lists of IN and of * EXCEPT, with the places of errors in them."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.arguments import unknown_function, without_distinct, wrong_number
from cluster.language.functions import AGGREGATES
from cluster.language.syntax import PERCENTILE_SHAPE, PERCENTILES, STRING_AGG_SHAPE, StringAgg
from cluster.language.validity_parsing import ValidityParsing

LITERALS = (TokenType.NUMBER, TokenType.STRING)

CASTS = ("CAST", "TRY_CAST")
"""sqlglot makes a CAST of other functions, too."""


class PositionedParseError(ParseError):
    """A parse error with its place."""

    def __init__(self, message: str, *, start: int, end: int) -> None:
        super().__init__(message, errors=[{"description": message, "start": start, "end": end}])
        self.start = start
        self.end = end


class ArgumentsError(PositionedParseError):
    """A call with a wrong number of arguments; only the place where the call began is known."""

    def __init__(self, name: str = "", *, start: int = 0, end: int = 0) -> None:
        super().__init__("wrong number of arguments", start=start, end=end)
        self.name = name


class CallParsing(ValidityParsing):
    """The part of the parser that reads calls."""

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise sqlglot's error with its place: the next token, though it may name the last one."""
        token = self._curr if token is None or token is self._prev else token
        start, end = (token.start, token.end + 1) if token else (len(self.sql.rstrip()),) * 2
        raise PositionedParseError(message, start=start, end=end)

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        """Return `expression`, if it has all its required parts."""
        if not expression.error_messages(args):
            return expression
        if isinstance(expression, exp.Between):
            self.raise_error("Expected AND")
        if args is not None or (isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary | exp.Case)):
            raise ArgumentsError
        return super().validate_expression(expression, args)

    def _spanning(self, start: Token | None, expression: exp.Expr | None) -> exp.Expr | None:
        """Attach to `expression` its place in the text, for errors; sqlglot does so for names and numbers only."""
        if expression is not None and start and self._prev:
            expression.meta["start"], expression.meta["end"] = start.start, self._prev.end
        return expression

    def _parse_quantified(self) -> exp.Expr | None:
        """Return ALL, SOME or EXISTS of a query, which may have parentheses of its own; sqlglot reads only one pair."""
        predicate = self.SUBQUERY_PREDICATES.get(self._curr.token_type) if self._curr else None
        place = self._index + 1
        while place < len(self._tokens) and self._tokens[place].token_type == TokenType.L_PAREN:
            place += 1
        opened = self._index + 1 < place < len(self._tokens)
        if predicate is None or not opened or self._tokens[place].token_type not in self.SUBQUERY_TOKENS:
            return None
        start = self._curr
        self._advance(2)
        query = self._parse_set_operations(self._parse_select(nested=True, parse_subquery_alias=False))
        self._match_r_paren()
        return self._spanning(start, self.expression(predicate(this=query)))

    def _parse_function_call(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        if (quantified := self._parse_quantified()) is not None:
            return quantified
        token, start = self._curr, self._index
        if self._at_common_validity():
            return self._spanning(token, self._parse_common_validity())
        try:
            call = super()._parse_function_call(*arguments, **options)
        except ArgumentsError as error:
            if error.name:
                raise
            if token.text.upper() in CASTS:
                self.raise_error("Expected AS")
            last = self._curr if self._curr and self._curr.token_type == TokenType.R_PAREN else self._prev
            if self._tokens[start + 2 : start + 3] and self._tokens[start + 2].token_type == TokenType.DISTINCT:
                reason, hint = without_distinct(token.text)
                self.refuse_span(reason, token.start, last.end + 1, hint=hint)
            raise ArgumentsError(token.text, start=token.start, end=last.end + 1) from None
        if isinstance(call, exp.Cast) and token.text.upper() not in CASTS:
            reason, hint = unknown_function(token.text, elsewhere=True)
            self.refuse_span(reason, token.start, self._prev.end + 1, hint=hint)
        function = call
        while function is not None and not isinstance(function, exp.Func | exp.Subquery):
            function = function.this if isinstance(function.this, exp.Expr) else None
        if function is not None:
            function.meta.setdefault("called", token.text)
            if type(function) in AGGREGATES and not isinstance(function.this, exp.All):
                # sqlglot reads ALL and keeps nothing of it.
                function.meta.setdefault("all", self._tokens[start + 2].token_type == TokenType.ALL)
        return call

    def _parse_star_op(self, *keywords: str) -> list[exp.Expr] | None:
        # Names behind EXCEPT are no columns that are read: no rule for columns is to find them.
        found = super()._parse_star_op(*keywords)
        plain = (isinstance(each, exp.Column) and len(each.parts) == 1 for each in found or ())
        return found and [each.this if name else each for each, name in zip(found, plain, strict=True)]

    def _parse_window(
        self,
        this: exp.Expr | None,
        alias: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
    ) -> exp.Expr | None:
        if this is not None and type(this) in PERCENTILES and self._match_text_seq("WITHIN", "GROUP"):
            this = self._parse_percentile(this)
        if isinstance(this, StringAgg) and not this.args.get("order") and self._match_text_seq("WITHIN", "GROUP"):
            self._match_l_paren()
            self._parse_own_order(this)
            this.set("within", True)  # noqa: FBT003 - sqlglot's
            self._match_r_paren()
        return super()._parse_window(this, alias)

    def parse_string_agg(self) -> exp.Expr:
        """Return STRING_AGG or LISTAGG; its parenthesis is open."""
        distinct = self._match(TokenType.DISTINCT)
        value = self._parse_disjunction()
        if value is None:
            raise ArgumentsError
        call = StringAgg(this=exp.Distinct(expressions=[value]) if distinct else value)
        if self._match(TokenType.COMMA):
            call.set("separator", self._parse_disjunction())
        if self._match(TokenType.ORDER_BY, advance=False):
            self._parse_own_order(call)
        if self._match(TokenType.COMMA):
            self._parse_csv(self._parse_disjunction)
            raise ArgumentsError
        return self.expression(call)

    def _parse_own_order(self, call: exp.Expr) -> None:
        """Read the ORDER BY of STRING_AGG."""
        if not self._match(TokenType.ORDER_BY):
            self.refuse("ORDER BY was expected here", hint=f"it is written {STRING_AGG_SHAPE.format('STRING_AGG')}")
        call.set("order", self._parse_disjunction())
        if call.args["order"] is None:
            self.refuse("a value was expected here", hint=f"it is written {STRING_AGG_SHAPE.format('STRING_AGG')}")
        if self._match_set((TokenType.ASC, TokenType.DESC)):
            call.set("desc", self._prev.token_type == TokenType.DESC)
        if self._curr and self._curr.text.upper() == "NULLS":
            self.refuse("NULLS cannot stand here: they are left out", hint="leave it out")

    def _parse_percentile(self, call: exp.Expr) -> exp.Expr:
        """Return the percentile whose values come next, in parentheses; sqlglot would take several."""
        name = AGGREGATES[PERCENTILES[type(call)]].name.upper()
        shape = f"it is written {PERCENTILE_SHAPE.format(name)}"
        if call.args.get("expression") is not None or isinstance(call.this, exp.Distinct):
            self.refuse(wrong_number(name)[0], token=self._prev, hint=shape)
        self._match_l_paren()
        if not self._match(TokenType.ORDER_BY):
            self.refuse("ORDER BY was expected here", hint=shape)
        value = self._parse_disjunction()
        if value is None:
            self.refuse("a value was expected here", hint=shape)
        if self._curr and self._curr.token_type in (TokenType.ASC, TokenType.DESC):
            reason = f"{self._curr.text.upper()} cannot stand here: a share counts from the least value"
            self.refuse(reason, hint=shape)
        if self._curr and self._curr.token_type == TokenType.COMMA:
            self.refuse(f"{name} orders by one value", hint=shape)
        self._match_r_paren()
        return self.expression(PERCENTILES[type(call)](this=value, quantile=call.this))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:  # noqa: FBT001, FBT002 - sqlglot's
        if not self._match(TokenType.L_PAREN, advance=False):
            self.refuse("IN is followed by a list or a query in parentheses", hint="x IN (1, 2)")
        literals = self._parse_literals()
        return super()._parse_in(this, alias) if literals is None else exp.In(this=this, expressions=literals)

    def _parse_literals(self) -> list[exp.Expr] | None:
        """Return the numbers and texts in parentheses if there is nothing else in them: such lists may be long."""
        found: list[exp.Expr] = []
        for place in range(self._index + 1, len(self._tokens) - 1, 2):
            token, behind = self._tokens[place], self._tokens[place + 1].token_type
            if token.token_type not in LITERALS or behind not in (TokenType.COMMA, TokenType.R_PAREN):
                return None
            literal = exp.Literal(this=token.text, is_string=token.token_type == TokenType.STRING)
            found.append(literal.update_positions(token))
            if behind == TokenType.R_PAREN:
                self._advance(place + 2 - self._index)
                return found
        return None
