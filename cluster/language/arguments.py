"""Messages about calls: of functions and parts that only other databases have, or with a wrong number of arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions.called_functions import FUNCTIONS, OWN_FUNCTIONS
from cluster.language.foreign_names import INSTEAD, KEEP_ALL
from cluster.language.functions import AGGREGATE_NAMES, AGGREGATES, FUNCTION_NAMES, OWN_AGGREGATES, RANKED
from cluster.language.spelling import SPELLINGS
from cluster.language.syntax import PERCENTILE_SHAPE, STRING_AGG_SHAPE
from protocols.text.closeness import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.language.context import Context
    from cluster.language.errors import FjordSqlError

QUANTIFIERS = ("EXISTS", "ALL", "ANY")
"""Words that are written like a function of a subquery."""
_QUANTILE = ("two arguments", "{}(x, 0.95)")
_SHAPES: dict[str, tuple[str, str]] = {
    "IF": ("two or three arguments", "{}(condition, value[, value])"),
    "IIF": ("two or three arguments", "{}(condition, value[, value])"),
    "MOD": ("two arguments", "{}(number, number)"),
    "COUNT": ("one argument", "{0}(*), {0}(x) or {0}(DISTINCT x)"),
    "APPROX_QUANTILE": _QUANTILE,
    "QUANTILE": _QUANTILE,
    "EVERY": ("one argument", "{}(x)"),
    **{name: ("two arguments", "{}(x, y)") for kind in RANKED for name in SPELLINGS[kind]},
    "STRING_AGG": ("two arguments", STRING_AGG_SHAPE.format("STRING_AGG")),
    "LISTAGG": ("one or two arguments", "LISTAGG(x[, ', ']) WITHIN GROUP (ORDER BY x)"),
    "PERCENTILE_CONT": ("one argument", PERCENTILE_SHAPE),
    "PERCENTILE_DISC": ("one argument", PERCENTILE_SHAPE),
    "COMPLETENESS": ("no argument", "{}()"),
    "LAG": ("one to three arguments", "{}(x[, number[, default]])"),
    "LEAD": ("one or two arguments", "{}(x[, number])"),
    "CHANGED": ("one argument or more", "{}(x, ...)"),
    "FIRST_VALUE": ("one argument", "{}(x)"),
    "LAST_VALUE": ("one argument", "{}(x)"),
    "GROUPING": ("one to 31 arguments", "{}(a, b)"),
    "LOCATE": ("two arguments", "{}(part, text)"),
    "REGEXP_SUBSTR": ("two arguments", "{}(text, pattern)"),
    "GROUPING_ID": ("one to 31 arguments", "{}(a, b)"),
    "CAST": ("one argument", "{}(x AS type)"),
    "TRY_CAST": ("one argument", "{}(x AS type)"),
}
"""Numbers of arguments, and the way to write them, where the tables of functions lack them."""
_OF_AGGREGATES = "DISTINCT stands behind SELECT, or in an aggregate"
_OF_A_ROW = {
    "MIN": "the least of several values of a row is LEAST(a, b)",
    "MAX": "the greatest of several values of a row is GREATEST(a, b)",
}


_OWN = {name: kind for kind in (*OWN_FUNCTIONS, *OWN_AGGREGATES) for name in kind.sql_names()}


def wrong_number(name: str, *, too_many: bool = False) -> tuple[str, str | None]:
    """Return the message about a call with a wrong number of arguments, and the hint.

    >>> wrong_number("substr")
    ('SUBSTR takes two or three arguments', 'it is written SUBSTR(text, start[, length])')

    Parameters
    ----------
    name
        Name of the function, as it was called.
    too_many
        True if there are too many.
    """
    written = name.upper()
    kind = _class(written)
    if written in _SHAPES:
        arity, shape = _SHAPES[written]
        return f"{written} takes {arity}", f"it is written {shape.format(written)}"
    if too_many and written in _OF_A_ROW:
        return f"{written} takes one argument", _OF_A_ROW[written]
    if kind in FUNCTIONS and written not in INSTEAD:
        return f"{written} takes {FUNCTIONS[kind].arity}", f"it is written {FUNCTIONS[kind].shape(written)}"
    if kind in AGGREGATES:
        return f"{written} takes one argument", f"it is written {written}(x)"
    return unknown_function(name, elsewhere=kind is not None)


def _class(written: str) -> type[exp.Expr] | None:
    """Return the class of a function in syntax trees, given its name in capitals."""
    return _OWN.get(written) or exp.FUNCTION_BY_NAME.get(written)


def without_distinct(name: str) -> tuple[str, str | None]:
    """Return the message about a call with DISTINCT that does not take it, and the hint.

    >>> without_distinct("upper")
    ('UPPER does not take DISTINCT', 'DISTINCT stands behind SELECT, or in an aggregate')
    """
    aggregate = _class(name.upper()) in AGGREGATES
    where = "aggregate a subquery, FROM (SELECT DISTINCT ...) AS x" if aggregate else _OF_AGGREGATES
    return f"{name.upper()} does not take DISTINCT", where


def unnamed(name: str) -> tuple[str, str | None]:
    """Return the message about a call whose arguments have names, and the hint."""
    _, shape = wrong_number(name)
    written = (shape or "").removeprefix("it is written ")
    return "arguments have no names in FjordSQL", f"write them one after the other, {written}"


def unknown_function(
    name: str, *, elsewhere: bool, of_query: bool = False, own: Iterable[str] = ()
) -> tuple[str, str | None]:
    """Return the message about a call of a function that does not exist, and the hint.

    Parameters
    ----------
    name
        As the call has it.
    elsewhere
        True if other databases have it: then it is no misspelling.
    of_query
        True if its argument is a query.
    own
        Names of functions of users.
    """
    written = name.upper()
    if written in QUANTIFIERS:
        return f"{written} is followed by a query in parentheses", None
    if written in KEEP_ALL:
        return f"{written} keeps every value it sees, so its size has no bound", "aggregate to a number"
    if written in INSTEAD:
        return f"{written} is not part of FjordSQL", INSTEAD[written]
    listed = f"functions are {', '.join(FUNCTION_NAMES)}"
    if elsewhere:
        return f"{written} is not part of FjordSQL", listed
    known = QUANTIFIERS if of_query else (*own, *FUNCTION_NAMES, *AGGREGATE_NAMES, "ROLLUP", "CUBE")
    return f"there is no function {name!r}", did_you_mean(name, known) or listed


def called(call: exp.Expr, otherwise: str) -> str:
    """Return the name under which a function was called, as it was written."""
    found: str = call.meta.get("called", otherwise)
    return found


FILTER_ELSEWHERE = ("FILTER stands directly behind an aggregate", "SUM(x) FILTER (WHERE condition)")
_NO_NULLS = "aggregates never look at NULLs"


def foreign_part(context: Context, part: exp.Expr) -> FjordSqlError | None:
    """Return the error about a part of an expression, if it is one that only other databases have."""
    match part:
        case exp.Kwarg() | exp.PropertyEQ() if isinstance(part.parent, exp.Func):
            return context.error(part.parent, *unnamed(called(part.parent, part.parent.sql_name())))
        case exp.Collate():
            hint = "texts are compared by their code points; write LOWER(text) where case does not matter"
            return context.error(part, "COLLATE is not part of FjordSQL", hint)
        case exp.PercentileCont() | exp.PercentileDisc():
            name = part.sql_name()
            reason = f"behind {name}(share) stands WITHIN GROUP, with the values"
            return context.error(part, reason, f"it is written {PERCENTILE_SHAPE.format(name)}")
        case exp.Grouping():
            reason = "GROUPING cannot stand here: it is about the groups that GROUP BY makes"
            return context.error(part, reason, "it stands in SELECT and HAVING of a query with GROUP BY")
        case exp.IgnoreNulls():
            return context.error(part, "IGNORE NULLS is not part of FjordSQL", f"leave it out: {_NO_NULLS}")
        case exp.RespectNulls():
            return context.error(part, "RESPECT NULLS is not part of FjordSQL", _NO_NULLS)
        case exp.Order():
            hint = "FIRST and LAST go by when tuples were sampled, and the others by no order"
            return context.error(part.parent or part, "ORDER BY cannot stand in an aggregate", hint)
        case _:
            return None
