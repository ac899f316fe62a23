"""The functions and aggregates of FjordSQL: names, argument types, result types.

Shared with the compiler of scalar expressions, which must give each of them one meaning.
"""

from __future__ import annotations

from sqlglot import exp

from cluster.expressions.called_functions import class_named
from cluster.language.syntax import (
    Completeness,
    FirstOfGroup,
    LastOfGroup,
    PercentileCont,
    PercentileDisc,
    StringAgg,
)
from cluster.language.time_functions import TIME_FUNCTIONS
from cluster.operators.aggregate_functions import AGGREGATE_FUNCTIONS, AggregateFunction
from cluster.scalars import SCALAR_FUNCTIONS

TIME = ("STAMP", "EXTRACT", *TIME_FUNCTIONS)
"""Functions about time, which have rules of their own (cluster/language/time_functions.py)."""

FUNCTION_NAMES: tuple[str, ...] = (*SCALAR_FUNCTIONS, "IF", "CAST", "TRY_CAST", *TIME)


def class_of(aggregate: AggregateFunction) -> type[exp.Func]:
    """Return a class for calls of an aggregate of one argument that sqlglot does not know, or reads otherwise."""
    return class_named(aggregate.name, aggregate.written, {"this": True}, exp.AggFunc)


OWN_AGGREGATES: tuple[type[exp.Func], ...] = tuple(class_of(row) for row in AGGREGATE_FUNCTIONS.values() if row.own)
"""Aggregates of one argument that sqlglot does not know."""

_OWN_CLASSES: dict[str, type[exp.Expr]] = {
    "PERCENTILE_CONT": PercentileCont,
    "PERCENTILE_DISC": PercentileDisc,
    "STRING_AGG": StringAgg,
    "LISTAGG": StringAgg,
    "COMPLETENESS": Completeness,
    **{name: kind for kind in OWN_AGGREGATES for name in kind.sql_names()},
}
"""Aggregates that sqlglot does not know, or reads otherwise, by name."""


def _spelled() -> dict[type[exp.Expr], tuple[AggregateFunction, tuple[str, ...]]]:
    """Return aggregates by their classes in syntax trees, with the names that sqlglot reads as these."""
    found: dict[type[exp.Expr], tuple[AggregateFunction, tuple[str, ...]]] = {}
    for row in AGGREGATE_FUNCTIONS.values():
        kind = None
        for name in row.written:
            kind = _OWN_CLASSES.get(name) or exp.FUNCTION_BY_NAME.get(name) or kind
            assert kind is not None, name  # noqa: S101 - the first name of each is known
            found[kind] = (row, (*found.get(kind, (row, ()))[1], name))
    return found


_SPELLED = _spelled()
AGGREGATES: dict[type[exp.Expr], AggregateFunction] = {
    **{kind: row for kind, (row, _) in _SPELLED.items()},
    FirstOfGroup: AGGREGATE_FUNCTIONS["first"],
    LastOfGroup: AGGREGATE_FUNCTIONS["last"],
}
"""Aggregates by their classes in syntax trees."""

AGGREGATE_SPELLINGS: dict[type[exp.Expr], tuple[str, ...]] = {kind: names for kind, (_, names) in _SPELLED.items()}
"""The names under which they can be called; the first is the one of the documentation."""

RANKED = (exp.ArgMin, exp.ArgMax)
"""Aggregates that give a value of the tuple in which another one, their second argument, is the least or greatest."""

AGGREGATE_NAMES: tuple[str, ...] = (
    *(row.written[0] for row in AGGREGATE_FUNCTIONS.values()), "ERROR_BOUND", "GROUPING",
)  # fmt: skip

UNBOUNDED_AGGREGATES: tuple[type[exp.Expr], ...] = (exp.ArrayAgg, exp.GroupConcat, exp.JSONArrayAgg)
"""Aggregates whose result grows with the number of tuples."""
