"""The messages in which results and errors are published (docs/reference/protocol.md), made column by column.

**Columns of instants as the JSON in which they are published, formatted by arithmetic over whole columns.**

Each value equals :func:`cluster.fjord.batch.instant_text`. The calendar is computed as days and eras of 400 years, in
which March is the first month, so that a leap day is the last day of its year.

A message is pieces in a row: what all rows of a query have in common, its number, its instants, and the row, which is
stored as JSON. Rows of one kind have the same pieces, so that no piece is made for each row in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.storage.committed_results import CLOSES, ERROR, OPEN, ROW
from protocols.mqtt.publish_frames import NUMBER, PublishFrames, beginnings
from protocols.wire import topics

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from cluster.storage.results_table import ResultsTable

Integers: TypeAlias = "NDArray[np.int64]"

NEVER = 2**62
"""As cluster.fjord.batch has it, which imports more than a publisher needs."""
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last instant of the years 1 to 9999; others are written as numbers."""
_TEMPLATE = np.frombuffer(b'"0000-00-00T00:00:00.000000Z"', np.uint8)
_TWO_DIGITS = np.array([[ord(digit) for digit in f"{number:02}"] for number in range(100)], np.uint8)
_DAYS_TO_1970, _DAYS_AN_ERA = 719_468, 146_097
"""From the first of March of the year 0."""
_SECOND_US, _DAY_SECONDS = 1_000_000, 86_400


def instant_column(instants: Integers) -> pa.BinaryArray:
    """Return instants as JSON: texts in ISO 8601 with microseconds and ``Z``, or null for :data:`NEVER` and beyond.

    Parameters
    ----------
    instants
        Microseconds since 1970.

    Examples
    --------
    >>> [each.as_py() for each in instant_column(np.array([1_330_560_000_000_000, NEVER, 2**61]))]
    [b'"2012-03-01T00:00:00.000000Z"', b'null', b'"2305843009213693952us"']
    """
    written = (instants >= FIRST_US) & (instants <= LAST_US)
    texts = _texts(instants if written.all() else np.where(written, instants, 0))
    if written.all():
        return texts
    numbers = pa.array(instants).cast(pa.string()).cast(pa.binary())
    others = pc.binary_join_element_wise(b'"', numbers, b'us"', b"")
    others = pc.if_else(pa.array(instants >= NEVER), pa.scalar(b"null"), others)
    return pc.if_else(pa.array(written), texts, others)


