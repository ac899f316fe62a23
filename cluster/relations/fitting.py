"""Fitting a source's columns to a relation's: names, types, and conditions on the rows read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

import polars as pl

from cluster.language.comparisons import Comparison, Value
from cluster.language.declarations import MOST_COLUMNS
from cluster.language.errors import suggest
from cluster.operators.columns import Column, Schema
from cluster.relations.source import SourceColumn, SourceSchemaError
from protocols.wire.names import folded, is_identifier, normal
from protocols.wire.streams import RESERVED_PREFIX, FieldType

POLARS_TYPES: dict[FieldType, type[pl.DataType]] = {
    FieldType.BOOLEAN: pl.Boolean,
    FieldType.INTEGER: pl.Int64,
    FieldType.REAL: pl.Float64,
    FieldType.TEXT: pl.String,
}
ORDERED = (FieldType.INTEGER, FieldType.REAL)
"""Types that every source sorts alike; a source may sort texts by the rules of a language."""
DECLARE = "declare the columns you need: CREATE RELATION name (column TYPE, ...) FROM ..."


def all_columns(given: Sequence[SourceColumn]) -> Schema:
    """Return the columns of a relation that uses all columns of its source.

    Raises
    ------
    SourceSchemaError
        If one of them has a name or a type that no column of a relation can have.
    """
    found: dict[str, Column] = {}
    for column in given:
        name = normal(column.name)
        key = name.casefold()
        blamed = name if column.place is None else None
        if not column.usable:
            reason = f"column {column.shown} is of type {column.declared}, which is none of Fjord's"
            raise SourceSchemaError(reason, column=blamed, hint=DECLARE)
        if not is_identifier(name) or key.startswith(RESERVED_PREFIX):
            reason = f"column {column.shown} has a name that no query could use"
            raise SourceSchemaError(reason, column=blamed, hint=f"{DECLARE}, or rename it in a QUERY")
        if key in found:
            reason = f"there are two columns with the name of column {column.shown} (names have no case)"
            raise SourceSchemaError(reason, column=blamed, hint=DECLARE)
        found[key] = Column(name, column.type or FieldType.TEXT)
    if not 0 < len(found) <= MOST_COLUMNS:
        raise SourceSchemaError(f"it has {len(found)} columns, a relation has 1 to {MOST_COLUMNS}", hint=DECLARE)
    return tuple(found.values())


def matched(wanted: Schema, given: Sequence[SourceColumn]) -> list[tuple[Column, SourceColumn]]:
    """Return, for each wanted column, the column of the source from which it is read.

    Raises
    ------
    SourceSchemaError
        If there is none, or its values are of another type.
    """
    by_name: dict[str, list[SourceColumn]] = {}
    for each in given:
        by_name.setdefault(folded(each.name), []).append(each)
    pairs = []
    for column in wanted:
        same = by_name.get(folded(column.name), [])
        found = next((each for each in same if each.name == column.name), same[0] if len(same) == 1 else None)
        if found is None:
            names = [each.name for each in given]
            hint = suggest(column.name, names, what="columns are")
            if any(each.place is not None for each in given):
                hint = "the first line of the file does not have this name"
            raise SourceSchemaError(f"it has no column {column.name!r}", column=column.name, hint=hint)
        if not found.usable or not can_give(found.type, column.type):
            declared = (
                found.declared
                if found.type is None or found.declared == found.type.value
                else f"{found.declared}, {found.type}"
            )
            raise SourceSchemaError(
                f"column {column.name!r} is {declared} there, which cannot be {column.type.value}",
                column=column.name,
                hint=None if found.type is None else f"declare it {found.type.value.upper()}, or convert it in a QUERY",
            )
        pairs.append((column, found))
    return pairs


def can_give(given: FieldType | None, wanted: FieldType) -> bool:
    """Return whether values of one type can be converted to another: any to text, integers to reals.

    >>> can_give(FieldType.INTEGER, FieldType.REAL), can_give(FieldType.REAL, FieldType.INTEGER)
    (True, False)
    """
    return given in (None, wanted) or wanted is FieldType.TEXT or (given, wanted) == ORDERED


def servable(comparison: Comparison, column: Column, given: SourceColumn) -> bool:
    """Return whether a source may evaluate a comparison itself, because its result is surely the same as Fjord's."""
    if given.type is not column.type or comparison.operator not in {"=", "in", "is null", "is not null"}:
        return given.type is column.type and column.type in ORDERED and _of_type(comparison, column.type)
    return _of_type(comparison, column.type)


def _of_type(comparison: Comparison, type_: FieldType) -> bool:
    kinds: dict[FieldType, tuple[type, ...]] = {
        FieldType.BOOLEAN: (bool,),
        FieldType.INTEGER: (int,),
        FieldType.REAL: (int, float),
        FieldType.TEXT: (str,),
    }
    return all(
        isinstance(value, kinds[type_]) and (type_ is FieldType.BOOLEAN or not isinstance(value, bool))
        for value in comparison.values
    )


def predicate(condition: Iterable[Comparison]) -> pl.Expr:
    """Return a condition over columns of Fjord's types as an expression of Polars."""
    return reduce(and_, (_test(each, pl.col(each.column)) for each in condition), pl.lit(True))  # noqa: FBT003


def _test(comparison: Comparison, column: pl.Expr) -> pl.Expr:
    values = comparison.values
    match comparison.operator:
        case "=":
            return column == values[0]
        case "<":
            return column < values[0]
        case "<=":
            return column <= values[0]
        case ">":
            return column > values[0]
        case ">=":
            return column >= values[0]
        case "in":
            return _among(column, values)
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_not_null()


def _among(column: pl.Expr, values: Sequence[Value]) -> pl.Expr:
    """Return whether a column is one of some numbers; with a real, an integer is compared as a real."""
    integers = [each for each in values if type(each) is int]
    reals = [each for each in values if isinstance(each, float)]
    if not integers and not reals:
        return column.is_in(pl.Series(values).implode())
    tests = []
    if integers:
        tests.append(column.is_in(pl.lit(pl.Series(integers, dtype=pl.Int64)).cast(pl.dtype_of(column)).implode()))
    if reals:
        tests.append(column.cast(pl.Float64).is_in(pl.Series(reals).implode()))
    return pl.any_horizontal(tests)


def settled(frame: pl.DataFrame, columns: Schema, condition: tuple[Comparison, ...]) -> pl.DataFrame:
    """Return rows of Fjord's types that satisfy the whole condition; infinite reals and NaN are NULL, as everywhere."""
    exact = frame.select(_finite(column.name) if column.type is FieldType.REAL else column.name for column in columns)
    return exact.filter(predicate(condition)) if condition else exact


def _finite(name: str) -> pl.Expr:
    column = pl.col(name)
    # Minus zero equals zero, so both must have the same bits.
    return pl.when(column == 0).then(0.0).when(column.is_finite()).then(column).alias(name)


def polars_schema(columns: Schema) -> dict[str, type[pl.DataType]]:
    """Return the types of a relation's columns in Polars."""
    return {column.name: POLARS_TYPES[column.type] for column in columns}
