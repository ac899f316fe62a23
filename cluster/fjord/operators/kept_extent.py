"""Coalesced rows of at most so many tuples of a window: coalescence-aware load shedding (papers/cals.md section 2.5).

    KEEP 3    stamp    1   2   3   4   5            order: stamp, keys, place among the tuples of the key
              value    a   a   b   b   b
              kept     a---a---b                    at 4, the first a goes: an end of the row that loses least
                           a---b---b                its row is now [2, 3), half of [1, 3): quality 0.5

Which tuples go depends on their order alone, and they are taken once the watermark has passed them; so the rows are the
same whatever the batches, the disorder and the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import polars as pl
from polars.datatypes import DataTypeClass

from cluster.fjord.batch import END, START, Batch, empty_rows
from cluster.fjord.operator import Evictions, Operator, State
from cluster.fjord.operators.ordered_output import StartOrdered, number_of, table_of
from cluster.fjord.operators.piece_chains import ChainedPieces
from cluster.fjord.row_flow import RowFlow, lasting, shown_each_slide
from cluster.fjord.running_kind import Alone, InputFlows, RuntimeContext, StateEstimate
from cluster.fjord.state_rows import StateRows, with_numbers
from cluster.operators.kept_extent import KeptTuples
from cluster.physical import operations as kinds
from cluster.physical.nodes import OperatorNode, PaneWindow
from cluster.physical.rules.pieces import MOST_LAG_US
from cluster.temporal.kept_rows import KeptRows, Numbered, Shown
from cluster.temporal.windows import CountWindow, TimeWindow

_PLACE = "fjord_extent"


Types: TypeAlias = dict[str, pl.DataType | DataTypeClass]


def _columns(words: str, **others: DataTypeClass) -> Types:
    """Return columns of numbers, and others behind them; no stream has columns that are called so."""
    found: Types = {f"fjord_{word}": pl.Int64 for word in words.split()}
    return found | {f"fjord_{name}": each for name, each in others.items()}


_EXTENT = _columns("arrived dropped room window_begins border")
_SAMPLE = _columns("sample since until of_run begins ends origin", open=pl.Boolean)
BOOKKEEPING = tuple(_SAMPLE)
"""What is kept of a tuple besides its columns."""
_SHOWN = _columns("origin since begin end", row_quality=pl.Float64)
_PART = _columns("first_sample begins vanished")
_CHANGED = _columns("origin", lossy=pl.Boolean)
_LOST = _columns("of_run begins last_sample since")


class KeptExtent(StartOrdered):
    """Keeps at most so many tuples of a window, and shows the rows that they make.

    Rows of a window that slides by time come at its borders. Others come when they end; one that lags by more than
    `lag_us` is emitted up to the watermark of the input, and goes on from there.

    Parameters
    ----------
    columns
        No rows, with the columns of the input; rows are valid at one instant.
    kept
        What is kept.
    lag_us
        How far the answer's watermark may be behind the input's; None for no limit, where no operator above waits.
    """

    def __init__(self, columns: pl.DataFrame, kept: KeptTuples, *, lag_us: int | None = MOST_LAG_US) -> None:
        super().__init__(columns)
        self._kept = kept
        self._lag_us = lag_us
        self._values = [name for name in columns.columns[2:] if name not in (kept.run, kept.number)]
        self._types: Types = {name: columns.schema[name] for name in self._values}
        bounds: Types = dict.fromkeys(kept.bounds, pl.Int64)
        self._schema = pl.Schema({START: pl.Int64, END: pl.Int64, **self._types, **bounds, kept.quality: pl.Float64})
        self._keys = [self._values.index(name) for name in dict.fromkeys(kept.keys)]
        self._apart = [self._values.index(name) for name in kept.apart]
        self._extents: dict[tuple[Any, ...], KeptRows] = {}
        self.room = kept.most
        """How many tuples are kept of what is kept apart from now on: the plan's number, unless another was applied."""

    @property
    def evictions(self) -> Evictions:
        """How many tuples have gone for lack of room, and the mean accuracy of what is kept apart."""
        found = [each.accuracy for each in self._extents.values() if each.accuracy is not None]
        tuples = sum(each.dropped for each in self._extents.values())
        return Evictions(tuples, sum(found) / len(found) if found else None)

    @property
    def extents(self) -> Sequence[KeptRows]:
        """What is kept, of each combination of values that are kept apart."""
        return [*self._extents.values()]

    def _take(self, batch: Batch) -> Batch:
        """Process tuples in their order; return the rows that have ended, and parts of those that lag too far."""
        watermark_us = batch.watermark_us
        arrived = self._in_order(batch.rows)
        found: list[Shown] = []
        for apart in arrived:
            if apart not in self._extents:
                self._extents[apart] = self._extent()
        for apart, extent in self._extents.items():
            found.extend(extent.take(arrived.get(apart, ()), watermark_us))
        reached_us = self._reached(watermark_us)
        if self._lag_us is not None and reached_us < watermark_us - self._lag_us:
            for extent in self._extents.values():
                found.extend(extent.cut(watermark_us))
            reached_us = watermark_us
        return Batch(self._frame(found), reached_us)

    def ahead(self, frontier_us: int, inputs: Sequence[pl.DataFrame]) -> Batch:
        """Look ahead: all rows are cut at the frontier."""
        self._lag_us = 0
        return super().ahead(frontier_us, inputs)

    def _reached(self, watermark_us: int) -> int:
        begun = [since for each in self._extents.values() if (since := each.earliest) is not None]
        return min(watermark_us, *begun) if begun else watermark_us

    def _extent(self) -> KeptRows:
        kept = self._kept
        if kept.rows is not None:
            return KeptRows(CountWindow(kept.rows), self.room, kept.slide_rows)
        return KeptRows(TimeWindow(kept.size_us - 1), self.room, kept.slide_us)

    def _in_order(self, rows: pl.DataFrame) -> dict[tuple[Any, ...], list[Numbered]]:
        """Return the tuples of each extent in their order."""
        if not rows.height:
            return {}
        kept = self._kept
        ordered = rows.sort([START, *kept.keys, kept.number], nulls_last=True)
        values = list(zip(*(ordered[name].to_list() for name in self._values), strict=True))
        numbered = zip(ordered[START].to_list(), ordered[kept.run].to_list(), values, strict=True)
        groups = (*self._keys, *self._apart)
        found: dict[tuple[Any, ...], list[Numbered]] = {}
        for stamp, run, row in numbered:
            group = tuple([row[place] for place in groups])
            found.setdefault(group[len(self._keys) :], []).append(Numbered(stamp, group, run, row))
        return found

    def _frame(self, shown: Sequence[Shown]) -> pl.DataFrame:
        rows = [(since, until, *each.values, each.begin, each.end, each.quality) for since, until, each in shown]
        return pl.DataFrame(rows, self._schema, orient="row").sort(START, maintain_order=True)

    def save(self) -> State:
        """Return what is kept."""
        states = [each.saved() for each in self._extents.values()]
        return {**super().save(), "room": self.room, **self._tables(states)}

    def _tables(self, states: Sequence[dict[str, Any]]) -> dict[str, pl.DataFrame]:
        tables: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self._state_schemas()}
        for place, (apart, state) in enumerate(zip(self._extents, states, strict=True)):
            inner, values = state["extent"], state["values"]
            tables["extents"].append(
                (place, *apart, inner["arrived"], inner["dropped"], inner["most"], state["begins"], state["border"])
            )
            rows = {number: row for number, *row in inner["rows"]}
            for number, since, until, _, (run,), is_open in inner["samples"]:
                own = rows.get(number, (None, None, None))
                tables["samples"].append((place, number, since, until, run, *own, is_open, *values[number]))
            tables["shown"].extend((place, *each[:2], *each[3:], *each[2]) for each in state["shown"])
            tables["parts"].extend((place, *each) for each in inner["parts"])
            tables["lost"].extend((place, *each, *group) for group, *each in inner["lost"])
            lossy = set(state["lossy"])
            tables["changed"].extend((place, origin, origin in lossy) for origin in sorted({*state["changed"], *lossy}))
            # What is lossy alone is looked at again, and found as it was.
        return {name: pl.DataFrame(tables[name], each, orient="row") for name, each in self._state_schemas().items()}

    def _state_schemas(self) -> dict[str, pl.Schema]:
        place: Types = {_PLACE: pl.Int64}
        apart = {name: self._types[name] for name in self._kept.apart}
        names = (self._values[each] for each in (*self._keys, *self._apart))
        groups: Types = {f"fjord_group_{number}": self._types[name] for number, name in enumerate(names)}
        return {
            "extents": pl.Schema(place | apart | _EXTENT),
            "samples": pl.Schema(place | _SAMPLE | self._types),
            "shown": pl.Schema(place | _SHOWN | self._types),
            "parts": pl.Schema(place | _PART),
            "changed": pl.Schema(place | _CHANGED),
            "lost": pl.Schema(place | _LOST | groups),
        }

    def restore(self, state: State) -> None:
        """Restore it."""
        super().restore(state)
        self.room = number_of(state, "room")
        rows_of: dict[str, dict[int, list[list[Any]]]] = {}
        for name in self._state_schemas():
            found = rows_of[name] = {}
            for place, *row in table_of(state, name).rows():
                found.setdefault(place, []).append(row)
        self._extents = {}
        for place, ((*apart, arrived, dropped, most, begins, border),) in rows_of["extents"].items():
            counts = {"most": most, "arrived": arrived, "dropped": dropped}
            own = {name: found.get(place, []) for name, found in rows_of.items()}
            extent = self._extents[tuple(apart)] = self._extent()
            extent.restore({**self._restored(own, counts), "begins": begins, "border": border})

    def _restored(self, rows_of: dict[str, list[list[Any]]], counts: dict[str, int]) -> dict[str, Any]:
        """Return the state of one extent, of its rows in each table."""
        samples, values, newest, fragments = [], {}, {}, []
        for number, since, until, run, begins, ends, origin, is_open, *own in rows_of["samples"]:
            group = tuple(own[each] for each in (*self._keys, *self._apart))
            samples.append((number, since, until, group, (run,), is_open))
            values[number] = tuple(own)
            newest[group] = number  # the newest one of a group is kept longest
            if origin is not None:
                fragments.append((number, begins, ends, origin))
        lost = [(tuple(group), run, begins, number, start) for run, begins, number, start, *group in rows_of["lost"]]
        inner = {"samples": samples, "last_numbers": newest.items(), "rows": fragments, "parts": rows_of["parts"]}
        inner["lost"] = lost
        return {
            "extent": {**counts, **inner},
            "values": values,
            "changed": [origin for origin, _ in rows_of["changed"]],
            "shown": [
                (origin, since, tuple(own), begin, end, quality)
                for origin, since, begin, end, quality, *own in rows_of["shown"]
            ],
            "lossy": [origin for origin, lossy in rows_of["changed"] if lossy],
        }


