"""Parsing CREATE FUNCTION and DROP FUNCTION."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.statements import StatementParsing
from cluster.language.syntax import CreateFunctionStatement, DropStatement, FunctionParameter

FUNCTION_SHAPE = "CREATE FUNCTION name (TYPE, ...) RETURNS TYPE AS 'package.module:function'"
_CLAUSES = ("LANGUAGE", "STRICT", "RETURNS", "CALLED", "AS")


class FunctionParsing(StatementParsing):
    """The part of the parser that reads statements, with those about functions."""

    def _parse_statement(self) -> exp.Expr | None:
        start = self._index
        if self._curr and self._curr.text.upper() in ("CREATE", "DROP"):
            creates = self._curr.text.upper() == "CREATE"
            self._advance()
            if self._match_text_seq("FUNCTION"):
                if creates:
                    return self._parse_create_function()
                name = self._parse_stream_name("the name of a function")
                return self.expression(DropStatement(this=name, kind="FUNCTION"))
            self._retreat(start)
        return super()._parse_statement()

    def _parse_create_function(self) -> exp.Expr:
        name = self._parse_stream_name("the name of a function")
        if not self._match(TokenType.L_PAREN):
            self.refuse("the types of arguments were expected here, in parentheses", hint=FUNCTION_SHAPE)
        parameters = []
        if not (self._curr and self._curr.token_type == TokenType.R_PAREN):
            parameters = self._parse_csv(self._parse_function_parameter)
        if not self._match(TokenType.R_PAREN):
            self.refuse("a comma or a closing parenthesis was expected here", hint="[name] TYPE, ...")
        self._expect_word("RETURNS", FUNCTION_SHAPE)
        found: dict[str, exp.Expr | str] = {"returns": self._parse_type_word("the type of the result")}
        while self._curr:
            self._parse_function_clause(found)
        if "path" not in found:
            self._expect_word("AS", FUNCTION_SHAPE, *_CLAUSES[:-1])
        return self.expression(CreateFunctionStatement(this=name, expressions=parameters, **found))

    def _parse_function_clause(self, found: dict[str, exp.Expr | str]) -> None:
        token = self._curr
        part: str
        value: exp.Expr | str
        if self._match_text_seq("LANGUAGE"):
            part, value = "language", self._parse_stream_name("POLARS or ARROW")
        elif self._match_text_seq("STRICT"):
            part, value = "nulls", "STRICT"
        elif self._match_text_seq("RETURNS") or self._match_text_seq("CALLED"):
            returns = token.text.upper() == "RETURNS"
            part, value = "nulls", "RETURNS" if returns else "CALLED"
            shape = f"{'RETURNS NULL' if returns else 'CALLED'} ON NULL INPUT"
            for word in shape.split()[1:]:
                self._expect_word(word, shape)
        elif self._match(TokenType.ALIAS):
            part, value = "path", self._parse_text("the path of a function", "AS 'package.module:function'")
        else:
            self._expect_word("AS", FUNCTION_SHAPE, *_CLAUSES[:-1])
            return
        if part in found:
            self.refuse(f"{token.text.upper()} was not expected here: that is given already", token=token)
        found[part] = value

    def _parse_function_parameter(self) -> exp.Expr | None:
        following = self._next.token_type if self._next else None
        named = following not in (TokenType.COMMA, TokenType.R_PAREN, None)
        name = self._parse_stream_name("the name of an argument") if named else None
        return self.expression(FunctionParameter(this=name, kind=self._parse_type_word("the type of the argument")))

    def _parse_type_word(self, what: str) -> exp.Expr:
        token = self._curr
        if not token or not "".join(token.text.split()).isalpha():
            self.refuse(f"{what} was expected here", hint="boolean, integer, real or text")
        self._advance()
        return self.expression(exp.Var(this=" ".join(token.text.split())), token)
