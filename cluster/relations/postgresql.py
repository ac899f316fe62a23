"""Relations from PostgreSQL: read-only transactions of one statement, rows one by one, conditions by indexes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from urllib.parse import parse_qsl, unquote, urlsplit

import polars as pl
import psycopg
from psycopg.sql import Identifier

from cluster.language.comparisons import Comparison
from cluster.language.errors import MASK, masked
from cluster.operators.columns import Column, Schema
from cluster.relations.allowed_hosts import AllowedHosts
from cluster.relations.fitting import matched, polars_schema, servable, settled
from cluster.relations.source import (
    LONGEST_TEXT,
    Deadline,
    Limits,
    RelationSourceError,
    SourceAwayError,
    SourceColumn,
    SourceSchemaError,
    batches,
)
from protocols.wire.streams import FieldType

KEEP_ALIVE = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "fjord",
}
"""Settings of a connection, unless the address has others: they detect a network that fails silently."""

TIMESTAMPS = ("timestamp without time zone", "timestamp with time zone", "date")
_TYPES = {
    "boolean": FieldType.BOOLEAN,
    **dict.fromkeys(("smallint", "integer", "bigint", "oid", *TIMESTAMPS), FieldType.INTEGER),
    **dict.fromkeys(("real", "double precision", "numeric"), FieldType.REAL),
}
_CASTS = {
    FieldType.BOOLEAN: "boolean",
    FieldType.INTEGER: "bigint",
    FieldType.REAL: "double precision",
    FieldType.TEXT: "text",
}
_NOT_USABLE = frozenset({"bytea"})
_ABOUT_STATEMENTS = "42"
_FORBIDDEN = "42501"
_NOT_ABOUT_VALUES = ("08", "0A", "25", "28", "3D", "3F", "53", "55", "57")
"""Classes of errors: of connections, transactions, users, databases, schemas, resources, states and operators."""
_LONGEST_WORDS = 500
_ROWS_WITHOUT_TEXTS = 500
"""Rows that are fetched together if none of their columns is a text."""
_SPECIAL_NUMBERS = "('NaN', 'Infinity', '-Infinity')"


class PostgresSource:
    """A table or query of a PostgreSQL database.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``, as libpq reads it.
    table
        Name of a table or view, a part per dot; or None.
    query
        A query, in place of a table; or None.
    limits
        Limits on reading it.
    hosts
        Which servers may be connected to, and with which credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        table: tuple[str, ...] | None,
        query: str | None,
        limits: Limits,
        hosts: AllowedHosts,
    ) -> None:
        self._url = url
        self._limits = limits
        self._hosts = hosts
        self._table = None if table is None else Identifier(*table).as_string()
        self._query = None if query is None else query.strip().rstrip(";")
        self._from = self._table if self._query is None else f"({self._query}\n)"

    @property
    def shown(self) -> str:
        """The address without its password."""
        return masked(self._url)

    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns of the table or query."""
        with self._connected() as connection:
            return self._columns(connection)

    def rows(self, columns: Schema, condition: tuple[Comparison, ...] = ()) -> pl.DataFrame:
        """Return the rows."""
        deadline = Deadline(self._limits)
        chunks = [pl.DataFrame(schema=polars_schema(columns))]
        count = size = 0
        with self._connected() as connection:
            pairs = matched(columns, self._columns(connection))
            listed = ", ".join(_cast(given, column) for column, given in pairs) or "1"
            where, values = _where(condition, pairs)
            statement = f"SELECT {listed} FROM {self._from} AS q{where}"  # noqa: S608 - names are quoted, values bound
            # Rows that are fetched together are held together, however long their texts.
            texts = any(column.type is FieldType.TEXT for column in columns)
            together = 1 if texts or not psycopg.capabilities.has_stream_chunked() else _ROWS_WITHOUT_TEXTS
            with (
                psycopg.RawCursor(connection) as cursor,
                # It holds the connection until it ends, also where an error keeps it alive.
                closing(cursor.stream(statement.encode(), values, binary=True, size=together)) as stream,  # type: ignore[type-var] # a generator, declared as an iterator
            ):
                for batch in batches(stream):
                    chunk = pl.DataFrame(batch, schema=polars_schema(columns), orient="row")
                    count, size = count + chunk.height, size + int(chunk.estimated_size())
                    self._limits.check(count, size)
                    deadline.check()
                    chunks.append(chunk)
        return settled(pl.concat(chunks), columns, condition)

    def estimate(self) -> int | None:
        """Return the number of rows in the database's statistics."""
        with self._connected() as connection, psycopg.RawCursor(connection) as cursor:
            if self._table is not None and self._query is None:
                statistics = "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)"
                found = cursor.execute(statistics, [self._table]).fetchone()
                if found is not None and found[0] >= 0:
                    return int(found[0])
            plan = f"EXPLAIN (FORMAT JSON) SELECT * FROM {self._from} AS q"  # noqa: S608 - names are quoted
            explained = cursor.execute(plan.encode()).fetchone()
            return None if explained is None else int(explained[0][0]["Plan"]["Plan Rows"])

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        given = self._hosts.settings(self._url)
        settings = {**KEEP_ALIVE, "connect_timeout": self._limits.connect_seconds, **given}
        try:
            with psycopg.connect(**settings) as connection:  # type: ignore[arg-type]
                connection.read_only = True
                milliseconds = str(int(self._limits.read_seconds * 1000))
                connection.execute(
                    "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
                    "set_config('timezone', 'UTC', false)",
                    [milliseconds, milliseconds],
                )
                yield connection
        except psycopg.Error as error:
            raise self._explained(error) from None

    def _columns(self, connection: psycopg.Connection) -> tuple[SourceColumn, ...]:
        with psycopg.RawCursor(connection) as cursor:
            # Binary, to use the extended protocol, which accepts only one statement.
            cursor.execute(f"SELECT * FROM {self._from} AS q LIMIT 0".encode(), binary=True)  # noqa: S608
            described = [(each.name, each.type_code) for each in cursor.description or ()]
            codes = [code for _, code in described]
            cursor.execute("SELECT code, format_type(code, NULL) FROM unnest($1::oid[]) AS code", [codes])
            names: dict[int, str] = dict(cursor.fetchall())
        return tuple(
            SourceColumn(name, _TYPES.get(declared, FieldType.TEXT), declared, usable=declared not in _NOT_USABLE)
            for name, declared in ((name, names[code]) for name, code in described)
        )

    def _explained(self, error: psycopg.Error) -> RelationSourceError:
        """Return the error as our own, without passwords, because a driver may quote the address, and without rows."""
        # libpq's second line asks whether the server is running.
        text = (_words(error) or type(error).__name__).splitlines()[0][:_LONGEST_WORDS]
        text = text.removeprefix("connection failed: ")
        for secret in sorted(_secrets(self._url), key=len, reverse=True):
            text = text.replace(secret, MASK)
        text = masked(" ".join(text.split()))
        if isinstance(error, psycopg.OperationalError):
            return SourceAwayError(text)
        return SourceSchemaError(text)


