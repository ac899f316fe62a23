"""The pieces of syntax that FjordSQL adds to sqlglot's syntax tree (papers/pipes_algebra.md section 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sqlglot import exp

from cluster.operators.columns import RankFunction


class Quantity(exp.Expression):
    """A number with an optional unit: ``5 MINUTES``, ``100 MS``, ``10``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": False}


class Bounds(exp.Expression):
    """``MIN a, MAX b`` of a window or ``COARSEST a, FINEST b`` of a granularity."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class StreamWindow(exp.Expression):
    """``WINDOW([PARTITION BY ...] RANGE|ROWS size [SLIDE slide])``; without a size it is unbounded.

    Also ``WINDOW(SESSION GAP size [MAX longest] [EARLY] [PARTITION BY ...])`` and ``WINDOW(RESET EVERY size ...)``; any
    window by time may have ``AT TIME ZONE zone`` and ``OFFSET offset``.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": False,
        "slide": False,
        "partition": False,
        "zone": False,
        "offset": False,
        "longest": False,
        "early": False,
    }


class SampleClause(exp.Expression):
    """``SAMPLE EVERY period`` or ``SAMPLE RATE frequency``, with ``AT LEAST`` and the longest accepted period."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": True, "slowest": False}


class EventsClause(exp.Expression):
    """``EVENTS(field ABOVE number [BELOW number])``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "above": True, "below": False}


class SinceClause(exp.Expression):
    """``SINCE duration AGO``; without a duration it is ``SINCE BEGINNING``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


class LifetimeClause(exp.Expression):
    """``LIFETIME duration``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Completeness(exp.Expression, exp.AggFunc):
    """``COMPLETENESS()``; arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class ErrorBound(exp.Expression, exp.Func):
    """``ERROR_BOUND(aggregate)``; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True


class PercentileCont(exp.Expression, exp.AggFunc):
    """``PERCENTILE_CONT(share) WITHIN GROUP (ORDER BY value)``; ``this`` is the value."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "quantile": True}


class PercentileDisc(exp.Expression, exp.AggFunc):
    """``PERCENTILE_DISC(share) WITHIN GROUP (ORDER BY value)``; ``this`` is the value."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "quantile": True}


PERCENTILES: dict[type[exp.Expr], type[PercentileCont | PercentileDisc]] = {
    exp.PercentileCont: PercentileCont,
    exp.PercentileDisc: PercentileDisc,
}
"""By sqlglot's class of what stands before WITHIN GROUP: the class of the whole."""
PERCENTILE_SHAPE = "{}(0.95) WITHIN GROUP (ORDER BY x)"


class OrderKey(exp.Expression):
    """``value [ASC|DESC] [NULLS FIRST|LAST]`` of ORDER BY."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "desc": False, "nulls_first": False}


class TopClause(exp.Expression):
    """``ORDER BY keys LIMIT limit OFFSET offset`` at the end of a query; at least one of both numbers is there."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "limit": False, "offset": False}


class RankCall(exp.Expression):
    """``ROW_NUMBER() OVER (PARTITION BY groups ORDER BY keys)``, and so for RANK and DENSE_RANK."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "partition": False, "expressions": True}


RANKS: dict[type[exp.Expr], RankFunction] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
"""By sqlglot's class of what stands before OVER: how places are counted."""


class FirstOfGroup(exp.First):
    """``FIRST_VALUE(x)`` without OVER, which is ``FIRST(x)``."""

    _sql_names: ClassVar[list[str]] = ["FIRST_VALUE"]


class LastOfGroup(exp.Last):
    """``LAST_VALUE(x)`` without OVER, which is ``LAST(x)``."""

    _sql_names: ClassVar[list[str]] = ["LAST_VALUE"]


OF_GROUPS: dict[type[exp.Expr], type[exp.Expr]] = {exp.FirstValue: FirstOfGroup, exp.LastValue: LastOfGroup}
"""What a function over tuples in order is without OVER."""


class StringAgg(exp.Expression, exp.AggFunc):
    """``STRING_AGG(x, ', ' ORDER BY x DESC)``, or ``LISTAGG(x, ', ') WITHIN GROUP (ORDER BY x DESC)``.

    ``order`` is what stands behind ORDER BY; ``within`` is true if that has parentheses of its own.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "separator": False,
        "order": False,
        "desc": False,
        "within": False,
    }


class Hysteresis(exp.Expression, exp.Func):
    """``HYSTERESIS(value ABOVE number [BELOW number])``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "above": True, "below": False}


class Changed(exp.Expression, exp.Func):
    """``CHANGED(value, ...)``."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True


BEFORE_OVER = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, Changed, Hysteresis)
"""Functions that stand before OVER only."""


class SequenceOrder(exp.Expression):
    """``ORDER BY STAMP()``; with ``this``, the column that is the stamp."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


