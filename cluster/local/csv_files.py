"""CSV files, also compressed: their names, their types, and whether every line has as many values as the first.

Polars reads what is missing at the end of a line as NULL, renames columns of the same name, and its errors name no
lines. So lines are checked before: by counting separators or, in a file with quotes, value by value.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from io import TextIOWrapper
from operator import methodcaller
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, TextIO, cast

import polars as pl

from cluster.local.column_values import column_key, read_as_a_whole, read_text
from cluster.local.errors import TableFileError
from protocols.wire.streams import FieldType

GZIP = b"\x1f\x8b"
_SEPARATOR_LINE = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([!-/:-@\[-`{-~]|\t)"?\s*')
_LONGEST_LINE = 1 << 20
_MOST_COMMENTS = 1_000


def open_bytes(path: Path) -> BinaryIO:
    """Return an opened file, decompressed if it is compressed by gzip."""
    with path.open("rb") as file:
        begins = file.read(len(GZIP))
    return cast("BinaryIO", gzip.open(path)) if begins == GZIP else path.open("rb")


def open_text(path: Path, skipped: int = 0, errors: str = "strict") -> TextIO:
    """Return the text of a file in UTF-8, without some lines at its start, with ends of lines as they are."""
    file = open_bytes(path)
    for _ in range(skipped):
        file.readline()
    return TextIOWrapper(file, encoding="utf-8-sig", newline="", errors=errors)


def separator_line(path: Path) -> str | None:
    """Return the separator that the first line of CSV from Excel names, as sep=; does; None if it names none."""
    with open_bytes(path) as file:
        found = _SEPARATOR_LINE.fullmatch(file.readline(_LONGEST_LINE))
    return None if found is None else found[1].decode("ascii")


def comment_lines(path: Path, separator: str) -> int:
    """Return how many lines at the start of CSV are comments: they begin with # and have no values as the next has."""
    mark = separator.encode()
    lines: list[bytes] = []
    with open_bytes(path) as file:
        while len(lines) < _MOST_COMMENTS and (line := file.readline(_LONGEST_LINE)).startswith(b"#"):
            lines.append(line)
        after = line.count(mark) if lines else 0
    while lines and lines[-1].count(mark) == after:
        lines.pop()  # the names of the columns
    return len(lines)


def not_utf8(path: Path, line: int) -> TableFileError:
    """Return the error of a file whose bytes are not text in UTF-8; its hint converts the file."""
    with open_bytes(path) as file:
        begins = file.read(1024)
    encoding = "WINDOWS-1252"
    if begins.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "UTF-16"
    elif b"\0" in begins:
        encoding = "UTF-16LE" if begins[1:2] == b"\0" else "UTF-16BE"
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    converted = plain.with_name(f"{plain.stem}.utf8{plain.suffix}")
    command = f"iconv -f {encoding} -t UTF-8 {quote(str(path))} > {quote(str(converted))}"
    if plain is not path:
        command = f"gunzip -c {quote(str(path))} | iconv -f {encoding} -t UTF-8 > {quote(str(converted))}"
    return TableFileError(f"line {line} of {path} is not UTF-8", hint=f"if it is {encoding}: {command}")


BLOCK_BYTES = 1 << 20
"""Bytes of a file that are checked together."""
LONGEST_VALUE = 2**31 - 1
"""Most characters of a value."""

