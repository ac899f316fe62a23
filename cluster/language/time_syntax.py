"""The syntax of expressions about time: what their nodes may carry (:mod:`cluster.language.accepted_syntax`)."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from cluster.expressions.timestamps import UNITS
from cluster.language import syntax
from cluster.language.time_functions import EPOCH, PARTS, TIME_FUNCTIONS

Kinds = frozenset[str]

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
