"""FjordSQL's parser: sqlglot's, with streams in FROM, acquisition clauses, CREATE and DROP of streams and relations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import exp, parser
from sqlglot.errors import ParseError
from sqlglot.parser import IsPredicatePrecedence
from sqlglot.tokenizer_core import Token, TokenType

from cluster.expressions.called_functions import OWN_FUNCTIONS
from cluster.language.arguments import wrong_number
from cluster.language.call_parsing import (
    ARROW_TOKENS,
    CALLS_WITH_CLAUSES,
    LITERALS,
    ArgumentsError,
    JsonParsing,
    PositionedParseError,
    TextCallParsing,
    TimeParsing,
    first_match,
    place_of_part,
)
from cluster.language.clause_parsing import MODIFIERS, TOP, GroupingParsing, OrderParsing
from cluster.language.errors import FjordSqlError
from cluster.language.functions import OWN_AGGREGATES
from cluster.language.join_parsing import StampJoinParsing
from cluster.language.nesting import FLATTER, TOO_DEEP, balanced
from cluster.language.parse_errors import RefusedSpellings, Stop, explained, glued, glued_number, misspelled
from cluster.language.sensor_clauses import LIFETIME_SHAPE, placeholder
from cluster.language.sequence_parsing import SequenceParsing
from cluster.language.spelling import SPELLINGS
from cluster.language.statements import FunctionParsing
from cluster.language.syntax import (
    INTERVAL_CALLS,
    WINDOW_BOUNDS,
    Changed,
    Completeness,
    ErrorBound,
    FoldedMatch,
    Match,
    Now,
    StringAgg,
    TimestampLiteral,
    is_interval,
    span_of,
    stamp_of,
    time_function,
    window_bound,
)
from cluster.language.time_functions import TIME_FUNCTIONS
from cluster.language.tokens import is_mark
from cluster.language.words import MISPLACED_WINDOW, TOP_SHAPE, USING_SHAPE
from cluster.planning_budget import spend
from protocols.text.closeness import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

REFUSED_CLAUSES: dict[TokenType, tuple[str, str | None]] = {
    TokenType.WINDOW: MISPLACED_WINDOW,
}


IS = (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
IMPLIED = "implied"
"""Parentheses with this mark are not in the text, and would stand elsewhere if IS were stronger, or less strong."""
STEPS_PER_TOKEN = 30
MOST_STEPS = 10_000
"""How often the parser may go on or back: so often for each token, and so often besides. It needs about three."""

ENDS = (TokenType.COMMA, TokenType.R_PAREN, TokenType.WHEN, TokenType.ELSE, TokenType.END)
"""What ends an expression, whatever it is."""

SQLGLOT_TRIPS = (ParseError, ValueError, TypeError, LookupError, AttributeError)
"""What sqlglot raises on its way through text that is far from SQL, besides the errors it means to."""


def _refuse(reason: str, hint: str | None) -> Callable[[parser.Parser], Any]:
    def refuse(self: parser.Parser) -> NoReturn:
        assert isinstance(self, FjordSqlParser)  # noqa: S101 - the table belongs to this class
        self.refuse(reason, hint=hint)

    return refuse


class FjordSqlParser(
    FunctionParsing,
    GroupingParsing,
    StampJoinParsing,
    RefusedSpellings,
    OrderParsing,
    SequenceParsing,
    JsonParsing,
    TimeParsing,
    parser.Parser,
):
    """The parser. It raises :class:`FjordSqlError`, or a ParseError where sqlglot may try something else."""

    # As in PostgreSQL: IS comes after comparisons, and NOT after IS.
    IS_PREDICATE_PRECEDENCE = IsPredicatePrecedence.LOW
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], Any]]] = {
        **{
            kind: parse
            for kind, parse in parser.Parser.QUERY_MODIFIER_PARSERS.items()
            if kind in (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY)
        },
        **MODIFIERS,
        **{kind: _refuse(reason, hint) for kind, (reason, hint) in REFUSED_CLAUSES.items()},
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    # What begins an operand, or goes on with one, is no name for a column without AS.
    ALIAS_TOKENS: ClassVar[set[TokenType]] = parser.Parser.ALIAS_TOKENS - {
        *(TokenType.ALL, TokenType.ANY, TokenType.CASE, TokenType.COLLATE, TokenType.DIV, TokenType.ESCAPE),
        *(TokenType.EXISTS, TokenType.FALSE, TokenType.IN, TokenType.IS, TokenType.ISNULL, TokenType.NULL),
        *(TokenType.OVER, TokenType.OVERLAPS, TokenType.SOME, TokenType.TRUE),
    }
    # A parameter is a value, and stands for no name: names are read by what sqlglot calls placeholders.
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **parser.Parser.PRIMARY_PARSERS,
        TokenType.PLACEHOLDER: placeholder,
    }
    RANGE_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **parser.Parser.RANGE_PARSERS,
        TokenType.TILDE: lambda self, this: self.parse_nearly_equal(this),
        TokenType.RLIKE: parser.binary_range_parser(Match),
        TokenType.IRLIKE: parser.binary_range_parser(FoldedMatch),
    }
    # What stands in a call is no lambda, but a value.
    LAMBDAS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        kind: parse for kind, parse in parser.Parser.LAMBDAS.items() if kind != TokenType.ARROW
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **parser.Parser.FUNCTION_PARSERS,
        **{kind.sql_name(): partial(JsonParsing.parse_json_call, kind=kind) for kind in CALLS_WITH_CLAUSES},
        **dict.fromkeys(SPELLINGS[StringAgg], JsonParsing.parse_string_agg),
        "CEILING": parser.Parser.FUNCTION_PARSERS["CEIL"],
        "TRIM": TextCallParsing.parse_trim,
        "POSITION": TextCallParsing.parse_position,
        "HYSTERESIS": lambda self: self._parse_hysteresis(),
    }
    TYPE_LITERAL_PARSERS: ClassVar[dict[exp.DType, Callable[..., Any]]] = {
        exp.DType.TIMESTAMP: lambda _self, this, _type: TimestampLiteral(this=this),
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable[[Any], Any]]] = {
        kind: parse for kind, parse in parser.Parser.PLACEHOLDER_PARSERS.items() if kind != TokenType.PLACEHOLDER
    }
    COLUMN_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any] | None]] = {
        kind: parse
        for kind, parse in parser.Parser.COLUMN_OPERATORS.items()
        if kind not in (TokenType.PLACEHOLDER, *ARROW_TOKENS)
    }
    # What stands behind OVER is read here (SequenceParsing), not by sqlglot.
    WINDOW_BEFORE_PAREN_TOKENS: ClassVar[set[TokenType]] = set()
    _steps: int = 0
    SET_OP_MODIFIERS: ClassVar[set[str]] = {*parser.Parser.SET_OP_MODIFIERS, "lifetime", "top"}
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **parser.Parser.FUNCTIONS,
        "COMPLETENESS": lambda arguments: Completeness(expressions=arguments),
        "CHANGED": lambda arguments: Changed(expressions=arguments),
        "EVERY": exp.LogicalAnd.from_arg_list,
        "STAMP": stamp_of,
        "NOW": Now.from_arg_list,
        **{name: time_function(name) for name in TIME_FUNCTIONS},
        **{name: window_bound(name) for name in WINDOW_BOUNDS},
        **INTERVAL_CALLS,
        "ERROR_BOUND": lambda arguments: ErrorBound(expressions=arguments),
        **{name: kind.from_arg_list for kind in (*OWN_FUNCTIONS, *OWN_AGGREGATES) for name in kind.sql_names()},
        "LOCATE": place_of_part,
        "REGEXP_SUBSTR": first_match,
        "GROUPING_ID": exp.Grouping.from_arg_list,
    }

    def refuse(
        self, reason: str, *, token: Token | None = None, hint: str | None = None, words: Iterable[str] = ()
    ) -> NoReturn:
        """Raise an error about `token`, or about what comes next, which may have meant one of `words`."""
        token = token or self._curr
        hint = (did_you_mean(token.text, words) if token else None) or hint
        start, end = (token.start, token.end + 1) if token else (len(self.sql.rstrip()),) * 2
        raise FjordSqlError(reason, text=self.sql, start=start, end=end, hint=hint)

    def refuse_span(self, reason: str, start: int, end: int, *, hint: str | None = None) -> NoReturn:
        """Raise an error about a part of the text."""
        raise FjordSqlError(reason, text=self.sql, start=start, end=end, hint=hint)

    def refuse_word(self, token: Token) -> NoReturn:
        """Raise an error about `token`, which makes no sense where it stands, or about a word before it."""
        raise explained(self._stop(token.start))

    def refuse_misspelled(self, token: Token) -> None:
        """Raise an error if `token`, or the word before it, is a misspelled word of the language."""
        if (error := misspelled(self._stop(token.start))) is not None:
            raise error

    def _advance(self, times: int = 1) -> None:
        # sqlglot tries one thing after another: what may take long is counted by how often it goes on and back.
        self._steps += 1
        if self._steps > MOST_STEPS + STEPS_PER_TOKEN * self._tokens_size:
            self.refuse("this statement takes too much work to read", token=self._curr or self._prev)
        spend()
        super()._advance(times)

    def _parse_conjunction(self) -> exp.Expr | None:
        return balanced(super()._parse_conjunction())

    def _parse_disjunction(self) -> exp.Expr | None:
        # Long lists of numbers and texts are common, and sqlglot tries everything else first.
        if self._curr and self._curr.token_type in LITERALS and self._next and self._next.token_type in ENDS:
            token = self._curr
            self._advance()
            literal = exp.Literal(this=token.text, is_string=token.token_type == TokenType.STRING)
            return self._spanning(token, self.expression(literal, token))
        return balanced(super()._parse_disjunction())

    def _parse_escape(self, this: exp.Expr | None) -> exp.Expr | None:
        # sqlglot reads a text here, and no other value.
        if self._match(TokenType.ESCAPE, advance=False) and is_mark(self._next):
            self._advance(2)
            return self.expression(exp.Escape(this=this, expression=placeholder(self, self._prev)))
        return super()._parse_escape(this)

    def _parse_bitwise(self) -> exp.Expr | None:
        return balanced(super()._parse_bitwise())

    def parse_scalar(self, raw_tokens: list[Token], sql: str) -> exp.Expr | None:
        """Return the one scalar expression that `sql` is."""
        return self._parse(lambda parser: parser._parse_disjunction(), raw_tokens, sql)[0]  # noqa: SLF001 - our own base

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
        except RecursionError:
            token = self._curr or self._prev
            raise FjordSqlError(TOO_DEEP, text=sql, start=token.start, end=token.end + 1, hint=FLATTER) from None
        except SQLGLOT_TRIPS as error:
            at = self._curr or self._prev
            start, end = (at.start, at.end + 1) if at else (0, len(sql))
            raise FjordSqlError("this cannot be read as SQL", text=sql, start=start, end=end) from error
        if not statements:
            hint = "a query is written SELECT ... FROM stream"
            raise FjordSqlError("there is no statement", text=sql, start=0, end=len(sql), hint=hint)
        if len(statements) > 1:
            ends = (token.end for token in raw_tokens if token.token_type == TokenType.SEMICOLON)
            end = next(ends, 0)
            start = next((token.start for token in raw_tokens if token.start > end and token.text != ";"), end)
            hint = "send one statement at a time"
            raise FjordSqlError("more than one statement", text=sql, start=start, end=len(sql.rstrip()), hint=hint)
        return statements[0]

    def _explained(self, error: PositionedParseError) -> FjordSqlError:
        if isinstance(error, ArgumentsError) and error.name:
            reason, hint = wrong_number(error.name)
            return FjordSqlError(reason, text=self.sql, start=error.start, end=error.end, hint=hint)
        return explained(self._stop(error.start), str(error))

    def _stop(self, start: int) -> Stop:
        """Return the place of the token that begins at a character."""
        tokens = self._tokens
        index = next((index for index, token in enumerate(tokens) if token.start >= start), len(tokens))
        return Stop(self.sql, tokens, index)

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select):
            self._parse_query_end(this)
            if self._curr and self._curr.token_type in TOP and not this.args.get("top"):
                self.refuse("SAMPLE, KEEP and LIFETIME stand behind LIMIT", hint=f"{TOP_SHAPE} SAMPLE EVERY 1 SECOND")
        return this

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        # sqlglot accepts an alias of an operand of a set operation.
        at_clause = self._at_lifetime() or self._at_keep() or self._at_clause("SAMPLE", "EVERY", "RATE")
        return None if at_clause else super()._parse_table_alias(alias_tokens)

    def _parse_types(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._curr
        found = super()._parse_types(*arguments, **options)
        if isinstance(found, exp.DataType) and start and self._prev:
            # What may stand behind the word of a type that is simple is no part of it: COLLATE, empty parentheses.
            whole = self.sql[start.start : self._prev.end + 1]
            found.meta["written"] = whole if found.expressions else start.text
        return found

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:  # noqa: FBT001, FBT002 - sqlglot's
        number, word = self._prev, self._curr
        named = word and word.token_type in self.ALIAS_TOKENS and word.token_type != TokenType.IDENTIFIER
        names = named and number and number.token_type == TokenType.NUMBER
        if names and not explicit and glued(number, word):
            raise glued_number(self.sql, number, word, named=True)
        if names and not explicit and self._tokens[self._index - 2].text.upper() == "WITHIN":
            reason = "an error allowed has no unit of its own: it is in that of the column"
            self.refuse(reason, token=word, hint=f"if {word.text} is to be the name, write AS {word.text}")
        return super()._parse_alias(this, explicit)

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

    def _parse_join(
        self,
        skip_join_token: bool = False,  # noqa: FBT001, FBT002 - sqlglot's signature
        parse_bracket: bool = False,  # noqa: FBT001, FBT002
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        # sqlglot's comma swallows the errors of what follows it.
        if self._match(TokenType.COMMA):
            return self.expression(exp.Join(this=self._parse_stream_item()))
        if (paired := self._parse_zip_join() or self._parse_asof_join()) is not None:
            return paired
        first = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None and not any(join.args.get(part) for part in ("method", "side", "kind")):
            join.set("kind", "INNER")  # so that it is no comma
        return None if join is None else self._with_bounds(join, first)

    def _parse_using_identifiers(self) -> list[exp.Expr]:
        # sqlglot takes one name without parentheses, and drops what stands before a name.
        if not self._match(TokenType.L_PAREN):
            self.refuse("USING is followed by columns in parentheses", token=self._prev, hint=USING_SHAPE)
        names = self._parse_csv(self._parse_disjunction)
        if not names:
            self.refuse("USING names no column", token=self._prev, hint=USING_SHAPE)
        self._match_r_paren()
        return names

    def _build_predicate(
        self, klass: type[exp.Binary], this: exp.Expr | None, expression: exp.Expr | None, *rest: Any, **options: Any
    ) -> exp.Expr:
        predicate = super()._build_predicate(klass, this, expression, *rest, **options)
        # sqlglot puts parentheses where IS and a comparison meet; they are not in the text.
        for argument, given in (("this", this), ("expression", expression)):
            side = predicate.args.get(argument)
            if isinstance(side, exp.Paren) and side is not given:
                inner = side.this.this if isinstance(side.this, exp.Not) else side.this
                # On the left, x IS NULL has one reading.
                left = not isinstance(inner, IS) if issubclass(klass, IS) else isinstance(inner, IS[1:])
                side.meta[IMPLIED] = left or argument == "expression"
        return predicate

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr
        return self._spanning(start, super()._parse_unary())

    def _parse_range(self, this: exp.Expr | None = None, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._curr if this is None else None
        this = self._parse_bitwise() if this is None else this
        if this is not None and is_interval(this):
            this = self._spanning(start, self._parse_relations(this))
        return self._spanning(start, super()._parse_range(this, *arguments, **options))

    def _negate_range(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # sqlglot makes NOT a part of LIKE, which no rule reads: negation has one form.
        return None if this is None else self.expression(exp.Not(this=this))

    def _parse_select_query(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        start = self._curr
        query = self._spanning(start, super()._parse_select_query(*arguments, **options))
        if isinstance(query, exp.Select) and "word" not in query.meta and start.token_type == TokenType.SELECT:
            query.meta["word"] = self.expression(exp.Var(this=start.text), start)
        return query

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        query = super()._parse_set_operations(this)
        if isinstance(query, exp.Subquery) and self._curr and self._curr.token_type in TOP:
            query.set(*self._parse_top())
        if isinstance(query, exp.SetOperation) and query.args.get("top"):
            self._refuse_sample_behind(query)
        if isinstance(query, exp.Query):
            # Behind parentheses, the clauses at the end are of the whole.
            clause = self._curr
            self._parse_query_end(query.unnest())
            if self._curr is not clause and self._match_set(self.SET_OPERATIONS, advance=False):
                self.refuse("LIFETIME stands at the end of a query", token=clause, hint=LIFETIME_SHAPE)
        return query

    def _refuse_sample_behind(self, query: exp.SetOperation) -> None:
        """Refuse a SAMPLE that is read with the last SELECT, but stands behind the LIMIT of all."""
        sample = query.expression.args.get("sample")
        span = None if sample is None else span_of(sample)
        if span is not None and span[0] > query.args["top"].meta["start"]:
            reason = "SAMPLE is about one SELECT, not about several that are combined"
            self.refuse_span(reason, *span, hint="write it within the parentheses, or behind a stream")

    def _parse_csv(self, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA) -> list[Any]:
        # sqlglot overlooks it if nothing stands between two commas, or before the first one.
        if parse_method == self._parse_lambda_arg:
            return super()._parse_csv(parse_method, sep)  # it goes back where the parentheses are no lambda's

        def parse_item() -> Any:
            comma = self._prev if self._prev and self._prev.token_type == sep else None
            item = parse_method()
            if item is None and comma is not None and not self._match(TokenType.FROM, advance=False):
                self.refuse("',' was not expected here: something is missing after it", token=comma)
            if item is None and self._curr and self._curr.token_type == sep:
                self.refuse("',' was not expected here: something is missing before it")
            return item

        return super()._parse_csv(parse_item, sep)

    def _parse_column(self) -> exp.Expr | None:
        column = super()._parse_column()
        if isinstance(column, exp.Column) and self._next and self._at_word("WITHIN"):
            return self._parse_within(column)
        return column
