"""Scalars and aggregates of FjordSQL in DuckDB's words: what the definitions of operators are written with."""

from __future__ import annotations

from functools import lru_cache

import duckdb
from sqlglot import exp

from cluster.expressions.called_functions import (
    CLASSES,
    JsonExists,
    JsonExtract,
    JsonExtractString,
    JsonQuery,
    JsonValue,
    LeftPad,
    RegexExtract,
    RegexMatches,
    RegexReplace,
    RightPad,
)
from cluster.expressions.nodes import Call, Expression, UserCall
from cluster.expressions.text import text_of
from cluster.expressions.timestamps import interval_us, timestamp_us
from cluster.expressions.walks import rebuilt
from cluster.language.dialect import parse_scalar
from cluster.language.syntax import IntervalLiteral, TimeFunction, TimestampLiteral
from cluster.operators.columns import AggregateCall, Joining, Scalar
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS
from tests.cluster.document_macros import DOCUMENT_MACROS
from tests.cluster.functions.declared import MEANINGS
from tests.cluster.scalar_rows import SCALAR_ROWS

SQL_TYPES = {
    FieldType.BOOLEAN: "BOOLEAN",
    FieldType.INTEGER: "BIGINT",
    FieldType.REAL: "DOUBLE",
    FieldType.TEXT: "VARCHAR",
    FieldType.TIMESTAMP: "BIGINT",
    FieldType.LOCAL_TIMESTAMP: "BIGINT",
    FieldType.INTERVAL: "BIGINT",
}
SETTINGS = (
    "SET GLOBAL threads = 1",
    "SET GLOBAL error_on_division_by_zero = false",  # x / 0 and x % 0 are NULL
    "SET GLOBAL ieee_floating_point_ops = false",
    # The angle between two directions in space, from their sine and cosine: another formula than the haversine.
    """CREATE OR REPLACE MACRO distance_metres(a, b, c, d) AS
        CASE WHEN abs(a) <= 90 AND abs(c) <= 90 AND abs(b) <= 360 AND abs(d) <= 360 THEN 6371008.8 * atan2(
            sqrt(
                pow(cos(radians(c)) * sin(radians(d) - radians(b)), 2) + pow(
                    cos(radians(a)) * sin(radians(c))
                    - sin(radians(a)) * cos(radians(c)) * cos(radians(d) - radians(b)),
                    2
                )
            ),
            sin(radians(a)) * sin(radians(c)) + cos(radians(a)) * cos(radians(c)) * cos(radians(d) - radians(b))
        ) END""",
    # Timestamps are microseconds, and DuckDB's own only while something is computed of them.
    """CREATE OR REPLACE MACRO timestamp_micros(us) AS
        CASE WHEN us >= epoch_us(TIMESTAMP '0001-01-01') AND us < epoch_us(TIMESTAMP '10000-01-01') THEN us END""",
    "CREATE OR REPLACE MACRO timestamp_text(us) AS strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%fZ')",
    "CREATE OR REPLACE MACRO local_text(us) AS strftime(make_timestamp(us), '%Y-%m-%dT%H:%M:%S.%f')",
    "CREATE OR REPLACE MACRO timestamp_seconds(n) AS timestamp_micros(n::HUGEINT * 1000000)::BIGINT",
    "CREATE OR REPLACE MACRO timestamp_plus(us, i) AS timestamp_micros(us::HUGEINT + i)::BIGINT",
    "CREATE OR REPLACE MACRO timestamp_minus(a, b) AS a - b",
    "CREATE OR REPLACE MACRO interval_times(i, n) AS CAST(round_even(i::DOUBLE * n, 0) AS BIGINT)",
    "CREATE OR REPLACE MACRO epoch_seconds(us) AS us::DOUBLE / 1000000.0::DOUBLE",
    "CREATE OR REPLACE MACRO timestamp_part(us, p) AS CAST(date_part(lower(p), make_timestamp(us)) AS BIGINT)",
    "CREATE OR REPLACE MACRO timestamp_floor(us, u) AS epoch_us(date_trunc(lower(u), make_timestamp(us)))",
    "CREATE OR REPLACE MACRO timestamp_number(us, u) AS date_diff(lower(u), make_timestamp(0), make_timestamp(us))",
    "CREATE OR REPLACE MACRO timestamp_format(us, p) AS strftime(make_timestamp(us), p)",
    "CREATE OR REPLACE MACRO zone_local(us, z) AS epoch_us(timezone(z, make_timestamptz(us)))",
    "CREATE OR REPLACE MACRO zone_instant(us, z) AS epoch_us(timezone(z, make_timestamp(us)))",
    *MEANINGS,
)


