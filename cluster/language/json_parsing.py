"""Parsing what reads JSON: ``JSON_VALUE(x, 'path' RETURNING type)``, and the operators ``->`` and ``->>``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.expressions.called_functions import JsonExists, JsonQuery, JsonValue
from cluster.language.call_parsing import ArgumentsError, CallParsing
from cluster.language.syntax import JsonArrow, JsonTextArrow

if TYPE_CHECKING:
    from collections.abc import Mapping

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
