"""COALESCE(...) behind a window: neighbours of one value become a row (papers/coalescing.md section 1.4).

value   81   81   79   81        link of each sample with the one before: none, yes, no, no
run      1    1    2    3        so many have not been linked so far
rows    |---------)              81 [1, 3): up to where the next run begins
                  |----)         79 [3, 4)
                       |         81 [4, 4): a run's last sample, as far as is known

It is a node above the window: at each instant, a function of the samples that are in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.walks import columns_read
from cluster.language.errors import suggest
from cluster.language.expressions import Checker
from cluster.language.kept_extents import Tuples, kept_rows
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.session_bounds import with_stamps
from cluster.language.stamps import SELECTED
from cluster.language.syntax import Slot, holds_query, slot_for, span_of
from cluster.language.typing_rules import scalar_of
from cluster.language.validities import all_of, tolerance_of, within
from cluster.language.validity_syntax import COALESCE_SHAPE, CoalesceClause, KeepClause, Previous
from cluster.language.window_clauses import key_of, keys_of, windowed
from cluster.operators import Extent, Node, Relation
from cluster.operators.columns import STAMP, Column
from cluster.operators.extent import Coalescing, Link
from cluster.operators.projections import project
from cluster.operators.scalar_expressions import passed_on
from cluster.operators.unique_names import Names
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.stream_item import StreamItem

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
