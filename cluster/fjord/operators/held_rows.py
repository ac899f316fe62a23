"""Held: the rows of relations as a stream, each valid as long as the versions that have it hold.

    versions    |-- version 1 -----------)[-- version 2 ---- ...
    a           |------)------)----------)                        in both versions: one row after the other
                                          |------)------)
    b                                     |------)------)         only in the second

A version holds, at instants of streams, from where tuples are looked up in it (papers/star_joins.md section 1.3). No
later one begins before the watermark of the streams. So up to there all is known, and only how far it came is kept.
What goes on is cut at the last whole second before the watermark, so that operators above go on, too. Snapshots do not
depend on the cuts, rows do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import polars as pl

from cluster.errors import PlanError
from cluster.fjord.batch import ALWAYS, END, INTERVAL, NEVER, START, Batch
from cluster.fjord.lookup_tables import LookupTable, Tables
from cluster.fjord.operator import Operator, State
from cluster.fjord.operators.ordered_output import number_of, table_of
from cluster.fjord.row_flow import RowFlow
from cluster.fjord.running_kind import InputFlows, KeepsNothing, RunningKind, RuntimeContext
from cluster.fjord.scalars import POLARS_TYPES
from cluster.operators import Node
from cluster.operators.characteristics import KEYS_ASSUMED
from cluster.operators.columns import ORIGIN, QUERY_GROUP
from cluster.physical import operations as kinds
from cluster.physical.rules.pieces import MOST_LAG_US

_REACHED, _STREAM = "fjord_reached", "fjord_stream"


class Held(Operator):
    """Keeps the instant up to which rows have been answered, and before where the streams begin that have begun.

    Parameters
    ----------
    table
        A plan of relations.
    streams
        The streams at whose instants versions begin.
    tables
        The source of the table; None for an operator that is only tried, not run.
    begins_us
        The instant at which the query begins; None for the earliest at which a stream does, once all have begun.
    waits_us
        How much later the rows begin.
    against
        The streams of which the latest beginning counts then; none if the earliest of `streams` does.
    groups
        The query groups, each of which gets all rows; None for rows without groups.
    origins
        Whether rows have where their version, or the query, began.
    """

    def __init__(
        self,
        table: Node,
        streams: frozenset[str],
        tables: Tables | None,
        *,
        begins_us: int | None = None,
        waits_us: int = 0,
        against: frozenset[str] = frozenset(),
        groups: tuple[int, ...] | None = None,
        origins: bool = False,
    ) -> None:
        self._table = table
        self._streams = streams
        self._tables = tables
        self._waits_us = waits_us
        self._against = against
        columns = {column.name: POLARS_TYPES[column.type]() for column in table.schema}
        self._groups = (
            None if groups is None else pl.DataFrame({QUERY_GROUP.name: groups}, {QUERY_GROUP.name: pl.Int64})
        )
        marks = {} if groups is None else {QUERY_GROUP.name: pl.Int64()}
        origin = {ORIGIN.name: pl.Int64()} if origins else {}
        self._nothing = pl.DataFrame(schema={**INTERVAL, **columns, **marks, **origin})
        self._reached_us = None if begins_us is None else begins_us + waits_us
        self._origins = origins
        self._version_us: int | None = None
        """From where on the rows hold that were answered last; None for where nothing has been answered yet."""
        self._begun_us: dict[str, int] = {}

    def begin(self, begun_us: Mapping[str, int]) -> bool:
        """Begin when all streams have."""
        awaited = self._against or self._streams
        new = {each: begun_us[each] for each in awaited & begun_us.keys() if each not in self._begun_us}
        if self._reached_us is not None or not new:
            return False
        self._begun_us |= new
        if self._begun_us.keys() == awaited:
            begins_us = self._begun_us.values()
            self._reached_us = (max(begins_us) if self._against else min(begins_us)) + self._waits_us
        return True

    def transition(self, port: int, batch: Batch) -> Batch:
        """Answer the rows that hold up to the last whole second before the watermark, and certainly go on or not."""
        del port
        self.warning = None
        watermark_us = batch.watermark_us
        if self._reached_us is None:
            # Another stream may still begin before these instants, and windows of this one move its watermark on.
            return Batch(self._nothing, ALWAYS)
        until_us = watermark_us if watermark_us >= NEVER else (watermark_us - 1) // MOST_LAG_US * MOST_LAG_US
        return self._up_to(until_us, min(watermark_us, max(until_us, self._reached_us)))

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: what holds is known up to the frontier."""
        del inputs
        return self._up_to(frontier_us, frontier_us)

    def _up_to(self, until_us: int, watermark_us: int) -> Batch:
        """Return the rows that hold from where they were answered before until an instant."""
        reached_us = self._reached_us
        if reached_us is None or until_us <= reached_us:
            return Batch(self._nothing, watermark_us)
        assert self._tables is not None  # noqa: S101 - it is run
        # Whether another version begins at the very instant shows only from the one before.
        first_us = reached_us - 1 if self._origins else reached_us
        pieces = self._tables.pieces(self._table, None, self._streams, first_us, until_us - 1)
        begins = [max(since, reached_us) for since, _ in pieces]
        answers = [self._nothing]
        for (holds_us, found), since, until in zip(pieces, begins, [*begins[1:], until_us], strict=True):
            if since == until:
                continue
            if holds_us > first_us or self._version_us is None:
                self._version_us = since
            if isinstance(found, PlanError):
                self.warning = found
                continue
            for _, part in found.parts(None):
                answers.append(self._rows(part, since, until))
        self._reached_us = until_us
        return Batch(pl.concat(answers), watermark_us)

    def _rows(self, table: LookupTable, since_us: int, until_us: int) -> pl.DataFrame:
        interval = [pl.lit(since_us, pl.Int64).alias(START), pl.lit(until_us, pl.Int64).alias(END)]
        interval += [pl.lit(self._version_us, pl.Int64).alias(ORIGIN.name)] if self._origins else []
        rows = table.rows if self._groups is None else table.rows.join(self._groups, how="cross")
        return rows.with_columns(interval).select(self._nothing.columns)

    def save(self) -> State:
        """Return the instant, in a table: rows may hold although none is kept."""
        reached = pl.DataFrame({_REACHED: [self._reached_us]}, {_REACHED: pl.Int64})
        if self._origins and self._version_us is not None:
            return {"reached": reached, "version": self._version_us}
        if self._reached_us is not None or not self._begun_us:
            return {"reached": reached}
        begun = {_STREAM: list(self._begun_us), _REACHED: list(self._begun_us.values())}
        return {"reached": reached, "begun": pl.DataFrame(begun, {_STREAM: pl.String, _REACHED: pl.Int64})}

    def restore(self, state: State) -> None:
        """Restore it."""
        self._reached_us = table_of(state, "reached").item(0, _REACHED)
        self._version_us = number_of(state, "version") if "version" in state else self._reached_us
        self._begun_us = dict(table_of(state, "begun").iter_rows()) if "begun" in state else {}


