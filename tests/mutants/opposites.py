"""Exchanges that make mutants, and names that are not mutated."""

from __future__ import annotations

import ast

WRITTEN: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "+",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
OPPOSITES = (
    *(("min", "max"), ("any", "all"), ("first", "last"), ("min_horizontal", "max_horizontal")),
    *(("is_null", "is_not_null"), ("any_horizontal", "all_horizontal"), ("startswith", "endswith")),
    *(("left", "right"), ("low", "high"), ("low_us", "high_us"), ("size_us", "slide_us"), ("above", "below")),
    *(("START", "END"), ("NEVER", "ALWAYS"), ("_LEFT", "_RIGHT"), ("this", "expression"), ("floor", "ceil")),
)
OPPOSITE = {one: other for pair in OPPOSITES for one, other in (pair, pair[::-1])}
MESSAGES = frozenset({"error", "warn", "refuse", "suggest", "did_you_mean", "raise_error"})
"""Functions whose arguments are messages and their places."""
WORDING = frozenset({"reason", "hint", "what", "shape", "shown", "word", "readable", "listed", "objection"})
"""Names that hold messages."""
CHECKS = frozenset({"strict"})
"""Arguments that assert something, as of `zip`: if it holds, they have no effect."""
UNSWAPPED = frozenset({"isinstance", "issubclass", "getattr", "hasattr", "cast", "zip"})
DECLARATIONS = frozenset({"arg_types", "__slots__"})
"""Class variables that declare something, and are not run."""
SILENT = frozenset({"__repr__", "__str__"})
FEW = 3
"""Numbers up to this are also made smaller by one."""
