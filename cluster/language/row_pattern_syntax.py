"""The pieces of syntax of MATCH_RECOGNIZE, and the ways to write it."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

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