class NoDefinitionError(Exception):
    """The oracle does not know what this means."""


@lru_cache(maxsize=1)
def connection() -> duckdb.DuckDBPyConnection:
    """Return DuckDB with what the words below need."""
    found = duckdb.connect()
    for statement in (*DOCUMENT_MACROS, *SETTINGS):
        found.execute(statement)
    return found


def _named(node: Expression) -> Expression:
    """Return a call of a function of a user as one of DuckDB's macro with its meaning."""
    return Call(f"own_{node.function.name}", node.arguments) if isinstance(node, UserCall) else node


@lru_cache(maxsize=16_384)
def scalar_sql(scalar: Scalar) -> str:
    """Return a scalar in DuckDB's words, of exactly its type."""
    root = exp.Paren(this=parse_scalar(text_of(rebuilt(scalar.expression, _named))).copy())
    for tree in reversed(list(root.this.dfs())):  # from the leaves up
        tree.replace(_in_duckdb(tree))
    return f"CAST({root.sql(dialect='duckdb', identify=True)} AS {SQL_TYPES[scalar.type]})"


_SUBSTRING = (
    "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL "
    "THEN substring({0}, greatest({1}, 1), greatest({2} + least({1}, 1) - 1, 0)) END"
)


_SHORT = "list_filter([{0}], lambda made: length(made) <= 10000)[1]"  # TRY cannot be used with subqueries
_FILLED = "CASE WHEN {2} <= 10000 THEN {0}({1}, CAST(greatest({2}, 0) AS INTEGER), {3}) END"
_MATCHES = "REGEXP_MATCHES({0}, {1})"
_EXTRACT = "CASE WHEN REGEXP_MATCHES({0}, {1}) THEN REGEXP_EXTRACT({0}, {1}, {2}) END"
_REWRITE = _SHORT.format("REGEXP_REPLACE({0}, {1}, {2}, 'g')")
_PART = (
    "CASE WHEN {1} = '' THEN CASE WHEN {2} IN (1, -1) THEN {0} WHEN NOT {0} || {2} IS NULL THEN '' END "
    "ELSE split_part({0}, {1}, {2}) END"
)

_TRUTH = (
    "coalesce(TRY_CAST({0} AS BOOLEAN), TRY_CAST({0} AS DOUBLE) <> 0, "
    "TRY_CAST(trim(CAST({0} AS TEXT), ' ' || chr(9) || chr(10) || chr(13)) AS BOOLEAN))"
)


def _operands_of(tree: exp.Expr) -> list[str]:
    return [tree.args[slot].sql(dialect="duckdb") for slot in tree.arg_types if tree.args.get(slot)]


def _substring_of(tree: exp.Expr) -> list[exp.Expr]:
    return [tree.this, tree.args["start"], tree.args.get("length") or exp.Literal.number(1_000_000)]


_WRITTEN = {
    RegexMatches: _MATCHES,
    RegexReplace: _REWRITE,
    JsonValue: "f_json_scalar({0}, {1})",
    JsonQuery: "f_json_container({0}, {1})",
    JsonExists: "f_json_exists({0}, {1})",
    JsonExtract: "f_json_part({0}, {1})",
    JsonExtractString: "f_json_text({0}, {1})",
}
_PARTIAL = tuple(CLASSES[row.name] for row in SCALAR_ROWS if row.gives is FieldType.REAL)
"""Functions that DuckDB refuses for some arguments."""


