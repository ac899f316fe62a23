"""Parsing whole statements: queries, CREATE and DROP of streams, relations and functions, and nothing else."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from cluster.language.sensor_clauses import SensorClauseParsing
from cluster.language.syntax import (
    ColumnDefinition,
    CreateDerived,
    CreateFunctionStatement,
    CreateRelationStatement,
    CreateSource,
    DropStatement,
    FunctionParameter,
)
from cluster.language.words import FOREIGN_STATEMENTS, WITH_SHAPE

NO_QUERY = "a query was expected here"
BEGINNINGS = ("SELECT", "CREATE", "DROP", "WITH")
RELATION_SHAPE = "CREATE RELATION name [(column TYPE, ...)] FROM 'source' REFRESH EVERY 30 SECONDS"


class StatementParsing(SensorClauseParsing):
    """The part of the parser that reads one statement."""

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self._match_text_seq("CREATE"):
            return self._parse_create_relation() if self._match_text_seq("RELATION") else self._parse_create_stream()
        if self._match_text_seq("DROP"):
            if self._match_text_seq("RELATION"):
                return self.expression(
                    DropStatement(this=self._parse_stream_name("the name of a relation"), kind="RELATION")
                )
            self._expect_word(
                "STREAM", "DROP STREAM name, DROP RELATION name or DROP FUNCTION name", "RELATION", "FUNCTION"
            )
            return self.expression(DropStatement(this=self._parse_stream_name(), kind="STREAM"))
        if self._curr.token_type in (TokenType.SELECT, TokenType.L_PAREN, TokenType.WITH):
            return self._parse_query()
        hint = FOREIGN_STATEMENTS.get(self._curr.text.upper())
        if self._prev:
            # sqlglot reads the contents of WITH, and what follows it, as statements of their own.
            found = None if self._curr.token_type == TokenType.FROM else hint
            return self.refuse(NO_QUERY, hint=found or f"it is written {WITH_SHAPE}", words=() if hint else ("SELECT",))
        if any(self._chunks[: self._chunk_index - 1]) and (hint is None or self._curr.token_type == TokenType.FROM):
            reason = "a statement ends at its semicolon, and nothing but another one can come behind it"
            return self.refuse(reason, hint="leave the semicolon out if the statement goes on")
        reason = "a statement begins with SELECT, or with CREATE or DROP and STREAM, RELATION or FUNCTION"
        return self.refuse(reason, hint=hint, words=() if hint else BEGINNINGS)

    def _parse_query(self) -> exp.Expr:
        query = self._parse_set_operations(self._parse_select(nested=True, parse_subquery_alias=False))
        if query is None:
            self.refuse(NO_QUERY, hint="SELECT ... FROM stream", words=("SELECT", "WITH"))
        return query

    def _parse_create_stream(self) -> exp.Expr:
        self._expect_word(
            "STREAM",
            "CREATE STREAM name ..., CREATE RELATION name ... or CREATE FUNCTION name ...",
            "RELATION",
            "FUNCTION",
        )
        name = self._parse_stream_name()
        if self._match(TokenType.ALIAS):
            return self.expression(CreateDerived(this=name, expression=self._parse_query()))
        if not self._match(TokenType.L_PAREN):
            self.refuse(
                "columns or AS were expected here",
                hint="CREATE STREAM name (column TYPE, ...) SOURCE ... or CREATE STREAM name AS SELECT ...",
                words=("AS",),
            )
        columns = self._parse_columns("column TYPE [UNIT 'text'] [FIXED]")
        self._expect_word("SOURCE", "CREATE STREAM name (...) SOURCE mqtt()")
        source = self._parse_stream_name("the name of a source")
        arguments: list[exp.Expr] = []
        if self._match(TokenType.L_PAREN):
            arguments = self._parse_csv(self._parse_source_argument)
            self._match_r_paren()
        ordered = None
        if self._match_text_seq("ORDERED"):
            self._expect_word("BY", "ORDERED BY column")
            ordered = self._parse_stream_name("a column")
        return self.expression(
            CreateSource(this=name, expressions=columns, source=source, arguments=arguments, ordered=ordered)
        )

    def _parse_columns(self, shape: str) -> list[exp.Expr]:
        columns = self._parse_csv(self._parse_column_definition)
        if not self._match(TokenType.R_PAREN):
            reason = "a comma or a closing parenthesis was expected here"
            self.refuse(reason, hint=shape, words=("UNIT", "FIXED"))
        return columns

    def _parse_create_relation(self) -> exp.Expr:
        name = self._parse_stream_name("the name of a relation")
        columns = self._parse_columns("column TYPE [UNIT 'text']") if self._match(TokenType.L_PAREN) else []
        self._expect_word("FROM", RELATION_SHAPE)
        source = self._parse_text("where the relation comes from", "FROM 'postgresql://user@host/database'")
        query, table = None, None
        if self._match_text_seq("QUERY"):
            query = self._parse_text("a query of the source", "QUERY 'SELECT ...'")
        elif self._match_text_seq("TABLE"):
            table = self._parse_table_name()
        where = self._parse_where()
        part = () if query or table or where else ("QUERY", "TABLE")
        self._expect_word("REFRESH", RELATION_SHAPE, *part, *(() if where else ("WHERE",)))
        self._expect_word("EVERY", "REFRESH EVERY 30 SECONDS")
        refresh = self._parse_quantity()
        stale = None
        if self._match_text_seq("STALE"):
            self._expect_word("AFTER", "STALE AFTER 5 MINUTES")
            stale = self._parse_quantity()
        return self.expression(
            CreateRelationStatement(
                this=name,
                expressions=columns,
                source=source,
                query=query,
                table=table,
                where=where,
                refresh=refresh,
                stale=stale,
            )
        )

    def _parse_text(self, what: str, shape: str) -> exp.Expr:
        token = self._curr
        if not self._match(TokenType.STRING):
            self.refuse(f"{what} was expected here, in quotes", hint=f"it is written {shape}")
        return self.expression(exp.Literal(this=token.text, is_string=True), token)

    def _parse_table_name(self) -> exp.Expr:
        token = self._curr
        parts = [self._parse_stream_name("the name of a table")]
        while self._match(TokenType.DOT):
            parts.append(self._parse_stream_name("the name of a table"))
        return self.expression(exp.Tuple(expressions=parts), token)

    def _parse_source_argument(self) -> exp.Expr | None:
        token = self._curr
        if self._match(TokenType.STRING) or self._match(TokenType.NUMBER):
            literal = exp.Literal(this=token.text, is_string=token.token_type == TokenType.STRING)
            return self.expression(literal, token)
        if token and token.token_type != TokenType.R_PAREN:
            self.refuse("an argument of a source is a number or a text in quotes")
        return None

    def _parse_column_definition(self) -> exp.Expr | None:
        name = self._parse_stream_name("a column")
        token = self._curr
        if not token or not "".join(token.text.split()).isalpha():
            self.refuse("the type of the column was expected here", hint="boolean, integer, real or text")
        self._advance()
        kind = self.expression(exp.Var(this=" ".join(token.text.split())), token)
        unit = None
        fixed = False
        while self._curr:
            if self._match_text_seq("UNIT"):
                token = self._curr
                if not self._match(TokenType.STRING):
                    self.refuse("the unit was expected here, in quotes", hint="UNIT 'mph'")
                unit = self.expression(exp.Literal(this=token.text, is_string=True), token)
            elif self._match_text_seq("FIXED"):
                fixed = True
            else:
                break
        return self.expression(ColumnDefinition(this=name, kind=kind, unit=unit, fixed=fixed))

    def _parse_stream_name(self, what: str = "the name of a stream") -> exp.Identifier:
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            self.refuse(f"{what} was expected here")
        return name

    def _expect_word(self, word: str, shape: str, *others: str) -> None:
        if not self._match_text_seq(word):
            self.refuse(f"{word} was expected here", hint=f"it is written {shape}", words=(word, *others))


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