class SequenceFrame(exp.Expression):
    """``ROWS`` or ``RANGE`` and how far a frame reaches back; without ``this``, to the first tuple.

    It ends ``until`` before its tuple; without that, with it. ``INTERVAL`` may stand before either.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": False,
        "between": False,
        "interval": False,
        "until": False,
        "until_interval": False,
    }


class Over(exp.Expression):
    """``function OVER ([PARTITION BY ...] [ORDER BY STAMP()] [frame]) [WITHIN distance]``."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition": False,
        "order": False,
        "frame": False,
        "within": False,
    }


STRING_AGG_SHAPE = "{}(x, ', ' ORDER BY x)"


class Within(exp.Expression):
    """``field WITHIN error``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class Match(exp.Expression, exp.Binary, exp.Predicate):
    """``x ~ 'pattern'``, also written with RLIKE or REGEXP."""


class FoldedMatch(exp.Expression, exp.Binary, exp.Predicate):
    """``x ~* 'pattern'``, which takes upper and lower case alike."""


class JsonArrow(exp.Expression, exp.Binary):
    """``document -> 'key'``, or ``-> 0``: a part of a JSON document, as JSON."""


class JsonTextArrow(exp.Expression, exp.Binary):
    """``document ->> 'key'``, or ``->> 0``: a part of a JSON document, as text."""


class ZipBounds(exp.Expression):
    """``WITHIN tolerance`` or ``WITHIN low TO high`` of a zipper join: a quantity, or two of them."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False, "expression": True}


class ZipJoin(exp.Join):
    """``[INNER|LEFT|FULL] ZIP JOIN item [WITHIN bounds] [ON condition]``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "side": False, "within": False, "on": False}


class StampJoin(exp.Join):
    """``ASOF [LEFT] JOIN item [WITHIN d] [MATCH_CONDITION(c)] [ON c]``, or ``[side] JOIN item WITHIN bounds ON c``."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "kind": True,
        "side": False,
        "within": False,
        "match": False,
        "on": False,
    }


class ColumnDefinition(exp.Expression):
    """``name TYPE [UNIT 'text'] [FIXED]`` of CREATE STREAM."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "unit": False, "fixed": False}


class CreateSource(exp.Expression):
    """``CREATE STREAM name (columns) SOURCE function(arguments) [ORDERED BY column]``."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": True,
        "source": True,
        "arguments": False,
        "ordered": False,
    }


class CreateDerived(exp.Expression):
    """``CREATE STREAM name AS query``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class CreateRelationStatement(exp.Expression):
    """``CREATE RELATION name [(columns)] FROM source [QUERY text | TABLE name] [WHERE c] REFRESH EVERY d ...``."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": False,
        "source": True,
        "query": False,
        "table": False,
        "where": False,
        "refresh": True,
        "stale": False,
    }


class FunctionParameter(exp.Expression):
    """``[name] TYPE`` of CREATE FUNCTION."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False, "kind": True}


class CreateFunctionStatement(exp.Expression):
    """``CREATE FUNCTION name (parameters) RETURNS type [LANGUAGE l] [STRICT] AS path``."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": False,
        "returns": True,
        "language": False,
        "nulls": False,
        "path": True,
    }


class DropStatement(exp.Expression):
    """``DROP STREAM name``, ``DROP RELATION name`` or ``DROP FUNCTION name``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class Slot(exp.Expression):
    """A place in an expression that stands for a column computed elsewhere, such as an aggregate.

    ``this`` is the column's name in the plan.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


STAMP_NAME = "stamp"


class Stamp(exp.Column):
    """``STAMP()`` or ``STAMP(stream)``: a stamp, as if it were a column; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": False, "expressions": False}


def stamp_of(arguments: list[exp.Expr]) -> Stamp:
    """Return the call of STAMP with these arguments."""
    name = exp.Identifier(this=STAMP_NAME, quoted=False)
    match arguments:
        case []:
            return Stamp(this=name)
        case [exp.Column(this=exp.Identifier()) as stream] if len(stream.parts) == 1:
            return Stamp(this=name, table=stream.this)
        case _:
            return Stamp(this=name, expressions=arguments)


class TimeFunction(exp.Expression, exp.Func):
    """A call of a function about time: its name, and its arguments as they are written."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}
    is_var_len_args = True


class TimestampLiteral(exp.Expression):
    """``TIMESTAMP '2026-03-29 02:30:00+01:00'``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class IntervalLiteral(exp.Expression):
    """``INTERVAL '5' MINUTE``, ``INTERVAL '1 12:30' DAY TO MINUTE``, or a text of numbers and units."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": False, "until": False}


class Now(exp.Expression, exp.Func):
    """``NOW()``: the stream's time."""

    arg_types: ClassVar[dict[str, bool]] = {}


