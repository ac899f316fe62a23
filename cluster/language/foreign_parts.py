"""What other databases have within calls and beside operands, and FjordSQL has not: why, and what to write here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.arguments import called, unnamed

if TYPE_CHECKING:
    from cluster.language.errors import FjordSqlError
    from cluster.language.scope import Context

_NO_NULLS = "aggregates never look at NULLs"


def foreign_part(context: Context, part: exp.Expr) -> FjordSqlError | None:
    """Return the error about a part of an expression, if it is one that only other databases have."""
    match part:
        case exp.Kwarg() | exp.PropertyEQ() if isinstance(part.parent, exp.Func):
            return context.error(part.parent, *unnamed(called(part.parent, part.parent.sql_name())))
        case exp.Collate():
            hint = "texts are compared by their code points; write LOWER(text) where case does not matter"
            return context.error(part, "COLLATE is not part of FjordSQL", hint)
        case exp.IgnoreNulls():
            return context.error(part, "IGNORE NULLS is not part of FjordSQL", f"leave it out: {_NO_NULLS}")
        case exp.RespectNulls():
            return context.error(part, "RESPECT NULLS is not part of FjordSQL", _NO_NULLS)
        case exp.Order():
            hint = "FIRST and LAST go by when tuples were sampled, and the others by no order"
            return context.error(part.parent or part, "ORDER BY cannot stand in an aggregate", hint)
        case _:
            return None
