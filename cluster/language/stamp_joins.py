"""ASOF JOIN, JOIN ... WITHIN and ZIP JOIN: items of FROM joined by their stamps or their order -> plan and scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language import syntax
from cluster.language.conditions import SWAPPED
from cluster.language.expressions import Checker
from cluster.language.from_items import FromItem
from cluster.language.joins import with_nulls
from cluster.language.quantities import distance_us, read_quantity
from cluster.language.scope import Scope, ScopeColumn, ScopeItem
from cluster.language.stream_item import reshaping
from cluster.language.syntax import Stamp, ZipBounds, ZipJoin, conjuncts, holds_query, is_comma
from cluster.language.typing_rules import conjunction
from cluster.language.words import ASOF_SHAPE, NEAR_SHAPE
from cluster.operators import Node, StampJoin, Zip, ZipKind
from cluster.operators.columns import unique_name
from cluster.operators.projections import project, renamed_apart
from cluster.operators.scalar_expressions import passed_on
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.operators.columns import Scalar

BOUNDS = "bounds_us"
"""By this name a join that is not written with WITHIN has its bounds, as :func:`bounds_us` returns them."""
_KINDS: dict[str, ZipKind] = {"INNER": "inner", "LEFT": "left", "FULL": "full"}


@dataclass(frozen=True, slots=True)
class _Sides:
    """What is joined: two items whose columns have different names in the plan."""

    left: FromItem
    right: FromItem
    scopes: tuple[tuple[ScopeItem, ...], tuple[ScopeItem, ...]]

    @property
    def both(self) -> Scope:
        return Scope((*self.scopes[0], *self.scopes[1]))

    def side_of(self, column: exp.Column, context: Context) -> int:
        """Return on which side a column is: 0 or 1."""
        found = self.both.find(column, context).internal
        return int(all(found != each.internal for scope in self.scopes[0] for each in scope.columns))

    def stamped_side(self, part: exp.Expr, context: Context) -> int | None:
        """Return of which side a part of a condition is the stamp: 0 or 1; None if it is no stamp."""
        part = part.unnest()
        if not isinstance(part, exp.Column):
            return None
        sides = [side for side, scopes in enumerate(self.scopes) if any(_is_stamp_of(part, scope) for scope in scopes)]
        if len(sides) > 1:
            raise context.error(part, "both sides of this join have stamps", "write STAMP(a) with the name of a side")
        if isinstance(part, Stamp) and not sides:
            names = [f"STAMP({scope.alias})" for scopes in self.scopes for scope in scopes if scope.alias]
            raise context.error(part, "this is the stamp of neither side of the join", f"write {' or '.join(names)}")
        return sides[0] if sides else None


def _is_stamp_of(part: exp.Column, scope: ScopeItem) -> bool:
    if part.table and part.table.casefold() != (scope.alias or "").casefold():
        return False
    if isinstance(part, Stamp):
        return bool(part.table) or scope.alias is not None
    return (scope.stamp or "").casefold() == part.name.casefold() and not scope.matches(part.name)


def joined_by_stamps(left: FromItem, right: FromItem, join: syntax.StampJoin, context: Context) -> FromItem:
    """Return the item of FROM that a join by stamps makes of two.

    Parameters
    ----------
    left, right
        The items; their tuples are valid at instants.
    join
        Its syntax.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If its bounds or its condition are not valid.
    """
    node, names = renamed_apart(right.node, [column.name for column in left.node.schema])
    renamed = tuple(scope.renamed(names) for scope in right.scopes)
    sides = _Sides(left, FromItem(node, right.scope, base=False), (left.scopes, renamed))
    side = join.args["side"]
    made = _asof(sides, join, context) if join.args["kind"] == "ASOF" else _near(sides, join, context)
    lefts, rights = sides.scopes
    if side in {"RIGHT", "FULL"}:
        lefts = tuple(map(with_nulls, lefts))
    if side in {"LEFT", "FULL"}:
        rights = tuple(map(with_nulls, rights))
    first, *more = (*lefts, *rights)
    return FromItem(made, first, base=False, more=tuple(more))


def bounds_us(within: ZipBounds | None, context: Context) -> tuple[int, int]:
    """Return the least and the greatest value of the right stamp minus the left one, in microseconds.

    Raises
    ------
    FjordSqlError
        If there is no such distance, or the bounds are the wrong way round.
    """
    if within is None:
        return 0, 0
    high_us = read_quantity(within.expression, distance_us, context, meant="MS")
    if within.this is None:
        if high_us < 0:
            reason = "how far apart the tuples of a pair may be is not negative"
            raise context.error(
                within.expression, reason, "bounds on both sides are written WITHIN -1 SECOND TO 0 SECONDS"
            )
        return -high_us, high_us
    low_us = read_quantity(within.this, distance_us, context, meant="MS")
    if low_us > high_us:
        raise context.error(within, "the lower bound is above the upper one", "write WITHIN low TO high")
    return low_us, high_us


def _asof(sides: _Sides, join: syntax.StampJoin, context: Context) -> StampJoin:
    within: ZipBounds | None = join.args.get("within")
    low_us = None
    if within is not None:
        if within.this is not None:
            raise context.error(within, "WITHIN of an ASOF join is one duration", f"it is written {ASOF_SHAPE}")
        low_us = -read_quantity(within.expression, distance_us, context, meant="MINUTES")
        if low_us > 0:
            raise context.error(within.expression, "how old a partner may be is not negative")
    keys: dict[tuple[str, str], None] = {}
    strictly: list[bool] = []
    match, on = join.args.get("match"), join.args.get("on")
    from_match = conjuncts(match)
    for part in (*from_match, *conjuncts(on)):
        compared = _compared_stamps(sides, part, context)
        if compared is not None:
            strictly.append(_is_before(part, compared, context))
        elif (pair := _key(sides, part, context)) is not None and part not in from_match:
            keys[pair] = None
        else:
            raise context.error(
                part,
                "ON of an ASOF join names only which column of the left equals which of the right, and stamps",
                "choose tuples in a subquery, FROM (SELECT ... WHERE ...) AS a, and pairs in WHERE",
            )
    if len(strictly) > 1:
        raise context.error(on or match or join, "this ASOF join compares the stamps twice", "leave one of them out")
    high_us = -1 if strictly and strictly[0] else 0
    if low_us is not None and low_us > high_us:
        raise context.error(within or join, "no tuple is before another and within 0 of it", "write >= for stamps")
    kind: ZipKind = "left" if join.args["side"] == "LEFT" else "inner"
    return StampJoin(sides.left.node, sides.right.node, tuple(keys), low_us, high_us, kind, latest=True)


def _near(sides: _Sides, join: syntax.StampJoin, context: Context) -> Node:
    written: tuple[int, int] | None = join.meta.get(BOUNDS)
    low_us, high_us = written or bounds_us(join.args["within"], context)
    on = join.args.get("on")
    if on is None and written is None:
        raise context.error(join.this, "a join WITHIN a time needs a condition", f"write {NEAR_SHAPE}")
    if on is not None and holds_query(on):
        reason = "a subquery cannot stand in the condition of a join WITHIN a time"
        raise context.error(on, reason, "put it into FROM, or its condition into a subquery there")
    keys: dict[tuple[str, str], None] = {}
    others: list[exp.Expr] = []
    for part in conjuncts(on):
        pair = _key(sides, part, context)
        if pair is None:
            others.append(part)
        else:
            keys[pair] = None
    checker = Checker(sides.both, context)
    predicate: Scalar | None = None
    if others:
        predicate = conjunction([checker.check_as(each, Family.BOOLEAN).expression for each in others])
    left, right, side = sides.left.node, sides.right.node, join.args["side"]
    if side != "RIGHT":
        return StampJoin(left, right, tuple(keys), low_us, high_us, _KINDS[side], predicate)
    # The other way round.
    turned = StampJoin(right, left, tuple((other, one) for one, other in keys), -high_us, -low_us, "left", predicate)
    return project(turned, passed_on((*left.schema, *right.schema)))


def _key(sides: _Sides, part: exp.Expr, context: Context) -> tuple[str, str] | None:
    """Return the columns of left and right, of one type, that a condition says are equal; None for any other one."""
    if not isinstance(part, exp.EQ):
        return None
    columns = [side.unnest() for side in (part.this, part.expression)]
    if not all(isinstance(each, exp.Column) and not isinstance(each, Stamp) for each in columns):
        return None
    columns.sort(key=lambda column: sides.side_of(column, context))
    if [sides.side_of(column, context) for column in columns] != [0, 1]:
        return None
    one, other = (sides.both.find(column, context) for column in columns)
    if one.type != other.type:
        reason = (
            f"what is equal has one type in a join by stamps, but these are {one.type.value} and {other.type.value}"
        )
        raise context.error(part, reason, "convert one in a subquery, FROM (SELECT CAST(x AS ...) AS x ...) AS a")
    return one.internal, other.internal


def _compared_stamps(sides: _Sides, part: exp.Expr, context: Context) -> tuple[int, int] | None:
    """Return the sides whose stamps a condition compares; None if it does not."""
    if not isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ | exp.NEQ):
        return None
    one, other = (sides.stamped_side(each, context) for each in (part.this, part.expression))
    return None if one is None or other is None or one == other else (one, other)


def _is_before(part: exp.Expr, compared: tuple[int, int], context: Context) -> bool:
    """Return whether a comparison of stamps wants the right one to be before the left one, or at most equal to it."""
    kind = type(part) if compared == (0, 1) else SWAPPED[type(part)]
    if kind not in {exp.GT, exp.GTE}:
        raise context.error(
            part,
            "an ASOF join takes the latest tuple that is not after the left one",
            "write STAMP(left) >= STAMP(right), exchange the streams, or bound both ways: JOIN ... WITHIN 5 MINUTES",
        )
    return kind is exp.GT


APART = "apart_us"
"""The column with the stamp on the right minus that on the left; behind a number if the name is taken."""
KINDS: dict[str, ZipKind] = {"INNER": "inner", "LEFT": "left", "FULL": "full"}


def zip_items(
    items: list[FromItem], written: list[exp.Expr], joins: list[exp.Join], context: Context
) -> tuple[list[FromItem], list[exp.Join]]:
    """Return the items of FROM after each zipper join and join by stamps has made one of two, and the joins left.

    Parameters
    ----------
    items, written
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
        if not isinstance(join, ZipJoin | syntax.StampJoin):
            _warn_of_equal_stamps(found[-1], items[place], join, context)
            found.append(items[place])
            left.append(join)
            continue
        if left and len(found) > 1 and not is_comma(left[-1]):
            what, example = _named(join), "ZIP JOIN" if isinstance(join, ZipJoin) else "ASOF JOIN"
            reason = f"{what} pairs two streams, not what other joins have made"
            hint = f"write it first, FROM a {example} b ... JOIN c, or put the other join into a subquery"
            raise context.error(join, reason, hint)
        for item, read_from in ((items[place - 1], written[place - 1]), (items[place], written[place])):
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
