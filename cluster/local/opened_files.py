"""Text files as they are read: compressed by gzip or not, and without what stands before their first line."""

from __future__ import annotations

import gzip
import re
from io import TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import BinaryIO, TextIO, cast

from cluster.local.errors import TableFileError

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
