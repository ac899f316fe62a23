"""FjordSQL's parser: sqlglot's, with streams in FROM, acquisition clauses, CREATE and DROP of streams and relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import exp, parser
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from cluster.language.errors import FjordSqlError, did_you_mean
from cluster.language.statements import StatementParsing
from cluster.language.syntax import Completeness, ErrorBound, span_of
from cluster.language.zip_parsing import ZipJoinParsing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

CLAUSES = (
    "SELECT",
    "DISTINCT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "WINDOW",
    "RANGE",
    "ROWS",
    "SLIDE",
    "PARTITION",
    "UNBOUNDED",
    "GRANULARITY",
    "SAMPLE",
    "EVERY",
    "EVENTS",
    "SINCE",
    "LIFETIME",
    "WITHIN",
    "ZIP",
)
"""Words a text may have meant where it makes no sense as written."""

REFUSED_CLAUSES: dict[TokenType, tuple[str, str | None]] = {
    TokenType.ORDER_BY: (
        "ORDER BY is not part of FjordSQL: a stream never ends, so its rows cannot be sorted",
        "rows come in the order in which they begin to be valid; sort where you receive them",
    ),
    TokenType.LIMIT: (
        "LIMIT is not part of FjordSQL: which rows of a stream come first is no property of a snapshot",
        "use a window, WINDOW(ROWS n), for the last n tuples",
    ),
    TokenType.FETCH: ("FETCH is not part of FjordSQL", "use a window, WINDOW(ROWS n), for the last n tuples"),
    TokenType.OFFSET: ("OFFSET is not part of FjordSQL", None),
    TokenType.QUALIFY: ("QUALIFY is not part of FjordSQL", "put the query into FROM and filter it with WHERE"),
    TokenType.WINDOW: (
        "a window belongs to a stream in FROM, directly after its name or alias",
        "FROM stream WINDOW(RANGE 5 MINUTES)",
    ),
}


SQLGLOT_TRIPS = (ParseError, ValueError, TypeError, LookupError, AttributeError)
"""What sqlglot raises on its way through text that is far from SQL, besides the errors it means to."""


class PositionedParseError(ParseError):
    """A parse error that knows which characters it is about."""

    def __init__(self, message: str, *, start: int, end: int) -> None:
        super().__init__(message, errors=[{"description": message, "start": start, "end": end}])
        self.start = start
        self.end = end


def _refuse(reason: str, hint: str | None) -> Callable[[parser.Parser], Any]:
    def refuse(self: parser.Parser) -> NoReturn:
        assert isinstance(self, FjordSqlParser)  # noqa: S101 - the table belongs to this class
        self.refuse(reason, hint=hint)

    return refuse


class FjordSqlParser(StatementParsing, ZipJoinParsing, parser.Parser):
    """The parser. It raises :class:`FjordSqlError`, or a ParseError where sqlglot may try something else."""

    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], Any]]] = {
        **{
            kind: parse
            for kind, parse in parser.Parser.QUERY_MODIFIER_PARSERS.items()
            if kind in (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING)
        },
        **{kind: _refuse(reason, hint) for kind, (reason, hint) in REFUSED_CLAUSES.items()},
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    SET_OP_MODIFIERS: ClassVar[set[str]] = {*parser.Parser.SET_OP_MODIFIERS, "lifetime"}
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **parser.Parser.FUNCTIONS,
        "COMPLETENESS": lambda arguments: Completeness(expressions=arguments),
        "ERROR_BOUND": lambda arguments: ErrorBound(expressions=arguments),
    }

    def refuse(self, reason: str, *, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise an error about `token`, or about what comes next."""
        end = token is None and not self._curr
        token = token or self._curr or self._prev
        start = len(self.sql.rstrip()) if end else token.start
        raise FjordSqlError(reason, text=self.sql, start=start, end=start if end else token.end + 1, hint=hint)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise what sqlglot found, with its place."""
        token = token or self._curr
        start, end = (token.start, token.end + 1) if token else (len(self.sql.rstrip()),) * 2
        raise PositionedParseError(message, start=start, end=end)

    def parse_scalar(self, raw_tokens: list[Token], sql: str) -> exp.Expr | None:
        """Return the one scalar expression that `sql` is."""
        return self._parse(type(self)._parse_disjunction, raw_tokens, sql)[0]  # noqa: SLF001 - our own base class

    def parse_one(self, raw_tokens: list[Token], sql: str) -> exp.Expr:
        """Return the one statement that `sql` is.

        Raises
        ------
        FjordSqlError
            If it is not exactly one statement of FjordSQL.
        """
        try:
            statements = [statement for statement in self.parse(raw_tokens, sql) if statement is not None]
        except PositionedParseError as error:
            raise self._explained(error) from None
        except SQLGLOT_TRIPS as error:
            raise FjordSqlError("this cannot be read as SQL", text=sql, start=0, end=len(sql)) from error
        if len(statements) != 1:
            start = (span_of(statements[1]) or (0, 0))[0] if statements else 0
            reason = "more than one statement" if statements else "there is no statement"
            raise FjordSqlError(reason, text=sql, start=start, end=len(sql), hint="send one statement at a time")
        return statements[0]

    def _explained(self, error: PositionedParseError) -> FjordSqlError:
        word = self.sql[error.start : error.end]
        if not word:
            reason = "the statement ends too early"
        elif word == ")" or str(error).startswith("Expecting )"):
            reason = f"{word!r} was not expected here; parentheses do not match, or something is missing before it"
        else:
            reason = f"{word!r} was not expected here"
        hint = did_you_mean(word, CLAUSES) if word.isalpha() and word.upper() not in CLAUSES else None
        if hint is None and "Required argument" in str(error):
            reason = f"something is missing before {word!r}" if word else "the statement ends too early"
        return FjordSqlError(reason, text=self.sql, start=error.start, end=error.end, hint=hint)

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select):
            self._parse_query_end(this)
        return this

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        # An operand of a set operation may have an alias for all sqlglot knows.
        return None if self._at_lifetime() else super()._parse_table_alias(alias_tokens)

    def _parse_from(
        self,
        joins: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
        skip_from_token: bool = False,  # noqa: FBT001, FBT002
        consume_pipe: bool = False,  # noqa: FBT001, FBT002
    ) -> exp.From | None:
        # sqlglot lets a comma dangle.
        if self._prev and self._prev.token_type == TokenType.COMMA:
            self.refuse("a column is missing after this comma", token=self._prev)
        return super()._parse_from(joins, skip_from_token, consume_pipe)

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:  # noqa: FBT001, FBT002 - sqlglot's
        start = self._prev if skip_group_by_token else self._curr
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            hint = "name columns to group by, or leave GROUP BY away"
            self.refuse("GROUP BY has nothing behind it", token=start, hint=hint)
        return group

    def _parse_join(
        self,
        skip_join_token: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
        parse_bracket: bool = False,  # noqa: FBT001, FBT002
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        # sqlglot's comma swallows the errors of what follows it.
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=self._parse_stream_item()))
        if (zipped := self._parse_zip_join()) is not None:
            return zipped
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None and not any(join.args.get(part) for part in ("method", "side", "kind")):
            join.set("kind", "INNER")  # so that it is no comma
        return join

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr
        return self._spanning(start, super()._parse_unary())

    def _parse_range(self, this: exp.Expr | None = None, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._curr if this is None else None
        return self._spanning(start, super()._parse_range(this, *arguments, **options))

    def _negate_range(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # sqlglot makes NOT a part of LIKE, of which no rule knows: negation has one form.
        return None if this is None else self.expression(exp.Not(this=this))

    def _parse_select_query(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._curr
        return self._spanning(start, super()._parse_select_query(*arguments, **options))

    def _spanning(self, start: Token | None, expression: exp.Expr | None) -> exp.Expr | None:
        """Note on `expression` the text it was read from, for errors; sqlglot notes that of names and numbers only."""
        if expression is not None and start and self._prev:
            expression.meta["start"], expression.meta["end"] = start.start, self._prev.end
        return expression

    def _parse_column(self) -> exp.Expr | None:
        column = super()._parse_column()
        if (
            isinstance(column, exp.Column)
            and self._next
            and self._next.token_type == TokenType.NUMBER
            and self._match_text_seq("WITHIN")
        ):
            return self._parse_within(column)
        return column
