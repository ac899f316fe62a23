"""The source that a text behind FROM names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from cluster.language.declarations import CreateRelation
from cluster.language.errors import FjordSqlError
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.allowed_hosts import AllowedHosts
from cluster.relations.frames import CsvSource, DeltaSource, ParquetSource
from cluster.relations.postgresql import PostgresSource
from cluster.relations.source import Limits, RelationSource
from cluster.relations.sqlite import SqliteSource

SHAPES = (
    "'postgresql://user@host/database', 'sqlite:///folder/file.db', 'file.csv', 'file.parquet', 'delta:folder' "
    "or 'catalog:sensors'"
)
SCHEMES = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite"} | {
    kind: kind for kind in ("csv", "parquet", "delta", "catalog")
}
SUFFIXES = {".csv": "csv", ".parquet": "parquet"}
SENSORS = "sensors"
DATABASES = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class Reach:
    """What relations may reach outside of the cluster; by default no file, and PostgreSQL on this machine.

    Parameters
    ----------
    files
        Files and folders.
    hosts
        Servers of databases.
    """

    files: AllowedFiles = field(default_factory=AllowedFiles)
    hosts: AllowedHosts = field(default_factory=AllowedHosts)


def open_source(
    statement: CreateRelation, *, limits: Limits, reach: Reach, sensors: RelationSource | None = None
) -> RelationSource:
    """Return the source of a relation, without reading from it yet.

    Whether relations may reach it is checked each time that it is read.

    Parameters
    ----------
    statement
        The statement that creates the relation.
    limits
        Limits on reading it.
    reach
        What relations may reach.
    sensors
        The source behind ``catalog:sensors``; None if there is none.

    Raises
    ------
    FjordSqlError
        If there is no such kind of source, or it does not support tables and queries.
    """
    kind, location = _kind(statement)
    if kind not in DATABASES:
        for part, given in (("query", statement.query), ("table", statement.table)):
            if given is not None:
                raise statement.error(
                    f"only a database has tables and answers queries, not {kind}:", "leave it out", at=part
                )
    if kind in {"sqlite", "csv", "parquet", "delta"} and not location:
        raise statement.error("the name of a file is missing", f"it is written {SHAPES}")
    table = statement.table if statement.table or statement.query else (statement.name,)
    match kind:
        case "postgresql":
            return PostgresSource(
                statement.source, table=table, query=statement.query, limits=limits, hosts=reach.hosts
            )
        case "sqlite":
            return SqliteSource(Path(location), table=table, query=statement.query, limits=limits, files=reach.files)
        case "csv":
            return CsvSource(Path(location), limits=limits, files=reach.files)
        case "parquet":
            return ParquetSource(Path(location), limits=limits, files=reach.files)
        case "delta":
            return DeltaSource(Path(location), limits=limits, files=reach.files)
        case _:
            if location != SENSORS or sensors is None:
                raise statement.error(f"there is no catalog {location!r}", f"it is written 'catalog:{SENSORS}'")
            return sensors


def _kind(statement: CreateRelation) -> tuple[str, str]:
    """Return the kind of a source, and its location.

    ``sqlite:///a/b`` and ``sqlite:/a/b`` are ``/a/b``; ``sqlite:a/b`` is below the folder in which the cluster runs.
    """
    scheme, colon, rest = statement.source.partition(":")
    if colon and scheme.casefold() in SCHEMES:
        kind = SCHEMES[scheme.casefold()]
        if kind == "delta" and "://" in rest:
            return kind, _folder_of(statement, rest)
        return kind, re.sub(r"^/{2,}", "/", rest)
    if (suffix := Path(statement.source).suffix.casefold()) in SUFFIXES and "://" not in statement.source:
        return SUFFIXES[suffix], statement.source
    raise _unknown(statement)


def _folder_of(statement: CreateRelation, uri: str) -> str:
    """Return the folder of a URI. Other stores would be asked with the credentials of the process."""
    scheme, _, rest = uri.partition("://")
    if scheme.casefold() != "file" or not rest.startswith("/"):
        raise statement.error("a Delta table is read from a folder of this machine", "it is written 'delta:folder'")
    return unquote(rest)


def _unknown(statement: CreateRelation) -> FjordSqlError:
    return statement.error("there is no such source", f"a source is {SHAPES}")
