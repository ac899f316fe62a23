"""What aggregates mean, in DuckDB, over rows whose argument is a column."""

from __future__ import annotations

from tests.cluster.aggregate_rows import AGGREGATE_ROWS
from tests.cluster.oracle.text_expressions import Aggregate, Scalar


def aggregate_sql(call: Aggregate, number: int, scalar: Scalar) -> str:
    """Return an aggregate of the column a0, a1 ..., of exactly its type."""
    value = f"a{number}"
    of = f"DISTINCT {value}" if call.distinct else value
    real = f"{'DISTINCT ' if call.distinct else ''}{value}::DOUBLE"
    arguments = scalar.parts[:-1] if call.filtered else scalar.parts
    argument = arguments[0].type if arguments else None
    kept = f" FILTER (WHERE f{number})" if call.filtered else ""
    match call.function:
        case "count":
            found = f"count({of}){kept}" if arguments else f"count(*){kept}"
        case "completeness":
            found = "NULL::DOUBLE"  # the harness brings samples, and nothing says how many were due
        case "sum" if argument is not None and argument.value == "integer":
            found = f"f_wrap((sum({of}){kept})::HUGEINT)"
        case "min" | "max" | "bool_and" | "bool_or":
            found = f"{call.function}({of}){kept}"
        case "mode":
            # Of equally frequent values the least: the least of the pairs (times, negated; value).
            counted = f"map_entries(histogram({value}){kept})"
            found = f"list_min([struct_pack(n := -(each.value::BIGINT), v := each.key) FOR each IN {counted}]).v"
        case "string_agg":
            separator = call.separator.replace("'", "''")
            order = f"ORDER BY {value}{' DESC' if call.descending else ''}"
            found = f"f_short(string_agg({of}, '{separator}' {order}){kept})"
        case "percentile_disc":
            found = f"quantile_disc({value}, {call.share}){kept}"
        case "quantile" | "percentile_cont":
            found = f"f_real(quantile_cont({real}, {call.share}){kept})"
        case "first" | "last" | "arg_min" | "arg_max":
            extreme = "min" if call.function in ("first", "arg_min") else "max"
            compared = f"s{number}" if call.stamp else f"b{number}"
            pair = f"struct_pack(t := {compared}, v := {value})"
            known = f"{value} IS NOT NULL AND {compared} IS NOT NULL{f' AND f{number}' if call.filtered else ''}"
            found = f"({extreme}({pair}) FILTER ({known})).v"
        case "sum":
            found = f"f_real(sum({real}){kept})"
        case function:
            found = f"f_real({AGGREGATE_ROWS[function].sql(real, kept)})"
    if not call.error:
        return found
    if call.function == "count":
        return "0.0::DOUBLE"
    if call.function == "sum":
        return f"CASE WHEN count({value}) > 0 THEN {call.error}::DOUBLE * count({of}) END"
    return f"CASE WHEN {found} IS NOT NULL THEN {call.error}::DOUBLE END"
