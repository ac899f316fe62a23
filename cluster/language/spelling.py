"""The words and marks with which a syntax tree is written.

sqlglot drops some of the text that it reads: a dangling comma, ``GROUP BY`` with nothing behind it, ``traffic@5``. Such
words leave no trace in the tree, so they are found by counting: :func:`written_words` gives those that a tree explains,
and a text with other words contains something that was not read. Names, numbers and texts do not count as words,
because the nodes that hold them have their places; neither do parentheses, which come in pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from cluster.expressions.called_functions import (
    FUNCTIONS,
    JsonValue,
)
from cluster.language import syntax
from cluster.language.functions import AGGREGATE_SPELLINGS
from cluster.language.stream_item import ITEM_CLAUSES, Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORDS = "words"
"""By this name, nodes have the words that they were written with, where there are several ways."""

SPELLINGS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    **{kind: (function.name, *function.aliases) for kind, function in FUNCTIONS.items()},
    **AGGREGATE_SPELLINGS,
    exp.If: ("IF", "IIF"),
    syntax.ErrorBound: ("ERROR_BOUND",),
    exp.Grouping: ("GROUPING", "GROUPING_ID"),
    exp.Lag: ("LAG",),
    exp.Lead: ("LEAD",),
    **dict.fromkeys((exp.FirstValue, syntax.FirstOfGroup), ("FIRST_VALUE",)),
    **dict.fromkeys((exp.LastValue, syntax.LastOfGroup), ("LAST_VALUE",)),
    syntax.Changed: ("CHANGED",),
}
"""The names under which functions and aggregates can be called; the first is the one of the documentation."""

SYNONYMS: Mapping[str, str] = {
    "==": "=", "!=": "<>", "SOME": "ANY", "SLIDES": "SLIDE", "EXCLUDE": "EXCEPT",
    "RLIKE": "~", "REGEXP": "~",
}  # fmt: skip
"""Words and marks with the meaning of another one."""

CANONICAL_NAMES: Mapping[str, str] = {name: names[0] for names in SPELLINGS.values() for name in names}
"""For each name of a function, the one that :func:`written_words` gives."""

TYPE = "(type)"
"""Stands for the name of a type, since each type has several."""

_MARKS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.Neg: "-", exp.DPipe: "||",
    exp.And: "AND", exp.Or: "OR", exp.Not: "NOT", exp.Is: "IS", exp.Like: "LIKE", exp.ILike: "ILIKE",
    syntax.Match: "~", syntax.FoldedMatch: "~*", syntax.JsonArrow: "->", syntax.JsonTextArrow: "->>",
    exp.Escape: "ESCAPE", exp.Exists: "EXISTS",
    exp.All: "ALL", exp.Any: "ANY", exp.Null: "NULL", exp.Where: "WHERE", exp.Having: "HAVING",
    exp.Filter: "FILTER", exp.Qualify: "QUALIFY",
    exp.From: "FROM", exp.CTE: "AS", exp.DataType: TYPE, syntax.Within: "WITHIN",
    exp.Limit: "LIMIT", exp.Offset: "OFFSET",
    syntax.LifetimeClause: "LIFETIME", **{each.syntax: each.word for each in ITEM_CLAUSES},
}  # fmt: skip
"""Nodes that are written with one word."""


def written_words(node: exp.Expr, parent: exp.Expr | None) -> list[str]:
    """Return the words and marks that `node` itself is written with, not those of its parts, in no order."""
    kind = type(node)
    if kind in _MARKS:
        return [_MARKS[kind]]
    if kind in _WORDS:
        return _WORDS[kind](node)
    if isinstance(node, syntax.Bounds):
        return next((list(each.bounds or ()) for each in ITEM_CLAUSES if type(parent) is each.syntax), ["MIN", "MAX"])
    if isinstance(node, syntax.SampleClause):
        most = ["AT", "LEAST"] if node.args.get("slowest") else []
        return [node.args["kind"], *most, *([] if isinstance(parent, syntax.SampleClause) else ["SAMPLE"])]
    if isinstance(node, exp.If) and isinstance(parent, exp.Case) and node.arg_key == "ifs":
        return ["WHEN", "THEN"]
    if WORDS in node.meta:
        return list(node.meta[WORDS])
    if kind in SPELLINGS:
        commas = _commas(sum(len(_list(held)) for held in _arguments(node)))
        return [SPELLINGS[kind][0], *commas, *_if(node.meta.get("all"), "ALL")]
    return []


def _list(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def _arguments(call: exp.Expr) -> list[Any]:
    return [held for held in call.args.values() if isinstance(held, exp.Expr | list)]


def _commas(items: int) -> list[str]:
    return [","] * (items - 1)


def _if(value: object, *words: str) -> list[str]:
    return list(words) if value else []


def _query(node: exp.Expr) -> list[str]:
    return ["SELECT", *_commas(len(node.expressions))]


def _set_operation(word: str) -> Callable[[Any], list[str]]:
    return lambda node: [word, *_if(not node.args.get("distinct"), "ALL")]


def _distinct(node: exp.Expr) -> list[str]:
    return ["DISTINCT", *_commas(len(node.expressions))]


def _ordered(node: exp.Expr) -> list[str]:
    direction = {True: ["DESC"], False: ["ASC"], None: []}[node.args.get("desc")]
    return [*direction, *_if(node.args.get("nulls_first"), "NULLS", "FIRST")]


def _join(node: exp.Expr) -> list[str]:
    if syntax.is_comma(node):
        return [","]
    side, kind, on = (node.args.get(part) for part in ("side", "kind", "on"))
    shared = node.args.get("using") or ()
    using = ["USING", *_commas(len(shared))] if shared else []
    return ["JOIN", *_if(side, str(side)), *_if(kind == "CROSS", "CROSS"), *_if(on, "ON"), *using]


def _zip_join(node: exp.Expr) -> list[str]:
    side = node.args["side"]
    return ["ZIP", "JOIN", *_if(side != "INNER", side), *_if(node.args.get("on"), "ON")]


def _stamp_join(node: exp.Expr) -> list[str]:
    side, match, on = (node.args.get(part) for part in ("side", "match", "on"))
    asof = node.args["kind"] == "ASOF"
    words = [*_if(asof, "ASOF"), "JOIN", *_if(side != "INNER", str(side))]
    return [*words, *_if(match, "MATCH_CONDITION"), *_if(on, "ON")]


def _window(node: exp.Expr) -> list[str]:
    kind, partition = node.args["kind"], node.args.get("partition")
    keys = ["PARTITION BY", *_commas(len(partition))] if partition else []
    of_kind = {"SESSION": ["GAP"], "RESET": ["EVERY"]}.get(kind, _if(node.this is None, "UNBOUNDED"))
    parts = (("slide", "SLIDE"), ("offset", "OFFSET"), ("longest", "MAX"), ("zone", "AT TIME ZONE"), ("early", "EARLY"))
    words = (words.split() for part, words in parts if node.args.get(part))
    return ["WINDOW", kind, *of_kind, *keys, *(word for each in words for word in each)]


def _valid(node: exp.Expr) -> list[str]:
    keys = node.args.get("keys") or ()
    by = ["BY", *_commas(len(keys))] if keys else []
    return ["VALID", "UNTIL", "NEXT", *by, *_if(node.args.get("longest"), "MAX")]


def _coalesce(node: exp.Expr) -> list[str]:
    keys, condition = node.args.get("keys") or (), node.args.get("condition")
    by = ["BY", *_commas(len(keys))] if keys else []
    return ["COALESCE", *_commas(len(node.expressions)), *by, *_if(condition, "WHILE")]


def _keep(_: exp.Expr) -> list[str]:
    return ["KEEP", "TUPLES"]


def _over(node: exp.Expr) -> list[str]:
    partition = node.args.get("partition")
    keys = ["PARTITION BY", *_commas(len(partition))] if partition else []
    empty = not any(node.args.get(part) for part in ("partition", "order", "frame"))
    return ["OVER", *keys, *_if(empty, "()"), *_if(node.args.get("within"), "WITHIN")]


def _frame(node: exp.Expr) -> list[str]:
    begin = [*_if(node.args.get("interval"), "INTERVAL"), *_if(not node.this, "UNBOUNDED"), "PRECEDING"]
    if not node.args.get("between"):
        return [node.args["kind"], *begin]
    end = [*_if(node.args.get("until_interval"), "INTERVAL"), "PRECEDING"]
    return [node.args["kind"], "BETWEEN", *begin, "AND", *(end if node.args.get("until") else ("CURRENT", "ROW"))]


def _case(node: exp.Expr) -> list[str]:
    return ["CASE", "END", *_if(node.args.get("default"), "ELSE")]


def _cast(word: str) -> Callable[[Any], list[str]]:
    return lambda _node: [word, "AS"]


def _in(node: exp.Expr) -> list[str]:
    return ["IN", *_commas(len(node.expressions))]


def _between(node: exp.Expr) -> list[str]:
    order = {True: ["SYMMETRIC"], False: ["ASYMMETRIC"], None: []}[node.args.get("symmetric")]
    return ["BETWEEN", "AND", *order]


def _rounding(node: exp.Expr) -> list[str]:
    name = "FLOOR" if isinstance(node, exp.Floor) else "CEIL"
    unit = node.args.get("to")
    return [name, *_commas(1 + bool(node.args.get("decimals"))), *([] if unit is None else ["TO", unit.name.upper()])]


def _star(node: exp.Expr) -> list[str]:
    left_out = node.args.get("except_") or []
    return ["*", *_if(left_out, "EXCEPT", *_commas(len(left_out)))]


def _tuple(node: exp.Expr) -> list[str]:
    """Return the marks between the values of a row or the keys of a set, or between the parts of a table's name."""
    if not node.expressions:
        return ["()"]
    return ["." if isinstance(node.parent, syntax.CreateRelationStatement) else ","] * (len(node.expressions) - 1)


