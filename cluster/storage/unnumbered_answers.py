"""Answers that tasks write themselves, on their way past the driver, which gives them their numbers.

    task      its answers, in order ──> unnumbered file     to the driver: each query's count, first and last start
    driver    the order of all files and rows, and the first number of each query in each file
    task      unnumbered file ──> data file of the table    to the driver: its entry for the commit
    driver    one commit

Buckets write such files, too, and the driver reads them: their answers have to be put in order with those of others.

An unnumbered file belongs to one run of the engine. It is in a folder of that run, which only the driver makes: a task
on a machine that does not share the table's disk finds no such folder, and returns its answers instead.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from deltalake.transaction import AddAction

from cluster.storage.appending import write_data_file
from cluster.storage.archived_log import is_local
from cluster.storage.committed_results import REPEATED, RESULT_SCHEMA, ROW

UNNUMBERED = "_fjord_unnumbered"
"""Below the table; other readers of a Delta table ignore names with this prefix."""
ROWS_A_GROUP = 128 * 1024
"""Rows of a file that are in memory at a time."""
_COLUMNS = pa.schema([RESULT_SCHEMA.field(name) for name in ("start_us", "end_us", "row")])


class Span(msgspec.Struct, frozen=True):
    """The rows of one query that lie together: how many, and their first and last start."""

    rows: int
    first_us: int
    last_us: int


Spans = Mapping[str, Span]
"""By query, in the order of the rows."""


class UnnumberedFile(msgspec.Struct, frozen=True):
    """Answers that a task has written: where, and what they are."""

    path: str
    spans: dict[str, Span]


class Numbering(msgspec.Struct, frozen=True):
    """What is to be done with an unnumbered file.

    Parameters
    ----------
    file
        The file.
    firsts
        By query: the number of its first row.
    root, name
        Folder of the table, and the name of the data file to write there.
    """

    file: UnnumberedFile
    firsts: dict[str, int]
    root: str
    name: str


class UnnumberedFolder:
    """The folder of one run's unnumbered files, as the driver uses it.

    Parameters
    ----------
    root
        Folder (or URI) of the results table.
    run
        Identity of the run.
    writer
        Which of its writers, if there are several: their micro-batches end at different times, and each removes only
        its own files.
    """

    def __init__(self, root: str, run: str, writer: str = "") -> None:
        self._all = Path(root, UNNUMBERED) if is_local(root) else None
        self._run = run
        self._path = None if self._all is None else self._all / (f"{run}-{writer}" if writer else run)

    @property
    def path(self) -> str:
        """The folder; empty if tasks cannot write there."""
        return "" if self._path is None else str(self._path)

    def make(self) -> None:
        """Make it, empty, and remove those of earlier runs.

        Raises
        ------
        OSError
            If that fails.
        """
        if self._all is None or self._path is None:
            return
        for path in self._all.iterdir() if self._all.is_dir() else ():
            if path == self._path or not path.name.startswith(f"{self._run}-"):
                shutil.rmtree(path, ignore_errors=True)
        self._path.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Remove all files; no micro-batch needs them any more. What cannot be removed now is with the next run."""
        if self._path is None or not self._path.is_dir():
            return
        for path in self._path.iterdir():
            try:
                path.unlink(missing_ok=True)
            except OSError:
                return


class NumberedFiles:
    """The data files that tasks write for one writer of the results table.

    Their names follow from the micro-batch: run again, it writes the same files, and files of a micro-batch that is not
    committed differ from others.

    Parameters
    ----------
    root
        Folder (or URI) of the table.
    application
        Identity of the writer in the table's transactions.
    """

    def __init__(self, root: str, application: str) -> None:
        self._root = root
        self._prefix = f"part-{hashlib.sha256(application.encode()).hexdigest()[:16]}-"

    def name(self, micro_batch: int, place: int) -> str:
        """Return the name of a file, given its place among the parts of a micro-batch."""
        return f"{self._prefix}{micro_batch:010d}-{place:04d}.parquet"

    def remove_uncommitted(self, last: int | None) -> None:
        """Remove those of micro-batches after the last one that is committed; no task may be running.

        Raises
        ------
        OSError
            If one cannot be removed.
        """
        if not is_local(self._root):
            return
        for path in Path(self._root).glob(f"{self._prefix}*.parquet"):
            if last is None or int(path.name.removeprefix(self._prefix).partition("-")[0]) > last:
                path.unlink()


