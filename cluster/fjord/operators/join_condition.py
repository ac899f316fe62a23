"""Splits a join's predicate: equalities between the sides, which a hash table answers, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.expressions.conditions import all_of, equal_sides
from cluster.expressions.nodes import Chain, Column, Expression, bare
from cluster.expressions.walks import columns_read
from cluster.fjord.scalar_programs import Program, program_of
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import QUERY_GROUP, Scalar
from protocols.wire.streams import FieldType


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A predicate in two parts.

    Parameters
    ----------
    left_keys, right_keys
        Columns that must be equal, pair by pair (NULL equals nothing).
    residual
        The rest of the predicate; None for nothing.
    left_computed, right_computed
        Those of the keys that are no columns of an input but computed from some.
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: pl.Expr | None
    left_computed: tuple[ComputedKey, ...] = ()
    right_computed: tuple[ComputedKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ComputedKey:
    """An expression over the columns of one side that must equal one over those of the other."""

    name: str
    program: Program

    def of(self, rows: pl.DataFrame) -> pl.Series:
        """Return its value for each row."""
        found = self.program.run([rows[name] for name in self.program.columns]).alias(self.name)
        return found if len(found) == rows.height else found.new_from_index(0, rows.height)


def with_keys(rows: pl.DataFrame, computed: Sequence[ComputedKey]) -> pl.DataFrame:
    """Return rows with their computed keys behind all other columns."""
    if not computed:
        return rows
    return rows.hstack([key.of(rows) for key in computed])


def join_condition(predicate: Scalar | None, right: Collection[str], *, right_computes: bool = True) -> JoinCondition:
    """Split a predicate.

    Parameters
    ----------
    predicate
        Over the columns of both sides.
    right
        The columns of the right side; all others are of the left.
    right_computes
        False if keys of the right must be columns, because an index on them exists.
    """
    parts = _parts_of(predicate)
    equal = {part: pair for part in parts if (pair := _equality(part, right)) is not None}
    usable = {part: pair for part, pair in equal.items() if right_computes or isinstance(pair[1], Column)}
    plain = {part: pair for part, pair in usable.items() if all(isinstance(side, Column) for side in pair)}
    if any(one != Column(QUERY_GROUP.name) for one, _ in plain.values()):
        usable = plain  # a computed key costs its computation, and finds little that columns have not found
    together = all_of(part for part in parts if part not in usable)
    residual = None if together is None else compile_scalar(Scalar(together, FieldType.BOOLEAN))
    pairs = list(dict.fromkeys(usable.values()))  # a condition that is written twice counts once
    left_keys, left_computed = _keys_of([one for one, _ in pairs], LEFT_KEY)
    right_keys, right_computed = _keys_of([other for _, other in pairs], RIGHT_KEY)
    return JoinCondition(left_keys, right_keys, residual, left_computed, right_computed)


LEFT_KEY, RIGHT_KEY = "fjord_left_key_", "fjord_right_key_"


def _keys_of(sides: Sequence[Expression], prefix: str) -> tuple[tuple[str, ...], tuple[ComputedKey, ...]]:
    keys: list[str] = []
    computed: list[ComputedKey] = []
    for number, side in enumerate(sides):
        if isinstance(side, Column):
            keys.append(side.name)
        else:
            keys.append(f"{prefix}{number}")
            computed.append(ComputedKey(keys[-1], program_of(side)))
    return tuple(keys), tuple(computed)


def equal_columns(predicate: Scalar | None, right: Collection[str]) -> list[frozenset[str]]:
    """Return the columns read by each equality of left and right by which :func:`join_condition` finds pairs."""
    pairs = [pair for part in _parts_of(predicate) if (pair := _equality(part, right)) is not None]
    return [columns_read(one) | columns_read(other) for one, other in pairs]


def _parts_of(predicate: Scalar | None) -> list[Expression]:
    if predicate is None:
        return []
    whole = predicate.expression
    return [bare(part) for part in (whole.parts if isinstance(whole, Chain) and whole.word == "AND" else (whole,))]


def _equality(part: Expression, right: Collection[str]) -> tuple[Expression, Expression] | None:
    """Return an expression of the left and one of the right that must be equal; None if a condition is none such."""
    sides = equal_sides(part)
    if sides is None:
        return None
    one, other = map(bare, sides)
    on_right = [{name in right for name in columns_read(each)} for each in (one, other)]
    match on_right:
        case [each, another] if each == {False} and another == {True}:
            return one, other
        case [each, another] if each == {True} and another == {False}:
            return other, one
        case _:
            return None


def matching_pairs(left: pl.DataFrame, right: pl.DataFrame, condition: JoinCondition) -> pl.LazyFrame:
    """Return all pairs of rows that satisfy a condition; columns of both sides have different names.

    Lazy, so that pairs that the caller removes are never materialised.
    """
    if condition.left_keys:
        left, right = with_keys(left, condition.left_computed), with_keys(right, condition.right_computed)
        keys = [
            _comparable(one, left.schema[one], other, right.schema[other])
            for one, other in zip(condition.left_keys, condition.right_keys, strict=True)
        ]
        pairs = left.lazy().join(
            right.lazy(),
            left_on=[one for one, _ in keys],
            right_on=[other for _, other in keys],
            coalesce=False,
            maintain_order="left_right",
        )
        computed = [key.name for key in (*condition.left_computed, *condition.right_computed)]
        pairs = pairs.drop(computed) if computed else pairs
    else:
        pairs = left.lazy().join(right.lazy(), how="cross", maintain_order="left_right")
    return pairs if condition.residual is None else pairs.filter(condition.residual)


def _comparable(one: str, left: pl.DataType, other: str, right: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return two columns in types with the same hash: an integer may equal a real."""
    if left == right:
        return pl.col(one), pl.col(other)
    if pl.Null in {left, right}:  # such as NULLIF(1, 1): equals nothing
        return pl.lit(None, pl.Boolean), pl.lit(None, pl.Boolean)
    return pl.col(one).cast(pl.Float64), pl.col(other).cast(pl.Float64)


def finds_by_key(predicate: Scalar | None, right: Iterable[str]) -> bool:
    """Return whether a hash table finds partners; otherwise all pairs of each query group are tried.

    Parameters
    ----------
    predicate
        Of the join.
    right
        Columns of its right input.
    """
    return any(QUERY_GROUP.name not in columns for columns in equal_columns(predicate, list(right)))
