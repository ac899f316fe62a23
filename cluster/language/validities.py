"""What held for how long: VALID UNTIL NEXT -> a node of the algebra; what is asked of intervals -> typed expressions.

An interval is half-open, ``[begin, end)``, and never empty; one that is not there (of an outer join, or what disjoint
intervals have in common) is NULL, and so is all that is asked of it.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from cluster.language.quantities import duration_us, read_quantity, read_real
from cluster.language.stream_item import Changes, StreamItem
from cluster.language.syntax import (
    INTERVAL_SHAPES,
    VALID_SHAPE,
    AllenRelation,
    CommonValidity,
    Duration,
    IntervalEnd,
    IntervalRelation,
    NearlyEqual,
    ValidClause,
    Validity,
    bounds_of,
    is_interval,
    span_of,
)
from cluster.language.window_clauses import keys_of
from cluster.operators import Node, Relation, UntilNext
from cluster.operators.columns import unique_name
from cluster.scalars.scalar_function import Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker
    from cluster.language.typing_rules import Typed

    Interval = tuple[exp.Expr, exp.Expr]

ASKED = f"write DURATION(x), ALLEN(x, y) or x OVERLAPS y, of {INTERVAL_SHAPES}"
APART = ("BEFORE", "AFTER", "MEETS")
"""Relations of intervals that share no instant."""


def held(node: Node, item: StreamItem, context: Context, *, read: bool) -> tuple[Node, tuple[str, str] | None]:
    """Return the tuples of an item of FROM, with the columns that bound their intervals; as they are without VALID.

    Parameters
    ----------
    node
        The tuples.
    item
        Its syntax.
    context
        For errors.
    read
        Whether the query reads VALID of them.

    Raises
    ------
    FjordSqlError
        If the tuples last already, a key is none of their columns, or an interval is read that might have no end.
    """
    clause: ValidClause | None = item.args.get("valid")
    if clause is None:
        return node, None
    windowed = item.args.get("window") is not None
    if isinstance(node, Relation):
        reason = f"{node.name} is a relation: its rows have no stamps"
        raise context.error(clause, reason, "VALID UNTIL NEXT stands behind a stream")
    if not node.is_instantaneous:
        reason = "VALID UNTIL NEXT goes by the stamps of tuples, but what is here lasts longer than an instant"
        hint = "put it behind the stream itself, or behind ISTREAM(...), which takes a row once, where it begins"
        raise context.error(clause, reason, hint)
    keys = keys_of(clause.args.get("keys"), node, context, "BY")
    longest = clause.args.get("longest")
    longest_us = None if longest is None else read_quantity(longest, duration_us, context, meant="MINUTES")
    if windowed and not read:
        reason = "a WINDOW says how long these tuples count, and nothing here reads VALID(...) of them"
        raise context.error(clause, reason, "leave one of both out")
    if read and longest_us is None:
        reason = "VALID(...) has no end while the next tuple does not come, and that may be for ever"
        raise context.error(clause, reason, f"write how long a tuple holds at most: {VALID_SHAPE}")
    if not read:
        return UntilNext(node, keys, longest_us), None
    names = [column.name for column in node.schema]
    begin = unique_name("fjord_valid_begin", names)
    bounds = begin, unique_name("fjord_valid_end", [*names, begin])
    return UntilNext(node, keys, longest_us, bounds, not windowed), bounds


def intervals_read(select: exp.Select, context: Context) -> frozenset[str | None]:
    """Return of which items of FROM a SELECT, or a subquery of it, reads VALID: names without case; None for any."""
    if "valid" not in context.folded:
        return frozenset()
    found: set[str | None] = set()
    pending: list[exp.Expr] = [*select.iter_expressions()]
    while pending:
        part = pending.pop()
        match part:
            case Validity():
                found.add(part.table.casefold() or None)
            case StreamItem() | exp.With():
                pass  # queries in FROM and WITH name nothing around them
            case exp.Select():
                found |= intervals_read(part, context) - _having_intervals(part)
            case _:
                pending += part.iter_expressions()
    return frozenset(found)


def _having_intervals(select: exp.Select) -> set[str | None]:
    """Return the names that mean items of a SELECT's own FROM; None, too, if VALID() is of one of these."""
    first = select.args.get("from_")
    items = [each.this for each in ([first] if first else []) + (select.args.get("joins") or [])]
    names: set[str | None] = set()
    for item in items:
        inner = item
        while not inner.args.get("alias") and isinstance(inner.this, Changes):
            inner = inner.this.this
        names.add((inner.alias or inner.this.name).casefold())
        if item.args.get("valid") or item.args.get("coalesce"):
            names.add(None)
    return names


