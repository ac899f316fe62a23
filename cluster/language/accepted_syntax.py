"""The arguments that each kind of node of a syntax tree may carry: those that a rule reads, and no others.

sqlglot reads far more SQL than FjordSQL has, and keeps it in arguments that none of our rules reads: a query would be
accepted, and a part of it ignored. The tables here name every argument that the translation honours, with the kinds of
value that it may hold; :mod:`cluster.language.ignored_syntax` refuses everything else. The tests that compare answers
with those of another engine draw all entries of the first table and of that of validity, so an entry is a promise: add
one together with the rule that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from cluster.expressions.called_functions import FUNCTIONS, JsonValue, RegexExtract, RegexReplace
from cluster.expressions.timestamps import UNITS
from cluster.language import syntax
from cluster.language.expressions import ARITHMETIC, ARROWS, COMPARISONS, DISTINCTIONS, OF_PATHS
from cluster.language.functions import AGGREGATES, RANKED
from cluster.language.patterns import OF_PATTERNS
from cluster.language.quantities import CALENDAR_UNITS, DURATION_UNITS, FREQUENCY_UNITS
from cluster.language.stream_item import ITEM_CLAUSES, Changes, StreamItem
from cluster.language.time_functions import EPOCH, PARTS, TIME_FUNCTIONS
from cluster.language.typing_rules import COLUMN_TYPES, FORMER_COLUMN_TYPES
from cluster.scalars.scalar_function import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TIME_EXPRESSIONS: tuple[type[exp.Expr], ...] = (
    *(syntax.TimeFunction, syntax.TimestampLiteral, syntax.IntervalLiteral, exp.Extract, exp.AtTimeZone),
    *(syntax.Now, exp.CurrentTimestamp),
)
"""Classes of expressions that are nothing else."""


def time_syntax(
    *, computed: Kinds, identifier: Kinds, text: str, number: str
) -> Mapping[type[exp.Expr], Mapping[str, Kinds]]:
    """Return for every class of node and every argument that is read the accepted kinds of value.

    Parameters
    ----------
    computed, identifier, text, number
        Kinds of value: those of what is no constant, of a name, of a text and of a number.
    """
    var = frozenset(("Var",))
    return {
        syntax.Stamp: {"this": identifier, "table": identifier},
        syntax.TimeFunction: {"this": frozenset(TIME_FUNCTIONS), "expressions": computed | {text, number}},
        syntax.TimestampLiteral: {"this": frozenset((text,))},
        syntax.IntervalLiteral: {"this": frozenset((text, number)), "unit": var, "until": var},
        syntax.Now: {},
        exp.CurrentTimestamp: {},
        exp.Extract: {"this": var, "expression": computed},
        exp.Floor: {"to": var},
        exp.Ceil: {"to": var},
        exp.AtTimeZone: {"this": computed, "zone": frozenset((text,))},
        exp.DataType: {"this": frozenset(("TIMESTAMP",))},
        exp.Var: {"this": frozenset((*PARTS, *UNITS, EPOCH))},
    }


Kinds = frozenset[str]
Triple = tuple[str, str, str]
"""Class of a node, one of its arguments, and the kind of its value."""

COLUMN, NUMBER, TEXT, BOOLEAN, NULL = "column", "number", "text", "boolean", "null"
EXPRESSION, CONDITION, AGGREGATE, QUERY, STAR = "expression", "condition", "aggregate", "query", "star"
INTERVAL = "interval"
TRUE = "true"
BRANCH = "branch"
"""WHEN and THEN of a CASE, for which sqlglot uses the class of the function IF."""

CONDITIONS = (
    *COMPARISONS,
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.SimilarTo, exp.Escape),
    exp.Exists,
    *DISTINCTIONS,
    *(syntax.Match, syntax.FoldedMatch, syntax.IntervalRelation, syntax.NearlyEqual),
)


def _kinds(*kinds: str) -> Kinds:
    return frozenset(kinds)


_COMPUTED = _kinds(COLUMN, NULL, EXPRESSION, AGGREGATE)
NUMBERS = _COMPUTED | {NUMBER}
TEXTS = _COMPUTED | {TEXT}
TRUTHS = _COMPUTED | {BOOLEAN, CONDITION}
SCALARS = NUMBERS | TEXTS | TRUTHS
"""Kinds of node that may stand where any scalar expression may."""
_OF_FAMILY = {
    Family.NUMBER: NUMBERS,
    Family.INTEGER: NUMBERS,
    Family.TEXT: TEXTS,
    Family.BOOLEAN: TRUTHS,
    Family.ANY: SCALARS,
}
_ONCE = _kinds(AGGREGATE)
_NOTHING = _kinds(NULL, AGGREGATE)
_IN_ORDER = SCALARS - _NOTHING
_KEYS = _kinds(COLUMN, NUMBER, EXPRESSION, CONDITION)
_LISTS = _kinds("Tuple", "Rollup", "Cube", "GroupingSets")
_IDENTIFIER, _QUANTITY, _BOUNDS, _STREAM = (_kinds(each) for each in ("Identifier", "Quantity", "Bounds", "StreamItem"))
_QUERY, _LITERAL = _kinds(QUERY), _kinds(NUMBER)
_TYPE_WORDS = _kinds("BOOLEAN", "BIGINT", "DOUBLE", "TEXT")


def _alike(kinds: Iterable[type[exp.Expr]], **arguments: Kinds) -> dict[type[exp.Expr], dict[str, Kinds]]:
    return dict.fromkeys(kinds, arguments)


def _functions() -> dict[type[exp.Expr], dict[str, Kinds]]:
    """Return the arguments of functions, by their signatures."""
    taken: dict[type[exp.Expr], dict[str, Kinds]] = {}
    for kind, function in FUNCTIONS.items():
        families = [function.parameters[min(at, len(function.parameters) - 1)] for at in range(len(function.slots))]
        taken[kind] = {slot: _OF_FAMILY[family] for slot, family in zip(function.slots, families, strict=True)}
    taken[exp.Round]["decimals"] = taken[RegexExtract]["group"] = _LITERAL
    for kind in OF_PATTERNS:
        taken[kind]["pattern"] = _kinds(TEXT)
    for kind in OF_PATHS:
        taken[kind]["path"] = _kinds(TEXT)
    taken[JsonValue]["returning"] = _kinds("DataType")
    taken[RegexReplace]["replacement"] = _kinds(TEXT)
    for kind in (exp.Least, exp.Greatest):
        taken[kind]["ignore_nulls"] = _kinds(TRUE)
    taken[exp.Concat]["safe"] = _kinds(TRUE)
    return taken


def _aggregates() -> dict[type[exp.Expr], dict[str, Kinds]]:
    """Return the arguments of aggregates: no aggregates, and no NULL without a type."""
    taken = {
        kind: {
            "this": (_OF_FAMILY[aggregate.parameter] - {NULL, AGGREGATE})
            | ({"Distinct"} if aggregate.distinct else set())
        }
        for kind, aggregate in AGGREGATES.items()
        if kind is not syntax.Completeness
    }
    taken[exp.Count] = {"this": taken[exp.Count]["this"] | {STAR}, "big_int": _kinds(TRUE)}
    for kind in (exp.ApproxQuantile, exp.Quantile, syntax.PercentileCont, syntax.PercentileDisc):
        taken[kind]["quantile"] = _LITERAL
    taken[syntax.StringAgg] |= {"separator": _kinds(TEXT), "order": taken[syntax.StringAgg]["this"] - {"Distinct"}}
    taken[syntax.StringAgg] |= dict.fromkeys(("desc", "within"), _kinds(TRUE))
    for ranked in RANKED:
        taken[ranked]["expression"] = taken[ranked]["this"]
    return {**taken, syntax.Completeness: {}}


QUERY_SYNTAX: Mapping[type[exp.Expr], Mapping[str, Kinds]] = {
    # Queries
    exp.Select: {
        "expressions": (SCALARS - {NULL}) | {STAR, "Alias"},
        "distinct": _kinds("Distinct"),
        "from_": _kinds("From"),
        "joins": _kinds("Join", "ZipJoin", "StampJoin"),
        "where": _kinds("Where"),
        "group": _kinds("Group"),
        "having": _kinds("Having"),
        "qualify": _kinds("Qualify"),
        "top": _kinds("TopClause"),
        "with_": _kinds("With"),
        "sample": _kinds("SampleClause"),
        "lifetime": _kinds("LifetimeClause"),
    },
    **_alike(
        (exp.Union, exp.Except, exp.Intersect),
        this=_QUERY,
        expression=_QUERY,
        distinct=_kinds(TRUE),
        top=_kinds("TopClause"),
        with_=_kinds("With"),
        lifetime=_kinds("LifetimeClause"),
    ),
    exp.Subquery: {"this": _QUERY, "top": _kinds("TopClause"), "with_": _kinds("With")},
    exp.With: {"expressions": _kinds("CTE")},
    exp.CTE: {"this": _QUERY, "alias": _kinds("TableAlias")},
    exp.TableAlias: {"this": _IDENTIFIER},
    exp.Alias: {"this": SCALARS - {NULL}, "alias": _IDENTIFIER},
    exp.Distinct: {"expressions": SCALARS - {NULL, AGGREGATE}},
    exp.Where: {"this": TRUTHS - _ONCE},
    exp.Anonymous: {"this": _kinds("name"), "expressions": SCALARS},
    exp.Group: {"expressions": _KEYS | _LISTS | {BOOLEAN}},
    exp.GroupingSets: {"expressions": _KEYS | _LISTS},
    **_alike((exp.Rollup, exp.Cube), expressions=_KEYS | {"Tuple"}),
    exp.Having: {"this": TRUTHS},
    exp.Qualify: {"this": TRUTHS},
    syntax.TopClause: {"expressions": _kinds("OrderKey"), "limit": _LITERAL, "offset": _LITERAL},
    syntax.OrderKey: {"this": _KEYS | _ONCE, "desc": _kinds(TRUE), "nulls_first": _kinds(TRUE)},
    syntax.RankCall: {
        "kind": _kinds("ROW_NUMBER", "RANK", "DENSE_RANK"),
        "partition": (_KEYS | _ONCE) - {NUMBER},
        "expressions": _kinds("OrderKey"),
    },
    # Functions over tuples in order
    syntax.Over: {
        "this": _kinds("Lag", "Lead", "Changed", "Hysteresis", "FirstValue", "LastValue", "IgnoreNulls", AGGREGATE),
        "partition": _kinds(COLUMN),
        "order": _kinds("SequenceOrder"),
        "frame": _kinds("SequenceFrame"),
        "within": _QUANTITY,
    },
    syntax.SequenceOrder: {"this": _IDENTIFIER},
    syntax.SequenceFrame: {
        "kind": _kinds("ROWS", "RANGE"),
        "this": _QUANTITY,
        "between": _kinds(TRUE),
        "interval": _kinds(TRUE),
        "until": _QUANTITY,
        "until_interval": _kinds(TRUE),
    },
    exp.Lag: {"this": _IN_ORDER, "offset": _LITERAL, "default": _IN_ORDER | {NULL}},
    exp.Lead: {"this": _IN_ORDER, "offset": _LITERAL},
    syntax.Changed: {"expressions": _IN_ORDER},
    syntax.Hysteresis: {"this": NUMBERS - _NOTHING, "above": _LITERAL, "below": _LITERAL},
    **_alike((exp.FirstValue, exp.LastValue), this=_IN_ORDER),
    exp.IgnoreNulls: {"this": _kinds("FirstValue", "LastValue")},
    # FROM
    exp.From: {"this": _STREAM},
    exp.Join: {
        "this": _STREAM,
        "side": _kinds("LEFT", "RIGHT", "FULL"),
        "kind": _kinds("INNER", "CROSS", "OUTER"),
        "on": TRUTHS - _ONCE,
        "using": _kinds(COLUMN),
    },
    exp.Table: {"this": _IDENTIFIER},
    StreamItem: {
        "this": _kinds("Table", "Changes", QUERY),
        "alias": _IDENTIFIER,
        "window": _kinds("StreamWindow"),
        **{each.slot: _kinds(each.syntax.__name__) for each in ITEM_CLAUSES},
        "sample": _kinds("SampleClause"),
        "events": _kinds("EventsClause"),
        "since": _kinds("SinceClause"),
    },
    Changes: {"kind": _kinds("ISTREAM", "DSTREAM", "RSTREAM"), "this": _STREAM},
    syntax.ZipJoin: {
        "this": _STREAM,
        "side": _kinds("INNER", "LEFT", "FULL"),
        "within": _kinds("ZipBounds"),
        "on": _kinds(CONDITION),
    },
    syntax.StampJoin: {
        "this": _STREAM,
        "kind": _kinds("ASOF", "WITHIN"),
        "side": _kinds("INNER", "LEFT", "RIGHT", "FULL"),
        "within": _kinds("ZipBounds"),
        "match": _kinds(CONDITION),
        "on": TRUTHS - _ONCE,
    },
    syntax.ZipBounds: {"this": _QUANTITY, "expression": _QUANTITY},
    syntax.StreamWindow: {
        "kind": _kinds("RANGE", "ROWS", "SESSION", "RESET"),
        "this": _QUANTITY | _BOUNDS,
        **dict.fromkeys(("slide", "offset", "longest"), _QUANTITY),
        "partition": _kinds(COLUMN),
        "zone": _kinds(TEXT),
        "early": _kinds(TRUE),
    },
    **{each.syntax: each.accepted for each in ITEM_CLAUSES},
    syntax.Bounds: {"this": _QUANTITY, "expression": _QUANTITY},
    syntax.SampleClause: {"kind": _kinds("EVERY", "RATE"), "this": _QUANTITY, "slowest": _kinds("SampleClause")},
    syntax.EventsClause: {"this": _IDENTIFIER, "above": _LITERAL, "below": _LITERAL},
    syntax.SinceClause: {"this": _QUANTITY},
    syntax.LifetimeClause: {"this": _QUANTITY},
    syntax.Quantity: {"this": _LITERAL, "unit": _kinds("Var")},
    exp.Var: {"this": _kinds(*DURATION_UNITS, *CALENDAR_UNITS, *FREQUENCY_UNITS)},
    # Values
    exp.Identifier: {"this": _kinds("name"), "quoted": _kinds(TRUE)},
    exp.Column: {"this": _IDENTIFIER | {STAR}, "table": _IDENTIFIER},
    exp.Star: {"except_": _IDENTIFIER},
    exp.Literal: {"this": _kinds("integer", "decimal", "exponent", TEXT), "is_string": _kinds(TRUE)},
    exp.Boolean: {"this": _kinds("true", "false")},
    exp.Null: {},
    # Conditions and operators
    exp.Paren: {"this": SCALARS},
    exp.Not: {"this": TRUTHS},
    **_alike((exp.And, exp.Or), this=TRUTHS, expression=TRUTHS),
    **_alike(COMPARISONS, this=SCALARS | _QUERY, expression=SCALARS | _QUERY | {"All", "Any"}),
    **_alike((exp.All, exp.Any, exp.Exists), this=_QUERY),
    exp.Is: {"this": SCALARS, "expression": _kinds(NULL, BOOLEAN)},
    **_alike(DISTINCTIONS, this=SCALARS, expression=SCALARS),
    exp.In: {"this": SCALARS | {"Tuple"}, "expressions": SCALARS | {"Tuple"}, "query": _QUERY},
    exp.Tuple: {"expressions": SCALARS},
    exp.Between: {"this": SCALARS, "low": SCALARS, "high": SCALARS, "symmetric": _kinds(TRUE)},
    **_alike((exp.Like, exp.ILike, exp.SimilarTo), this=TEXTS, expression=_kinds(TEXT)),
    **_alike((syntax.Match, syntax.FoldedMatch), this=TEXTS, expression=_kinds(TEXT)),
    **_alike(ARROWS, this=TEXTS, expression=_kinds(TEXT, NUMBER, EXPRESSION)),
    exp.Escape: {"this": _kinds(CONDITION), "expression": _kinds(TEXT)},
    exp.DPipe: {"this": TEXTS, "expression": TEXTS, "safe": _kinds(TRUE)},
    **_alike(ARITHMETIC, this=NUMBERS, expression=NUMBERS),
    exp.Div: {"this": NUMBERS, "expression": NUMBERS, "safe": _kinds(TRUE)},
    exp.Neg: {"this": NUMBERS},
    syntax.Within: {"this": _kinds(COLUMN), "expression": _LITERAL},
    exp.Case: {"this": SCALARS, "ifs": _kinds(BRANCH), "default": SCALARS},
    exp.If: {"this": SCALARS, "true": SCALARS, "false": SCALARS},
    exp.Cast: {"this": SCALARS, "to": _kinds("DataType")},
    exp.TryCast: {"this": SCALARS, "to": _kinds("DataType"), "safe": _kinds(TRUE)},
    exp.DataType: {"this": _TYPE_WORDS},
    **_functions(),
    **_aggregates(),
    syntax.ErrorBound: {"expressions": _ONCE},
    exp.Grouping: {"expressions": _KEYS - {NUMBER}},
    exp.Filter: {"this": _ONCE, "expression": _kinds("Where")},
}
"""The syntax of queries: for every class of node and every argument that is read, the accepted kinds of value."""

TIME_SYNTAX = time_syntax(computed=_COMPUTED, identifier=_IDENTIFIER, text=TEXT, number=NUMBER)
"""The syntax of expressions about time, which tests of their own draw."""

DECLARATION_SYNTAX: Mapping[type[exp.Expr], Mapping[str, Kinds]] = {
    syntax.CreateSource: {
        "this": _IDENTIFIER,
        "expressions": _kinds("ColumnDefinition"),
        "source": _IDENTIFIER,
        "arguments": _kinds(NUMBER, TEXT),
        "ordered": _IDENTIFIER,
    },
    syntax.CreateDerived: {"this": _IDENTIFIER, "expression": _QUERY},
    syntax.CreateRelationStatement: {
        "this": _IDENTIFIER,
        "expressions": _kinds("ColumnDefinition"),
        "source": _kinds(TEXT),
        "query": _kinds(TEXT),
        "table": _kinds("Tuple"),
        "where": _kinds("Where"),
        "refresh": _QUANTITY,
        "stale": _QUANTITY,
    },
    syntax.CreateFunctionStatement: {
        "this": _IDENTIFIER,
        "expressions": _kinds("FunctionParameter"),
        "returns": _kinds("Var"),
        "language": _IDENTIFIER,
        "nulls": _kinds("STRICT", "RETURNS", "CALLED"),
        "path": _kinds(TEXT),
    },
    syntax.FunctionParameter: {"this": _IDENTIFIER, "kind": _kinds("Var")},
    syntax.DropStatement: {"this": _IDENTIFIER, "kind": _kinds("STREAM", "RELATION", "FUNCTION")},
    exp.Var: {"this": _kinds(*COLUMN_TYPES, *FORMER_COLUMN_TYPES)},
    syntax.ColumnDefinition: {"this": _IDENTIFIER, "kind": _kinds("Var"), "unit": _kinds(TEXT), "fixed": _kinds(TRUE)},
    exp.Tuple: {"expressions": _IDENTIFIER},
}
"""The additional syntax of CREATE and DROP."""

ROW_PATTERN_SYNTAX: Mapping[type[exp.Expr], Mapping[str, Kinds]] = {
    StreamItem: {"this": _kinds("RowPatternClause")},
    syntax.RowPatternClause: {
        "this": _STREAM,
        "partition": _kinds(COLUMN),
        "order": _IDENTIFIER,
        "measures": _kinds("Alias"),
        "one_row": _kinds(TRUE),
        "skip": _kinds("SkipClause"),
        "pattern": _kinds("PatternText"),
        "within": _QUANTITY,
        "interval": _kinds(TRUE),
        "definitions": _kinds("VariableDefinition"),
    },
    syntax.SkipClause: {
        "kind": _kinds("PAST LAST ROW", "TO NEXT ROW", "TO FIRST", "TO LAST", "TO"),
        "this": _IDENTIFIER,
    },
    syntax.PatternText: {"expressions": _IDENTIFIER},
    syntax.VariableDefinition: {"this": _IDENTIFIER, "expression": TRUTHS},
    syntax.Navigation: {
        "kind": _kinds("PREV", "FIRST", "LAST"),
        "this": SCALARS - {NULL, AGGREGATE},
        "offset": _LITERAL,
    },
}
"""The syntax of MATCH_RECOGNIZE, an item of FROM."""

WINDOW_BOUND_SYNTAX: Mapping[type[exp.Expr], Mapping[str, Kinds]] = {
    syntax.WindowBound: {"this": _kinds(*syntax.WINDOW_BOUNDS)}
}
"""The syntax of WINDOW_START() and WINDOW_END()."""

_KEEP = _kinds("KeepClause")
VALIDITY_SYNTAX: Mapping[type[exp.Expr], Mapping[str, Kinds]] = {
    StreamItem: {"valid": _kinds("ValidClause"), "coalesce": _kinds("CoalesceClause"), "keep": _KEEP},
    syntax.KeepClause: {"this": _QUANTITY},
    syntax.CoalesceClause: {
        "expressions": _kinds("CoalescedAttribute"),
        "keys": _kinds(COLUMN),
        "condition": TRUTHS - _NOTHING,
    },
    syntax.CoalescedAttribute: {"this": _kinds(COLUMN), "tolerance": _kinds(NUMBER)},
    syntax.Previous: {"expressions": _kinds(COLUMN)},
    syntax.NearlyEqual: {"this": NUMBERS, "expression": NUMBERS, "tolerance": _kinds(NUMBER)},
    syntax.ValidClause: {"keys": _kinds(COLUMN), "longest": _QUANTITY},
    exp.Select: {"expressions": _kinds(INTERVAL), "keep": _KEEP},
    exp.Alias: {"this": _kinds(INTERVAL)},
    exp.Paren: {"this": _kinds(INTERVAL)},
    syntax.Validity: {"this": _IDENTIFIER, "table": _IDENTIFIER},
    **_alike(
        (syntax.CommonValidity, syntax.Duration, syntax.AllenRelation),
        expressions=_kinds(INTERVAL),
    ),
    syntax.IntervalRelation: {
        **dict.fromkeys(("this", "expression"), _kinds(INTERVAL)),
        "kind": _kinds(*syntax.RELATIONS),
    },
}
"""The syntax of what held for how long."""

Accepted = Mapping[tuple[type[exp.Expr], str], Kinds]


def accepted(beside: Mapping[type[exp.Expr], Mapping[str, Kinds]]) -> Accepted:
    """Return the syntax of queries, with the additions of a table."""
    found: dict[tuple[type[exp.Expr], str], Kinds] = {}
    for table in (QUERY_SYNTAX, TIME_SYNTAX, ROW_PATTERN_SYNTAX, WINDOW_BOUND_SYNTAX, VALIDITY_SYNTAX, beside):
        for node, arguments in table.items():
            for argument, kinds in arguments.items():
                found[node, argument] = found.get((node, argument), frozenset()) | kinds
    return found


STATEMENTS = accepted(DECLARATION_SYNTAX)
"""The syntax of all FjordSQL statements."""
_QUESTIONS = accepted({
    exp.Select: {"order": _kinds("Order"), "limit": _kinds("Limit"), "offset": _kinds("Offset")},
    exp.Order: {"expressions": _kinds("Ordered")},
    exp.Ordered: {"this": SCALARS, "desc": _kinds(TRUE), "nulls_first": _kinds(TRUE)},
    exp.Limit: {"expression": _LITERAL},
    exp.Offset: {"expression": _LITERAL},
})  # fmt: skip
_OF_STREAMS = {(exp.Between, "symmetric"), (exp.Floor, "to"), (exp.Ceil, "to")}
ONE_SHOT_QUESTIONS = {key: kinds for key, kinds in _QUESTIONS.items() if key not in _OF_STREAMS}
"""The syntax of questions about a relation as it is now: it has an end, so its rows can be sorted."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One set argument of one node, or one element of a list in it.

    Parameters
    ----------
    node
        The node.
    argument
        The name of its argument.
    value
        The value of the argument.
    kind
        The kind of that.
    """

    node: exp.Expr
    argument: str
    value: Any
    kind: str

    @property
    def triple(self) -> Triple:
        """Kind of node, argument and kind of value."""
        return type(self.node).__name__, self.argument, self.kind


def accepted_triples() -> frozenset[Triple]:
    """Return all that the tables of queries and of validity let pass, in a form that can be counted."""
    return frozenset(
        (node.__name__, argument, kind)
        for table in (QUERY_SYNTAX, VALIDITY_SYNTAX)
        for node, arguments in table.items()
        for argument, kinds in arguments.items()
        for kind in kinds
    )


def occurrences(tree: exp.Expr) -> Iterator[Occurrence]:
    """Yield what every node of `tree` carries, in the order of the text as far as the tree has it."""
    return (Occurrence(*each) for each in _carried(tree))


def ignored(tree: exp.Expr, known: Accepted = STATEMENTS) -> Occurrence | None:
    """Return the first part of `tree` that is not known, if there is one."""
    for node, argument, value, kind in _carried(tree):
        if kind not in known.get((type(node), argument), ()):
            return Occurrence(node, argument, value, kind)
    return None


def _carried(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str, Any, str]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        children: list[exp.Expr] = []
        for argument, held in node.args.items():
            for value in held if isinstance(held, list) else (held,):
                # An unset argument has no meaning, but FALSE is a value.
                if value is None or (value is False and not isinstance(node, exp.Boolean)):
                    continue
                yield node, argument, value, _kind_of(node, value)
                if isinstance(value, exp.Expr):
                    children.append(value)
        pending += reversed(children)


def _kind_of(node: exp.Expr, value: object) -> str:
    match value:
        case exp.If() if isinstance(node, exp.Case) and value.arg_key == "ifs":
            return BRANCH
        case exp.Expr():
            kind = _kind_of_part(value)
            # A subquery where no query is expected is a value.
            return EXPRESSION if kind == QUERY and not _takes_query(node, value.arg_key) else kind
        case bool():
            return str(value).lower()
        case Enum():
            return value.name
        case _ if isinstance(node, exp.Identifier | exp.Anonymous):
            return "name"
        case _ if isinstance(node, exp.Literal):
            return TEXT if node.is_string else _spelling(str(value))
        case _:
            return str(value).upper()


def _takes_query(node: exp.Expr, argument: str | None) -> bool:
    beside = DECLARATION_SYNTAX.get(type(node), {})
    return QUERY in QUERY_SYNTAX.get(type(node), {}).get(argument or "", beside.get(argument or "", frozenset()))


def _spelling(number: str) -> str:
    if "e" in number.lower():
        return "exponent"
    return "decimal" if "." in number else "integer"


def _kind_of_part(part: exp.Expr) -> str:
    """Return the kind of what is in parentheses as if they were not there: they are nodes with a kind of their own."""
    while isinstance(part, exp.Paren):
        part = part.this
    if isinstance(part, syntax.INTERVALS):
        return INTERVAL
    if isinstance(part, exp.Column):
        return STAR if isinstance(part.this, exp.Star) else COLUMN
    if isinstance(part, exp.Literal):
        return TEXT if part.is_string else NUMBER
    return _CATEGORIES.get(type(part), type(part).__name__)


_CATEGORIES: Mapping[type[exp.Expr], str] = {
    exp.Star: STAR,
    exp.Boolean: BOOLEAN,
    exp.Null: NULL,
    **dict.fromkeys(CONDITIONS, CONDITION),
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Union, exp.Except, exp.Intersect), QUERY),
    **dict.fromkeys((*AGGREGATES, syntax.ErrorBound, exp.Grouping, exp.Filter, syntax.Over), AGGREGATE),
    **dict.fromkeys((*ARITHMETIC, *FUNCTIONS, *ARROWS), EXPRESSION),
    syntax.Navigation: EXPRESSION,
    **dict.fromkeys(
        (exp.Anonymous, exp.Neg, exp.DPipe, exp.Case, exp.If, exp.Cast, exp.TryCast, syntax.Within), EXPRESSION
    ),
    syntax.RankCall: EXPRESSION,
    **dict.fromkeys(TIME_EXPRESSIONS, EXPRESSION),
    syntax.WindowBound: EXPRESSION,
    syntax.Validity: INTERVAL,
    syntax.CommonValidity: INTERVAL,
    **dict.fromkeys((syntax.Duration, syntax.AllenRelation, syntax.Previous), EXPRESSION),
}
