"""Expressions that are given as text: in plans that earlier versions wrote, and in tests."""

from __future__ import annotations

from functools import lru_cache

from cluster.expressions.reading import expression_of
from cluster.language.algebra import Scalar
from cluster.language.dialect import parse_scalar
from protocols.streams import FieldType


@lru_cache(maxsize=16_384)
def read_scalar(text: str, kind: FieldType) -> Scalar:
    """Return the expression that a text is; names in it are columns of the plan.

    >>> read_scalar('"speed" > 20', FieldType.BOOLEAN).sql
    '"speed" > 20'

    Raises
    ------
    PlanError, FjordSqlError
        If it is none.
    """
    return Scalar(expression_of(parse_scalar(text)), kind)
