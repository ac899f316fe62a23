"""The words for types in CAST and in declarations: only those that FjordSQL can honour.

Every integer and every real has 64 bits and a text any length, so words for narrower types are not accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.language.errors import suggest
from protocols.text.closeness import did_you_mean
from protocols.wire.streams import FIELD_TYPES, FieldType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from cluster.language.context import Context

TYPE_WORDS: Mapping[str, FieldType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), FieldType.BOOLEAN),
    **dict.fromkeys(("INTEGER", "INT", "BIGINT"), FieldType.INTEGER),
    **dict.fromkeys(("REAL", "FLOAT", "DOUBLE", "DOUBLE PRECISION"), FieldType.REAL),
    **dict.fromkeys(("TEXT", "STRING", "VARCHAR"), FieldType.TEXT),
}
"""Types to which CAST can convert."""

COLUMN_TYPES: Mapping[str, FieldType] = {**TYPE_WORDS, "TIMESTAMP": FieldType.INTEGER}
"""Types of columns. A TIMESTAMP that is not the stamp is a number of microseconds since 1970."""

FORMER_COLUMN_TYPES: Mapping[str, FieldType] = {"SMALLINT": FieldType.INTEGER}
"""Types of columns that earlier versions accepted."""

_INTEGERS = (
    *("SMALLINT", "TINYINT", "MEDIUMINT", "SHORT", "LONG", "BYTE"),
    *(f"INT{size}" for size in (1, 2, 4, 8, 16, 32, 64, 128)),
)
_REALS = ("FLOAT", "DOUBLE", "REAL", *(f"FLOAT{size}" for size in (4, 8, 32, 64)))
_TEXTS = (
    *("CHAR", "CHARACTER", "CHAR VARYING", "CHARACTER VARYING", "NCHAR", "NVARCHAR", "BPCHAR", "VARCHAR", "VARCHAR2"),
    *("STR", "STRING", "TEXT", "CLOB", "LONGTEXT", "LONGVARCHAR"),
)
_MEANT: Mapping[str, str] = {
    **dict.fromkeys(_INTEGERS, "every integer has 64 bits: write INTEGER"),
    **dict.fromkeys(_REALS, "every real has 64 bits: write REAL"),
    **dict.fromkeys(_TEXTS, "a text has any length: write TEXT"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "NUMBER"), "write REAL, and ROUND(x, 2)"),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_LTZ", "DATETIME"),
        "write TIMESTAMP, which has microseconds; DATE_TRUNC('millisecond', x) has fewer digits",
    ),
    "DATE": "write TIMESTAMP: a day is the instant at which it begins, TIMESTAMP '2026-03-29' or DATE_TRUNC('day', x)",
    "TIME": "write EXTRACT(HOUR FROM x), or STRFTIME(x, '%H:%M')",
    **dict.fromkeys(("JSON", "JSONB"), "a document is a text: leave the conversion out"),
    **dict.fromkeys(("ARRAY", "MAP", "ROW", "STRUCT", "MULTISET", "BYTES", "BINARY", "VARBINARY"), "write TEXT"),
}


def written_type(word: str) -> str:
    """Return the word for a type as it is spelled in the tables.

    >>> written_type("double  precision")
    'DOUBLE PRECISION'
    """
    return " ".join(word.upper().split())


def hint_for(word: str) -> str | None:
    """Return what to write instead of an unknown word for a type; None if there is no suggestion."""
    return _MEANT.get(written_type(word).partition("(")[0].strip())


def meant_type(word: str) -> str | None:
    """Return what to write instead of a word that may be a misspelled type."""
    return hint_for(word) or did_you_mean(word, (each.value.upper() for each in FIELD_TYPES))


def column_type(kind: exp.Expr, context: Context) -> FieldType:
    """Return the type that a declaration gives to a column.

    Raises
    ------
    FjordSqlError
        If there is no such type.
    """
    word = kind.name
    types = {**COLUMN_TYPES, **FORMER_COLUMN_TYPES} if context.registered else COLUMN_TYPES
    found = types.get(written_type(word))
    if found is None:
        hint = hint_for(word) or suggest(word, [each.value for each in FIELD_TYPES], what="types are")
        raise context.error(kind, f"there is no type {word!r}", hint)
    return found