_MARKS = {",": "comma", ";": "semicolon", "\t": "tab"}
_OTHER_SEPARATORS = re.compile(r"[,;|\t]")


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How CSV is written.

    Parameters
    ----------
    separator
        What stands between two values: one character of ASCII.
    decimal
        What stands before the decimals of a number, a point or a comma.
    nulls
        Words that stand for NULL, in every column.
    skipped
        How many lines stand before the one with the names.
    """

    separator: str = ","
    decimal: str = "."
    nulls: tuple[str, ...] = ()
    skipped: int = 0

    @property
    def separators(self) -> str:
        """What separates values, in words."""
        mark = _MARKS.get(self.separator)
        return f"{mark}s" if mark else repr(self.separator)

    @property
    def a_separator(self) -> str:
        """One of them, in words."""
        mark = _MARKS.get(self.separator)
        return f"a {mark}" if mark else repr(self.separator)

    @property
    def record(self) -> re.Pattern[str]:
        """The pattern of a line."""
        mark = re.escape(self.separator)
        value = rf'(?:[^"{mark}\r\n]*|"(?:[^"]|"")*")'
        return re.compile(rf"{value}(?:{mark}{value})*\s*")


USUAL_STYLE = CsvStyle()


def style_of(path: Path, given: CsvStyle) -> CsvStyle:
    """Return how a file is written: as is given, as its name ends, and as its first lines show.

    Parameters
    ----------
    path
        The file.
    given
        What is given; a comma as a separator if none is.
    """
    if given.separator == USUAL_STYLE.separator and ".tsv" in path.suffixes[-2:]:
        given = replace(given, separator="\t")
    if (mark := separator_line(path)) is not None:
        usual = given.separator == USUAL_STYLE.separator
        return replace(given, separator=mark if usual else given.separator, skipped=1)
    return replace(given, skipped=comment_lines(path, given.separator))


def scan_csv(path: Path, as_written: Collection[str], style: CsvStyle = USUAL_STYLE) -> pl.LazyFrame:
    """Return a scan of a file, its columns of the types that all of their values have. Blank lines are no rows.

    Integers may be too large for 64 bits. Instants stay texts.

    Parameters
    ----------
    path
        The file.
    as_written
        Names of columns whose values stay texts, in lower case.
    style
        How it is written.

    Raises
    ------
    TableFileError
        If a line does not match the first one; the message names it.
    """
    names, lines = _header(path, style)
    if not _check(path, len(names), lines, style):
        return pl.LazyFrame(schema=dict.fromkeys(names, pl.String))
    format_: dict[str, Any] = {"glob": False, "has_header": False, "skip_lines": lines, "separator": style.separator}
    format_["decimal_comma"] = style.decimal == ","
    format_["null_values"] = list(style.nulls) or None
    written = {name: pl.String for name in names if column_key(name) in as_written}
    guessed = pl.scan_csv(
        path, new_columns=names, infer_schema_length=None, schema_overrides=written, **format_
    ).collect_schema()  # fmt: skip
    rows = pl.scan_csv(path, schema=guessed, **format_)
    texts = [name for name, dtype in guessed.items() if dtype == pl.String and name not in written]
    return rows.with_columns(_numbers(rows, texts, style)).filter(~pl.all_horizontal(pl.all().is_null()))


def numbered_records(path: Path, style: CsvStyle = USUAL_STYLE) -> Iterator[tuple[int, list[str]]]:
    """Yield the values of a file's rows with the number of the line in which they begin; none of rows of NULLs."""
    without = {"", *style.nulls}
    with open_text(path, style.skipped, errors="replace") as file:
        reader = _reader(file, style)
        next(reader, None)
        begins = style.skipped + reader.line_num + 1
        for values in reader:
            if not without.issuperset(values):
                yield begins, values
            begins = style.skipped + reader.line_num + 1


def _numbers(rows: pl.LazyFrame, texts: Collection[str], style: CsvStyle) -> list[pl.Expr]:
    """Return as numbers the columns of texts that Polars does not read so: " 5", "nan"."""
    found: dict[str, pl.Expr] = {}
    for type_ in (FieldType.INTEGER, FieldType.REAL):
        reading = {name: read_text(pl.col(name), type_, style.decimal) for name in texts if name not in found}
        found |= {name: reading[name] for name in read_as_a_whole(rows, reading)}
    return list(found.values())


