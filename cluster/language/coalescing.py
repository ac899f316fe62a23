"""COALESCE(...) and KEEP behind a window: neighbours of one value become a row (papers/coalescing.md section 1.4).

value   81   81   79   81        link of each sample with the one before: none, yes, no, no
run      1    1    2    3        so many have not been linked so far
rows    |---------)              81 [1, 3): up to where the next run begins
                  |----)         79 [3, 4)
                       |         81 [4, 4): a run's last sample, as far as is known

It is a node above the window: at each instant, a function of the samples that are in it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace
from sqlglot import exp

from cluster.expressions import nodes
from cluster.expressions.walks import columns_read
from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.quantities import QuantityError, exactly, read_quantity
from cluster.language.scope import SELECTED, Scope, ScopeColumn, ScopeItem
from cluster.language.stream_item import ITEM_CLAUSES
from cluster.language.syntax import (
    COALESCE_SHAPE,
    KEEP_SHAPE,
    CoalesceClause,
    KeepClause,
    Previous,
    Slot,
    holds_query,
    slot_for,
    span_of,
)
from cluster.language.typing_rules import scalar_of
from cluster.language.validities import all_of, tolerance_of, within
from cluster.language.window_bounds import with_stamps
from cluster.language.window_clauses import key_of, keys_of, reshaped, windowed
from cluster.operators import (
    CountWindow,
    Extent,
    KeptExtent,
    Node,
    PartitionedWindow,
    Relation,
    Sequence,
    SessionWindow,
    TimeWindow,
)
from cluster.operators.columns import STAMP, Column, Names, Output, Scalar
from cluster.operators.extent import Coalescing, Link
from cluster.operators.kept_extent import KeptTuples
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.sequence import SequenceCall
from cluster.operators.walks import nodes_of
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.language.context import Context
    from cluster.language.stream_item import StreamItem

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


PREV_SHAPE = "PREV(x) is a column of the tuple before"


def coalesced(
    node: Node, item: StreamItem, context: Context, keep: KeepClause | None = None
) -> tuple[Node, tuple[str, str]]:
    """Return the rows of an item of FROM with COALESCE, and the columns that bound their intervals.

    Parameters
    ----------
    node
        The tuples, without a window.
    item
        Its syntax.
    context
        For errors.
    keep
        How many tuples it may keep, of itself or of its SELECT; None for all.

    Raises
    ------
    FjordSqlError
        If there is no window, the tuples have no stamps, or something in the clause is wrong.
    """
    clause: CoalesceClause = item.args["coalesce"]
    _check_item(node, item, clause, context)
    keys = keys_of(clause.args.get("keys"), node, context, "BY")
    for each in item.args["window"].args.get("partition") or ():
        if (name := key_of(each, node, context)) not in keys:
            reason = f"this window has its own tuples of each {name}, and COALESCE takes several {name} together"
            raise context.error(each, reason, f"write COALESCE(... BY {name})")
    attributes = _attributes(clause, node, keys, context)
    node = with_stamps(node)
    if STAMP not in node.schema:
        reason = "COALESCE goes by the stamps of tuples, and the rows of this subquery have none"
        raise context.error(clause, reason, SELECTED)
    columns = {column.name: column for column in node.schema}
    names = Names(columns)
    kept = dict.fromkeys((*keys, *attributes))
    link, linked = _link(clause, attributes, columns, names, context)
    read = [columns[name] for name in dict.fromkeys((*kept, *linked)) if name != STAMP.name]
    below = project(node, passed_on((*read, STAMP)))
    bounds = names.unique("fjord_valid_begin"), names.unique("fjord_valid_end")
    ties = tuple(column.name for column in read)
    how = Coalescing(tuple(attributes), STAMP.name, ties, bounds, link)
    if keep is not None:
        return kept_rows(Tuples(below, keys, how, names), keep, item, context), bounds
    return Extent(windowed(below, item, context), keys, how), bounds


def _check_item(node: Node, item: StreamItem, clause: CoalesceClause, context: Context) -> None:
    if item.args.get("valid"):
        reason = "rows of COALESCE have intervals of their own, up to where another value begins"
        raise context.error(item.args["valid"], reason, "leave VALID UNTIL NEXT out")
    if isinstance(node, Relation) or not node.is_instantaneous:
        reason = "COALESCE goes by the stamps of tuples, but what is here lasts longer than an instant"
        raise context.error(clause, reason, "put it behind the stream itself")
    window = item.args.get("window")
    if window is None:
        reason = "COALESCE is of the tuples in a window, and there is none"
        raise context.error(clause, reason, f"write {COALESCE_SHAPE}")
    if window.args["kind"] == "SESSION":
        reason = "COALESCE is of the tuples in a window by time or count, and sessions end by themselves"
        raise context.error(window, reason, f"write {COALESCE_SHAPE}")


def _attributes(
    clause: CoalesceClause, node: Node, keys: tuple[str, ...], context: Context
) -> dict[str, exp.Literal | None]:
    """Return the columns that are coalesced, with their tolerances."""
    found: dict[str, exp.Literal | None] = {}
    types = {column.name: column.type for column in node.schema}
    for each in clause.expressions:
        name = key_of(each.this, node, context, "COALESCE")
        if name in found:
            raise context.error(each, f"{name} is coalesced twice", "name it once")
        if name in keys:
            reason = f"{name} is coalesced, and tuples are grouped by it"
            raise context.error(each, reason, "name it once: behind BY what does not vary, before it what does")
        tolerance = found[name] = tolerance_of(each.args.get("tolerance"), context)
        if tolerance is not None and types[name] not in (FieldType.INTEGER, FieldType.REAL):
            reason = f"a tolerance is of numbers, but {name} is {types[name].value}"
            raise context.error(tolerance, reason, "leave TOLERANCE out: equal values are coalesced")
        if tolerance is not None and clause.args.get("condition"):
            reason = "WHILE decides which tuples are coalesced, and a tolerance beside it has no meaning"
            raise context.error(tolerance, reason, "write it into the condition: ABS(x - PREV(x)) <= 2")
    return found


def _link(
    clause: CoalesceClause,
    attributes: dict[str, exp.Literal | None],
    columns: dict[str, Column],
    names: Names,
    context: Context,
) -> tuple[Link | None, tuple[str, ...]]:
    """Return when a tuple goes on with the one before, None if all is equal; and the columns that it reads."""
    before: dict[str, Column] = {}

    def previous(name: str) -> Column:
        if name not in before:
            column = columns[name]
            before[name] = Column(names.unique(f"fjord_before_{name}"[:60]), column.type, column.unit)
        return before[name]

    def replaced(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, Previous):
            return part
        given = part.expressions
        if len(given) != 1 or not isinstance(given[0], exp.Column) or given[0].table:
            raise context.error(part, "PREV takes the name of a column", PREV_SHAPE)
        return slot_for(previous(_named(given[0], columns, context)).name, part)

    condition = clause.args.get("condition")
    if condition is None and not any(attributes.values()):
        return None, ()
    if condition is None:
        condition = all_of(*(_near(columns[name], previous(name), each) for name, each in attributes.items()))
    else:
        if holds_query(condition):
            raise context.error(condition, "a subquery cannot stand in WHILE", "compare with it in WHERE")
        read = sorted(condition.find_all(exp.Column), key=lambda column: span_of(column) or (0, 0))
        condition = condition.copy().transform(replaced)
        for column in condition.find_all(exp.Column):
            previous(_named(column, columns, context))
        # Ties are broken in the order in which a text has the columns; a tree has them in another.
        before = {name: before[name] for name in dict.fromkeys(_named(each, columns, context) for each in read)}
    own = tuple(ScopeColumn(each.name, each.name, each.type, each.unit) for each in columns.values() if each != STAMP)
    slots = tuple(ScopeColumn("", each.name, each.type, each.unit) for each in before.values())
    checker = Checker(Scope((ScopeItem(None, own), ScopeItem(None, slots))), context)
    typed = checker.check_as(condition, Family.BOOLEAN, "WHILE takes a condition: x >= PREV(x)")
    scalar = scalar_of(typed, FieldType.BOOLEAN)
    used = columns_read(scalar.expression)
    pairs = tuple((each.name, name) for name, each in before.items() if each.name in used)
    return Link(scalar, pairs), tuple(before)


def _named(column: exp.Column, columns: dict[str, Column], context: Context) -> str:
    found = next((name for name in columns if name.casefold() == column.name.casefold()), None)
    if found is None or found == STAMP.name or column.table:
        known = [name for name in columns if name != STAMP.name]
        raise context.error(
            column, f"there is no column {column.name!r}", suggest(column.name, known, what="columns are")
        )
    return found


def _near(column: Column, previous: Column, tolerance: exp.Expr | None) -> exp.Expr:
    """Return whether two values are equal, both NULL, or no further apart than a tolerance."""
    this, that = exp.column(column.name, quoted=True), Slot(this=previous.name)
    equal = exp.NullSafeEQ(this=this, expression=that)
    if tolerance is None:
        return equal
    return exp.Paren(this=exp.Or(this=equal, expression=within(this, that, tolerance)))
