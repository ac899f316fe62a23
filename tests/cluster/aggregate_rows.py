"""What tests know of aggregates of numbers that give a real: a row for each, with its meaning in DuckDB and precision.

From a row follow the drawing of plans and texts, their definitions, and the comparison of cuts of extremes. Aggregates
of other types, of shares, of stamps or with an order of their own have places of their own
(tests/cluster/oracle/text_aggregates.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AggregateRow:
    """An aggregate of numbers.

    Parameters
    ----------
    name
        As in plans.
    duckdb
        In DuckDB, with a hole for the values. A real that is not finite is NULL.
    written
        Names that it can be called by.
    distinct
        True if it can count each value once.
    exact
        False if its last digits depend on how it is computed, also of values that are exact.
    """

    name: str
    duckdb: str
    written: tuple[str, ...]
    distinct: bool = False
    exact: bool = False


_ROWS = (
    AggregateRow("avg", "avg({})", ("AVG",), distinct=True, exact=True),
    AggregateRow("median", "quantile_cont({}, 0.5)", ("MEDIAN",), exact=True),
    AggregateRow("stddev", "stddev_samp({})", ("STDDEV", "STDEV", "STDDEV_SAMP")),  # of one value: NULL
    AggregateRow("variance", "var_samp({})", ("VARIANCE", "VAR_SAMP", "VARIANCE_SAMP")),
    AggregateRow("stddev_pop", "stddev_pop({})", ("STDDEV_POP",)),
    AggregateRow("var_pop", "var_pop({})", ("VAR_POP", "VARIANCE_POP")),
)
AGGREGATE_ROWS = {row.name: row for row in _ROWS}
NOT_EXACT = tuple(name for name, row in AGGREGATE_ROWS.items() if not row.exact)
