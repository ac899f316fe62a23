"""Operators and functions of FjordSQL: every way to write them, and what they mean in DuckDB (docs/reference/sql.md).

Integers wrap at 64 bits; what is infinite or no number is NULL, and no zero is negative; texts are counted and ordered
by code point; what cannot be converted is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from protocols.wire.streams import FIELD_TYPES, FieldType
from tests.cluster.oracle.text_documents import documents
from tests.cluster.oracle.text_expressions import Binding, Exactness, Words, words
from tests.cluster.scalar_rows import MACROS as FUNCTION_MACROS
from tests.cluster.scalar_rows import SCALAR_ROWS

BOOLEAN, INTEGER, REAL, TEXT = FieldType.BOOLEAN, FieldType.INTEGER, FieldType.REAL, FieldType.TEXT
SQL_TYPES = {BOOLEAN: "BOOLEAN", INTEGER: "BIGINT", REAL: "DOUBLE", TEXT: "VARCHAR"}

MACROS = r"""
CREATE MACRO f_real(x) AS CASE WHEN x = 0 THEN 0.0::DOUBLE WHEN isfinite(x) THEN x END;
-- By the digits with which DuckDB writes a real, too: the fewest that read as it again.
CREATE MACRO f_round(x, n) AS f_real(
    CASE WHEN abs(x) < 1e17 THEN coalesce(round(TRY_CAST(x::VARCHAR AS DECIMAL(38, 20)), n)::DOUBLE, x) ELSE x END
);
CREATE MACRO f_wrap(h) AS CAST(
    ((h + 9223372036854775808::HUGEINT) % 18446744073709551616::HUGEINT + 18446744073709551616::HUGEINT)
    % 18446744073709551616::HUGEINT - 9223372036854775808::HUGEINT AS BIGINT
);
CREATE MACRO f_trim(s) AS trim(s, ' ' || chr(9) || chr(10) || chr(13));
CREATE MACRO f_number(s) AS CASE
    WHEN regexp_full_match(f_trim(s), '[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?')
    THEN f_real(TRY_CAST(f_trim(s) AS DOUBLE))
END;
CREATE MACRO f_exact(s) AS TRY_CAST(f_trim(s) AS DECIMAL(38, 12));
CREATE MACRO f_integer(s) AS CASE
    WHEN f_number(s) IS NULL OR abs(f_number(s)) > 1e19 THEN NULL
    -- The nearest, of two the even one: DuckDB itself goes away from zero where a half decides.
    WHEN abs(f_exact(s) - CAST(trunc(f_exact(s)) AS DECIMAL(38, 12))) = 0.5
    THEN TRY_CAST(CAST(trunc(f_exact(s)) AS HUGEINT) + CAST(trunc(f_exact(s)) AS HUGEINT) % 2 AS BIGINT)
    ELSE TRY_CAST(CAST(f_exact(s) AS HUGEINT) AS BIGINT)
END;
CREATE MACRO f_truth(s) AS CASE
    WHEN lower(f_trim(s)) IN ('true', 't', 'yes', 'y') THEN true
    WHEN lower(f_trim(s)) IN ('false', 'f', 'no', 'n') THEN false
    ELSE f_number(s) <> 0
END;
CREATE MACRO f_upper(s) AS upper(replace(s, 'ß', 'ss'));
CREATE MACRO f_lower(s) AS lower(replace(s, 'İ', 'i̇'));
CREATE MACRO f_left(s, n) AS CASE WHEN n IS NOT NULL THEN left(s, least(greatest(n, -1000000), 1000000)) END;
CREATE MACRO f_right(s, n) AS CASE WHEN n IS NOT NULL THEN right(s, least(greatest(n, -1000000), 1000000)) END;
CREATE MACRO f_short(s) AS CASE WHEN length(s) <= 10000 THEN s END;
CREATE MACRO f_lpad(s, n, f) AS CASE WHEN n IS NOT NULL THEN f_short(
    CASE WHEN f = '' THEN left(s, least(greatest(n, 0), 1000000))
    ELSE lpad(s, least(greatest(n, 0), 10001)::INTEGER, nullif(f, '')) END
) END;
CREATE MACRO f_rpad(s, n, f) AS CASE WHEN n IS NOT NULL THEN f_short(
    CASE WHEN f = '' THEN left(s, least(greatest(n, 0), 1000000))
    ELSE rpad(s, least(greatest(n, 0), 10001)::INTEGER, nullif(f, '')) END
) END;
-- Nothing separates by an empty separator.
CREATE MACRO f_split_part(s, mark, n) AS CASE
    WHEN mark <> '' THEN split_part(s, mark, n)
    WHEN n IN (1, -1) AND mark = '' THEN s
    WHEN s IS NOT NULL AND mark = '' AND n IS NOT NULL THEN ''
