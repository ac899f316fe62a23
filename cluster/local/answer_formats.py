"""Writes an answer as a table, JSON lines, CSV or Parquet, piece by piece, to a file that is complete or absent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from types import FrameType, MappingProxyType

import msgspec
import polars as pl

from cluster.fjord.batch import NEVER, instant_text
from cluster.fjord.scalars import POLARS_TYPES
from cluster.local.growing_table import GrowingTable, cell_text, heading_of, window_text
from cluster.operators.columns import Schema
from cluster.operators.window_shapes import Grid
from protocols.wire.streams import FieldType

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that would end the process at once and leave an unfinished file behind. (An interrupt raises by itself.)"""


class OutputFile:
    """The file that an answer is written to.

    A file is written beside its place and moved there in the end. A device or a pipe is written to directly.

    Parameters
    ----------
    path
        Its place; a link stays a link.
    """

    def __init__(self, path: Path) -> None:
        self._target = path.resolve()
        self.is_whole = self._target.is_file() or not self._target.exists()
        """False of a device or a pipe."""
        name = f".{self._target.name}.unfinished"
        self._written = self._target.with_name(name) if self.is_whole else self._target

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the path to write to; if no error is raised, the file is at its place afterwards.

        Raises
        ------
        OSError
            If it cannot be moved there.
        """
        try:
            with _signals_raised():
                yield self._written
                if self.is_whole:
                    self._written.replace(self._target)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what is unfinished."""
        if self.is_whole:
            with suppress(OSError):
                self._written.unlink()


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Make signals that end the process raise, so that it cleans up; it ends with the exit code that shells expect."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    # Signals that are ignored stay so: nohup ignores hang-ups.
    taken = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, _end) for each in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


NO_TYPES: Mapping[str, FieldType] = MappingProxyType({})
_ZONES = {FieldType.TIMESTAMP: "UTC", FieldType.LOCAL_TIMESTAMP: None}
_ISO = "%Y-%m-%dT%H:%M:%S%.f"
PAGE_ROWS = 1_000
"""Rows of a table whose columns are equally wide."""


class Format(StrEnum):
    """The formats of an answer."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def json_lines(pieces: Iterable[pl.DataFrame]) -> Iterator[str]:
    """Yield a line for each row, with ``start``, ``end`` and ``row`` as they are published."""
    for piece in pieces:
        for start_us, end_us, row in piece.iter_rows():
            line = {"start": instant_text(start_us), "end": instant_text(end_us), "row": msgspec.Raw(row.encode())}
            yield msgspec.json.encode(line).decode()


def table_lines(pieces: Iterable[pl.DataFrame], columns: Schema, grid: Grid | None = None) -> Iterator[str]:
    """Yield the lines of a table. Its columns are as wide as the first rows need, and become no narrower.

    Parameters
    ----------
    pieces
        The answer, as for :func:`json_lines`.
    columns
        Its columns.
    grid
        The windows that its rows are of: they are shown, and not when each row is valid; None if there are none.
    """
    valid = ["start", "end"] if grid is None else [heading_of(grid)]
    names = [*valid, *(each.name for each in columns)]
    right = [*(False for _ in valid), *(each.type in (FieldType.INTEGER, FieldType.REAL) for each in columns)]
    table = GrowingTable(names)
    for piece in pieces:
        for page in piece.iter_slices(PAGE_ROWS):
            cells = [[*_valid(start_us, end_us, grid), *_cells(row)] for start_us, end_us, row in page.iter_rows()]
            yield from table.lines(cells, right)
    if table.is_empty:
        yield "no rows"


def csv_lines(pieces: Iterable[pl.DataFrame], columns: Schema) -> Iterator[str]:
    """Yield the lines of CSV, names first: NULL, or an end that never comes, is empty, and an empty text is quoted."""
    names = _names(columns)
    yield _csv(pl.DataFrame(schema=dict.fromkeys(names, pl.String)), header=True)
    row = pl.Struct({each.name: POLARS_TYPES[each.type] for each in columns})
    for piece in pieces:
        for page in piece.iter_slices(PAGE_ROWS):
            bounds = [pl.Series(map(instant_text, page[each]), dtype=pl.String) for each in ("start_us", "end_us")]
            values = page["row"].str.json_decode(row).struct.unnest()
            if page.height:
                yield _csv(pl.DataFrame([*bounds, *values], schema=names), header=False)


def _csv(rows: pl.DataFrame, *, header: bool) -> str:
    return rows.write_csv(include_header=header).removesuffix("\n")


def write_parquet(
    pieces: Iterable[pl.DataFrame], columns: Schema, path: Path, types: Mapping[str, FieldType] = NO_TYPES
) -> int:
    """Write a Parquet file with a column for start, end (NULL: never) and each column of the answer; return its rows.

    Parameters
    ----------
    pieces
        Of the answer.
    columns
        Of the query. It may have columns called start or end: then the interval is in ``fjord_start`` and
        ``fjord_end``.
    path
        Of the file.
    types
        By name of a column: the type of which the answer has texts, such as timestamps.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - nothing else here needs it

    empty = pl.DataFrame(schema={"start_us": pl.Int64, "end_us": pl.Int64, "row": pl.String})
    schema = _typed(empty, columns, types).to_arrow().schema
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for piece in pieces:
            writer.write_table(_typed(piece, columns, types).to_arrow().cast(schema))
            count += piece.height
    return count


def _names(columns: Schema) -> list[str]:
    """Return the names of columns, with those of the interval before them."""
    names = {each.name.casefold() for each in columns}
    bounds = ("fjord_start", "fjord_end") if names & {"start", "end"} else ("start", "end")
    return [*bounds, *(each.name for each in columns)]


def _typed(piece: pl.DataFrame, columns: Schema, types: Mapping[str, FieldType]) -> pl.DataFrame:
    start, end, *_ = _names(columns)
    row = pl.Struct({each.name: POLARS_TYPES[each.type] for each in columns})
    found = piece.select(
        pl.col("start_us").cast(pl.Datetime("us", "UTC")).alias(start),
        pl.when(pl.col("end_us") < NEVER).then("end_us").cast(pl.Datetime("us", "UTC")).alias(end),
        pl.col("row").str.json_decode(row),
    ).unnest("row")
    return found.with_columns(_instants(name, _ZONES[kind]) for name, kind in types.items() if kind in _ZONES)


def _instants(name: str, zone: str | None) -> pl.Expr:
    """Return the instants that an answer has as texts, those too as numbers that no calendar reaches."""
    texts = pl.col(name)
    written = texts.str.strip_suffix("Z").str.to_datetime(_ISO, time_unit="us", strict=False)
    beyond = texts.str.extract(r"^(-?\d+)us$").cast(pl.Int64).cast(pl.Datetime("us"))
    return pl.coalesce(written, beyond).dt.replace_time_zone(zone).alias(name)


def _valid(start_us: int, end_us: int, grid: Grid | None) -> list[str]:
    if grid is not None:
        return [window_text(grid, start_us, end_us)]
    return [instant_text(start_us) or "", instant_text(end_us) or "never"]


def _cells(row: str) -> list[str]:
    return [cell_text(each) for each in msgspec.json.decode(row).values()]
