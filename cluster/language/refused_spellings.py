"""Parsing calls and set operations that sqlglot reads more loosely than FjordSQL does; the errors are raised here."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import SensorClauseParsing

SUBSTRING_SHAPE = "SUBSTRING(text FROM start FOR length), or SUBSTRING(text, start, length)"
MATCHING = "columns match by their place, and are named by the first query"
BEFORE_OPERATION = ("LEFT", "RIGHT", "FULL", "INNER", "OUTER", "SEMI", "ANTI", "CROSS", "NATURAL")
BEHIND_OPERATION = ("STRICT", "CORRESPONDING", "BY", "NAME")


class RefusedSpellings(SensorClauseParsing):
    """The part of the parser that refuses spellings that sqlglot would read with another meaning."""

    def _parse_substring(self) -> exp.Substring:
        arguments: list[exp.Expr | None] = [*self._parse_csv(self._parse_bitwise)]
        word = self._curr
        if self._match(TokenType.FOR) or (len(arguments) != 1 and self._match(TokenType.FROM)):
            behind = word.token_type == TokenType.FROM
            reason = "FROM was not expected behind a comma" if behind else "FROM was expected before FOR"
            self.refuse(reason, token=word, hint=f"it is written {SUBSTRING_SHAPE}")
        for separator in (TokenType.FROM, TokenType.FOR):
            if self._match(separator):
                arguments += [self._parse_bitwise()]
        return self.validate_expression(exp.Substring.from_arg_list(arguments), arguments)

    def parse_set_operation(
        self,
        this: exp.Expr | None,
        consume_pipe: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
        intersect_only: bool = False,  # noqa: FBT001, FBT002
    ) -> exp.SetOperation | None:
        """Return the set operation that comes next; refuse spellings that match columns by their names."""
        first = self._index
        operation = super().parse_set_operation(this, consume_pipe, intersect_only)
        if operation is not None and any(operation.args.get(part) for part in ("by_name", "side", "kind")):
            self._refuse_matching(first)
        return operation

    def _refuse_matching(self, first: int) -> NoReturn:
        tokens = self._tokens[first:]
        before = next((token for token in tokens[:3] if token.text.upper() in BEFORE_OPERATION), None)
        place = next(place for place, token in enumerate(tokens) if token.token_type in self.SET_OPERATIONS)
        if before is not None and before in tokens[:place]:
            reason = f"{before.text.upper()} is not part of FjordSQL before UNION, EXCEPT or INTERSECT"
            self.refuse(reason, token=before)
        words = [token for token in tokens[place : place + 5] if token.text.upper() in BEHIND_OPERATION]
        written = " ".join(token.text.upper() for token in words)
        self.refuse_span(f"{written} is not part of FjordSQL", words[0].start, words[-1].end + 1, hint=MATCHING)