def _texts(instants: Integers) -> pa.BinaryArray:
    seconds, micros = np.divmod(instants, _SECOND_US)
    days, second = np.divmod(seconds, _DAY_SECONDS)
    year, month, day = _dates(days)
    octets = np.tile(_TEMPLATE, (len(instants), 1))
    for place, numbers in (
        (1, year // 100), (3, year % 100), (6, month), (9, day),
        (12, second // 3_600), (15, second // 60 % 60), (18, second % 60),
        (21, micros // 10_000), (23, micros // 100 % 100), (25, micros % 100),
    ):  # fmt: skip
        octets[:, place : place + 2] = _TWO_DIGITS[numbers]
    ends = np.arange(len(instants) + 1, dtype=np.int32) * len(_TEMPLATE)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), len(instants), buffers)


def _dates(days: Integers) -> tuple[Integers, Integers, Integers]:
    """Return years, months and days of the month of days since 1970."""
    distinct, places = np.unique(days, return_inverse=True)  # rows of one commit lie close together
    eras, day_of_era = np.divmod(distinct + _DAYS_TO_1970, _DAYS_AN_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)  # noqa: PLR2004 - January on
    year = year_of_era + 400 * eras + (month <= 2)  # noqa: PLR2004 - January and February end a year
    return year[places], month[places], day[places]


Piece: TypeAlias = "bytes | pa.Array[Any]"
LARGEST_ROW_BYTES = 15 * 1024**2
"""Brokers take messages of 16 MiB; one that is larger would end the connection, again and again."""
MOST_ANSWERED_BYTES = 16 * 1024**2
"""Of the rows of one answer of the API, which is in memory as a whole; a single row may have more."""

Extras: TypeAlias = Callable[[str], Mapping[str, Any]]
"""Returns what else the messages of a query contain, by name."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one kind, by columns.

    Parameters
    ----------
    start, end
        The instants, as JSON.
    row
        The row, or what is stored in its place, as JSON.
    closes
        The number of the open row whose end it is.
    """

    start: Piece
    end: Piece
    row: Piece
    closes: Piece


@dataclass(frozen=True, slots=True)
class Kind:
    """What the messages of a kind of row are.

    Parameters
    ----------
    topic
        Returns the topic of a query.
    pieces
        Returns what follows the number, up to what the query adds.
    extras
        Whether the query adds anything.
    """

    topic: Callable[[str], str]
    pieces: Callable[[Rows], tuple[Piece, ...]]
    extras: bool


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        ROW: Kind(
            topics.results,
            lambda rows: (b',"start":', rows.start, b',"end":', rows.end, b',"row":', rows.row),
            extras=True,
        ),
        OPEN: Kind(
            topics.results, lambda rows: (b',"start":', rows.start, b',"open":true,"row":', rows.row), extras=True
        ),
        CLOSES: Kind(topics.results, lambda rows: (b',"closes":', rows.closes, b',"end":', rows.end), extras=False),
        ERROR: Kind(
            topics.query_errors,
            lambda rows: (b',"at":', rows.start, b',"end":', rows.end, b',"error":', rows.row),
            extras=False,
        ),
    }
)


def result_frames(rows: pa.RecordBatch, extras: Extras = lambda _: {}) -> PublishFrames:
    """Return the messages of rows as frames, in the order of the rows.

    Parameters
    ----------
    rows
        Rows as they are stored; at least one.
    extras
        Called once for each query among them that has results.
    """
    bodies, numbers_at = _bodies(_without_oversized(rows), extras)
    lengths = np.diff(_ends(bodies))
    begin, ends = beginnings(lengths)
    starts = np.concatenate(([0], ends)).astype(np.int32)
    first = pa.Array.from_buffers(pa.binary(), len(bodies), [None, pa.py_buffer(starts), pa.py_buffer(begin)])
    frames = pc.binary_join_element_wise(first, bodies, b"")
    frame_ends = _ends(frames)
    buffer = bytearray(frames.buffers()[2] or b"")
    return PublishFrames(buffer, frame_ends[1:], frame_ends[1:] - lengths + numbers_at)