def spans_of(rows: pl.DataFrame) -> dict[str, Span]:
    """Return the spans of rows whose queries lie together.

    Examples
    --------
    >>> spans_of(pl.DataFrame({"query": ["b", "b", "a"], "start_us": [1, 4, 2]}))
    {'b': Span(rows=2, first_us=1, last_us=4), 'a': Span(rows=1, first_us=2, last_us=2)}
    """
    start = pl.col("start_us")
    found = rows.group_by("query", maintain_order=True).agg(
        pl.len().cast(pl.Int64), start.min().alias("first"), start.max().alias("last")
    )
    return {query: Span(*span) for query, *span in found.iter_rows()}


def follow_each_other(parts: Iterable[Spans]) -> bool:
    """Return whether parts, one behind the other, hold each query's rows in the order of their starts.

    Examples
    --------
    >>> follow_each_other([{"q": Span(2, 1, 4)}, {"q": Span(1, 4, 9)}])
    True
    >>> follow_each_other([{"q": Span(2, 1, 4)}, {"p": Span(1, 2, 2)}, {"q": Span(1, 3, 9)}])
    False
    """
    reached: dict[str, int] = {}
    for spans in parts:
        for query, span in spans.items():
            if span.first_us < reached.get(query, span.first_us):
                return False
            reached[query] = span.last_us
    return True


def write_unnumbered(folder: str, rows: pl.DataFrame) -> UnnumberedFile:
    """Write answers into a new file of a folder.

    Parameters
    ----------
    folder
        That of this run.
    rows
        Columns query, start_us, end_us, row; the rows of each query together, in the order of their numbers.

    Raises
    ------
    OSError
        If it cannot be written: there is no such folder, or no room.
    """
    path = Path(folder, f"{uuid.uuid4().hex}.arrow")
    table = rows.select(_COLUMNS.names).to_arrow().cast(_COLUMNS)
    try:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _COLUMNS) as writer:
            writer.write_table(table, ROWS_A_GROUP)
    except OSError:
        # The task returns its answers then; what it has written would take the last room of a full disk.
        path.unlink(missing_ok=True)
        raise
    return UnnumberedFile(str(path), spans_of(rows))


def read_unnumbered(file: UnnumberedFile) -> pl.DataFrame:
    """Return the answers of a file: columns query, start_us, end_us, kind, row.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with pa.memory_map(file.path) as source, pa.ipc.open_file(source) as reader:
        rows = pl.DataFrame(pl.from_arrow(reader.read_all()))
    queries = pl.Series("query", list(file.spans), pl.String)
    places = np.repeat(np.arange(len(queries)), [span.rows for span in file.spans.values()])
    return rows.select(queries.gather(places), "start_us", "end_us", pl.lit(ROW).alias("kind"), "row")


def write_numbered(task: Numbering) -> AddAction:
    """Write the data file of an unnumbered one, on disk on return; return its entry for a commit.

    To do it again, or twice at the same time, writes the same file.

    Raises
    ------
    OSError
        If the one cannot be read, or the other not be written.
    """
    groups = (pa.Table.from_batches([each]) for each in _groups(task.file, task.firsts))
    return write_data_file(
        task.root,
        RESULT_SCHEMA,
        groups,
        repeated=REPEATED,
        name=task.name,
        made_in=Path(task.file.path).parent,
    )


def _groups(file: UnnumberedFile, firsts: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, numbered."""
    rows = [span.rows for span in file.spans.values()]
    numbers = np.concatenate([np.arange(span.rows) + firsts[query] for query, span in file.spans.items()])
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(len(rows), dtype=np.int32), rows)), pa.array(file.spans, pa.string())
    )
    begun = 0
    with pa.memory_map(file.path) as source, pa.ipc.open_file(source) as reader:
        for index in range(reader.num_record_batches):
            found = reader.get_batch(index)
            count = found.num_rows
            columns = {
                "query": names.slice(begun, count).cast(pa.string()),
                "sequence": pa.array(numbers[begun : begun + count]),
                "kind": pa.repeat(pa.scalar(ROW), count),
                "closes": pa.nulls(count, pa.int64()),
                **{name: found.column(name) for name in _COLUMNS.names},
            }
            yield pa.RecordBatch.from_arrays([columns[name] for name in RESULT_SCHEMA.names], schema=RESULT_SCHEMA)
            begun += count
