"""What aggregates mean, in DuckDB, over rows whose argument is a column."""

from __future__ import annotations

from tests.cluster.oracle.text_expressions import Aggregate, Scalar


def aggregate_sql(call: Aggregate, number: int, scalar: Scalar) -> str:
    """Return an aggregate of the column a0, a1 ..., of exactly its type."""
    value = f"a{number}"
    of = f"DISTINCT {value}" if call.distinct else value
    real = f"{'DISTINCT ' if call.distinct else ''}{value}::DOUBLE"
    argument = scalar.parts[0].type if scalar.parts else None
    match call.function:
        case "count":
            found = f"count({of})" if scalar.parts else "count(*)"
        case "completeness":
            found = "NULL::DOUBLE"  # the harness brings samples, and nothing says how many were due
        case "sum" if argument is not None and argument.value == "integer":
            found = f"f_wrap(sum({of})::HUGEINT)"
        case "min" | "max":
            found = f"{call.function}({value})"
        case "stddev":
            found = f"f_real(stddev_samp({real}))"  # of one value: NULL
        case "variance":
            found = f"f_real(var_samp({real}))"
        case "median":
            found = f"f_real(quantile_cont({real}, 0.5))"
        case "quantile":
            found = f"f_real(quantile_cont({real}, {call.share}))"
        case "first" | "last":
            extreme = "min" if call.function == "first" else "max"
            pair = f"struct_pack(t := s{number}, v := {value})"
            found = f"({extreme}({pair}) FILTER ({value} IS NOT NULL)).v"
        case function:
            found = f"f_real({function}({real}))"
    if not call.error:
        return found
    if call.function == "count":
        return "0.0::DOUBLE"
    if call.function == "sum":
        return f"CASE WHEN count({value}) > 0 THEN {call.error}::DOUBLE * count({of}) END"
    return f"CASE WHEN {found} IS NOT NULL THEN {call.error}::DOUBLE END"
