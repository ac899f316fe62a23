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
        In DuckDB, with a hole for the values, behind each call one for a FILTER. A real that is not finite is NULL.
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

    def sql(self, values: str, kept: str = "") -> str:
        """Return it of values, of which those are kept that a FILTER keeps."""
        return self.duckdb.format(values, kept)


_ROWS = (
    AggregateRow("avg", "avg({0}){1}", ("AVG",), distinct=True, exact=True),
    AggregateRow("median", "quantile_cont({0}, 0.5){1}", ("MEDIAN",), exact=True),
    AggregateRow("stddev", "stddev_samp({0}){1}", ("STDDEV", "STDEV", "STDDEV_SAMP")),  # of one value: NULL
    AggregateRow("variance", "var_samp({0}){1}", ("VARIANCE", "VAR_SAMP", "VARIANCE_SAMP")),
    AggregateRow("stddev_pop", "stddev_pop({0}){1}", ("STDDEV_POP",)),
    AggregateRow("var_pop", "var_pop({0}){1}", ("VAR_POP", "VARIANCE_POP")),
)
AGGREGATE_ROWS = {row.name: row for row in _ROWS}
NOT_EXACT = tuple(name for name, row in AGGREGATE_ROWS.items() if not row.exact)
