"""ZIP JOIN: items of FROM paired one to one in the order of their stamps -> plan and scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.from_items import FromItem
from cluster.language.joins import with_nulls
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.stamp_joins import bounds_us, joined_by_stamps
from cluster.language.stream_item import reshaping
from cluster.language.syntax import StampJoin, ZipJoin, conjuncts, is_comma
from cluster.language.words import NEAR_SHAPE
from cluster.operators import Zip
from cluster.operators.projections import renamed_apart
from cluster.operators.unique_names import unique_name
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.operators import ZipKind

APART = "apart_us"
"""The column with the stamp on the right minus that on the left; behind a number if the name is taken."""
KINDS: dict[str, ZipKind] = {"INNER": "inner", "LEFT": "left", "FULL": "full"}


def zip_items(
    items: list[FromItem], syntax: list[exp.Expr], joins: list[exp.Join], context: Context
) -> tuple[list[FromItem], list[exp.Join]]:
    """Return the items of FROM after each zipper join and join by stamps has made one of two, and the joins left.

    Parameters
    ----------
    items, syntax
        The items, and their syntax.
    joins
        The connection of each item but the first with those before it.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If such a join stands behind another join, an item has a window or tuples that last, or bounds or condition are
        not valid.
    """
    found = [items[0]]
    left: list[exp.Join] = []
    for place, join in enumerate(joins, start=1):
        if not isinstance(join, ZipJoin | StampJoin):
            _warn_of_equal_stamps(found[-1], items[place], join, context)
            found.append(items[place])
            left.append(join)
            continue
        if left and len(found) > 1 and not is_comma(left[-1]):
            what, example = _named(join), "ZIP JOIN" if isinstance(join, ZipJoin) else "ASOF JOIN"
            reason = f"{what} pairs two streams, not what other joins have made"
            hint = f"write it first, FROM a {example} b ... JOIN c, or put the other join into a subquery"
            raise context.error(join, reason, hint)
        for item, read_from in ((items[place - 1], syntax[place - 1]), (items[place], syntax[place])):
            _check_instants(item, read_from, _named(join), context)
        if isinstance(join, ZipJoin):
            found[-1] = _zipped(found[-1], items[place], join, context)
        else:
            found[-1] = joined_by_stamps(found[-1], items[place], join, context)
    return found, left


def _warn_of_equal_stamps(left: FromItem, right: FromItem, join: exp.Expr, context: Context) -> None:
    """Warn of a condition on both stamps that looks like an interval join, but joins at equal stamps."""
    if left.static or right.static or not (left.node.is_instantaneous and right.node.is_instantaneous):
        return
    select = join.find_ancestor(exp.Select)
    where = select.args.get("where") if select is not None else None
    parts = [*conjuncts(join.args.get("on")), *conjuncts(where.this if where else None)]
    if any(_compares_stamps(part, left.scope, right.scope) for part in parts):
        context.warn(
            "streams without a window are joined at equal stamps only; tuples whose stamps are apart are joined by "
            f"{NEAR_SHAPE}"
        )


def _compares_stamps(part: exp.Expr, left: ScopeItem, right: ScopeItem) -> bool:
    """Return whether a condition is about the stamps of both items, other than that they are equal."""
    columns = [] if isinstance(part, exp.EQ) else [*part.find_all(exp.Column)]
    return all(any(item.is_stamped_by(each) for each in columns) for item in (left, right))


def _named(join: exp.Expr) -> str:
    if isinstance(join, ZipJoin):
        return "a zipper join"
    return "an ASOF join" if join.args["kind"] == "ASOF" else "a join WITHIN a time"


def _check_instants(item: FromItem, syntax: exp.Expr, what: str, context: Context) -> None:
    if clause := reshaping(syntax):
        raise context.error(
            clause,
            f"{what} pairs tuples as they come: its streams have no window",
            "put the window above, FROM (SELECT ... FROM a ... JOIN b ...) AS pairs WINDOW(...)",
        )
    if item.static:
        reason = f"{what} pairs tuples by their stamps, but the rows of a relation have none"
        raise context.error(syntax, reason, "join it with JOIN or LEFT JOIN behind the streams")
    if not item.node.is_instantaneous:
        raise context.error(
            syntax,
            f"{what} pairs tuples by their stamps, but what is here lasts longer than an instant",
            "put ISTREAM(...) around it: each tuple then is stamped where it begins",
        )


def _zipped(left: FromItem, right: FromItem, join: ZipJoin, context: Context) -> FromItem:
    kind = KINDS[join.args["side"]]
    low_us, high_us = bounds_us(join.args.get("within"), context)
    node, names = renamed_apart(right.node, [column.name for column in left.node.schema])
    scopes = [left.scopes, tuple(scope.renamed(names) for scope in right.scopes)]
    keys = _keys(join.args.get("on"), scopes, context)
    columns = (*left.node.schema, *node.schema)
    visible = [column.visible for side in scopes for scope in side for column in scope.columns]
    apart = unique_name(APART, [*(column.name for column in columns), *visible])
    zipped = Zip(left.node, node, tuple(keys), low_us, high_us, kind, apart)
    own = ScopeColumn(apart, apart, FieldType.INTEGER, "us", nullable=kind != "inner")
    first, *more = [
        *(with_nulls(scope) if kind == "full" else scope for scope in scopes[0]),
        *(with_nulls(scope) if kind != "inner" else scope for scope in scopes[1]),
        ScopeItem(None, (own,)),
    ]
    return FromItem(zipped, first, base=False, more=tuple(more))


def _keys(
    condition: exp.Expr | None, scopes: list[tuple[ScopeItem, ...]], context: Context
) -> dict[tuple[str, str], None]:
    keys: dict[tuple[str, str], None] = {}
    both = Scope((*scopes[0], *scopes[1]))
    of_left = {column.internal for scope in scopes[0] for column in scope.columns}
    for part in conjuncts(condition):
        sides = [side.unnest() for side in (part.this, part.expression)] if isinstance(part, exp.EQ) else []
        columns = [both.find(side, context) for side in sides if isinstance(side, exp.Column)]
        columns.sort(key=lambda column: column.internal not in of_left)
        if [column.internal in of_left for column in columns] != [True, False]:
            raise context.error(
                part,
                "ON of a zipper join names only which column of the left equals which of the right",
                "choose tuples in a subquery, FROM (SELECT ... WHERE ...) AS a, and pairs in WHERE",
            )
        one, other = columns
        if one.type != other.type:
            reason = f"the keys of a zipper join have one type, but these are {one.type.value} and {other.type.value}"
            raise context.error(part, reason, "convert one in a subquery, FROM (SELECT CAST(x AS ...) AS x ...) AS a")
        keys[one.internal, other.internal] = None
    return keys
