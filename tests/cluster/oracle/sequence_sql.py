"""What functions over tuples in order mean, as DuckDB's window functions over the whole sequence.

A frame by time holds all tuples of the same stamp, so which of them is the first or last depends on the order of their
values: there, the frame is a list that is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.operators.sequence import SequenceCall
from protocols.wire.streams import FieldType

SQL_TYPES = {
    FieldType.BOOLEAN: "BOOLEAN",
    FieldType.INTEGER: "BIGINT",
    FieldType.REAL: "DOUBLE",
    FieldType.TEXT: "VARCHAR",
    FieldType.TIMESTAMP: "BIGINT",
}
PLACE = '"#place"'


@dataclass(frozen=True)
class OrderSql:
    """How tuples are ordered, in SQL.

    Parameters
    ----------
    keys
        Columns that separate sequences.
    stamp
        The column with the stamp.
    ties
        The columns that order equal stamps.
    """

    keys: Sequence[str]
    stamp: str
    ties: Sequence[str]

    @property
    def partition(self) -> str:
        """PARTITION BY."""
        return f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""

    def placed(self, table: str) -> str:
        """Return a table of the tuples, each with its place in its sequence."""
        order = ", ".join([self.stamp, *(f"{tie} NULLS LAST" for tie in self.ties)])
        return f"(SELECT *, row_number() OVER ({self.partition} ORDER BY {order}) AS {PLACE} FROM {table})"

    def of(self, call: SequenceCall, argument: str | None, default: str | None = None) -> str:
        """Return a call over the columns of :meth:`placed`."""
        found = self._neighbour(call, argument, default) if call.function in ("lag", "lead") else None
        found = found or self._framed(call, argument)
        return f"CAST({found} AS {SQL_TYPES[call.type]})"

    def _neighbour(self, call: SequenceCall, argument: str | None, default: str | None) -> str:
        over = f"OVER ({self.partition} ORDER BY {PLACE})"
        there = f"{call.function}({self.stamp}, {call.rows}) {over}"
        near = f"{there} IS NOT NULL"
        if call.within_us is not None:
            near += f" AND abs({there} - {self.stamp}) <= {call.within_us}"
        return f"CASE WHEN {near} THEN {call.function}({argument}, {call.rows}) {over} ELSE {default or 'NULL'} END"

    def _framed(self, call: SequenceCall, argument: str | None) -> str:
        order, kind, low, high = PLACE, "ROWS", call.rows, call.until_rows
        if call.peers:
            order, kind, low, high = self.stamp, "RANGE", call.range_us, call.until_us
        start = "UNBOUNDED" if low is None else str(low)
        end = f"{high} PRECEDING" if high else "CURRENT ROW"
        over = f"OVER ({self.partition} ORDER BY {order} {kind} BETWEEN {start} PRECEDING AND {end})"
        if argument is None:
            return f"count(*) {over}"
        if call.function in ("first", "last"):
            known = f" FILTER (WHERE {argument} IS NOT NULL)" if call.known else ""
            values = f"list_sort(list(struct_pack(p := {PLACE}, v := {argument})){known} {over})"
            return f"({values})[{1 if call.function == 'first' else -1}].v"
        if call.function == "sum" and call.type is FieldType.INTEGER:
            whole = f"sum({argument}) {over}"
            half, all_ = f"{2**63}::HUGEINT", f"{2**64}::HUGEINT"  # sums of integers wrap around
            return f"((({whole}) + {half}) % {all_} + {all_}) % {all_} - {half}"
        real = f"{argument}::DOUBLE" if call.function == "avg" else argument
        return f"{call.function}({real}) {over}"