def _in_duckdb(tree: exp.Expr) -> exp.Expr:
    """Make explicit what FjordSQL says and DuckDB does otherwise."""
    match tree:
        case exp.TryCast():
            return tree
        case exp.Cast():  # a failed cast is NULL
            cast = exp.TryCast(this=tree.this.copy(), to=tree.args["to"].copy())
            if tree.args["to"].is_type("boolean"):  # a text of a number is as true as the number; spaces do not matter
                return exp.maybe_parse(_TRUTH.format(tree.this.sql(dialect="duckdb", identify=True)), dialect="duckdb")
            if tree.args["to"].is_type("int", "bigint"):  # a half becomes the even one, in a text as in a number
                number = exp.TryCast(this=tree.this.copy(), to=exp.DataType.build("DOUBLE"))
                rounded = exp.TryCast(this=number, to=tree.args["to"].copy())
                text = exp.Cast(this=tree.this.copy(), to=exp.DataType.build("TEXT"))
                fraction = exp.Like(this=text, expression=exp.Literal.string("%.%"))
                return exp.Paren(this=exp.case().when(fraction, rounded).else_(cast))
            return cast
        case exp.Substring():  # standard SQL: places before the first count towards the length
            return exp.maybe_parse(
                _SUBSTRING.format(*(each.sql(dialect="duckdb") for each in _substring_of(tree))), dialect="duckdb"
            )
        case exp.Literal() if not tree.is_string and not tree.this.isdecimal():  # reals, never decimals
            return exp.Cast(this=tree.copy(), to=exp.DataType.build("DOUBLE"))
        case LeftPad() | RightPad():  # an empty filling fills nothing, and what is too long is NULL
            text, length, *filling = _operands_of(tree)
            return exp.maybe_parse(
                _FILLED.format(tree.sql_name(), text, length, *(filling or ("' '",))), dialect="duckdb"
            )
        case exp.SplitPart():  # nothing separates by an empty separator
            return exp.maybe_parse(_PART.format(*_operands_of(tree)), dialect="duckdb")
        case exp.Replace():
            return exp.maybe_parse(_SHORT.format(tree.sql(dialect="duckdb")), dialect="duckdb")
        case RegexExtract():  # NULL where nothing matches
            text, pattern, *group = _operands_of(tree)
            return exp.maybe_parse(_EXTRACT.format(text, pattern, *(group or ("0",))), dialect="duckdb")
        case _ if type(tree) in _WRITTEN:
            return exp.maybe_parse(_WRITTEN[type(tree)].format(*_operands_of(tree)), dialect="duckdb")
        case exp.Concat():  # leaves NULLs out
            parts = [exp.Coalesce(this=part.copy(), expressions=[exp.Literal.string("")]) for part in tree.expressions]
            return exp.Concat(expressions=parts, **{k: v for k, v in tree.args.items() if k != "expressions"})
        case _ if type(tree) in _PARTIAL:  # NULL where there is none
            return exp.Anonymous(this="TRY", expressions=[tree.copy()])
        case _:
            return _about_time(tree)


def _about_time(tree: exp.Expr) -> exp.Expr:
    """Return the number that a timestamp or an interval is, and calls of the macros above; other trees as they are."""
    if isinstance(tree, TimeFunction):
        return exp.Anonymous(this=tree.this, expressions=[each.copy() for each in tree.expressions])
    if isinstance(tree, TimestampLiteral | IntervalLiteral):
        read = timestamp_us if isinstance(tree, TimestampLiteral) else interval_us
        return exp.Literal.number(read(tree.this.this))
    return tree


def call_sql(call: AggregateCall) -> str:
    """Return an aggregate in DuckDB's words, of exactly its type."""
    return f"CAST({_called(call)} AS {SQL_TYPES[call.type]})"


def _called(call: AggregateCall) -> str:
    if call.argument is None:
        return "count(*)"
    values = ("DISTINCT " if call.distinct else "") + scalar_sql(call.argument)
    match call.function:
        case function if function in AGGREGATE_ROWS:
            return AGGREGATE_ROWS[function].sql(values)
        case "count" | "sum" | "min" | "max":
            return f"{call.function}({values})"
        case "arg_min" | "arg_max" if isinstance(call.by, Scalar):
            by = scalar_sql(call.by)
            pair = f"struct_pack(t := {by}, v := {values})"
            return f"({call.function[-3:]}({pair}) FILTER (WHERE {values} IS NOT NULL AND {by} IS NOT NULL)).v"
        case "string_agg" if isinstance(call.joining, Joining):
            separator = call.joining.separator.replace("'", "''")
            order = f"ORDER BY {scalar_sql(call.argument)}{' DESC' if call.joining.descending else ''}"
            joined = f"string_agg({values}, '{separator}' {order})"
            return f"CASE WHEN length({joined}) <= 10000 THEN {joined} END"
        case "percentile_disc":
            return f"quantile_disc({values}, {call.parameter})"
        case "mode":
            pair = "struct_pack(n := -(each.value::BIGINT), v := each.key)"
            return f"list_min([{pair} FOR each IN map_entries(histogram({values}))]).v"
        case "quantile":
            return f"quantile_cont({values}, {0.5 if call.parameter is None else call.parameter})"
        case "first" | "last":
            extreme = "min" if call.function == "first" else "max"
            pair = f'struct_pack(t := "{call.order}", v := {values})'
            return f"({extreme}({pair}) FILTER (WHERE {values} IS NOT NULL)).v"
        case _:
            raise NoDefinitionError(f"the aggregate {call.function}")