def _words(error: psycopg.Error) -> str:
    """Return what the database or libpq says, unless it may quote values of rows."""
    code = error.diag.sqlstate or error.sqlstate
    if code is None:  # no answer of a database: a connection, or a value that psycopg could not read
        return str(error).strip() if isinstance(error, psycopg.OperationalError) else ""
    # While a statement is analysed, an error has a place in it; later, a cast may quote the value of a row.
    about_statement = code.startswith(_ABOUT_STATEMENTS) and (error.diag.statement_position or code == _FORBIDDEN)
    if about_statement or code.startswith(_NOT_ABOUT_VALUES):
        return (error.diag.message_primary or "").strip()
    return f"the database failed on a value: {type(error).__name__} ({code})"


def _secrets(url: str) -> set[str]:
    """Return the passwords in an address, as written and decoded."""
    found: set[str] = set()
    try:
        parts = urlsplit(url)
        found |= {parts.password or ""}
        found |= {value for key, value in parse_qsl(parts.query) if "pass" in key.casefold()}
    except ValueError:
        pass
    inner = url.partition("://")[2].rpartition("@")[0]
    found.add(inner.partition(":")[2])
    return {each for secret in found if secret for each in (secret, unquote(secret)) if each}


def _cast(given: SourceColumn, column: Column) -> str:
    """Return the expression of a wanted column; conditions use the bare column, so that indexes can serve them."""
    name = f"q.{Identifier(given.name).as_string()}"
    if column.type is FieldType.INTEGER and given.declared in TIMESTAMPS:
        return f"CASE WHEN isfinite({name}) THEN (EXTRACT(EPOCH FROM {name}) * 1000000)::bigint END"
    if column.type is FieldType.REAL and given.declared == "numeric":
        return f"CASE WHEN {name} NOT IN {_SPECIAL_NUMBERS} THEN {name}::double precision END"
    if column.type is FieldType.TEXT:
        # One character more than any may have: enough for it to be refused.
        return f"left({name}::text, {LONGEST_TEXT + 1})"
    return f"{name}::{_CASTS[column.type]}"


def _where(condition: tuple[Comparison, ...], pairs: list[tuple[Column, SourceColumn]]) -> tuple[str, list[object]]:
    by_name = {column.name: (column, given) for column, given in pairs}
    tests: list[str] = []
    values: list[object] = []
    for comparison in condition:
        column, given = by_name[comparison.column]
        if not servable(comparison, column, given):
            continue
        name = f"q.{Identifier(given.name).as_string()}"
        match comparison.operator:
            case "is null" | "is not null":
                tests.append(f"{name} {comparison.operator}")
            case "in" if given.declared not in (*TIMESTAMPS, "numeric"):
                values.append(list(comparison.values))
                tests.append(f"{name} = ANY(${len(values)}::{_CASTS[column.type]}[])")
            case "=" | "<" | "<=" | ">" | ">=" as operator:
                for each, value in _bounds(operator, comparison.values[0], given.declared):
                    values.append(value)
                    tests.append(f"{name} {each} {_parameter(len(values), column, given.declared)}")
            case _:
                pass
    return (f" WHERE {' AND '.join(tests)}" if tests else ""), values


def _bounds(operator: str, value: object, declared: str) -> list[tuple[str, object]]:
    """Return the tests on the bare column; those of numerics are a little wide, as casting them to reals rounds."""
    if declared != "numeric":
        return [(operator, value)] if declared != "date" else []
    exact = float(value)  # type: ignore[arg-type]
    if not math.isfinite(exact):
        return []
    below, above = (Decimal(math.nextafter(exact, side)) for side in (-math.inf, math.inf))
    lower: tuple[str, object] = (">=", below)
    upper: tuple[str, object] = ("<=", above)
    return {"=": [lower, upper], "<": [upper], "<=": [upper]}.get(operator, [lower])


def _parameter(number: int, column: Column, declared: str) -> str:
    if declared in TIMESTAMPS:
        kind = "timestamptz" if declared == "timestamp with time zone" else "timestamp"
        begin = "1970-01-01 00:00:00+00" if kind == "timestamptz" else "1970-01-01"
        return f"({kind} '{begin}' + ${number}::bigint * interval '1 microsecond')"
    cast = "numeric" if declared == "numeric" else "text" if column.type is FieldType.TEXT else _CASTS[column.type]
    return f"${number}::{cast}"
