"""Queries in a file, and their demands on sensors.

The language is the cluster's. This package never imports it, but finds it through entry points (group
``fjord.language``), as the command line finds its commands. Where the cluster is not installed, there is an error.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firmware_sim.errors import MissingLibraryError
from protocols.errors import FjordError, SettingsError
from protocols.text.plain_text import read_text_file
from protocols.wire.demands import QueryDemand
from protocols.wire.names import fault_of_name, normal
from protocols.wire.streams import StreamSchema

LANGUAGE_GROUP = "fjord.language"
_PART = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|;|[^'\";/-]+|.", re.DOTALL)
_NAME = re.compile(r"--\s*name:\s*(?P<name>\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One query of a file.

    Parameters
    ----------
    name
        From a comment ``-- name: ...`` before it; otherwise q1, q2, ...
    sql
        Its text.
    line
        The line where it begins.
    """

    name: str
    sql: str
    line: int


@dataclass(frozen=True, slots=True)
class AskingQuery:
    """A query and its demands on the sensors of one stream."""

    query: NamedQuery
    demands: tuple[QueryDemand, ...]


def split_queries(text: str, origin: str) -> list[NamedQuery]:
    """Return the queries of a text, which end with semicolons.

    Raises
    ------
    SettingsError
        If there are no queries, or two have the same name.
    """
    found: list[NamedQuery] = []
    for line, statement in _statements(text):
        given = _NAME.search(statement)
        name = normal(given["name"]) if given else f"q{len(found) + 1}"
        if (fault := fault_of_name(name)) is not None:
            raise SettingsError(f"line {line} of {origin}: {name!r} is no name for a query: {fault}")
        if any(each.name == name for each in found):
            raise SettingsError(f"line {line} of {origin}: there is a query {name!r} already")
        found.append(NamedQuery(name, statement.strip(), line))
    if not found:
        raise SettingsError(f"there is no query in {origin}")
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    statement, says_something, line = "", False, 1
    for part in [*(match[0] for match in _PART.finditer(text)), ";"]:
        if part == ";":
            if says_something:
                yield line - statement.lstrip().count("\n"), statement
            statement, says_something = "", False
            continue
        statement += part
        line += part.count("\n")
        says_something |= not part.isspace() and not part.startswith(("--", "/*"))


def load_queries(path: Path, schema: StreamSchema) -> list[AskingQuery]:
    """Return the queries of a file and what each demands of the motes of a stream.

    Raises
    ------
    SettingsError
        If the file cannot be read, or a query is wrong or reads another stream; the error has its name and place.
    MissingLibraryError
        If the language is not installed.
    """
    text = read_text_file(path, "the queries")
    language = _Language(schema)
    found: list[AskingQuery] = []
    for query in split_queries(text, str(path)):
        try:
            demands = language.demands(query)
        except FjordError as error:
            where = f"query {query.name!r}, from line {query.line} of {path}"
            raise SettingsError(f"{where}: {error.message}", hint=error.hint) from error
        found.append(AskingQuery(query, demands))
    return found


class _Language:
    """The cluster's language, if it is installed."""

    def __init__(self, schema: StreamSchema) -> None:
        self._stream = schema.name
        self._translate: Any = _load("translate")
        self._demands_of: Any = _load("demands")
        catalog: Any = _load("catalog")
        self._catalog = catalog.of([schema])

    def demands(self, query: NamedQuery) -> tuple[QueryDemand, ...]:
        """Return the demands of a query on the stream."""
        node = self._translate(query.sql, self._catalog).node
        demands: tuple[QueryDemand, ...] = self._demands_of(query.name, node)[self._stream]
        return demands


def _load(name: str) -> Any:
    try:
        (entry,) = importlib.metadata.entry_points(group=LANGUAGE_GROUP, name=name)
        return entry.load()
    except (ValueError, ModuleNotFoundError) as error:
        raise MissingLibraryError(
            "reading queries needs the cluster's language, which is not installed", hint="pip install 'fjord[cluster]'"
        ) from error