def _without_oversized(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with an error, under the same number, in place of each that no broker would take."""
    sizes = pc.binary_length(rows.column("row"))
    oversized = pc.greater(sizes, LARGEST_ROW_BYTES)
    if not pc.any(oversized).as_py():
        return rows
    reasons = [
        msgspec.json.encode(
            f"a row of {size:,} bytes is too long for a message; GET /v1/queries/.../results has it"
        ).decode()
        for size in sizes.to_pylist()
    ]
    columns = {
        "kind": pc.if_else(oversized, ERROR, rows.column("kind")),
        "row": pc.if_else(oversized, pa.array(reasons), rows.column("row")),
    }
    arrays = [columns.get(name, rows.column(name)) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def no_frames() -> PublishFrames:
    """Return the frames of no rows."""
    return PublishFrames(bytearray(), np.empty(0, np.int64), np.empty(0, np.int64))


def _bodies(rows: pa.RecordBatch, extras: Extras) -> tuple[pa.BinaryArray, NDArray[np.int64]]:
    """Return topic, number and payload of each row's message, and where in it the number belongs."""
    kinds = rows.column("kind").dictionary_encode()
    if len(kinds.dictionary) == 1:
        return _bodies_of_kind(rows, _kind(kinds.dictionary[0].as_py()), extras)
    places = np.asarray(kinds.indices)
    found, order = [], []
    for number, name in enumerate(kinds.dictionary.to_pylist()):
        here = np.flatnonzero(places == number)
        found.append(_bodies_of_kind(rows.take(pa.array(here)), _kind(name), extras))
        order.append(here)
    back = np.argsort(np.concatenate(order))
    bodies = pa.concat_arrays([each for each, _ in found])
    numbers_at = np.concatenate([each for _, each in found])
    return bodies.take(pa.array(back)), numbers_at[back]


def _bodies_of_kind(rows: pa.RecordBatch, kind: Kind, extras: Extras) -> tuple[pa.BinaryArray, NDArray[np.int64]]:
    queries = rows.column("query").dictionary_encode()
    names = queries.dictionary.to_pylist()
    addresses = [kind.topic(name).encode() for name in names]
    begin = [
        len(topic).to_bytes(2, "big") + topic + NUMBER + b'{"query":' + msgspec.json.encode(name) + b',"sequence":'
        for name, topic in zip(names, addresses, strict=True)
    ]
    start, end = (instant_column(np.asarray(rows.column(name))) for name in ("start_us", "end_us"))
    tail: Piece = b"}"
    if kind.extras and any(added := [dict(extras(name)) for name in names]):
        tails = [b"," + msgspec.json.encode(each)[1:] if each else b"}" for each in added]
        tail = pa.array(tails, pa.binary()).take(queries.indices)
    bodies = pc.binary_join_element_wise(
        pa.array(begin, pa.binary()).take(queries.indices),
        rows.column("sequence").cast(pa.string()).cast(pa.binary()),
        *kind.pieces(Rows(start, end, *(_as_bytes(rows.column(name)) for name in ("row", "closes")))),
        tail,
        b"",
    )
    return bodies, np.array([2 + len(topic) for topic in addresses], np.int64)[np.asarray(queries.indices)]


def _as_bytes(column: pa.Array[Any]) -> pa.Array[Any]:
    return column.cast(pa.string()).cast(pa.binary())


def _kind(name: str) -> Kind:
    return KINDS.get(name, KINDS[ROW])


def _ends(column: pa.BinaryArray) -> NDArray[np.int64]:
    """Return where the values of a column begin, and where the last ends."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return ends.astype(np.int64)


def stored_results(table: ResultsTable, query: str, after: int, limit: int) -> bytes:
    """Return rows of a query, dropped ones included, as a JSON array of the published messages.

    Parameters
    ----------
    table
        The results, opened for this call.
    query
        Its name.
    after
        Only rows with a higher sequence number.
    limit
        At most so many; fewer where they would have more than :data:`MOST_ANSWERED_BYTES`.
    """
    rows = table.rows_after(query, after, limit, most_bytes=MOST_ANSWERED_BYTES)
    rows = _first_within(rows, MOST_ANSWERED_BYTES)
    starts, ends = (instant_column(rows[name].to_numpy()).to_pylist() for name in ("start_us", "end_us"))
    messages = [
        {"query": query, "sequence": sequence, **_stored(kind, start, end, row, closes)}
        for sequence, start, end, kind, row, closes in zip(
            rows["sequence"], starts, ends, rows["kind"], rows["row"], rows["closes"], strict=True
        )
    ]
    return msgspec.json.encode(messages)


def _first_within(rows: pl.DataFrame, most_bytes: int) -> pl.DataFrame:
    """Return the first rows, as many as fit, but at least one: whatever reads on asks for those behind it."""
    sizes = rows["row"].str.len_bytes().to_numpy()
    return rows.head(max(int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), most_bytes, "right")), 1))


def _stored(kind: str, start: bytes, end: bytes, row: str, closes: int | None) -> dict[str, Any]:
    begins, ends, content = {"start": msgspec.Raw(start)}, {"end": msgspec.Raw(end)}, msgspec.Raw(row.encode())
    match kind:
        case "closes":
            return {"closes": closes, **ends}
        case "open":
            return {**begins, "open": True, "row": content}
        case _:
            return {**begins, **ends, ("error" if kind == ERROR else "row"): content}