def _listed(word: str) -> Callable[[Any], list[str]]:
    return lambda node: [word, *_commas(len(node.expressions))]


def _string_agg(node: exp.Expr) -> list[str]:
    separated, order = node.args.get("separator"), node.args.get("order")
    within = _if(order and node.args.get("within"), "WITHIN", "GROUP")
    direction = {True: ["DESC"], False: ["ASC"], None: []}[node.args.get("desc")]
    return ["STRING_AGG", *_if(separated, ","), *within, *_if(order, "ORDER BY"), *direction]


def _create_source(node: exp.Expr) -> list[str]:
    columns, arguments = (len(node.args.get(part) or ()) for part in ("expressions", "arguments"))
    ordered = _if(node.args.get("ordered"), "ORDERED", "BY")
    return ["CREATE", "STREAM", "SOURCE", *ordered, *_commas(columns), *_commas(arguments)]


def _create_relation(node: exp.Expr) -> list[str]:
    parts = (("query", "QUERY"), ("table", "TABLE"))
    which = [word for part, word in parts if node.args.get(part)]
    stale = _if(node.args.get("stale"), "STALE", "AFTER")
    return ["CREATE", "RELATION", "FROM", *which, "REFRESH", "EVERY", *stale, *_commas(len(node.expressions))]


