"""Typing functions, CASE and CAST, and naming what FjordSQL does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.dialect import FIELD_TYPES
from cluster.language.errors import FjordSqlError, did_you_mean
from cluster.language.functions import (
    AGGREGATE_NAMES,
    AGGREGATES,
    FUNCTION_NAMES,
    FUNCTIONS,
    UNBOUNDED_AGGREGATES,
    Family,
    Function,
    Result,
)
from cluster.language.syntax import ErrorBound
from cluster.language.typing_rules import Typed, common_unit
from protocols.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.expressions import Checker
    from cluster.language.scope import Context


def check_function(checker: Checker, call: exp.Expr) -> Typed:
    """Return a call of a function of :data:`FUNCTIONS`, resolved and typed.

    Raises
    ------
    FjordSqlError
        If there is no such function, or the arguments do not fit it.
    """
    function = FUNCTIONS.get(type(call))
    if function is None:
        raise unsupported(checker.context, call)
    decimals = call.args.get("decimals")
    if decimals is not None and not (isinstance(decimals, exp.Literal) and decimals.is_int):
        raise checker.context.error(decimals, "the number of decimals must be written out", "ROUND(x, 2)")
    arguments = _arguments_of(checker, call, function)
    typed = [
        checker.check_as(argument, function.parameters[min(position, len(function.parameters) - 1)])
        for position, argument in enumerate(arguments)
    ]
    result = function.result
    if result == Result.COMMON:
        result_type = checker.common(call, typed, action=f"choose with {function.name}")
    elif result == Result.FIRST:
        result_type = typed[0].type
        if function.name == "NULLIF":
            checker.common(call, typed, action="compare")
    else:
        result_type = FieldType(result)
    return Typed(
        _rebuilt(call, function, [each.expression for each in typed]),
        result_type,
        common_unit(typed if function.result == Result.COMMON else typed[:1]) if function.keeps_unit else "",
        nullable=_nullable(function, typed),
    )


def _nullable(function: Function, typed: list[Typed]) -> bool:
    if function.name == "COALESCE":
        return all(each.nullable for each in typed)
    return not function.null_if_null or any(each.nullable for each in typed)


def _arguments_of(checker: Checker, call: exp.Expr, function: Function) -> list[exp.Expr]:
    arguments: list[exp.Expr] = []
    for slot in function.slots:
        value = call.args.get(slot)
        arguments.extend(value if isinstance(value, list) else [] if value is None else [value])
    for slot, value in call.args.items():
        if slot not in function.slots and isinstance(value, exp.Expr | str):
            raise checker.context.error(call, f"{function.name} does not take {slot.upper()}")
    several = "expressions" in function.slots
    if len(arguments) < function.required or (not several and len(arguments) > len(function.slots)):
        raise checker.context.error(call, f"{function.name} takes {function.required} arguments or more")
    return arguments


def _rebuilt(call: exp.Expr, function: Function, arguments: list[exp.Expr]) -> exp.Expr:
    flags = {name: value for name, value in call.args.items() if isinstance(value, bool)}
    rest = list(arguments)
    parts: dict[str, exp.Expr | list[exp.Expr]] = {}
    for slot in function.slots:
        if slot == "expressions":
            parts[slot] = rest
        elif rest:
            parts[slot] = rest.pop(0)
    return type(call)(**parts, **flags)


def check_case(checker: Checker, case: exp.Case | exp.If) -> Typed:
    """Return CASE or IF, resolved and typed; IF becomes CASE.

    Raises
    ------
    FjordSqlError
        If a condition is not boolean or the results have no common type.
    """
    branches = [case] if isinstance(case, exp.If) else case.args["ifs"]
    default = case.args.get("false") if isinstance(case, exp.If) else case.args.get("default")
    operand = checker.check(case.this) if isinstance(case, exp.Case) and case.this else None
    conditions: list[exp.Expr] = []
    results: list[Typed] = []
    for branch in branches:
        if operand is None:
            conditions.append(checker.check_as(branch.this, Family.BOOLEAN).expression)
        else:
            value = checker.check(branch.this)
            checker.common(branch.this, [operand, value], action="compare")
            conditions.append(value.expression)
        results.append(checker.check(branch.args["true"]))
    otherwise = checker.check(default) if default is not None else None
    everything = [*results, otherwise] if otherwise else results
    built = exp.Case(
        this=operand.expression if operand else None,
        ifs=[
            exp.If(this=condition, true=result.expression)
            for condition, result in zip(conditions, results, strict=True)
        ],
        default=otherwise.expression if otherwise else None,
    )
    return Typed(
        built,
        checker.common(case, everything, action="choose with CASE"),
        common_unit(everything),
        nullable=otherwise is None or any(each.nullable for each in everything),
    )


def check_cast(checker: Checker, cast: exp.Cast) -> Typed:
    """Return CAST or TRY_CAST, resolved and typed; both give NULL for what cannot be converted.

    Raises
    ------
    FjordSqlError
        If the target is none of the four types.
    """
    target = cast.args["to"]
    found = FIELD_TYPES.get(target.this) if isinstance(target, exp.DataType) and not target.expressions else None
    if found is None:
        raise checker.context.error(
            cast, f"{target.sql()} is no type of FjordSQL", "types are boolean, integer, real and text"
        )
    inner = checker.check(cast.this)
    unit = inner.unit if found in (FieldType.INTEGER, FieldType.REAL) else ""
    widens = inner.type == found or (inner.type == FieldType.INTEGER and found == FieldType.REAL)
    built = type(cast)(this=inner.expression, to=exp.DataType(this=target.this, nested=False))
    return Typed(built, found, unit, nullable=inner.nullable or not widens)


def unsupported(context: Context, expression: exp.Expr) -> FjordSqlError:
    """Return the error for what is no scalar expression of FjordSQL."""
    match expression:
        case exp.Anonymous():
            name = expression.name
            hint = did_you_mean(name, (*FUNCTION_NAMES, *AGGREGATE_NAMES)) or f"functions are {_listed()}"
            return context.error(expression, f"there is no function {name!r}", hint)
        case ErrorBound():
            return context.error(expression, "ERROR_BOUND takes one aggregate", "ERROR_BOUND(AVG(speed))")
        case exp.Window():
            return context.error(
                expression, "OVER is not part of FjordSQL", "windows belong to streams: FROM stream WINDOW(...)"
            )
        case exp.Star() | exp.Column():
            return context.error(expression, "* can only stand alone in SELECT or in COUNT(*)")
        case exp.Select() | exp.Subquery() | exp.SetOperation() | exp.Exists() | exp.All() | exp.Any() | exp.In():
            return context.error(
                expression,
                "a subquery can stand only in a condition of WHERE or HAVING, on one side of a comparison",
                "compute it in a derived stream and join it",
            )
        case _ if type(expression) in AGGREGATES:
            name = AGGREGATES[type(expression)].name.upper()
            return context.error(
                expression, f"the aggregate {name} cannot stand here", "conditions on aggregates belong into HAVING"
            )
        case _ if isinstance(expression, UNBOUNDED_AGGREGATES):
            return context.error(
                expression,
                "this aggregate keeps every value it sees, so its size has no bound",
                "aggregate to a number",
            )
        case exp.Func():
            name = expression.sql_name()
            hint = did_you_mean(name, (*FUNCTION_NAMES, *AGGREGATE_NAMES)) or f"functions are {_listed()}"
            return context.error(expression, f"{name} is not part of FjordSQL", hint)
        case _:
            return context.error(expression, f"{context.source_text(expression)!r} is not part of FjordSQL")


def _listed() -> str:
    return ", ".join(FUNCTION_NAMES)