def both_ends(item: exp.Expr) -> list[exp.Expr]:
    """Return what stands for an item of SELECT: of an interval its begin and its end."""
    interval = item.this if isinstance(item, exp.Alias) else item
    if not is_interval(interval):
        return [item]
    ends: list[exp.Expr] = []
    for end in (False, True):
        part: exp.Expr = IntervalEnd(this=interval.unnest().copy(), end=end)
        part.meta.update(interval.meta)
        if isinstance(item, exp.Alias):
            word = "end" if end else "start"
            name = item.args["alias"].copy()
            name.set("this", f"{name.this}_{word}")
            part = exp.Alias(this=part, alias=name)
        part.parent = item.parent
        ends.append(part)
    return ends


def check_interval(checker: OperandChecker, interval: exp.Expr) -> NoReturn:
    """Refuse an interval where a value is needed.

    Raises
    ------
    FjordSqlError
        Always.
    """
    _bounds(checker, interval)
    reason = f"{checker.context.source_text(interval)} is an interval, and no value"
    raise checker.context.error(interval, reason, ASKED)


def check_duration(checker: OperandChecker, duration: Duration) -> Typed:
    """Return how long an interval is.

    Raises
    ------
    FjordSqlError
        If it is none.
    """
    (interval,) = _intervals(checker, duration, 1, "DURATION(VALID(t))")
    begin, end = _bounds(checker, interval)
    return checker.check(_common(checker, [interval], exp.Sub(this=end, expression=begin)))


def check_interval_end(checker: OperandChecker, part: IntervalEnd) -> Typed:
    """Return begin or end of an interval, as a timestamp.

    Raises
    ------
    FjordSqlError
        If it has none.
    """
    begin, end = _bounds(checker, part.this)
    return checker.check(_common(checker, [part.this], end if part.args.get("end") else begin))


def check_nearly_equal(checker: OperandChecker, nearly: NearlyEqual) -> Typed:
    """Return whether two numbers differ by at most a tolerance, or by nothing.

    Raises
    ------
    FjordSqlError
        If one is no number, or the tolerance is negative.
    """
    for side in (nearly.this, nearly.expression):
        checker.check_as(side, Family.NUMBER, "~= compares numbers; others are compared with =")
    tolerance = tolerance_of(nearly.args.get("tolerance"), checker.context)
    if tolerance is None:
        return checker.check(exp.EQ(this=nearly.this, expression=nearly.expression))
    return checker.check(within(nearly.this, nearly.expression, tolerance))


def within(one: exp.Expr, other: exp.Expr, tolerance: exp.Expr) -> exp.Expr:
    """Return the condition that two numbers differ by at most a tolerance."""
    apart = exp.Sub(this=exp.Paren(this=one.copy()), expression=exp.Paren(this=other.copy()))
    return exp.LTE(this=exp.Abs(this=apart), expression=tolerance.copy())


def tolerance_of(tolerance: exp.Literal | None, context: Context) -> exp.Literal | None:
    """Return a tolerance that is none, or not negative.

    Raises
    ------
    FjordSqlError
        If it is negative, or too large for a number.
    """
    if tolerance is not None and not 0 <= read_real(tolerance, context) < math.inf:
        reason = "a tolerance is at least zero, and finite"
        raise context.error(tolerance, reason, "write by how much values may differ: TOLERANCE 2")
    return tolerance