END;
-- Standard SQL: places before the first count towards the length, and there is nothing there.
CREATE MACRO f_rest(s, first) AS CASE
    WHEN first IS NOT NULL THEN substring(s, least(greatest(first, 1), 1000000)::BIGINT)
END;
CREATE MACRO f_part(s, first, letters) AS CASE WHEN first IS NOT NULL AND letters IS NOT NULL THEN substring(
    s,
    least(greatest(first, 1), 1000000)::BIGINT,
    greatest(least(first::HUGEINT + letters::HUGEINT, 1000000::HUGEINT) - greatest(first, 1)::HUGEINT, 0)::BIGINT
) END;
"""
"""What DuckDB does otherwise, or not at all."""
MACROS += FUNCTION_MACROS


@dataclass(frozen=True)
class Operation:
    """An operator or function, for arguments of certain types.

    Parameters
    ----------
    spellings
        Every way to write it.
    exactness
        What is known of its result.
    smooth
        True if a small error of an argument makes a small error of the result.
    tame
        True if the result is never huge.
    """

    name: str
    result: FieldType
    takes: tuple[FieldType, ...]
    spellings: tuple[tuple[Words, Binding], ...]
    sql: Words
    exactness: Exactness = Exactness.EVEN
    smooth: bool = False
    tame: bool = False
    typed_by: tuple[int, ...] = ()
    """Which arguments say of which type the result is: of those, not all are a bare NULL."""


def _operation(
    name: str, result: FieldType, takes: tuple[FieldType, ...], spellings: tuple[str, ...], sql: str,
    binding: Binding = Binding.ATOM, *, exactness: Exactness = Exactness.EVEN, smooth: bool = False,
    tame: bool = False, typed_by: tuple[int, ...] = (),
) -> Operation:  # fmt: skip
    written = tuple((words(each), binding) for each in spellings)
    return Operation(name, result, takes, written, words(sql), exactness, smooth, tame, typed_by)


def _wrapped(sql: str) -> str:
    return f"f_wrap({sql})"


_I0, _I1 = "{0}::HUGEINT", "{1}::HUGEINT"
_D0, _D1 = "{0}::DOUBLE", "{1}::DOUBLE"
NUMBERS = (INTEGER, REAL)
_PAIRS = tuple(product(NUMBERS, NUMBERS))


def _arithmetic() -> Iterator[Operation]:
    for one, other in _PAIRS:
        exact = one is other is INTEGER
        result = INTEGER if exact else REAL
        for sign, spelling, binding in (
            ("+", "{0:6} + {1:7}", Binding.SUM),
            ("-", "{0:6} - {1:7}", Binding.SUM),
            ("*", "{0:7} * {1:8}", Binding.PRODUCT),
        ):  # fmt: skip
            sql = _wrapped(f"{_I0} {sign} {_I1}") if exact else f"f_real({_D0} {sign} {_D1})"
            yield _operation(sign, result, (one, other), (spelling,), sql, binding, smooth=True, typed_by=(0, 1))
        yield _operation(
            "/", REAL, (one, other), ("{0:7} / {1:8}",), f"CASE WHEN {_D1} <> 0 THEN f_real({_D0} / {_D1}) END",
            Binding.PRODUCT, exactness=Exactness.SAME,
        )  # fmt: skip
        sql = f"CAST({_I0} % {_I1} AS BIGINT)" if exact else f"f_real({_D0} % {_D1})"
        remainder = f"CASE WHEN {{1}} <> 0 THEN {sql} END"
        yield _operation("%", result, (one, other), ("{0:7} % {1:8}",), remainder, Binding.PRODUCT, typed_by=(0, 1))
        yield _operation("%", result, (one, other), ("MOD({0}, {1})",), remainder, Binding.PRODUCT, typed_by=(0, 1))
    for kind in NUMBERS:
        exact = kind is INTEGER
        negative = _wrapped(f"-({_I0})") if exact else "f_real(-({0}))"
        yield _operation(
            "sign", kind, (kind,), ("-{0:9}", "- {0:9}"), negative, Binding.SIGN, smooth=True, typed_by=(0,)
        )
        absolute = _wrapped(f"abs({_I0})") if exact else "f_real(abs({0}))"
        yield _operation("ABS", kind, (kind,), ("ABS({0})",), absolute, smooth=True, typed_by=(0,))
        for name, function in (("FLOOR", "floor"), ("CEIL", "ceil"), ("ROUND", "round")):
            spellings = ("CEIL({0})", "CEILING({0})") if name == "CEIL" else (f"{name}({{0}})",)
            sql = "{0}" if exact else f"f_real({function}({{0}}))"
            yield _operation(name, kind, (kind,), spellings, sql, typed_by=(0,))
        for decimals in (0, 1, 2, 3):
            sql = "{0}" if exact else f"f_round({{0}}, {decimals})"
            kept = Exactness.EVEN if exact else Exactness.SAME
            spelling = f"ROUND({{0}}, {decimals})"
            yield _operation("ROUND+", kind, (kind,), (spelling,), sql, exactness=kept, typed_by=(0,))
        whole = "{0}" if exact else "f_real(trunc({0}))"
        yield _operation("TRUNC", kind, (kind,), ("TRUNC({0})", "TRUNCATE({0})"), whole, typed_by=(0,))


def _rows() -> Iterator[Operation]:
    """Yield the functions that have a row."""
    for row in SCALAR_ROWS:
        sql = f"f_real({row.duckdb})" if row.gives is REAL else row.duckdb
        exactness = Exactness.NEARLY if not row.exact else Exactness.SAME if row.gives is REAL else Exactness.EVEN
        for kinds in row.signatures:
            yield _operation(row.name, row.gives, kinds, row.spellings, sql, tame=row.tame, exactness=exactness)


_PATTERNS = (
    ("^x", 0, "y"),
    ("[^a-p]y?$", 0, ""),
    (r"(\w)(\d|\b)", 1, r"\2<\1>"),
    (r"\s|(.)", 0, r"\0\0"),
    ("q*", 0, "-"),
    ("(x|y)+?1?", 1, r"\1"),
)
"""Regular expressions, a group of each, and what replaces a match."""


_SIMILAR = (
    ("'x%|_'", "(?s)(x.*|.)"),
    ("'%[^a-p_]y+'", "(?s).*[^a-p_]y+"),
    ("'(q|y.)*1{0,2}'", r"(?s)(q|y\.)*1{0,2}"),
    ("'%!%%' ESCAPE '!'", "(?s).*%.*"),
)
"""Patterns of SIMILAR TO, and regular expressions that match whole texts in DuckDB."""


def _ends() -> Iterator[Operation]:
    for name, side in (("TRIM", "BOTH"), ("LTRIM", "LEADING"), ("RTRIM", "TRAILING")):
        called = ("TRIM", "BTRIM") if name == "TRIM" else (name,)
        alone = (*(f"{each}({{0}})" for each in called), f"TRIM({side} FROM {{0:5}})")
        of = (*(f"{each}({{0}}, {{1}})" for each in called), f"TRIM({side} {{1:5}} FROM {{0:5}})")
        yield _operation(name, TEXT, (TEXT,), alone, f"{name.lower()}({{0}}, ' ')")
        yield _operation(name, TEXT, (TEXT, TEXT), of, f"{name.lower()}({{0}}, {{1}})")
    places = ("STRPOS({0}, {1})", "INSTR({0}, {1})", "LOCATE({1}, {0})", "POSITION({1:5} IN {0:5})")
    yield _operation("STRPOS", INTEGER, (TEXT, TEXT), places, "CAST(strpos({0}, {1}) AS BIGINT)", tame=True)


def _texts() -> Iterator[Operation]:
    upper, lower = ("UPPER({0})", "UCASE({0})"), ("LOWER({0})", "LCASE({0})")
    yield _operation("UPPER", TEXT, (TEXT,), upper, "f_upper({0})")
    yield _operation("LOWER", TEXT, (TEXT,), lower, "f_lower({0})")
    yield from _ends()
    two = ("SUBSTRING({0}, {1})", "SUBSTR({0}, {1})", "SUBSTRING({0} FROM {1:5})")
    three = ("SUBSTRING({0}, {1}, {2})", "SUBSTR({0}, {1}, {2})", "SUBSTRING({0} FROM {1:5} FOR {2:5})")
    yield _operation("SUBSTRING", TEXT, (TEXT, INTEGER), two, "f_rest({0}, {1})")
    yield _operation("SUBSTRING", TEXT, (TEXT, INTEGER, INTEGER), three, "f_part({0}, {1}, {2})")
    for side in ("LEFT", "RIGHT"):
        yield _operation(side, TEXT, (TEXT, INTEGER), (f"{side}({{0}}, {{1}})",), f"f_{side.lower()}({{0}}, {{1}})")
    for pad in ("LPAD", "RPAD"):
        yield _operation(pad, TEXT, (TEXT, INTEGER), (f"{pad}({{0}}, {{1}})",), f"f_{pad.lower()}({{0}}, {{1}}, ' ')")
        three, sql = f"{pad}({{0}}, {{1}}, {{2}})", f"f_{pad.lower()}({{0}}, {{1}}, {{2}})"
        yield _operation(pad, TEXT, (TEXT, INTEGER, TEXT), (three,), sql)
    takes, spelling = (TEXT, TEXT, INTEGER), "SPLIT_PART({0}, {1}, {2})"
    yield _operation("SPLIT_PART", TEXT, takes, (spelling,), "f_split_part({0}, {1}, {2})")
    yield _operation("REPLACE", TEXT, (TEXT,) * 3, ("REPLACE({0}, {1}, {2})",), "f_short(replace({0}, {1}, {2}))")
    for pattern, group, written in _PATTERNS:
        matched = f"regexp_matches({{0}}, '{pattern}')"
        calls = (f"REGEXP_LIKE({{0}}, '{pattern}')", f"REGEXP_MATCHES({{0}}, '{pattern}')")
        yield _operation("REGEXP_LIKE", BOOLEAN, (TEXT,), calls, matched)
        infix = tuple(f"{{0:5}} {word} '{pattern}'" for word in ("~", "RLIKE", "REGEXP"))
        yield _operation("~", BOOLEAN, (TEXT,), infix, matched, Binding.COMPARISON)
        negated = tuple(f"{{0:5}} {word} '{pattern}'" for word in ("!~", "NOT RLIKE", "NOT REGEXP"))
        yield _operation("!~", BOOLEAN, (TEXT,), negated, f"NOT {matched}", Binding.COMPARISON)
        folded = f"regexp_matches({{0}}, '(?i){pattern}')"
        yield _operation("~*", BOOLEAN, (TEXT,), (f"{{0:5}} ~* '{pattern}'",), folded, Binding.COMPARISON)
        yield _operation("!~*", BOOLEAN, (TEXT,), (f"{{0:5}} !~* '{pattern}'",), f"NOT {folded}", Binding.COMPARISON)
        for number in ("", f", {group}"):
            part = f"CASE WHEN {matched} THEN regexp_extract({{0}}, '{pattern}', {number[2:] or 0}) END"
            calls = (f"REGEXP_EXTRACT({{0}}, '{pattern}'{number})",)
            calls += () if number else (f"REGEXP_SUBSTR({{0}}, '{pattern}')",)
            yield _operation("REGEXP_EXTRACT", TEXT, (TEXT,), calls, part)
        spelling = f"REGEXP_REPLACE({{0}}, '{pattern}', '{written}')"
        replaced = f"f_short(regexp_replace({{0}}, '{pattern}', '{written}', 'g'))"
        yield _operation("REGEXP_REPLACE", TEXT, (TEXT,), (spelling,), replaced)
    for pattern, regex in _SIMILAR:
        whole = f"regexp_full_match({{0}}, '{regex}')"
        yield _operation("SIMILAR TO", BOOLEAN, (TEXT,), (f"{{0:5}} SIMILAR TO {pattern}",), whole, Binding.COMPARISON)
        negated = (f"{{0:5}} NOT SIMILAR TO {pattern}",)
        yield _operation("NOT SIMILAR TO", BOOLEAN, (TEXT,), negated, f"NOT {whole}", Binding.COMPARISON)
    yield _operation("||", TEXT, (TEXT, TEXT), ("{0:5} || {1:6}",), "{0} || {1}", Binding.CONCATENATION)
    for count in (2, 3):
        holes = [f"{{{number}}}" for number in range(count)]
        spelling, sql = f"CONCAT({', '.join(holes)})", " || ".join(f"coalesce({hole}, '')" for hole in holes)
        yield _operation("CONCAT", TEXT, (TEXT,) * count, (spelling,), sql)
    for kind in FIELD_TYPES:
        alone = f"coalesce({CASTS[kind, TEXT]}, '')"
        yield _operation("CONCAT", TEXT, (kind,), ("CONCAT({0})",), alone)
        beside = f"{alone} || coalesce({{1}}, '')"
        yield _operation("CONCAT", TEXT, (kind, TEXT), ("CONCAT({0}, {1})",), beside)


def _as_real(hole: str, kind: FieldType, common: FieldType) -> str:
    return f"{hole}::DOUBLE" if common is REAL and kind is INTEGER else hole


SIGNS: dict[str, tuple[str, ...]] = {
    "=": ("=", "=="), "<>": ("<>", "!="), "<": ("<",), "<=": ("<=",), ">": (">",), ">=": (">=",),
}  # fmt: skip
"""Comparisons and how they are written; DuckDB knows the first way."""

COMPARABLE = (*_PAIRS, (TEXT, TEXT), (BOOLEAN, BOOLEAN))


def _choices() -> Iterator[Operation]:
    for one, other in COMPARABLE:
        common = one if one is other else REAL
        left, right = _as_real("{0}", one, common), _as_real("{1}", other, common)
        for sign, written in SIGNS.items():
            spellings = tuple(f"{{0:5}} {each} {{1:5}}" for each in written)
            yield _operation(sign, BOOLEAN, (one, other), spellings, f"{left} {sign} {right}", Binding.COMPARISON)
        for distinct in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            yield _operation(
                distinct, BOOLEAN, (one, other), (f"{{0:3}} {distinct} {{1:4}}",), f"{left} {distinct} {right}",
                Binding.IS,
            )  # fmt: skip
        yield _operation(
            "NULLIF", one, (one, other), ("NULLIF({0}, {1})",), f"CASE WHEN {left} = {right} THEN NULL ELSE {{0}} END",
            typed_by=(0,),
        )  # fmt: skip
        for name, both in (("LEAST", f"list_min([{left}, {right}])"), ("GREATEST", f"list_max([{left}, {right}])")):
            yield _operation(
                name, common, (one, other), (f"{name}({{0}}, {{1}})",), both, smooth=True, typed_by=(0, 1)
            )  # fmt: skip
        yield _operation(
            "COALESCE", common, (one, other), ("COALESCE({0}, {1})", "IFNULL({0}, {1})", "NVL({0}, {1})"),
            f"coalesce({left}, {right})", smooth=True, typed_by=(0, 1),
        )  # fmt: skip
    for kind in FIELD_TYPES:
        # DuckDB 2.0 cannot copy a plan that has LEAST(a, b, b): it takes names of columns for those of arguments.
        for name, several in (
            ("LEAST", "list_min([{}])"),
            ("GREATEST", "list_max([{}])"),
            ("COALESCE", "coalesce({})"),
        ):
            yield _operation(name, kind, (kind,), (f"{name}({{0}})",), "{0}", smooth=True, typed_by=(0,))
            sql = several.format("{0}, {1}, {2}")
            yield _operation(
                name, kind, (kind,) * 3, (f"{name}({{0}}, {{1}}, {{2}})",), sql, smooth=True, typed_by=(0, 1, 2)
            )  # fmt: skip
        known = ("{0:3} IS NOT NULL",)
        yield _operation("IS NULL", BOOLEAN, (kind,), ("{0:3} IS NULL",), "{0} IS NULL", Binding.IS)
        yield _operation("IS NOT NULL", BOOLEAN, (kind,), known, "{0} IS NOT NULL", Binding.IS)
        yield _operation("IS NOT NULL", BOOLEAN, (kind,), ("NOT {0:3} IS NULL",), "{0} IS NOT NULL", Binding.NOT)


def _near() -> Iterator[Operation]:
    for one, other in _PAIRS:
        whole = one is other is INTEGER
        # The least integer has no absolute value among integers, neither here nor in FjordSQL.
        apart = f"f_wrap(abs(f_wrap({_I0} - {_I1})::HUGEINT))" if whole else f"abs(f_real({_D0} - {_D1}))"
        same = "{0} = {1}" if one is other else f"{_D0} = {_D1}"
        near = [("{0:5} ~= {1:5}", same)]
        near += [(f"{{0:5}} ~= {{1:5}} TOLERANCE {each}", f"{apart} <= {each}") for each in ("0", "1", "1.5", "2e0")]
        for text, sql in near:
            yield _operation("~=", BOOLEAN, (one, other), (text,), sql, Binding.COMPARISON)


TYPE_WORDS: dict[FieldType, tuple[str, ...]] = {
    BOOLEAN: ("BOOLEAN", "BOOL"),
    INTEGER: ("INTEGER", "INT", "BIGINT"),
    REAL: ("REAL", "FLOAT", "DOUBLE", "DOUBLE PRECISION"),
    TEXT: ("TEXT", "STRING", "VARCHAR"),
}
CASTS: dict[tuple[FieldType, FieldType], str] = {
    (BOOLEAN, BOOLEAN): "{0}", (INTEGER, INTEGER): "{0}", (REAL, REAL): "{0}", (TEXT, TEXT): "{0}",
    (BOOLEAN, INTEGER): "{0}::BIGINT", (BOOLEAN, REAL): "{0}::DOUBLE", (BOOLEAN, TEXT): "{0}::VARCHAR",
    (INTEGER, BOOLEAN): "{0} <> 0", (INTEGER, REAL): "{0}::DOUBLE", (INTEGER, TEXT): "{0}::VARCHAR",
    (REAL, BOOLEAN): "{0} <> 0", (REAL, INTEGER): "TRY_CAST({0} AS BIGINT)", (REAL, TEXT): "{0}::VARCHAR",
    (TEXT, BOOLEAN): "f_truth({0})", (TEXT, INTEGER): "f_integer({0})", (TEXT, REAL): "f_number({0})",
}  # fmt: skip


def _conversions() -> Iterator[Operation]:
    for (source, target), sql in CASTS.items():
        kept = Exactness.SAME if target is REAL and source is TEXT else Exactness.EVEN
        for word in TYPE_WORDS[target]:
            spellings = (f"CAST({{0}} AS {word})", f"{{0:9}}::{word}")
            yield _operation(f"CAST AS {target}", target, (source,), spellings, sql, exactness=kept)
            yield _operation(
                f"TRY_CAST AS {target}", target, (source,), (f"TRY_CAST({{0}} AS {word})",), sql, exactness=kept
            )


def _logic() -> Iterator[Operation]:
    both = (BOOLEAN, BOOLEAN)
    for word, sql in (("TRUE", "coalesce({0}, false)"), ("FALSE", "coalesce(NOT {0}, false)")):
        yield _operation(f"IS {word}", BOOLEAN, (BOOLEAN,), (f"{{0:3}} IS {word}",), sql, Binding.IS)
        negated = (f"{{0:3}} IS NOT {word}",)
        yield _operation(f"IS NOT {word}", BOOLEAN, (BOOLEAN,), negated, f"NOT {sql}", Binding.IS)
    yield _operation("IS NULL", BOOLEAN, (BOOLEAN,), ("{0:3} IS UNKNOWN",), "{0} IS NULL", Binding.IS)
    known = ("{0:3} IS NOT UNKNOWN",)
    yield _operation("IS NOT NULL", BOOLEAN, (BOOLEAN,), known, "{0} IS NOT NULL", Binding.IS)
    # A key of GROUP BY is known again as an operand: b AND c is none of a AND b AND c.
    yield _operation("AND", BOOLEAN, both, ("{0:1} AND {1:2}",), "{0} AND {1}", Binding.AND)
    yield _operation("OR", BOOLEAN, both, ("{0:0} OR {1:1}",), "{0} OR {1}", Binding.OR)
    yield _operation("NOT", BOOLEAN, (BOOLEAN,), ("NOT {0:2}",), "NOT {0}", Binding.NOT)


def _own() -> Iterator[Operation]:
    """Yield functions of users (tests/cluster/functions/declared.py)."""
    for kind in NUMBERS:
        yield _operation("HALVED", REAL, (kind,), ("HALVED({0})", "Halved({0})"), "own_halved({0})", smooth=True)
        yield _operation("LOW", BOOLEAN, (kind,), ("low({0})",), "own_low({0})")
    yield _operation("LETTERS", INTEGER, (TEXT, INTEGER), ("letters({0}, {1})",), "own_letters({0}, {1})", tame=True)
    yield _operation("KNOWN", BOOLEAN, (TEXT,), ("known({0})",), "own_known({0})")
    yield _operation("KNOWN", BOOLEAN, (TEXT,), ("known_strictly({0})",), "own_known_strictly({0})")
    yield _operation("LABEL", TEXT, (BOOLEAN, TEXT), ("label({0}, {1})",), "own_label({0}, {1})")


OPERATIONS: tuple[Operation, ...] = (
    *(*_own(), *_rows(), *_arithmetic(), *_texts(), *_choices(), *_near(), *_conversions(), *_logic()),
    *(_operation(*each) for each in documents()),
)
"""Those with a fixed number of arguments; CASE, IF, IN, BETWEEN and LIKE are put together in :mod:`text_scalars`."""
