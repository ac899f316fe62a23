"""FjordSQL as a sqlglot dialect: its words and its types."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp, generator, tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.tokenizer_core import Token, TokenType

from cluster.expressions.reading import DATA_TYPES
from cluster.language.parsing import FjordSqlParser
from cluster.language.statement_texts import without_comments
from cluster.language.tokens import marks_in, with_marks, without_marks

if TYPE_CHECKING:
    from collections.abc import Collection


_POINT = re.compile(r"""(?<![\w"')\]}])\.(?=\d)""")
"""The beginning of a number such as ``.5``. A dot directly behind a name belongs to the name."""


class FjordSqlTokenizer(tokens.Tokenizer):
    """Standard SQL words; every integer type is the 64-bit one, and so is every real type."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{word: kind for word, kind in tokens.Tokenizer.KEYWORDS.items() if word not in ("/*+", "|>")},
        **dict.fromkeys(("INT", "INTEGER", "SMALLINT", "BIGINT"), TokenType.BIGINT),
        **dict.fromkeys(("REAL", "FLOAT", "DOUBLE", "DOUBLE PRECISION"), TokenType.DOUBLE),
        **dict.fromkeys(("TEXT", "STRING", "VARCHAR", "CHAR"), TokenType.TEXT),
    }

    def tokenize(self, sql: str) -> list[Token]:
        """Return the tokens of a text, without comments: sqlglot would keep ``GROUP /* ... */ BY`` apart."""
        points = {point.start() for point in _POINT.finditer(sql)}
        marks = marks_in(sql)
        found = with_marks(super().tokenize(without_marks(without_comments(sql), marks)), marks)
        return _with_points(found, points) if points else found


del FjordSqlTokenizer._COMMENTS["{#"]  # noqa: SLF001 - sqlglot gives every dialect the comments of Jinja


def _with_points(found: list[Token], points: Collection[int]) -> list[Token]:
    """Return tokens with ``.5`` as one: sqlglot makes two, which it does not accept as a number everywhere."""
    joined: list[Token] = []
    for token in found:
        if joined and joined[-1].token_type == TokenType.DOT and joined[-1].start in points:
            dot = joined.pop()
            joined.append(Token(token.token_type, f"0.{token.text}", dot.line, token.col, dot.start, token.end))
        else:
            joined.append(token)
    return joined


class FjordSqlGenerator(generator.Generator):
    """Writes expressions; the words for types are those of :class:`protocols.wire.streams.FieldType`."""

    TYPE_MAPPING: ClassVar[dict[Any, str]] = {
        **generator.Generator.TYPE_MAPPING,
        **{data_type: field.value.upper() for field, data_type in DATA_TYPES.items()},
    }


class FjordSQL(Dialect):
    """The dialect. `/` is real division and gives NULL for a zero divisor; names have no case."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_INSENSITIVE
    TYPED_DIVISION = False
    SAFE_DIVISION = True

    Tokenizer = FjordSqlTokenizer
    Parser = FjordSqlParser
    Generator = FjordSqlGenerator


@lru_cache(maxsize=2)
def _tokens_kept(text: str) -> tuple[Token, ...]:
    return tuple(FjordSQL().tokenize(text))


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a statement; they are kept, because a statement is tokenized more than once."""
    return list(_tokens_kept(text))


def parse_scalar(text: str) -> exp.Expr:
    """Read an expression as statements are read."""
    dialect = FjordSQL()
    parsed = FjordSqlParser(dialect=dialect).parse_scalar(dialect.tokenize(text), text)
    if not isinstance(parsed, exp.Expr):
        raise TypeError(f"{text!r} is no expression")
    return parsed