def check_relation(checker: OperandChecker, relation: IntervalRelation) -> Typed:
    """Return whether two intervals are related so.

    Raises
    ------
    FjordSqlError
        If one has no bounds.
    """
    both = relation.this, relation.expression
    _warn_of_neighbours(checker, relation)
    (a, b), (c, d) = (_bounds(checker, each) for each in both)
    return checker.check(_common(checker, both, exp.Paren(this=_related(relation.args["kind"], (a, b), (c, d)))))


def _warn_of_neighbours(checker: OperandChecker, relation: IntervalRelation) -> None:
    """Warn where a relation cannot hold, since the tuples are paired only while both hold."""
    sides = [each.unnest() for each in (relation.this, relation.expression)]
    found = [
        item
        for side in sides
        for item in checker.scope.items
        if isinstance(side, Validity) and item.validity and side.table and item.is_called(side.table)
    ]
    if relation.args["kind"] in APART and len(found) == len(sides) and not any(item.counted for item in found):
        checker.context.warn(
            f"{checker.context.source_text(relation)} is never true: tuples are paired only while both of them hold; a "
            "window lets them count for longer, VALID UNTIL NEXT BY sensor MAX 10 MINUTES WINDOW(RANGE 1 HOUR)"
        )


def check_allen(checker: OperandChecker, call: AllenRelation) -> Typed:
    """Return the name of the one relation of Allen in which two intervals are.

    Raises
    ------
    FjordSqlError
        If there are not two.
    """
    both = _intervals(checker, call, 2, "ALLEN(VALID(t), VALID(u))")
    one, other = (_bounds(checker, each) for each in both)
    cases = [exp.If(this=condition, true=exp.Literal.string(name)) for name, condition in _allen_relations(one, other)]
    return checker.check(_common(checker, both, exp.Case(ifs=cases)))


def _allen_relations(one: Interval, other: Interval) -> list[tuple[str, exp.Expr]]:
    """Return Allen's thirteen relations: exactly one holds between any two intervals that are not empty."""
    (a, b), (c, d) = one, other
    found: list[tuple[str, exp.Expr]] = [
        ("before", exp.LT(this=b, expression=c)),
        ("meets", exp.EQ(this=b, expression=c)),
        ("met by", exp.EQ(this=d, expression=a)),
        ("after", exp.LT(this=d, expression=a)),
        ("equals", all_of(exp.EQ(this=a, expression=c), exp.EQ(this=b, expression=d))),
        ("starts", all_of(exp.EQ(this=a, expression=c), exp.LT(this=b, expression=d))),
        ("started by", all_of(exp.EQ(this=a, expression=c), exp.LT(this=d, expression=b))),
        ("finishes", all_of(exp.EQ(this=b, expression=d), exp.LT(this=c, expression=a))),
        ("finished by", all_of(exp.EQ(this=b, expression=d), exp.LT(this=a, expression=c))),
        ("during", all_of(exp.LT(this=c, expression=a), exp.LT(this=b, expression=d))),
        ("contains", all_of(exp.LT(this=a, expression=c), exp.LT(this=d, expression=b))),
        ("overlaps", exp.LT(this=a, expression=c)),  # all that begin earlier otherwise
        ("overlapped by", exp.LT(this=c, expression=a)),
    ]
    return [(name, condition.copy()) for name, condition in found]


def _related(kind: str, one: Interval, other: Interval) -> exp.Expr:
    """Return whether two intervals are related so: by SQL:2011, or as Allen has it."""
    (a, b), (c, d) = one, other
    match kind:
        case "OVERLAPS":
            return all_of(exp.LT(this=a, expression=d), exp.LT(this=c, expression=b))
        case "CONTAINS":
            return all_of(exp.LTE(this=a, expression=c), exp.LTE(this=d, expression=b))
        case "DURING":
            return all_of(exp.LTE(this=c, expression=a), exp.LTE(this=b, expression=d))
        case _:
            return dict(_allen_relations(one, other))[kind.lower()]


