"""Files of JSON lines: an object in each line that is not blank."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from glob import escape
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import polars as pl

from cluster.local.column_names import column_key
from cluster.local.errors import TableFileError
from cluster.local.opened_files import not_utf8, open_bytes


def scan_json_lines(path: Path, as_written: Collection[str]) -> pl.LazyFrame:
    """Return a scan of a file, its columns of the types that all of their values have.

    Parameters
    ----------
    path
        The file.
    as_written
        Names of columns whose values become texts, in lower case.

    Raises
    ------
    TableFileError
        If a line is no object; the message names it.
    """
    names = _check(path)
    if not names:
        raise TableFileError(f"{path} is empty")
    overrides = {name: pl.String for name in names if column_key(name) in as_written}
    source = escape(str(path))  # Polars takes some letters of a name for a pattern
    guessed = pl.scan_ndjson(source, infer_schema_length=None, schema_overrides=overrides).collect_schema()
    return pl.scan_ndjson(source, schema=guessed)


def numbered_objects(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers."""
    with open_bytes(path) as file:
        yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())


def _check(path: Path) -> set[str]:
    """Return the names in a file; raise if a line is no object, since Polars omits what follows some of these."""
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    names: set[str] = set()
    for number, line in numbered_objects(path):
        try:
            if not line.isascii():
                line.decode()
            found = decoder.decode(line)
            # Names end with a quote and a colon; only a line with more of these can have a name twice.
            if line.count(b'":') + line.count(b'" ') + line.count(b'"\\t') > len(found):
                json.loads(line, object_pairs_hook=_once)
        except UnicodeDecodeError:
            raise not_utf8(path, number) from None
        except (msgspec.DecodeError, json.JSONDecodeError) as error:
            raise TableFileError(
                f"line {number} of {path} is not a JSON object: {error}", hint=_one_a_line(path, line)
            ) from None
        except _TwiceError as error:
            raise TableFileError(f"line {number} of {path} names {error.args[0]!r} twice in one object") from None
        names.update(found)
    return names


def _one_a_line(path: Path, line: bytes) -> str | None:
    """Return how objects that are written over several lines, or in a list, are written one a line."""
    begins = line.lstrip(b"\xef\xbb\xbf \t")[:1]
    if begins not in {b"[", b"{"} or path.suffix == ".gz":
        return None
    which = ".[]" if begins == b"[" else "."
    to = path.with_suffix(".jsonl") if path.suffix == ".json" else path.with_name(f"{path.stem}.lines.jsonl")
    return f"an object stands in each line: jq -c '{which}' {quote(str(path))} > {quote(str(to))}"


class _TwiceError(Exception):
    """An object with two values of a name."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(name)
        found[name] = value
    return found
