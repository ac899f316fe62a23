"""Relations from SQLite files: opened for reading only, conditions evaluated with indexes, values checked one by one.

A statement reads its own file and no other. Errors give SQLite's words only where these are about the statement: others
may quote rows.

SQLite's columns hold values of any type. A column's type is its declared type; that of a computed column follows from
its values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import polars as pl

from cluster.language.comparisons import Comparison
from cluster.operators.columns import Column, Schema
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.fitting import POLARS_TYPES, matched, polars_schema, servable, settled
from cluster.relations.source import (
    LONGEST_TEXT,
    Deadline,
    Limits,
    RelationSourceError,
    SourceAwayError,
    SourceColumn,
    SourceSchemaError,
    batches,
    too_long,
)
from protocols.wire.streams import FieldType

VIEW = "fjord_relation"
TIME_WORDS = ("DATE", "TIME")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = range(-(2**63), 2**63)
_INSTRUCTIONS = 100_000
"""Instructions of SQLite's machine between two checks of the deadline."""
_REFUSED_ACTIONS = frozenset(
    {
        *(sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_ANALYZE),
        *(sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_DROP_VTABLE, sqlite3.SQLITE_REINDEX),
        *(sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_TRIGGER),
    }
)
"""What could read another file, or change something."""
_REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
_WORDS_ABOUT_STATEMENTS = (
    *("no such table: ", "no such column: ", "no such function: ", "no such collation sequence: ", 'near "'),
    *("ambiguous column name: ", "wrong number of arguments to function ", "misuse of ", "incomplete input"),
    *("unrecognized token: ", "not authorized", "file is not a database", "database is locked", "interrupted"),
    *("unable to open database file", "disk I/O error", "database disk image is malformed", "You can only execute one"),
    *("attempt to write a readonly database", "a GROUP BY clause is required", "access to "),
)
"""How messages of SQLite begin that quote nothing but the statement and names of tables."""