CHANGED_ROWS = 3
"""How many rows a tuple changes where an extent keeps fewer: its own, the one before of its key, and one that loses."""


@final
class RunningKeptExtent(Alone[kinds.KeptExtent]):
    """Coalesced rows of at most so many tuples of a window."""

    def operator(self, operation: kinds.KeptExtent) -> Operator:
        """Return the operator."""
        return KeptExtent(empty_rows(operation.columns), operation.kept, lag_us=operation.lag_us)

    def with_origins(self, operation: kinds.KeptExtent, context: RuntimeContext) -> Operator:
        """Return one that puts together what goes on."""
        return ChainedPieces(self.instantiate(operation, context), made_of=False)

    def flow(self, operation: kinds.KeptExtent, inputs: InputFlows) -> RowFlow:
        """Return the coalesced rows of what is kept: all at each border, or those that change with a tuple."""
        kept, below = operation.kept, inputs.first
        if kept.in_steps:
            window = PaneWindow(kept.size_us, kept.slide_us)
            shown = min(below.per_second * window.slides, kept.most * 1e6 / kept.slide_us)
            return shown_each_slide(below, window, shown, shown)
        made = below.per_second * CHANGED_ROWS
        changed = dataclasses.replace(
            below,
            per_tuple=below.per_tuple * CHANGED_ROWS,
            at_once=below.per_tuple,
            per_second=made,
            read_once=below.read_once * CHANGED_ROWS,
        )
        found = lasting(changed, kept.longest_us, kept.most)
        return dataclasses.replace(found, made_per_second=made - below.per_second)

    def kept(self, operation: kinds.KeptExtent, node: OperatorNode, estimate: StateEstimate) -> StateRows:
        """Return as many tuples as may be kept, or as the window has."""
        kept = operation.kept
        window = estimate.flow(node.inputs[0]).per_second * kept.size_us / 1e6
        rows = min(float(kept.most), window if kept.rows is None else kept.rows)
        return StateRows(rows, with_numbers(operation.columns, *BOOKKEEPING))
