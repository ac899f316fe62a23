"""Typing functions, those of users too, CASE, CAST, FLOOR and CEIL, and naming what FjordSQL does not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import timestamps
from cluster.expressions.called_functions import FUNCTIONS, LeftPad, RightPad, TimeCall, call_tree
from cluster.expressions.reading import DATA_TYPES, FIELD_TYPES
from cluster.expressions.timestamps import DAY_US, LENGTHS_US, SHOWN_BY, UNITS
from cluster.language.arguments import (
    FILTER_ELSEWHERE,
    called,
    foreign_part,
    unknown_function,
    without_distinct,
    wrong_number,
)
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.foreign_names import INSTEAD, NO_ARRAYS, OF_PLACES
from cluster.language.functions import AGGREGATES, UNBOUNDED_AGGREGATES
from cluster.language.patterns import OF_PATTERNS, refuse_faulty_pattern
from cluster.language.syntax import BEFORE_OVER, QUERIES, ErrorBound, Over, RankCall, holds_query, span_of
from cluster.language.time_functions import as_timestamp, instant
from cluster.language.time_literals import interval_of
from cluster.language.typing_rules import TYPE_WORDS, Typed, common_unit, meant_type, written_type
from cluster.language.words import FOREIGN_OPERATORS, HYSTERESIS_SHAPE, OVER_ELSEWHERE, QUOTES
from cluster.scalars.numbers import MOST_DECIMALS
from cluster.scalars.scalar_function import FAMILY_OF, Family, Result, ScalarFunction
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.operand_checks import OperandChecker


def refuse_beyond_limits(context: Context, call: exp.Expr) -> None:
    """Do nothing if a call's arguments that are written out are within the limits.

    Raises
    ------
    FjordSqlError
        If one is not, or has to be written out and is not.
    """
    if (decimals := call.args.get("decimals")) is not None:
        _refuse_decimals(context, decimals)
    if isinstance(call, LeftPad | RightPad) and (length := _whole(call.args["length"])) and length > LONGEST_TEXT:
        reason = f"a text that is computed has {LONGEST_TEXT:,} characters at most"
        raise context.error(call.args["length"], reason, "longer ones are NULL")
    if isinstance(call, OF_PATTERNS):
        refuse_faulty_pattern(context, call)
    if isinstance(call, exp.SplitPart) and _whole(call.args["part_index"]) == 0:
        reason = "parts are counted from 1, or from the end: -1 is the last one"
        raise context.error(call.args["part_index"], reason, "SPLIT_PART(text, '-', 1)")


def _refuse_decimals(context: Context, decimals: exp.Expr) -> None:
    if isinstance(decimals, exp.Neg) and isinstance(decimals.this, exp.Literal):
        reason = f"ROUND keeps 0 to {MOST_DECIMALS} decimals, written out"
        raise context.error(decimals, reason, "for tens, write ROUND(x / 10) * 10")
    if not (isinstance(decimals, exp.Literal) and decimals.is_int):
        raise context.error(decimals, "the number of decimals must be written out", "ROUND(x, 2)")
    if len(decimals.this) > len(str(MOST_DECIMALS)) or int(decimals.this) > MOST_DECIMALS:
        raise context.error(decimals, f"ROUND keeps 0 to {MOST_DECIMALS} decimals")


def _whole(number: exp.Expr) -> int | None:
    """Return an integer that is written out; None for anything else, and for what fits no integer anyway."""
    written = isinstance(number, exp.Literal) and number.is_int
    return int(number.this) if written and len(number.this) < len(str(2**63)) else None


def check_function(checker: OperandChecker, call: exp.Expr) -> Typed:
    """Return a call of a function of :data:`FUNCTIONS`, resolved and typed.

    Raises
    ------
    FjordSqlError
        If there is no such function, or the arguments do not fit it.
    """
    function = FUNCTIONS.get(type(call))
    if function is None:
        raise unsupported(checker.context, call)
    arguments = _arguments_of(checker, call, function)
    decimals = call.args.get("decimals")
    if isinstance(decimals, exp.Kwarg | exp.PropertyEQ):
        raise unsupported(checker.context, decimals)
    refuse_beyond_limits(checker.context, call)
    typed = [
        checker.check_as(argument, function.parameters[min(position, len(function.parameters) - 1)])
        for position, argument in enumerate(arguments)
    ]
    if isinstance(call, exp.Concat):
        typed = [_as_text(each) for each in typed]
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


def _as_text(typed: Typed) -> Typed:
    """Return a value as CAST(x AS TEXT) gives it."""
    if typed.type in (FieldType.TEXT, None):
        return typed
    if typed.type in SHOWN_BY:
        return shown_as_text(typed, typed.type)
    target = exp.DataType(this=DATA_TYPES[FieldType.TEXT], nested=False)
    return Typed(exp.Cast(this=typed.expression, to=target), FieldType.TEXT, nullable=typed.nullable)


def shown_as_text(typed: Typed, type_: FieldType) -> Typed:
    """Return a timestamp or an interval as a text (ISO 8601)."""
    call = TimeCall(this=SHOWN_BY[type_], expressions=[typed.expression])
    return Typed(call, FieldType.TEXT, nullable=typed.nullable)


def _nullable(function: ScalarFunction, typed: list[Typed]) -> bool:
    if function.name in {"COALESCE", "LEAST", "GREATEST"}:
        return all(each.nullable for each in typed)
    return not function.null_if_null or any(each.nullable for each in typed)


def _arguments_of(checker: OperandChecker, call: exp.Expr, function: ScalarFunction) -> list[exp.Expr]:
    arguments: list[exp.Expr] = []
    for slot in function.slots:
        value = call.args.get(slot)
        arguments.extend(value if isinstance(value, list) else [] if value is None else [value])
    name = called(call, function.name)
    if any(isinstance(argument, exp.Distinct) for argument in arguments):
        raise checker.context.error(call, *without_distinct(name))
    if any(isinstance(value, exp.Expr | str) for slot, value in call.args.items() if slot not in function.slots):
        if name.upper() in INSTEAD:
            raise unsupported(checker.context, call)
        reason, hint = wrong_number(name)
        if "," not in checker.context.source_text(call):
            reason = f"{name.upper()} does not take all that is written here"
        raise checker.context.error(call, reason, hint)
    if len(arguments) < function.least or (not function.several and len(arguments) > len(function.slots)):
        raise checker.context.error(call, *wrong_number(name))
    return arguments


def _rebuilt(call: exp.Expr, function: ScalarFunction, arguments: list[exp.Expr]) -> exp.Expr:
    flags = {name: value for name, value in call.args.items() if isinstance(value, bool)}
    rest = list(arguments)
    parts: dict[str, exp.Expr | list[exp.Expr]] = {}
    for slot in function.slots:
        if slot == "expressions":
            parts[slot] = rest
        elif rest:
            parts[slot] = rest.pop(0)
    return type(call)(**parts, **flags)


def check_case(checker: OperandChecker, case: exp.Case | exp.If) -> Typed:
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


def check_cast(checker: OperandChecker, cast: exp.Cast) -> Typed:
    """Return CAST or TRY_CAST, resolved and typed; both give NULL for what cannot be converted.

    Raises
    ------
    FjordSqlError
        If the target is no type that values can be converted to.
    """
    if cast.this is None:  # sqlglot makes a CAST of some calls without arguments
        raise checker.context.error(cast, "a value is missing here")
    target = cast.args["to"]
    found = FIELD_TYPES.get(target.this) if isinstance(target, exp.DataType) and not target.expressions else None
    word = _type_word(checker.context, cast, target)
    to_timestamp = found is None and target.this is exp.DType.TIMESTAMP and written_type(word) == "TIMESTAMP"
    if not to_timestamp and (found is None or written_type(word) not in TYPE_WORDS):
        hint = meant_type(word) or "types are boolean, integer, real, text and timestamp"
        if found is None or not checker.context.registered:
            raise checker.context.error(cast, f"{word} is no type of FjordSQL", hint)
        checker.context.warn(f"{word} is no type of FjordSQL any more: {hint}")
    inner = checker.check(cast.this)
    if to_timestamp:
        return as_timestamp(checker.context, cast, inner)
    if inner.type is not None and inner.type in SHOWN_BY:
        if found is not FieldType.TEXT:
            reason = f"a {inner.type.value} cannot be converted to {word.lower()}"
            hint = "EXTRACT(EPOCH FROM x) gives seconds, CAST(x AS TEXT) ISO 8601"
            raise checker.context.error(cast, reason, hint)
        return shown_as_text(inner, inner.type)
    assert found is not None  # noqa: S101 - else it has been refused
    unit = inner.unit if found in (FieldType.INTEGER, FieldType.REAL) else ""
    widens = inner.type == found or (inner.type == FieldType.INTEGER and found == FieldType.REAL)
    built = type(cast)(this=inner.expression, to=exp.DataType(this=target.this, nested=False))
    return Typed(built, found, unit, nullable=inner.nullable or not widens)


def _type_word(context: Context, cast: exp.Cast, target: exp.Expr) -> str:
    """Return the type to which is converted, as it was written."""
    if "written" in target.meta:
        return str(target.meta["written"])
    written = _TYPE.search(context.source_text(cast))
    return written["type"].strip() if written else target.sql()


_TYPE = re.compile(r"(?:\bAS\b|::)\s*(?P<type>\w+(?:\([\w, ]*\))?)\)?$", re.IGNORECASE)


NO_QUERY = ("a subquery cannot stand here", "select it in a subquery of FROM, and name it")
ARGUMENT_QUERY = "a query that is an argument is in parentheses of its own"
NO_TEST = (
    "EXISTS, IN, ANY and ALL of a query stand in conditions of WHERE and HAVING, under AND, OR and NOT",
    "as a value, write (SELECT COUNT(*) FROM ...) IS NOT NULL",
)


def unsupported(context: Context, expression: exp.Expr) -> FjordSqlError:  # noqa: C901, PLR0912 - a case for each kind
    """Return the error for what is no scalar expression of FjordSQL."""
    if (error := foreign_part(context, expression) or _misplaced_rank(context, expression)) is not None:
        return error
    match expression:
        case ErrorBound():
            return context.error(expression, "ERROR_BOUND takes one aggregate", "ERROR_BOUND(AVG(speed))")
        case exp.WithinGroup() if "called" in expression.this.meta:
            return unsupported_call(context, expression, expression.this)
        case Over():
            return context.error(expression, *OVER_ELSEWHERE)
        case _ if isinstance(expression, BEFORE_OVER):
            name = called(expression, expression.sql_name()).upper()
            shape = HYSTERESIS_SHAPE if name == "HYSTERESIS" else f"{name}(x) OVER (PARTITION BY k ORDER BY STAMP())"
            shape += " WITHIN 5 MINUTES" if name == "LEAD" else ""
            return context.error(expression, f"behind {name} stands OVER", f"it is written {shape}")
        case exp.Filter():
            if type(expression.this) not in AGGREGATES:
                reason, hint = FILTER_ELSEWHERE
                foreign = INSTEAD.get(called(expression.this, expression.this.name).upper())
                return context.error(expression, reason, foreign or hint)
            hint = "conditions on aggregates belong into HAVING"
            return context.error(expression, "an aggregate with FILTER cannot stand here", hint)
        case exp.All() | exp.Any() if not holds_query(expression):
            word = type(expression).__name__.upper()
            return context.error(expression, f"{word} is followed by a query in parentheses", "x IN (1, 2)")
        case exp.Star() | exp.Column():
            return context.error(expression, "* can only stand alone in SELECT or in COUNT(*)")
        case exp.Select() | exp.Subquery() | exp.SetOperation() | exp.Exists() | exp.All() | exp.Any() | exp.In():
            return context.error(expression, *(_no_query(expression) if isinstance(expression, QUERIES) else NO_TEST))
        case _ if type(expression) in AGGREGATES:
            name = AGGREGATES[type(expression)].name.upper()
            return context.error(
                expression, f"the aggregate {name} cannot stand here", "conditions on aggregates belong into HAVING"
            )
        case exp.Func() if "called" in expression.meta or isinstance(expression, exp.Anonymous):
            return unsupported_call(context, expression, expression)
        case exp.Tuple() if not expression.expressions:
            return context.error(expression, "there is nothing in these parentheses")
        case _ if (operator := _operator(context, expression)) is not None:
            instead = FOREIGN_OPERATORS.get(operator) if isinstance(expression, exp.Binary | exp.Func) else None
            return context.error(expression, f"{operator} is not part of FjordSQL", instead)
        case _ if isinstance(expression, UNBOUNDED_AGGREGATES):
            reason = "this aggregate keeps every value it sees, so its size has no bound"
            return context.error(expression, reason, "aggregate to a number")
        case _:
            written = context.source_text(expression)
            instead = OF_PLACES if isinstance(expression, exp.Bracket) else None
            if isinstance(expression, exp.Array):
                instead = NO_ARRAYS if written.upper().startswith("ARRAY") else QUOTES
            if isinstance(expression, exp.Placeholder):
                instead = f"a parameter is no part of a word: write a space before {written}"
            return context.error(expression, f"{written!r} is not part of FjordSQL", instead)


def _no_query(query: exp.Expr) -> tuple[str, str]:
    """Return why a query cannot stand where it does, and what to write."""
    if isinstance(query.parent, exp.Anonymous):
        shape = f"{query.parent.name}((SELECT ...))"
        return ARGUMENT_QUERY, f"it is written {shape}"
    return NO_QUERY


def _misplaced_rank(context: Context, expression: exp.Expr) -> FjordSqlError | None:
    if not isinstance(expression, RankCall):
        return None
    reason = f"{expression.args['kind']} can stand in SELECT, QUALIFY and ORDER BY only"
    hint = "give it a name, and filter in a query around it: FROM (SELECT ... AS place FROM ...) WHERE place <= 3"
    return context.error(expression, reason, hint)


def unsupported_call(context: Context, at: exp.Expr, call: exp.Expr) -> FjordSqlError:
    """Return the error for a call of a function that FjordSQL does not have; `at` is what it stands in."""
    elsewhere = not isinstance(call, exp.Anonymous)
    of_query = any(isinstance(each, QUERIES) for each in call.iter_expressions())
    name = called(call, call.name)
    own = context.catalog.functions
    if not elsewhere and name.casefold() in own:
        return context.error(at, ARGUMENT_QUERY, f"it is written {name}((SELECT ...))")
    names = [each.name for each in own.values()]
    return context.error(at, *unknown_function(name, elsewhere=elsewhere, of_query=of_query, own=names))


def _operator(context: Context, expression: exp.Expr) -> str | None:
    """Return what stands between two operands, or before one, as it was written; None if that is no operator."""
    whole, first = span_of(expression), expression.this
    operand = span_of(first) if isinstance(first, exp.Expr) else None
    second = expression.args.get("expression")
    behind = span_of(second) if isinstance(second, exp.Expr) else None
    if whole is None or operand is None:
        return None
    before = context.words[whole[0] : operand[0]].strip()
    between = context.words[operand[1] : behind[0]].strip(" \t\n()") if behind is not None else ""
    found = (between if behind is not None else before).upper()
    return found if _OPERATOR.fullmatch(found) else None


_OPERATOR = re.compile(r"[A-Z][A-Z ]*|[^\w\s(),'\"]+")


_LONGEST_US = {"MONTH": 31 * DAY_US, "QUARTER": 92 * DAY_US, "YEAR": 366 * DAY_US}
"""From the beginning of one of these units, so much later is within the next one."""
_SUNDAYS = "weeks begin on Sunday in Flink, and on Monday here: write DATE_TRUNC('week', x)"


def check_rounding(checker: OperandChecker, call: exp.Floor | exp.Ceil) -> Typed:
    """Return FLOOR or CEIL, of a number or of a timestamp to a unit, resolved and typed.

    Raises
    ------
    FjordSqlError
        If it is none, or there is no such unit.
    """
    if call.args.get("to") is None:
        return check_function(checker, call)
    name, unit = ("FLOOR" if isinstance(call, exp.Floor) else "CEIL"), call.args["to"].name.upper()
    if call.args.get("decimals") is not None:
        raise checker.context.error(call, f"{name} takes one timestamp", f"it is written {name}(x TO HOUR)")
    if unit not in UNITS or unit == "WEEK":
        shown = tuple(each.lower() for each in UNITS if each != "WEEK")
        hint = _SUNDAYS if unit == "WEEK" else suggest(unit, shown, what="units are")
        raise checker.context.error(call, f"there is no unit {unit} of {name}", hint)
    typed = instant(checker, call.this)
    found = typed.type or FieldType.TIMESTAMP
    if name == "FLOOR":
        return Typed(_begin(typed.expression, unit), found)
    if unit in LENGTHS_US:
        return Typed(_begin(_later(typed.expression, LENGTHS_US[unit] - 1), unit), found)
    begin = _begin(typed.expression, unit)
    whole = exp.If(this=exp.EQ(this=typed.expression.copy(), expression=begin), true=begin.copy())
    following = _begin(_later(begin.copy(), _LONGEST_US[unit]), unit)
    return Typed(exp.Case(ifs=[whole], default=following), found)


def _begin(expression: exp.Expr, unit: str) -> exp.Expr:
    return TimeCall(this=timestamps.FLOOR, expressions=[expression, exp.Literal.string(unit)])


def _later(expression: exp.Expr, length_us: int) -> exp.Expr:
    return TimeCall(this=timestamps.PLUS, expressions=[expression, interval_of(length_us)])


def check_user_call(checker: OperandChecker, call: exp.Anonymous) -> Typed:
    """Return a call of a function of a user, resolved and typed.

    Raises
    ------
    FjordSqlError
        If there is no such function, or the arguments do not fit it.
    """
    context = checker.context
    function = context.catalog.function(call.name)
    arguments = call.expressions
    if function is None:
        raise unsupported(context, call)
    if any(isinstance(each, exp.Distinct) for each in arguments):
        raise context.error(call, *without_distinct(called(call, call.name)))
    if any(isinstance(each, exp.Kwarg | exp.PropertyEQ) for each in arguments):
        raise context.error(call, "arguments have no names in FjordSQL", f"it is written {function.shape}")
    if len(arguments) != len(function.parameters):
        count = len(function.parameters)
        reason = f"{function.name} takes {count} argument{'' if count == 1 else 's'}"
        raise context.error(call, reason, f"it is written {function.shape}")
    typed = [
        checker.check_as(argument, _family(kind)) for argument, kind in zip(arguments, function.parameters, strict=True)
    ]
    return Typed(call_tree(function, [each.expression for each in typed]), function.result)


def _family(kind: FieldType) -> Family:
    return Family.INTEGER if kind is FieldType.INTEGER else FAMILY_OF[kind]
