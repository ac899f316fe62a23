"""Syntax trees of sqlglot -> expressions. The only place that uses both.

A tree has been resolved: its columns are those of the plan. Syntax that is not part of FjordSQL is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from cluster.errors import PlanError
from cluster.expressions.called_functions import FUNCTIONS, TimeCall, TimeLiteral, UserFunctionCall, called_in
from cluster.expressions.nodes import (
    FALSE,
    NULL,
    TRUE,
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    UserCall,
    chain,
)
from protocols.wire.streams import FieldType

DATA_TYPES: dict[FieldType, exp.DType] = {
    FieldType.BOOLEAN: exp.DType.BOOLEAN,
    FieldType.INTEGER: exp.DType.BIGINT,
    FieldType.REAL: exp.DType.DOUBLE,
    FieldType.TEXT: exp.DType.TEXT,
}
"""Targets of CAST in the syntax tree: 64-bit types, so that other dialects print them correctly."""

FIELD_TYPES: dict[exp.DType, FieldType] = {data_type: field for field, data_type in DATA_TYPES.items()}

SIGNS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Is: "IS",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
WORDS: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR", exp.DPipe: "||"}

_TORN = ("*", "/", "%")
"""Operators to the right of which a remainder needs parentheses: MOD(a, b) is read as one without them."""


def expression_of(tree: exp.Expr) -> Expression:
    """Return the expression of a syntax tree.

    Raises
    ------
    PlanError
        If it contains a construct that FjordSQL does not have; the error names it.
    """
    made: dict[int, Expression] = {}
    waiting: list[tuple[exp.Expr, list[exp.Expr] | None]] = [(tree, None)]
    while waiting:
        node, parts = waiting.pop()
        if parts is None:
            parts = _parts_of(node)
            if parts:
                waiting.append((node, parts))
                waiting.extend([(each, None) for each in reversed(parts)])
                continue
        made[id(node)] = _made(node, [made[id(each)] for each in parts])
    return made[id(tree)]


def _parts_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a node, in the order in which they are written."""
    if isinstance(node, exp.Column | exp.Literal | exp.Boolean | exp.Null):
        return []
    if type(node) in WORDS:  # a whole chain at once: so work grows with its length, not with its square
        return [*node.flatten(unnest=False)]
    args = node.args
    if isinstance(node, exp.Binary):
        return (
            [args["this"]]
            if isinstance(node, exp.Like | exp.ILike | exp.Escape)
            else [args["this"], args["expression"]]
        )
    match node:
        case exp.Cast():
            return [args["this"]]
        case exp.Case():
            parts = [] if args.get("this") is None else [args["this"]]
            for branch in args["ifs"]:
                parts += (branch.this, branch.args["true"])
            return parts if args.get("default") is None else [*parts, args["default"]]
        case _:
            found: list[exp.Expr] = []
            for slot in node.arg_types:
                value = args.get(slot)
                if isinstance(value, exp.Expr):
                    found.append(value)
                elif isinstance(value, list):
                    found += value
            return found


def _made(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    kind = type(node)
    if kind in SIGNS:
        left, right = parts
        torn = isinstance(right, Binary) and right.sign == "%" and SIGNS[kind] in _TORN
        return Binary(SIGNS[kind], left, Group(right) if torn else right)
    if kind in WORDS:
        return chain(WORDS[kind], tuple(parts))
    if kind in FUNCTIONS:
        return Call(FUNCTIONS[kind].name, tuple(parts))
    rule = _RULES.get(kind)
    if rule is None:
        raise PlanError(f"{_written(node)} cannot be evaluated")
    return rule(node, parts)


def _literal(node: exp.Expr, _parts: Sequence[Expression]) -> Expression:
    text = str(node.this)
    if node.args.get("is_string"):
        return Literal(FieldType.TEXT, text)
    return Literal(FieldType.INTEGER if text.isdecimal() else FieldType.REAL, text)


def _cast(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    target = FIELD_TYPES.get(node.args["to"].this)
    if target is None:
        raise PlanError(f"the type in {_written(node)} is not one of FjordSQL's")
    return Cast(parts[0], target, isinstance(node, exp.TryCast))


def _case(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    empty = Case(
        NULL if node.args.get("this") is not None else None,
        (NULL,) * len(node.args["ifs"]),
        (NULL,) * len(node.args["ifs"]),
        NULL if node.args.get("default") is not None else None,
    )
    return empty.over(tuple(parts))


def _like(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    pattern = node.args["expression"]
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise PlanError(f"the pattern in {_written(node)} is not a constant text")
    return Like(parts[0], str(pattern.this), folds=isinstance(node, exp.ILike))


def _escape(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    like = parts[0]
    if not isinstance(like, Like):
        raise PlanError(f"{_written(node)} cannot be evaluated")
    return Like(like.operand, like.pattern, str(node.args["expression"].this), like.folds)


def _user_call(node: exp.Expr, parts: Sequence[Expression]) -> Expression:
    assert isinstance(node, UserFunctionCall)  # noqa: S101 - the rule is for these
    return UserCall(called_in(node), tuple(parts))


def _written(node: exp.Expr) -> str:
    return node.sql(identify=True, comments=False)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Sequence[Expression]], Expression]] = {
    exp.Column: lambda node, _: Column(node.name),
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: TRUE if node.this else FALSE,
    exp.Null: lambda _, __: NULL,
    exp.Paren: lambda _, parts: Group(parts[0]),
    exp.Neg: lambda _, parts: Negative(parts[0]),
    exp.Not: lambda _, parts: Not(parts[0]),
    exp.Between: lambda _, parts: Between(*parts),
    exp.In: lambda _, parts: Among(parts[0], tuple(parts[1:])),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Case: _case,
    TimeLiteral: lambda node, _: Literal(FieldType(str(node.args["kind"])), str(node.this)),
    TimeCall: lambda node, parts: Call(str(node.this), tuple(parts)),
    UserFunctionCall: _user_call,
}
