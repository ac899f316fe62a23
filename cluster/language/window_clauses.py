"""Windows and granularities behind an item of FROM: their syntax -> nodes of the algebra."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlglot import exp

from cluster.language.calendar_windows import reset_window, sliding_grid, warn_of_weeks
from cluster.language.context import Context
from cluster.language.errors import suggest
from cluster.language.quantities import duration_us, read_quantity, row_count, written
from cluster.language.range_clauses import in_steps, row_bound, window_size
from cluster.language.stream_item import ITEM_CLAUSES, StreamItem
from cluster.language.syntax import StreamWindow
from cluster.operators import (
    CountWindow,
    Node,
    PartitionedWindow,
    SessionWindow,
    TimeWindow,
)
from cluster.operators.window_shapes import DEFAULT_LONGEST_US, Session


def windowed(node: Node, item: StreamItem, context: Context) -> Node:
    """Return the plan of an item of FROM with its window and granularity, if it has any.

    Raises
    ------
    FjordSqlError
        If a clause makes no sense.
    """
    window: StreamWindow | None = item.args.get("window")
    if window is not None:
        node = _window(node, window, context)
    return reshaped(node, item, context)


def reshaped(node: Node, item: StreamItem, context: Context) -> Node:
    """Return the plan of tuples with the clauses behind their window; errors as for :func:`windowed`."""
    for each in ITEM_CLAUSES:
        if clause := item.args.get(each.slot):
            node = each.to_node(node, clause, context)
    return node


def _window(node: Node, window: StreamWindow, context: Context) -> Node:
    keys = keys_of(window.args.get("partition"), node, context)
    kind, size = window.args["kind"], window.args.get("this")
    if keys and (kind in ("RANGE", "RESET") or (kind == "ROWS" and size is None)):
        reason = "how long a tuple counts depends on no other"
        context.warn(f"PARTITION BY changes nothing in a window by time or without bounds: {reason}")
    match kind:
        case "RANGE":
            return _time_window(node, window, context)
        case "RESET":
            return reset_window(node, window, context)
        case "SESSION":
            return _session_window(node, window, keys, context)
        case _:
            return _count_window(node, window, keys, context)


def _time_window(node: Node, window: StreamWindow, context: Context) -> Node:
    size, slide = window.this, window.args.get("slide")
    if size is None and slide is not None:
        raise context.error(window, "an unbounded window cannot slide", "give it a size, or leave SLIDE away")
    if (grid := sliding_grid(window, context)) is not None:
        return TimeWindow(node, grid.size_us, grid.step.usual_us, grid)
    if slide is not None and window.args.get("zone") is None:
        warn_of_weeks(slide, context)
    if size is None:
        return TimeWindow(node, None)
    size_us, allowed = window_size(size, context)
    slide_us = read_quantity(slide, duration_us, context) if slide else 1
    return TimeWindow(node, size_us, slide_us, allowed=in_steps(size, allowed, slide_us, context))


def _session_window(node: Node, window: StreamWindow, keys: tuple[str, ...], context: Context) -> Node:
    gap_us = read_quantity(window.this, duration_us, context, meant="MINUTES")
    longest_us = DEFAULT_LONGEST_US
    if longest := window.args.get("longest"):
        longest_us = read_quantity(longest, duration_us, context, meant="HOURS")
    if longest_us < gap_us:
        reason = f"a session lasts as long as its gap, {written(gap_us)}, and this one at most {written(longest_us)}"
        raise context.error(longest or window.this, reason, f"write MAX {written(gap_us)}, or more")
    return SessionWindow(node, keys, Session(gap_us, longest_us, bool(window.args.get("early"))))


def _count_window(node: Node, window: StreamWindow, keys: tuple[str, ...], context: Context) -> Node:
    size, slide = window.this, window.args.get("slide")
    for part in ("zone", "offset"):
        if clause := window.args.get(part):
            reason = "a window by count does not move by time"
            raise context.error(clause, reason, "OFFSET and AT TIME ZONE belong to RANGE and RESET")
    if size is None and slide is not None:
        raise context.error(window, "an unbounded window cannot slide", "give it a size, or leave SLIDE away")
    rows = None if size is None else row_bound(size, context)
    slide_rows = read_quantity(slide, row_count, context) if slide else 1
    if rows is None:
        # The last of arbitrarily many tuples: no tuple ever leaves, by group or not.
        return CountWindow(node, None)
    context.warn(count_warning(rows, keys))
    return PartitionedWindow(node, keys, rows, slide_rows) if keys else CountWindow(node, rows, slide_rows)


def count_warning(rows: int, keys: Collection[str]) -> str:
    """Return the warning about tuples with the same stamp in a window by count, of each group if there are keys."""
    return (
        f"WINDOW({'PARTITION BY ... ' if keys else ''}ROWS {rows}) counts tuples: "
        f"where several of one {'group' if keys else 'stream'} carry the same stamp, which of them count is arbitrary"
    )


def keys_of(
    keys: Iterable[exp.Expr] | None, node: Node, context: Context, words: str = "PARTITION BY"
) -> tuple[str, ...]:
    """Return the columns of `node` that keys are, each once; errors as for :func:`key_of`."""
    return tuple(dict.fromkeys(key_of(each, node, context, words) for each in keys or ()))


def key_of(key: exp.Expr, node: Node, context: Context, words: str = "PARTITION BY") -> str:
    """Return the column of `node` that a key behind PARTITION BY, or other `words`, is.

    Raises
    ------
    FjordSqlError
        If it is none.
    """
    if not isinstance(key, exp.Column):
        hint = "a window is partitioned by columns of the stream before it"
        hint = hint if words == "PARTITION BY" else "name columns of the stream before it"
        raise context.error(key, f"{words} takes columns as they are", hint)
    names = [column.name for column in node.schema]
    found = next((name for name in names if name.casefold() == key.name.casefold()), None)
    if found is None:
        raise context.error(key, f"there is no column {key.name!r}", suggest(key.name, names, what="columns are"))
    if key.table:
        reason = f"the columns of {words} are those of the stream before it, and have no other name in front"
        raise context.error(key.args["table"], reason, f"write {found}")
    return found
