"""What an expression means, in DuckDB's words: made of nodes, and of nothing that the compiler to Polars is made of.

DuckDB refuses what leaves the range of integers, and has infinite reals: here integers are computed with 128 bits and
wrapped around at 64, and what is no finite real is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.expressions.nodes import (
    Among,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Expression,
    Group,
    Like,
    Literal,
    Negative,
    Not,
    UserCall,
)
from protocols.wire.streams import FieldType
from tests.cluster.document_macros import DOCUMENT_MACROS
from tests.cluster.scalar_rows import MACROS as FUNCTION_MACROS
from tests.cluster.scalar_rows import OF_NAME

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
TYPES = {BOOLEAN: "BOOLEAN", INTEGER: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR"}
LARGEST = 10_000
"""Characters of a text that is made of others."""

WRAPS, HALF = 2**64, 2**63
MACROS = (
    *DOCUMENT_MACROS,
    FUNCTION_MACROS,
    # A remainder has the sign of what is divided: one more time around, and none is negative.
    f"CREATE MACRO wrapped(n) AS CAST((n % {WRAPS} + {WRAPS + HALF}) % {WRAPS} - {HALF} AS BIGINT)",
    "CREATE MACRO settled(x) AS CASE WHEN isfinite(TRY(x)) THEN TRY(x) + 0.0 END",
    "CREATE MACRO trimmed(s) AS trim(s, chr(9) || chr(10) || chr(11) || chr(12) || chr(13) || ' ')",
    (
        "CREATE MACRO extracted(s, p, n) AS CASE WHEN regexp_matches(s, p) "
        "THEN regexp_extract(s, p, CAST(n AS INTEGER)) END"
    ),
    f"CREATE MACRO short(s) AS CASE WHEN length(s) <= {LARGEST} THEN s END",
    *(
        f"CREATE MACRO {side}most(s, n) AS CASE WHEN n IS NOT NULL "
        f"THEN {side}(s, least(greatest(n, -1000000), 1000000)) END"
        for side in ("left", "right")
    ),
    *(
        f"CREATE MACRO {side}filled(s, n, f) AS CASE WHEN n IS NOT NULL THEN short(CASE WHEN f = '' "
        f"THEN left(s, least(greatest(n, 0), 1000000)) "
        f"ELSE {side}pad(s, CAST(least(greatest(n, 0), {LARGEST} + 1) AS INTEGER), nullif(f, '')) END) END"
        for side in "lr"
    ),
    (
        "CREATE MACRO part(s, mark, n) AS CASE WHEN mark <> '' THEN split_part(s, mark, n) "
        "WHEN mark = '' AND n IN (1, -1) THEN s WHEN mark = '' AND s IS NOT NULL AND n IS NOT NULL THEN '' END"
    ),
)
Meaning = tuple[str, FieldType]
OF_TEXTS = {
    "LEFT": "leftmost({0})",
    "RIGHT": "rightmost({0})",
    "LPAD": "lfilled({0})",
    "RPAD": "rfilled({0})",
    "SPLIT_PART": "part({0})",
    "REPLACE": "short(replace({0}))",
    "REGEXP_REPLACE": "short(regexp_replace({0}, 'g'))",
    "REGEXP_EXTRACT": "extracted({0})",
    **{name: f"{name.lower()}({{0}})" for name in ("TRIM", "LTRIM", "RTRIM")},
    "JSON_VALUE": "f_json_scalar({0})",
    "JSON_QUERY": "f_json_container({0})",
    "JSON_EXTRACT": "f_json_part({0})",
    "JSON_EXTRACT_STRING": "f_json_text({0})",
}
"""Functions that cut, replace and fill texts."""
ABOUT_TEXTS = {
    "STRPOS": ("CAST(strpos({0}) AS BIGINT)", INTEGER),
    "JSON_EXISTS": ("f_json_exists({0})", BOOLEAN),
    "REGEXP_LIKE": ("regexp_matches({0})", BOOLEAN),
}
"""Functions that give no texts of texts."""


def in_duckdb(expression: Expression, columns: Mapping[str, FieldType]) -> Meaning:
    """Return an expression as DuckDB computes it, and its type."""
    operands = [in_duckdb(each, columns) for each in expression.operands]
    match expression:
        case Column(name):
            return '"' + name.replace('"', '""') + '"', columns[name]
        case Literal():
            return _constant(expression)
        case Group():
            return operands[0]
        case Negative():
            return _computed(operands[0][1], f"-{_wide(operands[0])}"), operands[0][1]
        case Binary() if expression.sign in "+-*/%":
            return _arithmetic(expression.sign, *operands)
        case Chain(word="||"):
            return f"short({' || '.join(sql for sql, _ in operands)})", TEXT
        case Cast():
            return _cast(operands[0], expression.target), expression.target
        case Case():
            return _case(expression, operands)
        case Call():
            return _called(expression.function, operands)
        case UserCall(function):
            given = ", ".join(
                f"CAST({sql} AS {TYPES[kind]})" for (sql, _), kind in zip(operands, function.parameters, strict=True)
            )
            return f"own_{function.name.lower()}({given})", function.result
        case _:
            return f"({_condition(expression, operands)})", BOOLEAN


def _condition(expression: Expression, operands: Sequence[Meaning]) -> str:
    match expression:
        case Not():
            return f"NOT {operands[0][0]}"
        case Binary(sign="IS", right=Literal(kind=None)):
            return f"{operands[0][0]} IS NULL"
        case Binary(sign="IS"):
            return f"coalesce({operands[0][0]} = {operands[1][0]}, FALSE)"
        case Binary():
            return _compared(expression.sign, *operands)
        case Chain():
            return f" {expression.word} ".join(sql for sql, _ in operands)
        case Between():
            value, low, high = operands
            return f"{_compared('>=', value, low)} AND {_compared('<=', value, high)}"
        case Among():
            return " OR ".join(_compared("=", operands[0], each) for each in operands[1:])
        case Like():
            escape = "" if expression.escape is None else f" ESCAPE {_quoted(expression.escape)}"
            return f"{operands[0][0]} {'ILIKE' if expression.folds else 'LIKE'} {_quoted(expression.pattern)}{escape}"
        case _:
            raise AssertionError(expression)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _constant(literal: Literal) -> Meaning:
    if literal.kind is None:
        return "NULL", BOOLEAN
    if literal.kind is BOOLEAN:
        return literal.text, BOOLEAN
    return f"CAST({_quoted(literal.text)} AS {TYPES[literal.kind]})", literal.kind


def _wide(operand: Meaning) -> str:
    return f"CAST({operand[0]} AS HUGEINT)" if operand[1] is INTEGER else operand[0]


def _computed(kind: FieldType, sql: str) -> str:
    return f"wrapped({sql})" if kind is INTEGER else f"settled({sql})"


def _arithmetic(sign: str, left: Meaning, right: Meaning) -> Meaning:
    kind = INTEGER if left[1] is right[1] is INTEGER and sign != "/" else REAL
    if kind is INTEGER:
        return _computed(kind, f"({_wide(left)} {sign} {_wide(right)})"), kind
    one, other = (f"CAST({sql} AS DOUBLE)" for sql, _ in (left, right))
    return _computed(kind, f"({one} {sign} {other})"), kind


def _compared(sign: str, left: Meaning, right: Meaning) -> str:
    return f"({left[0]} {sign} {right[0]})"


def _cast(operand: Meaning, target: FieldType) -> str:
    sql, kind = operand
    if kind is target:
        return sql
    if kind is TEXT:
        return _read(f"trimmed({sql})", target)
    return f"({sql} <> 0)" if (kind, target) == (REAL, BOOLEAN) else f"TRY_CAST({sql} AS {TYPES[target]})"


def _read(text: str, target: FieldType) -> str:
    """Return what a text without spaces around it says."""
    real = f"settled(TRY_CAST(replace({text}, '_', '?') AS DOUBLE))"  # DuckDB reads 1_000, too
    match target:
        case FieldType.REAL:
            return real
        case FieldType.INTEGER:
            # A half becomes the even one, in a text as in a number.
            whole, exact = f"regexp_full_match({text}, '[+-]?[0-9]+')", f"TRY_CAST({text} AS BIGINT)"
            return f"CASE WHEN {whole} AND {exact} IS NOT NULL THEN {exact} ELSE TRY_CAST({real} AS BIGINT) END"
        case _:
            true, false = (
                f"lower({text}) IN {words}" for words in (("true", "t", "yes", "y"), ("false", "f", "no", "n"))
            )
            return f"CASE WHEN {true} THEN TRUE WHEN {false} THEN FALSE ELSE {real} <> 0 END"


def _case(case: Case, operands: Sequence[Meaning]) -> Meaning:
    first = int(case.subject is not None)
    branches = operands[first : first + 2 * len(case.conditions)]
    conditions, results = branches[::2], branches[1::2]
    tests = [each[0] if case.subject is None else _compared("=", operands[0], each) for each in conditions]
    written = " ".join(f"WHEN {test} THEN {sql}" for test, (sql, _) in zip(tests, results, strict=True))
    default = "" if case.default is None else f" ELSE {operands[-1][0]}"
    return f"CASE {written}{default} END", results[0][1]


def _called(function: str, operands: Sequence[Meaning]) -> Meaning:
    if function in OF_NAME:
        row = OF_NAME[function]
        written = row.duckdb.format(*(sql for sql, _ in operands))
        return f"settled({written})" if row.gives is REAL else written, row.gives
    if function in OF_TEXTS:
        filling = ["0"] if function == "REGEXP_EXTRACT" and len(operands) < 3 else []
        filling += ["' '"] if function in {"LPAD", "RPAD"} and len(operands) < 3 else []
        filling += ["' '"] if function.endswith("TRIM") and len(operands) < 2 else []
        return OF_TEXTS[function].format(", ".join([*(sql for sql, _ in operands), *filling])), TEXT
    (sql, kind), *_ = operands
    together = ", ".join(each for each, _ in operands)
    if function in ABOUT_TEXTS:
        written, found = ABOUT_TEXTS[function]
        return written.format(together), found
    match function:
        case "COALESCE" | "LEAST" | "GREATEST" | "NULLIF":
            return f"{function.lower()}({together})", kind
        case "ABS":
            return _computed(kind, f"abs({_wide(operands[0])})"), kind
        case "ROUND" | "TRUNC" if kind is INTEGER:
            return sql, kind
        case "ROUND":
            decimals = "".join(f", CAST({each} AS INTEGER)" for each, _ in operands[1:])
            return _computed(kind, f"round({sql}{decimals})"), kind
        case "FLOOR" | "CEIL" | "TRUNC":
            return _computed(kind, f"{function.lower()}({together})"), kind
        case "CONCAT":
            return f"short({' || '.join(_present(each) for each, _ in operands)})", TEXT
        case "SUBSTRING":
            return _substring(*(each for each, _ in operands)), TEXT
        case _:
            return f"{function.lower()}({together})", kind


def _present(sql: str) -> str:
    return f"coalesce({sql}, '')"


def _substring(text: str, start: str, count: str | None = None) -> str:
    """Places before the first count towards the length, and there is nothing there."""
    first = f"least(greatest({start}, 1), 1000000)"
    if count is None:
        return f"CASE WHEN {start} IS NOT NULL THEN substring({text}, {first}) END"
    letters = f"CAST(greatest({count}, 0) AS HUGEINT) + least(CAST({start} AS HUGEINT), 1) - 1"
    known = f"{start} IS NOT NULL AND {count} IS NOT NULL"
    wanted = f"CAST(least(greatest({letters}, 0), 1000000) AS BIGINT)"
    return f"CASE WHEN {known} THEN substring({text}, {first}, {wanted}) END"
