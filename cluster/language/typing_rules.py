"""How types and units combine, the words for types, and checked expressions as plans hold them. Pure.

**The words for types in CAST and in declarations: only those that FjordSQL can honour.**

Every integer and every real has 64 bits and a text any length, so words for narrower types are not accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.nodes import bare
from cluster.expressions.reading import expression_of
from cluster.language.errors import suggest
from cluster.operators.columns import Scalar
from cluster.scalars.scalar_function import FAMILY_OF, Family
from protocols.text.closeness import did_you_mean
from protocols.wire.streams import FIELD_TYPES, FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.language.context import Context


@dataclass(frozen=True, slots=True)
class Typed:
    """A resolved expression: every column reference is a quoted name of the plan.

    Parameters
    ----------
    expression
        The canonical syntax tree.
    type
        Its type; None for a bare NULL, which takes any.
    unit
        Its unit of measure, empty for none.
    nullable
        False if it can never be NULL.
    """

    expression: exp.Expr
    type: FieldType | None
    unit: str = ""
    nullable: bool = True


class TypeMismatchError(ValueError):
    """Types that do not match."""


def common_type(types: Iterable[FieldType | None]) -> FieldType | None:
    """Return the type that holds all of `types`; an integer is also a real, and NULL is anything.

    >>> common_type([FieldType.INTEGER, None, FieldType.REAL])
    <FieldType.REAL: 'real'>

    Raises
    ------
    TypeMismatchError
        If there is no such type.
    """
    found: FieldType | None = None
    for each in types:
        if each is None or each == found:
            continue
        if found is None:
            found = each
        elif FAMILY_OF[each] == FAMILY_OF[found] == Family.NUMBER:
            found = FieldType.REAL
        else:
            raise TypeMismatchError(f"{found.value} and {each.value} do not go together")
    return found


def belongs(type_: FieldType | None, family: Family) -> bool:
    """Return whether a value of `type_` may stand where `family` is required."""
    if type_ is None or family == Family.ANY:
        return True
    return type_ == FieldType.INTEGER if family == Family.INTEGER else FAMILY_OF[type_] == family


def common_unit(operands: Iterable[Typed]) -> str:
    """Return the unit of a sum, a choice or an extreme of `operands`: the common one of all that have a unit."""
    units = {operand.unit for operand in operands if operand.unit}
    return units.pop() if len(units) == 1 else ""


def clashing_units(operands: Iterable[Typed]) -> tuple[str, str] | None:
    """Return two different units among `operands`, which should not be added or compared, or None."""
    units = sorted({operand.unit for operand in operands if operand.unit})
    return (units[0], units[1]) if len(units) > 1 else None


def scalar_of(typed: Typed, type_: FieldType) -> Scalar:
    """Return a checked expression in the form that plans hold; outer parentheses have no meaning and are removed."""
    return Scalar(bare(expression_of(typed.expression)), type_)


def conjunction(parts: list[exp.Expr]) -> Scalar:
    """Return the expression that all of `parts` are true."""
    if len(parts) == 1:
        alone = parts[0].unnest() if isinstance(parts[0], exp.Paren) else parts[0]
        return Scalar(expression_of(alone), FieldType.BOOLEAN)
    built: exp.Expr | None = None
    for part in parts:
        safe = exp.Paren(this=part) if isinstance(part, exp.Or) else part
        built = safe if built is None else exp.And(this=built, expression=safe)
    assert built is not None  # noqa: S101 - callers have at least one part
    return Scalar(expression_of(built), FieldType.BOOLEAN)


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
