"""SINCE: how much of a stream's past a query reads before it goes on live -> a note on its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster.language.acquisition import LEAVE_OUT, OWN, with_sources
from cluster.language.algebra import History, Node, Source
from cluster.language.quantities import duration_us, read_quantity

if TYPE_CHECKING:
    from cluster.language.scope import Context
    from cluster.language.syntax import SinceClause


def with_history(node: Node, since: SinceClause, context: Context, *, name: str) -> Node:
    """Return `node`, the stream called `name`, with the history noted at every stream below it that has none yet.

    Raises
    ------
    FjordSqlError
        If it is no duration, or each of them has one.
    """
    ago = since.args.get("this")
    history = History(None if ago is None else read_quantity(ago, duration_us, context, meant="HOURS"))

    def note_history(source: Source) -> Source:
        return source if source.history is not None else replace(source, history=history)

    found = with_sources(node, note_history)
    if found is node:
        context.refuse_ignored(since, OWN.format(f"that {name} reads", "SINCE"), LEAVE_OUT)
    return found
