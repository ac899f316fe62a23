"""The types of a CSV file's columns: those that Polars infers from all of its rows, piece by piece.

Polars looks at all rows together, which takes fifty bytes for each besides the file: twenty times the file, if rows are
short. A piece ends where a row ends: behind a line that has, together with those before, both quotes of each text::

    id,note          header, before each piece
    1,short          piece 1:  INTEGER, TEXT
    2,"two
    lines"           still piece 1
    3.5,              piece 2:  REAL, NULL           together:  REAL, TEXT
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import polars as pl

PIECE_BYTES: Final = 1024**2
_WIDER: Final[Mapping[frozenset[pl.DataType], pl.DataType]] = {
    frozenset((pl.Int64(), pl.Float64())): pl.Float64(),
    frozenset((pl.Int64(), pl.Int128())): pl.Int128(),
}
"""The types of columns with values of two types; with values of any others, they are texts."""


def types_in(place: Path, *, piece_bytes: int = PIECE_BYTES) -> dict[str, pl.DataType]:
    """Return the types of the columns of a file, by their names.

    Parameters
    ----------
    place
        The file.
    piece_bytes
        About how long pieces are.

    Raises
    ------
    OSError
        If it cannot be read.
    pl.exceptions.PolarsError
        If its content is none.
    """
    types: dict[str, pl.DataType | None] = {}
    """None as long as all values are NULL."""
    with place.open("rb") as file:
        header = _header(file, piece_bytes)
        for piece in _pieces(file, piece_bytes):
            for name, found in _inferred(header + piece, types).items():
                types[name] = _of_both(types.get(name), found)
    return {name: pl.String() if found is None else found for name, found in (types or _inferred(header, {})).items()}


def scanned(source: Path | bytes, types: dict[str, pl.DataType] | None = None) -> pl.LazyFrame:
    """Return a scan of a file, or of its content, with types of its columns; None to infer them from all rows."""
    return pl.scan_csv(
        source,
        glob=False,
        infer_schema=types is None,
        infer_schema_length=None,
        try_parse_dates=True,
        schema_overrides=types,
    )


def _inferred(content: bytes, known: Mapping[str, pl.DataType | None]) -> dict[str, pl.DataType | None]:
    """Return the types of columns, None where all values are NULL, which Polars takes for texts.

    Whether they are is not looked at where it makes no difference to what is known.
    """
    rows = scanned(content)
    types: dict[str, pl.DataType | None] = dict(rows.collect_schema())
    unsure = [name for name, found in types.items() if found == pl.String and known.get(name) != pl.String]
    if unsure:
        empty = rows.select(pl.col(unsure).is_null().all()).collect()
        types |= dict.fromkeys(name for name in unsure if empty[name].all())
    return types


def _of_both(one: pl.DataType | None, other: pl.DataType | None) -> pl.DataType | None:
    """Return the type of a column of which some values are of one type, and some of another."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return _WIDER.get(frozenset((one, other)), pl.String())


def _header(file: BinaryIO, piece_bytes: int) -> bytes:
    """Return a file's first row, and stand behind it."""
    content = b""
    while read := file.read(max(piece_bytes, len(content))):
        content += read
        end = quotes = 0
        while end < (line := content.find(b"\n", end) + 1):
            quotes += content.count(b'"', end, line)
            end = line
            if quotes % 2 == 0:
                file.seek(end)
                return content[:end]
    return content


def _pieces(file: BinaryIO, piece_bytes: int) -> Iterator[bytes]:
    """Yield what is left of a file in pieces that end where rows end."""
    kept, wanted = b"", piece_bytes
    while read := file.read(wanted):
        piece, kept = _cut(kept + read)
        if piece:
            yield piece
        # A row that is longer than a piece, or a quote too many: what is read again and again is as long each time.
        wanted = piece_bytes if piece else len(kept)
    if kept:
        yield kept


def _cut(content: bytes) -> tuple[bytes, bytes]:
    """Return content up to where its last whole row ends, and the rest."""
    end = content.rfind(b"\n") + 1
    quotes = content.count(b'"', 0, end)
    while quotes % 2:
        before = content.rfind(b"\n", 0, end - 1) + 1
        quotes -= content.count(b'"', before, end)
        end = before
    return content[:end], content[end:]