def time_function(name: str) -> Callable[[list[exp.Expr]], TimeFunction]:
    """Return what makes a call of a function about time of its arguments."""
    return lambda arguments: TimeFunction(this=name, expressions=arguments)


class WindowBound(exp.Expression, exp.Func):
    """``WINDOW_START()`` or ``WINDOW_END()``; arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


WINDOW_BOUNDS = ("WINDOW_START", "WINDOW_END")
"""Their names."""


def window_bound(name: str) -> Callable[[list[exp.Expr]], WindowBound]:
    """Return what makes a call of a bound of a window."""
    return lambda arguments: WindowBound(this=name, expressions=arguments)


P = TypeVar("P", bound=exp.Expr)

QUERIES = (exp.Select, exp.SetOperation, exp.Subquery)
"""Classes of queries and subqueries in the syntax tree."""


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of `condition` connected by AND; none of no condition."""
    found: list[exp.Expr] = []
    waiting = [] if condition is None else [condition]
    while waiting:
        part = waiting.pop()
        part = part.unnest() if isinstance(part, exp.Paren) else part
        if isinstance(part, exp.And):
            waiting += (part.expression, part.this)
        else:
            found.append(part)
    return found


def holds_query(expression: exp.Expr) -> bool:
    """Return whether a subquery stands anywhere in `expression`."""
    return expression.find(*QUERIES) is not None


def own_columns(expression: exp.Expr) -> list[exp.Column]:
    """Return the columns named in `expression`, not in subqueries of it."""
    return own_parts(expression, exp.Column)


def own_parts(expression: exp.Expr, *kinds: type[P]) -> list[P]:
    """Return the outermost parts of `expression` that are of some kinds, in order, not those in subqueries of it."""
    found: list[P] = []
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kinds):
            found.append(part)
        elif not isinstance(part, QUERIES):
            waiting.extend(reversed(list(part.iter_expressions())))
    return found


def too_deep(tree: exp.Expr, limit: int) -> list[exp.Expr]:
    """Return the parts of `tree` that lie more than `limit` levels below it, those next to the limit only."""
    level = [tree]
    for _ in range(limit):
        level = [child for part in level for child in part.iter_expressions()]
    return level


def span_of(expression: exp.Expr) -> tuple[int, int] | None:
    """Return start and end of the text from which an expression was read, as far as its parts have it."""
    starts: list[int] = []
    ends: list[int] = []
    for part in expression.walk():
        if "start" in part.meta:
            starts.append(part.meta["start"])
            ends.append(part.meta["end"] + 1)
    return (min(starts), max(ends)) if starts else None


def slot_for(name: str, replaced: exp.Expr) -> Slot:
    """Return the slot of a column of the plan, at the place of what is written for it."""
    slot = Slot(this=name)
    if span := span_of(replaced):
        slot.meta["start"], slot.meta["end"] = span[0], span[1] - 1
    return slot


def is_comma(join: exp.Expr) -> bool:
    """Return whether a comma, and no word, joins an item of FROM with those before it."""
    return not (join.args.get("side") or join.args.get("kind"))


def place_of(expression: exp.Expr) -> tuple[int, int]:
    """Return start and end of the text from which an expression was read; the start of the whole if that is not known.

    >>> place_of(exp.Null())
    (0, 0)
    """
    return span_of(expression) or (0, 0)


def first_part(value: Any, otherwise: exp.Expr) -> exp.Expr:
    """Return the first node of an argument, if its text is known, for an error about it."""
    part = value[0] if isinstance(value, list) else value
    return part if isinstance(part, exp.Expr) and span_of(part) is not None else otherwise


def spelled(argument: str) -> str:
    """Return the words of a clause that has another name in sqlglot's syntax tree.

    >>> spelled("grouping_sets"), spelled("with_")
    ('GROUPING SETS', 'WITH')
    """
    return argument.strip("_").replace("_", " ").upper()


CLAUSE = "MATCH_RECOGNIZE"
CLAUSE_SHAPE = (
    "MATCH_RECOGNIZE(PARTITION BY a ORDER BY STAMP() MEASURES LAST(B.x) AS x PATTERN (A B+) WITHIN 10 MINUTES "
    "DEFINE A AS A.x > 1, B AS B.x < 1)"
)
SKIP_SHAPES = "AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST B or TO LAST B"
PATTERN_SHAPE = "PATTERN (A B+ C?)"
WITHIN_SHAPE = "PATTERN (A B+) WITHIN 10 MINUTES"