def _row_pattern(node: exp.Expr) -> list[str]:
    partition, measures, definitions = (node.args.get(part) or () for part in ("partition", "measures", "definitions"))
    return [
        syntax.CLAUSE,
        *_if(partition, "PARTITION BY", *_commas(len(partition))),
        *("ORDER BY", "MEASURES", *_commas(len(measures)), "PATTERN"),
        *_if(node.args.get("one_row"), "ONE", "ROW", "PER", "MATCH"),
        *_if(node.args.get("within"), "WITHIN"),
        *_if(node.args.get("interval"), "INTERVAL"),
        *_if(definitions, "DEFINE", *_commas(len(definitions))),
    ]


def _navigation(node: exp.Expr) -> list[str]:
    return [node.args["kind"], *_if(node.args.get("offset"), ",")]


def _create_function(node: exp.Expr) -> list[str]:
    language = _if(node.args.get("language"), "LANGUAGE")
    nulls = {"STRICT": "STRICT", "RETURNS": "RETURNS NULL ON NULL INPUT", "CALLED": "CALLED ON NULL INPUT"}
    words = nulls.get(str(node.args.get("nulls")), "").split()
    return ["CREATE", "FUNCTION", "RETURNS", "AS", *language, *words, *_commas(len(node.expressions))]


_WITHIN_GROUP = ("WITHIN", "GROUP", "ORDER BY")

