"""Splits a join's predicate: equalities between the sides, which a hash table answers, and the rest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from cluster.expressions.conditions import all_of, equal_sides
from cluster.expressions.nodes import Chain, Column, Expression, bare
from cluster.fjord.scalars import compile_scalar
from cluster.language.columns import Scalar
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
    """

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    residual: pl.Expr | None


def join_condition(predicate: Scalar | None, right: Collection[str]) -> JoinCondition:
    """Split a predicate.

    Parameters
    ----------
    predicate
        Over the columns of both sides.
    right
        The columns of the right side; all others are of the left.
    """
    pairs, rest = _taken_apart(predicate, right)
    together = all_of(rest)
    residual = None if together is None else compile_scalar(Scalar(together, FieldType.BOOLEAN))
    return JoinCondition(tuple(one for one, _ in pairs), tuple(other for _, other in pairs), residual)


def equal_columns(predicate: Scalar | None, right: Collection[str]) -> list[tuple[str, str]]:
    """Return the columns of left and right that must be equal, pair by pair, as :func:`join_condition` finds them."""
    return _taken_apart(predicate, right)[0]


def _taken_apart(predicate: Scalar | None, right: Collection[str]) -> tuple[list[tuple[str, str]], list[Expression]]:
    """Return the columns that must be equal, and the rest of the predicate."""
    if predicate is None:
        return [], []
    pairs: list[tuple[str, str]] = []
    rest: list[Expression] = []
    whole = predicate.expression
    for part in whole.parts if isinstance(whole, Chain) and whole.word == "AND" else (whole,):
        plain = bare(part)
        pair = _equality(plain, right)
        if pair is None:
            rest.append(plain)
        else:
            pairs.append(pair)
    return list(dict.fromkeys(pairs)), rest  # a condition that is written twice counts once


def _equality(part: Expression, right: Collection[str]) -> tuple[str, str] | None:
    sides = equal_sides(part)
    if sides is None:
        return None
    one, other = map(bare, sides)
    if not (isinstance(one, Column) and isinstance(other, Column)):
        return None
    if (one.name in right) == (other.name in right):
        return None
    return (one.name, other.name) if other.name in right else (other.name, one.name)


def matching_pairs(left: pl.DataFrame, right: pl.DataFrame, condition: JoinCondition) -> pl.LazyFrame:
    """Return all pairs of rows that satisfy a condition; columns of both sides have different names.

    Lazy, so that pairs that the caller removes are never materialised.
    """
    if condition.left_keys:
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
    else:
        pairs = left.lazy().join(right.lazy(), how="cross", maintain_order="left_right")
    return pairs if condition.residual is None else pairs.filter(condition.residual)


def _comparable(one: str, left: pl.DataType, other: str, right: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return two columns in types with the same hash: an integer may equal a real."""
    if left == right:
        return pl.col(one), pl.col(other)
    return pl.col(one).cast(pl.Float64), pl.col(other).cast(pl.Float64)