class RowPatternClause(exp.Expression):
    """``item MATCH_RECOGNIZE(...)``; ``this`` is the item, ``order`` the words that stand for the stamp."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition": False,
        "order": True,
        "measures": True,
        "one_row": False,
        "skip": False,
        "pattern": True,
        "within": False,
        "interval": False,
        "definitions": False,
    }


class SkipClause(exp.Expression):
    """``AFTER MATCH SKIP``: the words behind it, and the variable if they name one."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class PatternText(exp.Expression):
    """What stands in the parentheses of PATTERN, a name for each word or mark; ``meta["elements"]`` is its meaning."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class VariableDefinition(exp.Expression):
    """``variable AS condition``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class Navigation(exp.Expression):
    """``PREV(x[, n])``, ``FIRST(x[, n])`` or ``LAST(x[, n])`` in a clause of MATCH_RECOGNIZE."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": True, "offset": False}


VALID_SHAPE = "FROM doors VALID UNTIL NEXT BY sensor MAX 10 MINUTES"
COALESCE_SHAPE = "FROM climate WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(humidity TOLERANCE 2 BY sensor)"
KEEP_SHAPE = "FROM climate WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(humidity BY sensor) KEEP 10000 TUPLES"
INTERVAL_SHAPES = "VALID(t), or INTERSECT(VALID(t), VALID(u))"
RELATIONS = ("OVERLAPS", "CONTAINS", "DURING", "EQUALS", "BEFORE", "AFTER", "MEETS", "STARTS", "FINISHES")
"""Words between two intervals."""


class ValidClause(exp.Expression):
    """``VALID UNTIL NEXT [BY key | BY (key, ...)] [MAX longest]`` behind an item of FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"keys": False, "longest": False}


class CoalesceClause(exp.Expression):
    """``COALESCE(attribute, ... [BY key, ...] [WHILE condition])`` behind a window of an item of FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "keys": False, "condition": False}


class KeepClause(exp.Expression):
    """``KEEP number TUPLES`` behind COALESCE, or at the end of a SELECT."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class CoalescedAttribute(exp.Expression):
    """``attribute [TOLERANCE number]``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "tolerance": False}


class Previous(exp.Expression, exp.Func):
    """``PREV(column)`` in a WHILE; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True


class NearlyEqual(exp.Expression, exp.Predicate):
    """``a ~= b [TOLERANCE number]``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "tolerance": False}


class Validity(exp.Column):
    """``VALID()`` or ``VALID(stream)``, an interval, as if it were a column; other arguments are kept."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": False, "expressions": False}


class ValidBound(exp.Column):
    """Begin or end of the interval of a tuple; the name says which. No text contains it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "table": False}


BEGIN, END = "valid begin", "valid end"
"""Names of the two."""


class CommonValidity(exp.Expression, exp.Func):
    """``INTERSECT(interval, interval, ...)``: what several intervals have in common."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True


class IntervalEnd(exp.Expression, exp.Func):
    """Begin or end of an interval in SELECT, as a timestamp: `end` says which. No text contains it."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "end": False}

    @property
    def word(self) -> str:
        """What names of columns end with."""
        return "end" if self.args.get("end") else "start"


class Duration(exp.Expression, exp.Func):
    """``DURATION(interval)``; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True


class AllenRelation(exp.Expression, exp.Func):
    """``ALLEN(interval, interval)``, the name of their relation; other arguments are kept, to be refused."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}
    is_var_len_args = True
    _sql_names: ClassVar[list[str]] = ["ALLEN"]


class IntervalRelation(exp.Expression, exp.Predicate):
    """``interval OVERLAPS interval``, and the other :data:`RELATIONS`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "kind": True}


def bounds_of(interval: Validity) -> tuple[ValidBound, ValidBound]:
    """Return begin and end of the interval of a tuple."""
    table = interval.args.get("table")
    begin, end = (ValidBound(this=exp.Identifier(this=name, quoted=True), table=table) for name in (BEGIN, END))
    return begin, end


INTERVALS = (Validity, CommonValidity)
"""Classes of intervals; they are no values by themselves."""


def valid_of(arguments: list[exp.Expr]) -> Validity:
    """Return the call of VALID with these arguments."""
    name = exp.Identifier(this="valid", quoted=False)
    match arguments:
        case []:
            return Validity(this=name)
        case [exp.Column(this=exp.Identifier()) as stream] if len(stream.parts) == 1:
            return Validity(this=name, table=stream.this)
        case _:
            return Validity(this=name, expressions=arguments)


def is_interval(expression: exp.Expr | None) -> bool:
    """Return whether an expression is an interval, perhaps in parentheses."""
    return expression is not None and isinstance(expression.unnest(), INTERVALS)


INTERVAL_CALLS: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    "VALID": valid_of,
    "DURATION": lambda arguments: Duration(expressions=arguments),
    "ALLEN": lambda arguments: AllenRelation(expressions=arguments),
}
"""By name: what makes a call. Functions of users that had these names before keep them."""