@final
class RunningHeld(KeepsNothing, RunningKind[kinds.Held]):
    """The rows of relations as a stream."""

    def instantiate(self, operation: kinds.Held, context: RuntimeContext) -> Operator:
        """Return the operator for the query groups of the fragment."""
        return self._operator(operation, context, origins=False)

    def with_origins(self, operation: kinds.Held, context: RuntimeContext) -> Operator:
        """Return one whose rows have where their version, or the query, began."""
        return self._operator(operation, context, origins=True)

    def _operator(self, operation: kinds.Held, context: RuntimeContext, *, origins: bool) -> Operator:
        fragment = context.fragment_of(operation)
        return Held(
            operation.table.table,
            frozenset(operation.streams),
            context.tables,
            begins_us=operation.begins_us,
            waits_us=operation.waits_us,
            against=frozenset(operation.against),
            groups=tuple(sorted(fragment.groups)) if operation.marked else None,
            origins=origins,
        )

    def flow(self, operation: kinds.Held, inputs: InputFlows) -> RowFlow:
        """Return rows of as many keys as are assumed, each cut as often as what waits."""
        del operation, inputs
        return RowFlow(0, 0, KEYS_ASSUMED * 1e6 / MOST_LAG_US, MOST_LAG_US, KEYS_ASSUMED, 1.0)
