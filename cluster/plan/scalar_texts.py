"""Expressions of plans from their texts, as earlier versions have stored them, and tests write them."""

from __future__ import annotations

from functools import lru_cache

from sqlglot.errors import SqlglotError

from cluster.errors import PlanError
from cluster.expressions.reading import expression_of
from cluster.language.dialect import parse_scalar
from cluster.language.errors import FjordSqlError
from cluster.operators.columns import Scalar
from protocols.wire.streams import FieldType


@lru_cache(maxsize=16_384)
def read_scalar(text: str, kind: FieldType) -> Scalar:
    """Return the expression of a text; names in it are columns of the plan.

    >>> read_scalar('"speed" > 20', FieldType.BOOLEAN).sql
    '"speed" > 20'

    Raises
    ------
    PlanError, FjordSqlError
        If it is not an expression.
    """
    return Scalar(expression_of(parse_scalar(text)), kind)


def scalar_of_text(text: str, kind: FieldType) -> Scalar:
    """Return the expression of a text that an earlier version has stored.

    Raises
    ------
    ValueError
        If it is not an expression.
    """
    try:
        return read_scalar(text, kind)
    except (PlanError, FjordSqlError, SqlglotError, TypeError) as error:
        raise ValueError(f"{text!r} is no expression: {error}") from error