class SqliteSource:
    """A table or query of an SQLite file.

    Parameters
    ----------
    path
        The file.
    table
        Name of a table or view, perhaps with that of its database; or None.
    query
        A query, in place of a table; or None.
    limits
        Limits on reading it.
    files
        Which files may be read.
    """

    def __init__(
        self,
        path: Path,
        *,
        table: tuple[str, ...] | None,
        query: str | None,
        limits: Limits,
        files: AllowedFiles,
    ) -> None:
        self._path = path
        self._limits = limits
        self._files = files
        self._from = (
            ".".join(_quoted(part) for part in table or ()) if query is None else f"({query.strip().rstrip(';')}\n)"
        )

    @property
    def shown(self) -> str:
        """The path of the file."""
        return f"sqlite:{self._path}"

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns of the table or query."""
        with self._opened() as database:
            return self._columns(database)

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        chunks = [pl.DataFrame(schema=polars_schema(columns))]
        count = size = 0
        with self._opened() as database:
            pairs = matched(columns, self._columns(database))
            listed = ", ".join(f"q.{_quoted(given.name)}" for _, given in pairs) or "1"
            tests, values = _tests(condition, pairs)
            where = f" WHERE {' AND '.join(tests)}" if tests else ""
            readers = [_reader(column, given) for column, given in pairs]
            cursor = database.execute(f"SELECT {listed} FROM {self._from} AS q{where}", values)  # noqa: S608
            for batch in batches(cursor):
                held = zip(*batch, strict=True)
                chunk = pl.DataFrame(
                    [
                        pl.Series(column.name, [read(value) for value in column_values], POLARS_TYPES[column.type])
                        for column, read, column_values in zip(columns, readers, held, strict=True)
                    ]
                )
                count, size = count + chunk.height, size + int(chunk.estimated_size())
                self._limits.check(count, size)
                chunks.append(chunk)
        return settled(pl.concat(chunks), columns, condition)

    def estimate(self) -> int | None:
        """Return the number of rows."""
        with self._opened() as database:
            return int(database.execute(f"SELECT count(*) FROM {self._from}").fetchone()[0])  # noqa: S608

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        deadline = Deadline(self._limits)
        try:
            with self._files.reading(self._path) as path:
                if not path.exists():
                    raise SourceAwayError(f"there is no file {self._path}")
                address = f"file:{quote(str(path))}?mode=ro"
                with closing(sqlite3.connect(address, uri=True, timeout=self._limits.connect_seconds)) as database:
                    database.set_progress_handler(lambda: deadline.passed, _INSTRUCTIONS)
                    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
                    database.execute("PRAGMA trusted_schema = OFF")
                    database.set_authorizer(_authorised)
                    yield database
        except sqlite3.Error as error:
            raise _explained(error, deadline) from None

    def _columns(self, database: sqlite3.Connection) -> tuple[SourceColumn, ...]:
        # A view has the declared types of columns that its query passes on.
        database.execute(f"CREATE TEMP VIEW IF NOT EXISTS {VIEW} AS SELECT * FROM {self._from}")  # noqa: S608
        described = database.execute(f"PRAGMA temp.table_xinfo({VIEW})").fetchall()
        return tuple(_column(database, name, str(declared or "").upper()) for _, name, declared, *_ in described)


def _column(database: sqlite3.Connection, name: str, declared: str) -> SourceColumn:
    if any(word in declared for word in TIME_WORDS):
        return SourceColumn(name, FieldType.INTEGER, declared)
    for words, type_ in (
        (("BOOL",), FieldType.BOOLEAN),
        (("INT",), FieldType.INTEGER),
        (("CHAR", "CLOB", "TEXT"), FieldType.TEXT),
        (("REAL", "FLOA", "DOUB", "NUM", "DEC"), FieldType.REAL),
    ):
        if any(word in declared for word in words):
            return SourceColumn(name, type_, declared)
    found = database.execute(f"SELECT DISTINCT typeof({_quoted(name)}) FROM temp.{VIEW}")  # noqa: S608
    kinds = {str(kind) for (kind,) in found} - {"null"}
    if not kinds:
        return SourceColumn(name, None, "always NULL")
    if kinds == {"integer"}:
        return SourceColumn(name, FieldType.INTEGER, "integer")
    if kinds <= {"integer", "real"}:
        return SourceColumn(name, FieldType.REAL, "real")
    return SourceColumn(name, FieldType.TEXT, "blob" if "blob" in kinds else "text", usable="blob" not in kinds)


def _tests(
    condition: tuple[Comparison, ...], pairs: Sequence[tuple[Column, SourceColumn]]
) -> tuple[list[str], list[object]]:
    by_name = {column.name: (column, given) for column, given in pairs}
    tests: list[str] = []
    values: list[object] = []
    for comparison in condition:
        column, given = by_name[comparison.column]
        if not servable(comparison, column, given) or any(word in given.declared for word in TIME_WORDS):
            continue
        places = ", ".join("?" for _ in comparison.values)
        behind = f"({places})" if comparison.operator == "in" else places
        tests.append(f"q.{_quoted(given.name)} {comparison.operator} {behind}".rstrip())
        values += comparison.values
    return tests, values


def _reader(column: Column, given: SourceColumn) -> Callable[[object], object]:
    """Return a function that converts a value of SQLite to a wanted column's type."""
    timestamps = any(word in given.declared for word in TIME_WORDS)

    def wrong(value: object) -> SourceSchemaError:
        kinds = {bytes: "a blob", str: "a text", float: "a real", int: "an integer"}
        held = kinds.get(type(value), "a value")
        return SourceSchemaError(
            f"column {column.name!r} holds {held} that is no {'time' if timestamps else column.type.value}",
            column=column.name,
        )

    def read(value: object) -> object:
        if value is None:
            return None
        if timestamps and column.type is FieldType.INTEGER:
            instant = _instant(value)
            if instant is None:
                raise wrong(value)
            return instant
        match column.type, value:
            case FieldType.TEXT, str():
                return value
            case FieldType.TEXT, int() | float():
                return str(value)
            case FieldType.REAL, int() | float():
                return float(value)
            case FieldType.INTEGER, int():
                return value
            case FieldType.INTEGER, float() if value.is_integer() and int(value) in _INT64:
                return int(value)
            case FieldType.BOOLEAN, 0 | 1:
                return bool(value)
            case _:
                raise wrong(value)

    return read


def _instant(value: object) -> int | None:
    """Return microseconds since 1970 for the values that SQLite's date functions accept: ISO texts, or seconds."""
    match value:
        case int() | float():
            micros = round(value * 1_000_000)
            return micros if micros in _INT64 else None
        case str():
            try:
                moment = datetime.fromisoformat(value.strip())
            except ValueError:
                return None
            return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
        case _:
            return None


def _explained(error: sqlite3.Error, deadline: Deadline) -> RelationSourceError:
    if deadline.passed:
        return SourceAwayError(f"it was not read within {deadline.limits.read_seconds:g} seconds")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_TOOBIG:
        return too_long()
    away = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
    text = str(error)
    if not text.startswith(_WORDS_ABOUT_STATEMENTS):
        text = f"SQLite cannot read it: {getattr(error, 'sqlite_errorname', type(error).__name__)}"
    return SourceAwayError(text) if code & 0xFF in away else SourceSchemaError(text)


def _authorised(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """Return whether a part of a statement may run."""
    is_refused = action in _REFUSED_ACTIONS or (
        action == sqlite3.SQLITE_FUNCTION and (name or "").casefold() in _REFUSED_FUNCTIONS
    )
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
