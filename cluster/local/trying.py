"""A query tried over files: planned as a cluster plans it, run on the local engine up to the end of the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.acceptance import RowLimitError, RowLimits, check_rows, check_supported
from cluster.fjord.batch import NEVER, START
from cluster.fjord.kinds import ERROR
from cluster.fjord.stored_rows import RowsInMemory
from cluster.fjord.text_growth import check_text
from cluster.language.catalog import StaticRelation
from cluster.language.window_bounds import grid_of_answers
from cluster.local.cut_by_time import warnings_of_time
from cluster.local.engine import Arrival, LocalEngine
from cluster.local.equal_stamps import warnings_of_lone_stamps, without_idle_warnings
from cluster.local.memory_tables import MemoryTables, RelationRows
from cluster.local.stream_files import BATCH_ROWS
from cluster.local.table_files import TableFile
from cluster.local.tried_query import Files, translate_over
from cluster.operators import Node, Source
from cluster.operators.columns import Schema
from cluster.operators.walks import nodes_of
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING
from cluster.physical.rules.pipelines import stored_columns
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import sources_with_history
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized

_AT_TIME_ZONE = re.compile(r"\bAT\s+TIME\s+ZONE\b", re.IGNORECASE)
QUERY = "query"
"""The name of the one query."""


class Trial:
    """A query over files.

    Parameters
    ----------
    sql
        The query.
    files
        Of its streams and relations.

    Attributes
    ----------
    columns
        Of the answer, which has timestamps and intervals as texts.
    types
        By name of a column: its type, of which the answer may have texts.
    grid
        The windows that its rows are of; None if they are of none that begin and end.
    warnings
        Warnings about query and files.
    rows
        Of all files of streams.

    Raises
    ------
    FjordError
        If it cannot be read or tried; a :class:`~cluster.language.errors.FjordSqlError` has the place in the text.
    """

    def __init__(self, sql: str, files: Files) -> None:
        tried = translate_over(sql, files)
        query = tried.query
        check_text(query.node)
        chosen = sized(query.node)
        node = rewrite(chosen).node
        check_supported(node)
        planned = PlannedQuery(QUERY, 1, node)
        plan = Plan(1, (planned,))
        try:
            check_rows(NOTHING, lower(plan), planned.identity, {}, RowLimits())
        except RowLimitError as error:
            raise PlanError(error.message, hint=error.way_out) from None
        self.columns: Schema = chosen.schema
        self.grid = grid_of_answers(query.node)
        self.types = {each.name: each.type for each in query.columns}
        self.warnings = [*query.warnings, *tried.untyped, *tried.renamed]
        self.rows = 0
        self._plan = plan
        self._files = {name: tried.streams[name] for name in sorted(self._plan.streams)}
        self._read = {name: _columns_read(node, name) for name in self._files}
        relations = {each.identity: each.name for each in relations_of_plan(node)}
        read = [table for file in self._files.values() for table in file.tables]
        read += [files.relations[name] for name in relations.values()]
        self.warnings += _warnings(node, files.tables, read)
        self._tables = MemoryTables(
            {identity: [RelationRows(files.relations[name].read())] for identity, name in relations.items()}
        )
        for file in self._files.values():
            in_order = file.check()
            self.rows += file.rows
            if _AT_TIME_ZONE.search(sql) and file.rows and file.zone_is_unknown:
                self.warnings.append(
                    f"instants of {file.name} have no zone, and are read as UTC: --time-zone Europe/Berlin reads those "
                    "of clocks there, --time-zone UTC leaves this warning away"
                )
            if warning := file.doubtful:
                self.warnings.append(warning)
            if not in_order:
                found = f"{file.name} is not in the order of its stamps: it is sorted"
                if len(file.tables) > 1:
                    found = f"the rows of {file.name} are not in the order of their stamps: they are sorted"
                self.warnings.append(f"{found}, in memory as a whole")
        self.warnings = without_idle_warnings(self.warnings, query.node, self._files)
        self.warnings += warnings_of_lone_stamps(query.node, self._files)
        self.warnings += warnings_of_time(query.node, self._files)

    def answers(
        self, *, batch_rows: int = BATCH_ROWS, progress: Callable[[int], None] = lambda _: None
    ) -> Iterator[pl.DataFrame]:
        """Yield the answer piece by piece: start_us, end_us, row (JSON), in the order in which it is published.

        Parameters
        ----------
        batch_rows
            Rows of a file that are read at once.
        progress
            Called with how many more rows of all files have been read.

        Raises
        ------
        PlanError
            If an operator fails.
        """
        engine = LocalEngine(self._plan, tables=lambda: self._tables, keeps_state=False)
        reading = {name: file.batches(self._read[name], batch_rows=batch_rows) for name, file in self._files.items()}
        for arrivals, came in in_step(reading):
            rows = engine.run(arrivals).rows
            progress(came)
            for reason in rows.filter(pl.col("kind") == ERROR)["row"]:
                raise PlanError(msgspec.json.decode(reason))
            if rows.height:
                yield rows.select("start_us", "end_us", "row")


def in_step(reading: Mapping[str, Iterator[pl.DataFrame]]) -> Iterator[tuple[dict[str, Arrival], int]]:
    """Yield arrivals, and how many rows they have, in the order of time: no stream gets ahead of the others.

    All streams begin together, with the earliest row of any: first of all there is that promise, without rows.
    With the last rows all streams have ended: nothing comes later.

    Parameters
    ----------
    reading
        By stream: its rows in the order of their stamps.
    """
    waiting = dict.fromkeys(reading, pl.DataFrame())
    open_ = dict(reading)
    begun = len(reading) == 1
    while True:
        for name in [each for each in open_ if not waiting[each].height]:
            while name in open_ and not waiting[name].height:
                following = next(open_[name], None)
                if following is None:
                    del open_[name]
                else:
                    waiting[name] = following
        if not begun:
            first_us = min((int(rows[START][0]) for rows in waiting.values() if rows.height), default=NEVER)
            yield {name: Arrival((), first_us) for name in reading}, 0
            begun = True
        until_us = min((int(waiting[name][START][-1]) for name in open_), default=NEVER)
        arrivals, came = {}, 0
        for name, rows in waiting.items():
            count = rows.height and int(rows[START].search_sorted(until_us, side="right"))
            taken = (RowsInMemory(rows.head(count)),) if count else ()
            arrivals[name] = Arrival(taken, until_us)
            waiting[name] = rows.slice(count)
            came += count
        yield arrivals, came
        if until_us == NEVER:
            return


def relations_of_plan(node: Node) -> frozenset[StaticRelation]:
    """Return the relations that a plan reads, as the catalog has them."""
    return frozenset(StaticRelation(each.name, each.identity, each.columns) for each in node.relations)


def _columns_read(node: Node, stream: str) -> Collection[str]:
    sources = [each for each in nodes_of(node) if isinstance(each, Source) and each.stream == stream]
    return {column.name for source in sources for column in stored_columns(source)}


def _warnings(node: Node, given: Sequence[TableFile], read: Collection[TableFile]) -> Iterator[str]:
    if any(sources_with_history(node)):
        yield "SINCE changes nothing here: all of a file is read"
    for table in given:
        if table not in read:
            yield f"the query reads nothing of {table.name}"
        elif table.unusable:
            yield f"{table.name}: {table.without}"
        if table in read and table.note is not None:
            yield table.note
