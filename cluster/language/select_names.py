"""Names given to columns: which may be given, and messages where they are used in a clause that does not see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.stream_item import StreamItem
from protocols.wire.names import NAME_SHAPE, fault_of_identifier
from protocols.wire.streams import RESERVED_PREFIX

if TYPE_CHECKING:
    from cluster.language.context import Context

SHORT = 60
"""Characters of an expression that is worth repeating."""
_DEEPEST = 10
"""Queries that are looked through."""


def check_column_name(name: exp.Expr, context: Context) -> None:
    """Do nothing if a column of an answer may have this name.

    Raises
    ------
    FjordSqlError
        If it may not.
    """
    check_letters(name, context, "column")
    if name.name.casefold().startswith(RESERVED_PREFIX):
        reason = f"{name.name!r} is no name for a column"
        raise context.error(name, reason, f"{RESERVED_PREFIX} begins Fjord's own names")


def check_letters(name: exp.Expr, context: Context, what: str) -> None:
    """Do nothing if `what` may have this name.

    Raises
    ------
    FjordSqlError
        If it is no identifier of Unicode.
    """
    fault = fault_of_identifier(name.name)
    if fault is not None:
        reason = f"{name.name!r} is no name for a {what}"
        raise context.error(name, reason if name.name.isascii() else f"{reason}: {fault}", NAME_SHAPE)


def named_by_select(reference: exp.Column, context: Context) -> str | None:
    """Return what to write if a condition of WHERE refers to a name that its SELECT gives."""
    query = reference.find_ancestor(exp.Select)
    if query is None or reference.table or reference.find_ancestor(exp.Where, exp.Select) is query:
        return None
    named = {each.alias.casefold(): each.this for each in query.expressions if isinstance(each, exp.Alias)}
    meant = named.get(reference.name.casefold())
    if meant is None:
        return None
    if meant.find(exp.AggFunc) is not None:
        return "SELECT gives that name, after WHERE: conditions on aggregates belong into HAVING"
    written = context.source_text(meant)
    return f"SELECT gives that name, after WHERE: write {written if len(written) <= SHORT else 'what it stands for'}"


def is_further_out(reference: exp.Column) -> bool:
    """Return whether `reference` names a stream of a query that is not directly around its own."""
    wanted = reference.table.casefold()
    around = reference.find_ancestor(exp.Select)
    for distance in range(_DEEPEST):
        if around is None:
            return False
        if distance > 1 and wanted in _streams_of(around):
            return True
        around = around.find_ancestor(exp.Select)
    return False


def _streams_of(query: exp.Select) -> frozenset[str]:
    """Return the names in FROM."""
    source = query.args.get("from_")
    items = [each.this for each in (source, *query.args.get("joins", ())) if each is not None]
    return frozenset((each.alias or each.this.name).casefold() for each in items if isinstance(each, StreamItem))