def all_of(*conditions: exp.Expr) -> exp.Expr:
    """Return the condition that all of one or more conditions hold."""
    found = conditions[0]
    for each in conditions[1:]:
        found = exp.And(this=found, expression=each)
    return found


def _intervals(checker: OperandChecker, call: exp.Expr, count: int, shape: str) -> list[exp.Expr]:
    found = call.expressions
    if len(found) != count:
        name = shape.partition("(")[0]
        words = "one interval" if count == 1 else "two intervals"
        raise checker.context.error(call, f"{name} takes {words}", f"it is written {shape}")
    return [each.unnest() for each in found]


def _parts(interval: exp.Expr) -> list[exp.Expr]:
    """Return the intervals of which an interval is the common part."""
    interval = interval.unnest()
    if isinstance(interval, CommonValidity):
        return [part for each in interval.expressions for part in _parts(each)]
    return [interval]


def _bounds(checker: OperandChecker, interval: exp.Expr) -> Interval:
    """Return begin and end of an interval, if it is there."""
    parts = [_bounds_of_one(checker, each) for each in _parts(interval)]
    if len(parts) == 1:
        return parts[0]
    begins, ends = ([each[place] for each in parts] for place in (0, 1))
    return (
        exp.Greatest(this=begins[0], expressions=begins[1:]),
        exp.Least(this=ends[0], expressions=ends[1:]),
    )


def _bounds_of_one(checker: OperandChecker, interval: exp.Expr) -> Interval:
    if not isinstance(interval, Validity):
        reason = f"{checker.context.source_text(interval)} is no interval"
        raise checker.context.error(interval, reason, f"intervals are {INTERVAL_SHAPES}")
    if (wrong := interval.args.get("expressions")) is not None:
        _refuse_arguments(checker, wrong)
    found = bounds_of(interval)
    for bound in found:
        if (span := span_of(interval)) is not None:
            bound.meta["start"], bound.meta["end"] = span[0], span[1] - 1
        bound.parent = interval.parent
    return found


def _refuse_arguments(checker: OperandChecker, wrong: Sequence[exp.Expr]) -> NoReturn:
    hint = "it is written VALID(), or VALID(t) where t is a stream of FROM"
    raise checker.context.error(wrong[0], "VALID takes the name of a stream, or nothing", hint)


def _common(checker: OperandChecker, intervals: Sequence[exp.Expr], value: exp.Expr) -> exp.Expr:
    """Return `value`; NULL where intervals that have to have something in common have nothing."""
    conditions: list[exp.Expr] = []
    for interval in intervals:
        parts = [_bounds_of_one(checker, each) for each in _parts(interval)]
        conditions += [exp.LT(this=one[0], expression=other[1]) for one, other in permutations(parts, 2)]
    return exp.Case(ifs=[exp.If(this=all_of(*conditions), true=value)]) if conditions else value


def with_own_functions(tree: exp.Expr, context: Context) -> exp.Expr:
    """Return a statement with calls of users' functions that had names of what is asked of intervals before."""
    names = {name for name in ("valid", "duration", "allen") if context.catalog.function(name) is not None}

    def called(part: exp.Expr) -> exp.Expr:
        match part:
            case Validity():
                name, table = "valid", part.args.get("table")
                own = part.args.get("expressions") if table is None else [exp.Column(this=table)]
            case Duration() | AllenRelation():
                name, own = type(part).sql_name().lower(), part.expressions
            case _:
                return part
        if name not in names:
            return part
        call = exp.Anonymous(this=name, expressions=own)
        call.meta.update(part.meta)
        return call

    return tree.transform(called, copy=False) if names else tree
