"""What ``*`` and ``stream.*`` stand for in SELECT, without the columns behind EXCEPT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.errors import suggest

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.scope import Scope, ScopeColumn


MOST_COLUMNS = 4_096
"""Columns that all ``*`` of one SELECT may stand for."""


def shown_by_star(item: exp.Expr, scope: Scope, context: Context) -> list[ScopeColumn]:
    """Return the columns that ``*`` or ``stream.*`` means, without those of ``EXCEPT (a, b)``.

    Raises
    ------
    FjordSqlError
        If there is no such stream or column, or no column is left.
    """
    shown = scope.starred(item, context)
    left_out = left_out_by(item)
    seen: set[str] = set()
    for each in left_out:
        if not isinstance(each, exp.Identifier):
            raise context.error(each, "EXCEPT is followed by names of columns", "SELECT * EXCEPT (a, b) FROM stream")
        name = each.name.casefold()
        if name in seen:
            raise context.error(each, f"EXCEPT names {each.name!r} twice")
        if name not in {column.visible.casefold() for column in shown}:
            hint = suggest(each.name, [column.visible for column in shown], what="columns are")
            raise context.error(each, f"there is no column {each.name!r} to leave out", hint)
        seen.add(name)
    found = [column for column in shown if column.visible.casefold() not in seen]
    if not found:
        raise context.error(left_out[-1] if left_out else item, "EXCEPT leaves no column", "name the columns you want")
    return found


def is_star(item: exp.Expr) -> bool:
    """Return whether an item of SELECT is ``*`` or ``stream.*``."""
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


def left_out_by(item: exp.Expr) -> list[exp.Expr]:
    """Return what stands behind EXCEPT; nothing if `item` is no star."""
    star = item.this if isinstance(item, exp.Column) else item
    return list(star.args.get("except_") or ()) if isinstance(star, exp.Star) else []
