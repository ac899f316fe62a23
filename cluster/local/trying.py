"""A query tried over files: planned as a cluster plans it, run on the local engine up to the end of the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.answers import ERROR
from cluster.fjord.batch import NEVER, START
from cluster.fjord.row_limits import RowLimitError, RowLimits, check_rows
from cluster.fjord.stored_rows import RowsInMemory
from cluster.fjord.supported import check_supported
from cluster.fjord.text_growth import check_text
from cluster.language.algebra import Node, Schema, Source, schema_of
from cluster.language.catalog import BaseStream, Catalog, Entry, StaticRelation
from cluster.language.dialect import tokens_of
from cluster.language.errors import FjordSqlError
from cluster.language.translation import Query, translate
from cluster.language.walks import nodes_of
from cluster.local.engine import Arrival, LocalEngine
from cluster.local.memory_tables import MemoryTables, RelationRows
from cluster.local.stream_files import BATCH_ROWS, StreamFile
from cluster.local.table_files import TableFile
from cluster.physical.lowering import lower
from cluster.physical.nodes import NOTHING
from cluster.physical.rules.pipelines import stored_columns
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import sources_with_history
from cluster.plan.relations_read import relations_of
from cluster.plan.rewrite import rewrite

QUERY = "query"
"""What the one query is called."""
ELSEWHERE = {
    "EVENTS": "events are seen by motes and proxies, in samples that come much faster than a file keeps them",
    "COMPLETENESS": "only proxies know which samples are missing; a file does not say",
}
"""Clauses whose answers are made outside the cluster."""


@dataclass(frozen=True, slots=True)
class Files:
    """What a query is tried on.

    Parameters
    ----------
    streams
        By name.
    relations
        By name.
    unnamed
        The file of the one stream that the query names and nothing else gives; None if there is none.
    """

    streams: Mapping[str, StreamFile]
    relations: Mapping[str, TableFile] = field(default_factory=dict)
    unnamed: StreamFile | None = None

    @property
    def tables(self) -> Sequence[TableFile]:
        """All files."""
        streams = [*self.streams.values(), *([] if self.unnamed is None else [self.unnamed])]
        return [*(each.table for each in streams), *self.relations.values()]


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
        Of the answer.
    warnings
        What there is to say about query and files.
    rows
        Of all files of streams.

    Raises
    ------
    FjordError
        If it cannot be read, or not be tried; a :class:`~cluster.language.errors.FjordSqlError` says where in the text.
    """

    def __init__(self, sql: str, files: Files) -> None:
        names = _Names.of(files)
        query = _translated(sql, names, files)
        check_text(query.node)
        node = rewrite(query.node).node
        check_supported(node)
        planned = PlannedQuery(QUERY, 1, node)
        plan = Plan(1, (planned,))
        try:
            check_rows(NOTHING, lower(plan), planned.identity, {}, RowLimits())
        except RowLimitError as error:
            raise PlanError(error.message, hint=error.way_out) from None
        self.columns: Schema = schema_of(query.node)
        self.warnings = list(query.warnings)
        self.rows = 0
        self._plan = plan
        self._files = {name: names.streams[name] for name in sorted(self._plan.streams)}
        self._read = {name: _columns_read(node, name) for name in self._files}
        relations = {each.identity: each.name for each in relations_of_plan(node)}
        read = [*(file.table for file in self._files.values()), *(files.relations[name] for name in relations.values())]
        self.warnings += _warnings(node, files.tables, read)
        self._tables = MemoryTables(
            {identity: [RelationRows(files.relations[name].read())] for identity, name in relations.items()}
        )
        for file in self._files.values():
            in_order = file.check()
            self.rows += file.rows
            if not in_order:
                found = f"{file.table.name} is not in the order of its stamps"
                self.warnings.append(f"{found}: it is sorted, in memory as a whole")

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
    """Yield what streams bring, and how many rows, in the order of time, no stream further than the others.

    With the last rows all streams have ended: nothing comes later.

    Parameters
    ----------
    reading
        By stream: its rows in the order of their stamps.
    """
    waiting = dict.fromkeys(reading, pl.DataFrame())
    open_ = dict(reading)
    while True:
        for name in [each for each in open_ if not waiting[each].height]:
            while name in open_ and not waiting[name].height:
                following = next(open_[name], None)
                if following is None:
                    del open_[name]
                else:
                    waiting[name] = following
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
    return frozenset(StaticRelation(each.name, each.identity, each.columns) for each in relations_of(node))


