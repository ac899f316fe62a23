"""A query tried over files: planned as a cluster plans it, run on the local engine, with warnings about files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.expressions.nodes import Column
from cluster.fjord.acceptance import RowLimitError, RowLimits, check_rows, check_supported
from cluster.fjord.answer_kinds import ERROR
from cluster.fjord.batch import NEVER, START, instant_text
from cluster.fjord.stream_scan import RowsInMemory
from cluster.fjord.text_growth import check_text
from cluster.language.catalog import StaticRelation
from cluster.language.quantities import written
from cluster.language.sequences import tie_warning
from cluster.language.window_bounds import grid_of_answers
from cluster.language.window_clauses import count_warning
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.local.stream_files import BATCH_ROWS
from cluster.local.table_files import TableFile
from cluster.local.tried_query import Files, StreamFiles, translate_over
from cluster.operators import (
    AntiJoin,
    CountWindow,
    Difference,
    Distinct,
    Filter,
    Intersection,
    Join,
    Lookup,
    Node,
    PartitionedWindow,
    Project,
    SemiJoin,
    SessionWindow,
    Source,
)
from cluster.operators import Sequence as OrderedTuples
from cluster.operators.columns import Schema
from cluster.operators.walks import nodes_of
from cluster.operators.window_shapes import DEFAULT_LONGEST_US
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING
from cluster.physical.rules.pipelines import stored_columns
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import sources_with_history
from cluster.plan.rewrite import rewrite
from cluster.plan.sized import sized


def warnings_of_time(node: Node, files: Mapping[str, StreamFiles]) -> Iterator[str]:
    """Yield warnings of samples that no stamp is one of, and of sessions that are cut though no MAX was written.

    Parameters
    ----------
    node
        The plan of a query.
    files
        By name of a stream.
    """
    for each in nodes_of(node):
        if isinstance(each, Source) and each.sample_period_us and each.stream in files:
            yield from _off_the_grid(each.sample_period_us, files[each.stream])
        elif isinstance(each, SessionWindow) and each.session.longest_us == DEFAULT_LONGEST_US:
            yield from _cut(each, files)


def _off_the_grid(period_us: int, file: StreamFiles) -> Iterator[str]:
    pieces = [piece[START] for piece in file.batches(())]
    if pieces and not any((stamps % period_us == 0).any() for stamps in pieces):
        yield (
            f"SAMPLE EVERY {written(period_us)} takes the tuples stamped at whole multiples of it, and {file.name} has "
            f"none: its first is stamped {instant_text(int(pieces[0][0]))}. Leave SAMPLE away"
        )


def _cut(window: SessionWindow, files: Mapping[str, StreamFiles]) -> Iterator[str]:
    source = window.input
    while isinstance(source, Project):
        source = source.input
    if not isinstance(source, Source) or source.stream not in files or source.lookups:
        return  # conditions decide which tuples there are
    file, keys = files[source.stream], list(window.keys)
    if not {each.name for each in file.columns}.issuperset(keys):
        return
    pieces = [piece.select(START, *keys) for piece in file.batches(keys)]
    if not pieces:
        return
    # Without keys all rows are of one group.
    rows = pl.concat(pieces).lazy().with_columns(pl.lit(0).alias("all"))
    begins = (pl.col(START).diff() > window.session.gap_us).fill_null(value=True).cum_sum().over("all", *keys)
    sessions = rows.with_columns(begins.alias("session")).group_by("all", *keys, "session")
    longest = sessions.agg((pl.col(START).max() - pl.col(START).min()).alias("us")).select(pl.col("us").max()).collect()
    if longest.item() >= DEFAULT_LONGEST_US:
        yield (
            f"sessions of {source.stream} are cut after {written(DEFAULT_LONGEST_US)}, although tuples go on: "
            "SESSION GAP ... MAX 7 DAYS lets them be longer"
        )


_Meeting = Join | SemiJoin | AntiJoin | Difference | Intersection
_MEETS = {
    Join: "joined", SemiJoin: "looked for", AntiJoin: "looked for", Difference: "taken away", Intersection: "kept",
}  # fmt: skip
_INSTEAD = (
    "WINDOW(RANGE 1 HOUR) behind a stream keeps its tuples for so long, ASOF JOIN takes the latest one, and ZIP JOIN "
    "... WITHIN 5 SECONDS pairs the nearest ones"
)


def without_idle_warnings(warnings: Iterable[str], node: Node, files: Mapping[str, StreamFiles]) -> list[str]:
    """Return the warnings about equal stamps that the files bear out, and all others.

    Parameters
    ----------
    warnings
        Those of the query.
    node
        Its plan.
    files
        By name of a stream.

    Raises
    ------
    TableFileError
        If a file cannot be read.
    """
    idle, borne_out = set[str](), set[str]()
    for each in nodes_of(node):
        warning = _warning_of_ties(each)
        if warning and warning not in borne_out:
            (borne_out if _may_tie(each, files) else idle).add(warning)
    return [each for each in warnings if each not in idle - borne_out]


def warnings_of_lone_stamps(node: Node, files: Mapping[str, StreamFiles]) -> list[str]:
    """Return warnings about tuples that meet none of another stream, or of their own, as no stamps are the same.

    Parameters
    ----------
    node
        The plan of a query.
    files
        By name of a stream.
    """
    found: dict[frozenset[str], str] = {}  # an outer join has several nodes
    for each in nodes_of(node):
        if isinstance(each, _Meeting):
            streams = [_stream_of(side) for side in (each.left, each.right)]
            one, other = (stream if stream in files else None for stream in streams)
            if one is None or other is None or one == other or frozenset((one, other)) in found:
                continue
            if not _share_stamps(files[one], files[other]):
                found[frozenset((one, other))] = (
                    f"{one} and {other} have no stamp in common, and without a window tuples are {_MEETS[type(each)]} "
                    f"only among those with the same stamp: {_INSTEAD}"
                )
        elif isinstance(each, Distinct):
            stream = _stream_of(each.input)
            if stream in files and stream is not None and not any(_ties(files[stream].batches(()), ())):
                found[frozenset((stream,))] = (
                    f"{stream} has no two tuples with the same stamp, and without a window DISTINCT is among those: "
                    "WINDOW(RANGE 1 HOUR) behind a stream keeps its tuples for so long"
                )
    return list(found.values())


def _warning_of_ties(node: Node) -> str | None:
    if isinstance(node, OrderedTuples):
        return tie_warning(node)
    if isinstance(node, PartitionedWindow | CountWindow) and node.rows is not None:
        return count_warning(node.rows, _keys(node))
    return None


def _keys(node: Node) -> tuple[str, ...]:
    return node.keys if isinstance(node, OrderedTuples | PartitionedWindow) else ()


def _may_tie(tuples: Node, files: Mapping[str, StreamFiles]) -> bool:
    """Return whether some of the tuples that are counted or taken in order may have the same stamp and keys."""
    if not isinstance(tuples, OrderedTuples | PartitionedWindow | CountWindow):
        return True
    node, keys = tuples.input, [*_keys(tuples)]
    while isinstance(node, Filter | Project):
        if isinstance(node, Project):
            made = {each.name: each.scalar.expression for each in node.outputs}
            read = [made.get(key) for key in keys]
            keys = [each.name for each in read if isinstance(each, Column)]
            if len(keys) < len(read):
                return True
        node = node.input
    if not isinstance(node, Source) or node.stream not in files or node.lookups:
        return True
    file = files[node.stream]
    names = {each.name for each in file.columns}
    return not names.issuperset(keys) or any(_ties(file.batches(keys), keys))


def _ties(batches: Iterator[pl.DataFrame], keys: Collection[str]) -> Iterator[bool]:
    """Yield for each batch, which come in the order of stamps, whether two of its rows have the same stamp and keys."""
    columns: Sequence[str] = (START, *keys)
    first = next(batches, None)
    if first is None:
        return
    last = first.select(columns).clear()
    for batch in chain((first,), batches):
        rows = pl.concat([last, batch.select(columns)])
        yield bool(rows.is_duplicated().any())
        last = rows.filter(pl.col(START) == pl.col(START).last())


def _stream_of(node: Node) -> str | None:
    """Return the stream whose tuples a plan has, each at its own stamp; None if it has others."""
    while isinstance(node, Filter | Project | Lookup | Distinct):
        node = node.input
    return node.stream if isinstance(node, Source) else None


def _share_stamps(one: StreamFiles, other: StreamFiles) -> bool:
    first, second = (pl.concat([each.select(START) for each in file.batches(())] or [_NONE]) for file in (one, other))
    return first.join(second, on=START, how="semi").height > 0


_NONE = pl.DataFrame(schema={START: pl.Int64})


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
