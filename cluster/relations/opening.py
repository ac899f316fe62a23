"""The source that a text behind FROM names."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.language.errors import FjordSqlError
from cluster.language.relation_statements import CreateRelation
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


def open_source(statement: CreateRelation, *, limits: Limits, sensors: RelationSource | None = None) -> RelationSource:
    """Return the source of a relation, without reading from it yet.

    Parameters
    ----------
    statement
        The statement that creates the relation.
    limits
        Limits on reading it.
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
            return PostgresSource(statement.source, table=table, query=statement.query, limits=limits)
        case "sqlite":
            return SqliteSource(Path(location), table=table, query=statement.query, limits=limits)
        case "csv":
            return CsvSource(Path(location), limits=limits)
        case "parquet":
            return ParquetSource(Path(location), limits=limits)
        case "delta":
            return DeltaSource(location, limits=limits)
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
            return kind, rest
        return kind, re.sub(r"^/{2,}", "/", rest)
    if (suffix := Path(statement.source).suffix.casefold()) in SUFFIXES and "://" not in statement.source:
        return SUFFIXES[suffix], statement.source
    raise _unknown(statement)


def _unknown(statement: CreateRelation) -> FjordSqlError:
    return statement.error("there is no such source", f"a source is {SHAPES}")