def _header(path: Path, style: CsvStyle) -> tuple[list[str], int]:
    """Return the names in the first line, and how many lines it takes."""
    try:
        with open_text(path, style.skipped) as file:
            reader = _reader(file, style)
            names = [each.strip() for each in next(reader, [])]
            lines = style.skipped + reader.line_num
    except UnicodeDecodeError:
        raise not_utf8(path, _line_not_utf8(path)) from None
    except csv.Error as error:
        raise TableFileError(f"line {style.skipped + 1} of {path} cannot be read: {error}") from None
    if not any(names):
        raise TableFileError(f"the first line of {path} has no names", hint="the first line names the columns")
    if len(names) == 1 and _OTHER_SEPARATORS.search(names[0]):
        raise TableFileError(
            f"the first line of {path} has one name, {names[0]!r}: values are separated by {style.separators}",
            hint="--separator ';' (or '|', or tab) says how they are separated, --decimal , how decimals are written",
        )
    if twice := sorted({each for each in names if each and names.count(each) > 1}):
        raise TableFileError(f"the first line of {path} names {twice[0]!r} twice", hint="give each column its own name")
    return [name or f"column {number}" for number, name in enumerate(names, start=1)], lines


def _check(path: Path, columns: int, header_lines: int, style: CsvStyle) -> bool:
    """Return whether a file has rows; raise if one of them does not have a value for each column."""
    number, rows = style.skipped, False
    mark = style.separator.encode()
    marks = methodcaller("count", mark)
    with open_bytes(path) as file:
        for _ in range(style.skipped):
            file.readline()
        while block := file.read(BLOCK_BYTES):
            block += file.readline()
            if b'"' in block:
                return _check_values(path, columns, style)
            if not block.isascii():
                _check_text(path, block, number)
            lines = block.split(b"\n")[: None if not block.endswith(b"\n") else -1]
            if set(map(marks, lines)) != {columns - 1}:
                for line, text in enumerate(lines, start=number + 1):
                    if text.replace(mark, b"x").strip() and marks(text) != columns - 1:
                        raise _ragged(path, line, marks(text) + 1, columns, style)
            number += len(lines)
            rows = rows or number > header_lines
    return rows


def _check_values(path: Path, columns: int, style: CsvStyle) -> bool:
    """Check a file with quotes as :func:`_check` does one without."""
    raw: list[str] = []
    begins, rows = style.skipped + 1, -1
    try:
        with open_text(path, style.skipped) as file:
            reader, record = _reader(_noted(file, raw), style), style.record
            for values in reader:
                if values and len(values) != columns:
                    raise _ragged(path, begins, len(values), columns, style)
                if any('"' in value for value in values) and not record.fullmatch("".join(raw)):
                    raise _quoted(path, begins)
                raw.clear()
                begins = style.skipped + reader.line_num + 1
                rows += 1
    except UnicodeDecodeError:
        raise not_utf8(path, _line_not_utf8(path)) from None
    except csv.Error:
        raise _quoted(path, begins) from None
    return rows > 0


def _reader(lines: Iterable[str], style: CsvStyle) -> Any:
    csv.field_size_limit(LONGEST_VALUE)  # the default is 128 KiB, for the whole process
    return csv.reader(lines, strict=True, delimiter=style.separator)


def _noted(lines: Iterable[str], into: list[str]) -> Iterator[str]:
    for line in lines:
        into.append(line)
        yield line


def _check_text(path: Path, block: bytes, lines_before: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(path, lines_before + block.count(b"\n", 0, error.start) + 1) from None


def _line_not_utf8(path: Path) -> int:
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1  # the file has changed meanwhile


def _ragged(path: Path, line: int, values: int, names: int, style: CsvStyle) -> TableFileError:
    has = "1 value" if values == 1 else f"{values} values"
    named = "1 name" if names == 1 else f"{names} names"
    return TableFileError(
        f"line {line} of {path} has {has}; the first line has {named}",
        hint=f"put a value that contains {style.a_separator} in double quotes; leave a missing value empty",
    )


def _quoted(path: Path, line: int) -> TableFileError:
    return TableFileError(
        f"line {line} of {path} has a quote that Fjord cannot read",
        hint='put a value that contains a double quote in double quotes, and double the quote: "a 5"" pipe"',
    )