class _Names:
    """What the query may name; knows which names nothing was given for."""

    def __init__(self, entries: Mapping[str, Entry], streams: Mapping[str, StreamFile], files: Files) -> None:
        self._unnamed = files.unnamed
        self.entries = dict(entries)
        self.streams = dict(streams)
        self.missing: str | None = None

    @classmethod
    def of(cls, files: Files) -> _Names:
        """Return the names of files."""
        entries: list[Entry] = [BaseStream(file.schema(name), file.time_column) for name, file in files.streams.items()]
        entries += [StaticRelation(name, f"{name}@1", file.columns) for name, file in files.relations.items()]
        catalog = Catalog.of(entries)
        return cls(catalog.entries, files.streams, files)

    def catalog(self) -> Catalog:
        """Return what is known now."""
        return Catalog(self.entries)

    def add_unnamed(self, name: str) -> bool:
        """Give a name to the file that has none; return whether there is one."""
        if self._unnamed is None:
            return False
        self.entries[name.casefold()] = BaseStream(self._unnamed.schema(name), self._unnamed.time_column)
        self.streams[name] = self._unnamed
        self._unnamed = None
        return True


_NO_STREAM = re.compile(r"there is no stream '(?P<name>[^']*)'")
_NO_COLUMN = re.compile(r"there is no column |has no column ")


def _translated(sql: str, names: _Names, files: Files) -> Query:
    _refuse_elsewhere(sql)
    while True:
        try:
            return translate(sql, names.catalog())
        except FjordSqlError as error:
            unknown = _NO_STREAM.match(error.reason)
            if unknown is None:
                raise _with_columns(error, files, names) from None
            if not names.add_unnamed(unknown["name"]):
                name = unknown["name"]
                meant = f"{error.hint} If not: " if (error.hint or "").startswith("did you mean") else ""
                raise FjordSqlError(
                    f"no file is given for {name!r}", text=error.text, start=error.start, end=error.end,
                    hint=f"{meant}--on {name}=FILE for a stream, --relation {name}=FILE for a relation",
                ) from None  # fmt: skip


def _with_columns(error: FjordSqlError, files: Files, names: _Names) -> FjordSqlError:
    """Return an error about a column with the columns that files have."""
    if not _NO_COLUMN.search(error.reason):
        return error
    known: list[tuple[str, str, Schema]] = [
        *((name, file.table.name, file.columns) for name, file in names.streams.items()),
        *((name, table.name, table.columns) for name, table in files.relations.items()),
    ]
    has = "; ".join(
        f"{name} ({path}) has {', '.join(each.name for each in columns)}" for name, path, columns in known
    )  # fmt: skip
    hint = has if error.hint is None else f"{error.hint} {has}"
    return FjordSqlError(error.reason, text=error.text, start=error.start, end=error.end, hint=hint)


def _refuse_elsewhere(sql: str) -> None:
    try:
        tokens = tokens_of(sql)
    except Exception:  # noqa: BLE001 - what cannot be read is refused by the translation, in its words
        return
    for token, following in pairwise(tokens):
        reason = ELSEWHERE.get(token.text.upper())
        if reason is not None and following.text == "(":
            word = token.text.upper()
            raise FjordSqlError(
                f"{word}(...) cannot be tried on files: {reason}",
                text=sql, start=token.start, end=token.end + 1,
                hint="`fjord motes run --trace FILE` lets simulated motes sample a file for a real cluster",
            )  # fmt: skip


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
            yield f"{table.name}: no query can read {', '.join(table.unusable)}, because of their names or types"
