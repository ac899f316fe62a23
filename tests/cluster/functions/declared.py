"""Functions of users in the oracles: how they are created, and what they mean in DuckDB."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.expressions.user_functions import UserFunction
from cluster.functions.allowed import FunctionRules
from cluster.local.declared_functions import declared_function

MODULE = "tests.cluster.functions.oracle_functions"
STATEMENTS = tuple(
    f"CREATE FUNCTION {types} AS '{MODULE}:{attribute}'"
    for types, attribute in (
        ("Halved(x REAL) RETURNS REAL", "halved"),
        ("letters(text TEXT, more INTEGER) RETURNS INTEGER", "letters"),
        ("known(TEXT) RETURNS BOOLEAN", "known"),
        ("known_strictly(TEXT) RETURNS BOOLEAN STRICT", "known"),
        ("label(BOOLEAN, TEXT) RETURNS TEXT", "label"),
        ("low(REAL) RETURNS BOOLEAN LANGUAGE ARROW", "low"),
    )
)
FUNCTIONS: tuple[UserFunction, ...] = tuple(
    replace(declared_function(text).function, identity=f"{declared_function(text).name}@{number}")
    for number, text in enumerate(STATEMENTS, 1)
)
RULES = FunctionRules((MODULE,), seconds=60.0)
MEANINGS = (
    "CREATE OR REPLACE MACRO own_halved(x) AS CAST(x AS DOUBLE) / 2 + 0.0",
    "CREATE OR REPLACE MACRO own_letters(s, n) AS length(s) + (CAST(n AS BIGINT) & 3)",
    "CREATE OR REPLACE MACRO own_known(s) AS s IS NOT NULL",
    "CREATE OR REPLACE MACRO own_known_strictly(s) AS CASE WHEN s IS NOT NULL THEN TRUE END",
    (
        "CREATE OR REPLACE MACRO own_label(b, s) AS CASE WHEN coalesce(b, TRUE) "
        "THEN '<' || coalesce(s, 'none') || '>' ELSE coalesce(s, 'none') END"
    ),
    "CREATE OR REPLACE MACRO own_low(x) AS CAST(x AS DOUBLE) < 1.0",
)
"""What they mean, by macros of DuckDB: their names begin with `own`."""
