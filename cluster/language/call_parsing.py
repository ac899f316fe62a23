"""Parsing calls, with the places of errors in them: also those that read JSON, texts and time in words of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from cluster.expressions.called_functions import (
    BothTrim,
    FirstPlace,
    JsonExists,
    JsonQuery,
    JsonValue,
    LeftTrim,
    RegexExtract,
    RightTrim,
)
from cluster.language.arguments import unknown_function, without_distinct, wrong_number
from cluster.language.functions import AGGREGATES
from cluster.language.quantities import DURATION_UNITS
from cluster.language.spelling import WORDS
from cluster.language.syntax import (
    PERCENTILE_SHAPE,
    PERCENTILES,
    STRING_AGG_SHAPE,
    IntervalLiteral,
    JsonArrow,
    JsonTextArrow,
    StringAgg,
)
from cluster.language.time_literals import FIELDS, INTERVAL_SHAPE
from cluster.language.validity_parsing import ValidityParsing

if TYPE_CHECKING:
    from collections.abc import Mapping

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


ARROW_TOKENS: Mapping[TokenType, type[exp.Binary]] = {TokenType.ARROW: JsonArrow, TokenType.DARROW: JsonTextArrow}
CALLS_WITH_CLAUSES: tuple[type[exp.Func], ...] = (JsonValue, JsonQuery, JsonExists)
"""Functions that have more than arguments in the SQL standard."""
_OTHERWISE: dict[str, str | None] = {
    **dict.fromkeys(
        ("NULL", "DEFAULT", "ERROR", "EMPTY"),
        "what is missing or malformed is NULL: COALESCE(JSON_VALUE(text, '$.key'), value)",
    ),
    **dict.fromkeys(
        ("TRUE", "FALSE", "UNKNOWN"),
        "what is missing or malformed is NULL: COALESCE(JSON_EXISTS(text, '$.key'), FALSE)",
    ),
    **dict.fromkeys(("WITH", "WITHOUT", "KEEP", "OMIT"), "JSON_EXTRACT gives what is there, whatever it is"),
    "RETURNING": "CAST(JSON_VALUE(text, '$.key') AS type)",
    "PASSING": None,
}
"""Words with which clauses of the standard about what is missing or no scalar begin, and what to write instead."""


class JsonParsing(CallParsing):
    """The part of the parser that reads these."""

    def parse_json_call(self, kind: type[exp.Func]) -> exp.Expr:
        """Return JSON_VALUE, JSON_QUERY or JSON_EXISTS; its parenthesis is open."""
        arguments = self._parse_csv(self._parse_disjunction)
        if len(arguments) != 2:  # noqa: PLR2004 - a document and a path
            raise ArgumentsError
        call = kind(this=arguments[0], path=arguments[1])
        if kind is JsonValue and self._match_text_seq("RETURNING"):
            returning = self._parse_types()
            if returning is None:
                self.refuse("a type was expected behind RETURNING", hint="RETURNING INTEGER")
            call.set("returning", returning)
        if self._curr and (word := self._curr.text.upper()) in _OTHERWISE:
            self.refuse(f"{word} is not part of {kind.sql_name()} in FjordSQL", hint=_OTHERWISE[word])
        return self.expression(call)

    def _parse_atom(self) -> exp.Expr | None:
        return None if self._curr and self._next and self._next.token_type in ARROW_TOKENS else super()._parse_atom()

    def _parse_column(self) -> exp.Expr | None:
        # sqlglot would take all that binds more loosely for the key: doc ->> 'a' || 'b'.
        start = self._curr
        this = super()._parse_column()
        while self._curr and (kind := ARROW_TOKENS.get(self._curr.token_type)):
            arrow = self._curr
            self._advance()
            minus = self._curr if self._match(TokenType.DASH) else None
            key = self._parse_column_reference()
            if key is None:
                hint = "text -> 'key' ->> 0"
                self.refuse(f"a key or a place in an array was expected behind {arrow.text}", hint=hint)
            if minus is not None:
                key = self._spanning(minus, self.expression(exp.Neg(this=key)))
            this = super()._parse_column_ops(self._spanning(start, self.expression(kind(this=this, expression=key))))
        return this


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