_WORDS: Mapping[type[exp.Expr], Callable[[Any], list[str]]] = {
    exp.Select: _query,
    exp.Union: _set_operation("UNION"),
    exp.Except: _set_operation("EXCEPT"),
    exp.Intersect: _set_operation("INTERSECT"),
    exp.Distinct: _distinct,
    **dict.fromkeys((syntax.TopClause, syntax.OrderKey, syntax.RankCall), lambda node: list(node.meta["words"])),
    exp.With: _listed("WITH"),
    exp.Order: _listed("ORDER BY"),
    exp.Ordered: _ordered,
    exp.Group: _listed("GROUP BY"),
    exp.Rollup: _listed("ROLLUP"),
    exp.Cube: _listed("CUBE"),
    exp.GroupingSets: _listed("GROUPING SETS"),
    exp.Join: _join,
    syntax.Stamp: lambda _node: ["STAMP"],
    syntax.Validity: lambda _node: ["VALID"],
    syntax.ValidClause: _valid,
    syntax.CoalesceClause: _coalesce,
    syntax.KeepClause: _keep,
    syntax.CoalescedAttribute: lambda node: _if(node.args.get("tolerance"), "TOLERANCE"),
    syntax.Previous: lambda node: ["PREV", *_commas(len(node.expressions))],
    syntax.NearlyEqual: lambda node: ["~", "=", *_if(node.args.get("tolerance"), "TOLERANCE")],
    syntax.IntervalRelation: lambda node: [node.args["kind"]],
    syntax.CommonValidity: lambda node: ["INTERSECT", *_commas(len(node.expressions))],
    syntax.Duration: lambda node: ["DURATION", *_commas(len(node.expressions))],
    syntax.AllenRelation: lambda node: ["ALLEN", *_commas(len(node.expressions))],
    syntax.Now: lambda _node: ["NOW"],
    exp.CurrentTimestamp: lambda _node: ["CURRENT_TIMESTAMP"],
    syntax.TimestampLiteral: lambda _node: [TYPE],
    syntax.IntervalLiteral: lambda node: ["INTERVAL", *_if(node.args.get("until"), "TO")],
    exp.Extract: lambda node: ["EXTRACT", str(node.this.name).upper(), "FROM"],
    exp.AtTimeZone: lambda _node: ["AT", "TIME", "ZONE"],
    syntax.WindowBound: lambda node: [node.this],
    syntax.TimeFunction: lambda node: [node.this, *_commas(len(node.expressions))],
    exp.Column: lambda node: _if(node.args.get("table"), "."),
    exp.Boolean: lambda node: ["TRUE" if node.this else "FALSE"],
    exp.In: _in,
    exp.Between: _between,
    exp.SimilarTo: lambda _node: ["SIMILAR TO"],
    **dict.fromkeys((exp.Floor, exp.Ceil), _rounding),
    exp.Case: _case,
    exp.Cast: _cast("CAST"),
    exp.TryCast: _cast("TRY_CAST"),
    exp.Anonymous: lambda node: [node.name.upper(), *_commas(len(node.expressions))],
    exp.Tuple: _tuple,
    exp.Star: _star,
    exp.NullSafeEQ: lambda _node: ["IS", "NOT", "DISTINCT", "FROM"],
    exp.NullSafeNEQ: lambda _node: ["IS", "DISTINCT", "FROM"],
    JsonValue: lambda node: ["JSON_VALUE", ",", *_if(node.args.get("returning"), "RETURNING")],
    syntax.PercentileCont: lambda _node: ["PERCENTILE_CONT", *_WITHIN_GROUP],
    syntax.PercentileDisc: lambda _node: ["PERCENTILE_DISC", *_WITHIN_GROUP],
    syntax.RowPatternClause: _row_pattern,
    syntax.SkipClause: lambda node: ["AFTER", "MATCH", "SKIP", *node.args["kind"].split()],
    syntax.VariableDefinition: lambda _node: ["AS"],
    syntax.Navigation: _navigation,
    syntax.StringAgg: _string_agg,
    syntax.Over: _over,
    syntax.SequenceOrder: lambda node: ["ORDER BY"] if node.this else ["ORDER BY", "STAMP"],
    syntax.SequenceFrame: _frame,
    syntax.Hysteresis: lambda node: ["HYSTERESIS", "ABOVE", *_if(node.args.get("below"), "BELOW")],
    exp.IgnoreNulls: lambda _node: ["IGNORE", "NULLS"],
    syntax.ZipJoin: _zip_join,
    syntax.StampJoin: _stamp_join,
    syntax.ZipBounds: lambda node: ["WITHIN", *_if(node.this, "TO")],
    syntax.StreamWindow: _window,
    Changes: lambda node: [node.args["kind"]],
    syntax.EventsClause: lambda node: ["EVENTS", "ABOVE", *_if(node.args.get("below"), "BELOW")],
    syntax.SinceClause: lambda node: ["SINCE", "AGO" if node.this else "BEGINNING"],
    syntax.CreateSource: _create_source,
    syntax.CreateDerived: lambda _node: ["CREATE", "STREAM", "AS"],
    syntax.CreateRelationStatement: _create_relation,
    syntax.ColumnDefinition: lambda node: [*_if(node.args.get("unit"), "UNIT"), *_if(node.args.get("fixed"), "FIXED")],
    syntax.CreateFunctionStatement: _create_function,
    syntax.DropStatement: lambda node: ["DROP", node.args["kind"]],
}
"""Nodes whose words depend on their arguments."""
