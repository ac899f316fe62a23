"""KEEP 10000 TUPLES behind COALESCE: an extent that may keep fewer tuples than its window has."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions import nodes
from cluster.language.quantities import QuantityError, exactly, read_quantity
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.validity_syntax import KEEP_SHAPE, KeepClause
from cluster.language.window_clauses import reshaped, windowed
from cluster.operators import (
    CountWindow,
    KeptExtent,
    Node,
    PartitionedWindow,
    Sequence,
    SessionWindow,
    TimeWindow,
)
from cluster.operators.columns import Column, Output, Scalar
from cluster.operators.kept_extent import KeptTuples
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.sequence import SequenceCall
from cluster.operators.walks import nodes_of
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.language.context import Context
    from cluster.language.stream_item import StreamItem
    from cluster.operators.extent import Coalescing
    from cluster.operators.unique_names import Names

INTEGER = FieldType.INTEGER
QUALITY = "quality"
"""The column that rows of what is kept have besides; `quality_2`, if there is one of this name."""
MOST_TUPLES = 10_000_000
"""More would not fit into the memory of a worker: a tuple that is kept takes some hundred bytes."""
NOTHING_COALESCED = "KEEP is of tuples that are coalesced, and {} no COALESCE"


@dataclass(frozen=True, slots=True)
class Tuples:
    """Tuples of an item of FROM, without a window.

    Parameters
    ----------
    node
        Their plan: the columns that are read, and the stamp.
    keys
        Columns by which they are grouped.
    how
        How they are coalesced.
    names
        Names of columns that are taken.
    """

    node: Node
    keys: tuple[str, ...]
    how: Coalescing
    names: Names


def kept_rows(tuples: Tuples, keep: KeepClause, item: StreamItem, context: Context) -> Node:
    """Return coalesced rows of at most so many tuples.

    Parameters
    ----------
    tuples
        The tuples.
    keep, item
        The clause, and the item of FROM that it belongs to.
    context
        For errors and warnings.

    Raises
    ------
    FjordSqlError
        If the number makes no sense, or the window is not one of which tuples can be dropped.
    """
    most = read_quantity(keep.this, _tuple_count, context)
    node, names = tuples.node, tuples.names
    if any(isinstance(each, SessionWindow) for each in nodes_of(node)):
        reason = "KEEP goes by the order of stamps, and tuples of sessions come when these close"
        raise context.error(keep, reason, "put COALESCE and KEEP behind the stream itself")
    number, run = (Column(names.unique(f"fjord_{word}"), INTEGER) for word in ("nth_of_key", "run_of_key"))
    quality = names.unique(QUALITY)
    plain = KeptTuples(most, tuples.keys, run.name, number.name, tuples.how.bounds, quality)
    kept = _of_window(plain, node, item, keep, context)
    found: Node = KeptExtent(_in_runs(tuples, number, run), kept)
    return reshaped(found, item, context)


def _in_runs(tuples: Tuples, number: Column, run: Column) -> Node:
    """Return what rows show of tuples, with their number among those of their key, and that of their run.

    Whether a tuple goes on with the one before does not depend on the window, which removes the first ones of a key.
    """
    how, names, by_name = tuples.how, tuples.names, {column.name: column for column in tuples.node.schema}
    shown = [by_name[name] for name in dict.fromkeys((*tuples.keys, *how.columns))]
    if how.link is None:
        before = tuple((names.unique(f"fjord_before_{name}"[:60]), name) for name in how.columns)
        equal = "IS NOT DISTINCT FROM"
        same = tuple([nodes.Binary(equal, nodes.Column(name), nodes.Column(one)) for one, name in before])
        link: nodes.Expression = nodes.chain("AND", same) if len(same) > 1 else same[0]
    else:
        before, link = how.link.before, how.link.condition.expression
    lags = (SequenceCall(one, "lag", name, by_name[name].type, by_name[name].unit, rows=1) for one, name in before)
    counted = SequenceCall(number.name, "count", None, INTEGER)
    ordered = Sequence(tuples.node, tuples.keys, how.ties, (*lags, counted))
    later = nodes.Binary(">", nodes.Column(number.name), _integer(1))
    begins = Column(names.unique("fjord_new_run"), INTEGER)
    value = nodes.Case(None, (nodes.chain("AND", (later, nodes.grouped(link))),), (_integer(0),), _integer(1))
    flagged = project(ordered, (*passed_on((*shown, number)), Output(begins.name, Scalar(value, INTEGER))))
    total = SequenceCall(run.name, "sum", begins.name, INTEGER)
    return project(Sequence(flagged, tuples.keys, (number.name,), (total,)), passed_on((*shown, run, number)))


def _integer(number: int) -> nodes.Literal:
    return nodes.Literal(INTEGER, str(number))


def tuples_dropped_from(select: exp.Expr, items: Iterable[exp.Expr], context: Context) -> KeepClause | None:
    """Return the KEEP at the end of a SELECT, for all its items that have none of their own.

    Raises
    ------
    FjordSqlError
        If no item of FROM is coalesced, or each has a KEEP of its own.
    """
    keep: KeepClause | None = select.args.get("keep")
    if keep is None:
        return None
    coalesced = [each for each in items if each.args.get("coalesce")]
    if not coalesced:
        raise context.error(keep, NOTHING_COALESCED.format("this FROM has"), f"it is written {KEEP_SHAPE}")
    if all(each.args.get("keep") for each in coalesced):
        reason = "every COALESCE of this FROM has a KEEP of its own"
        raise context.error(keep, reason, "leave one of them out")
    return keep


def refuse_kept_alone(item: StreamItem, context: Context) -> None:
    """Refuse a KEEP without COALESCE.

    Raises
    ------
    FjordSqlError
        If there is one.
    """
    if (keep := item.args.get("keep")) and not item.args.get("coalesce"):
        raise context.error(keep, NOTHING_COALESCED.format("this stream has"), f"it is written {KEEP_SHAPE}")


def _tuple_count(number: str, _: str | None) -> int:
    exact = exactly(number)
    if exact <= 0 or exact.denominator != 1:
        hint = "at least the newest tuple is kept: write 1 or more"
        raise QuantityError("the number of tuples that are kept is not a positive whole number", hint)
    if exact > MOST_TUPLES:
        raise QuantityError(f"more than {MOST_TUPLES:,} tuples are not kept", f"write KEEP {MOST_TUPLES} TUPLES")
    return int(exact)


def _of_window(plain: KeptTuples, node: Node, item: StreamItem, keep: KeepClause, context: Context) -> KeptTuples:
    """Return what is kept of the window of an item of FROM."""
    window = item.args["window"]
    alone = item.copy()
    for each in ITEM_CLAUSES:
        alone.set(each.slot, None)
    muted = dataclasses.replace(context, warnings=[])
    found = windowed(node, alone, muted)
    if isinstance(found, TimeWindow):  # that one of equal stamps counts is arbitrary is not so here
        context.warnings.extend(muted.warnings)
    match found:
        case TimeWindow(size_us=int(size), grid=grid, allowed=allowed) if grid is UNSET and allowed is UNSET:
            return replace(plain, size_us=size, slide_us=found.slide_us)
        case CountWindow(rows=int(rows)):
            if plain.most >= rows:
                context.warn(f"KEEP {plain.most} TUPLES never drops one of a window of {rows}; leave it out")
            return replace(plain, rows=rows, slide_rows=found.slide_rows)
        case PartitionedWindow():
            reason = "KEEP is of one window, and this is one of each key"
            raise context.error(window, reason, "leave PARTITION BY out, or write fewer ROWS and no KEEP")
        case TimeWindow(size_us=None) | CountWindow():
            reason = "KEEP is of a window that ends, and this one is unbounded"
            raise context.error(window, reason, f"it is written {KEEP_SHAPE}")
        case _:
            reason = "KEEP is of a window by time or count, and not of one on a calendar, that is reset or has a range"
            raise context.error(keep, reason, "write WINDOW(RANGE 1 DAY SLIDE 1 HOUR), of one size and without OFFSET")
