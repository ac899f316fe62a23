"""Opens the files that options of ``fjord query try`` name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import NamedTuple
from zoneinfo import available_timezones

import typer

from cluster.errors import ClusterError
from cluster.expressions.user_functions import UserFunction
from cluster.local.column_values import column_key
from cluster.local.csv_files import CsvStyle
from cluster.local.csv_options import CsvOptions, named_values, of_streams
from cluster.local.file_instants import Notation, TimeFormat, TimeUnit
from cluster.local.joined_files import JoinedFiles
from cluster.local.stream_files import TIME, StreamFile
from cluster.local.table_files import open_table
from cluster.local.tried_query import Files, StreamFiles
from protocols.text.closeness import did_you_mean
from protocols.wire.names import folded
from protocols.wire.streams import FIELD_TYPES, FieldType

_TYPES = {type_.value.upper(): type_ for type_ in FIELD_TYPES}


def types_given(given: Sequence[str], texts: Sequence[str]) -> dict[str, FieldType]:
    """Return types by name of a column, in lower case.

    Parameters
    ----------
    given
        Written COLUMN=TYPE.
    texts
        Names of columns that are TEXT.

    Raises
    ------
    typer.BadParameter
        If one is written otherwise, or a column has two types.
    """
    found: dict[str, FieldType] = {}
    for each in [*given, *(f"{name}=TEXT" for name in texts)]:
        name, equals, word = each.rpartition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{each!r} is not COLUMN=TYPE", param_hint="--type")
        type_ = _TYPES.get(word.upper())
        if type_ is None:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(_TYPES)}", param_hint="--type")
        if found.setdefault(folded(name), type_) is not type_:
            raise typer.BadParameter(f"{name} has one type", param_hint="--type")
    return found


def open_files(
    on: Sequence[str],
    relations: Sequence[str],
    time_columns: Sequence[str],
    types: Mapping[str, FieldType],
    functions: tuple[UserFunction, ...] = (),
    *,
    units: Sequence[str] = (),
    formats: Sequence[str] = (),
    time_zones: Sequence[str] = (),
    csv: CsvOptions = CsvOptions(),  # noqa: B008 - it is frozen
) -> Files:
    """Open all files.

    Parameters
    ----------
    on
        Files of streams, written STREAM=FILE or FILE; several may be of one stream.
    relations
        Files of relations, written NAME=FILE.
    time_columns
        Columns of instants: one for all streams, and STREAM=NAME for some.
    types
        By name of a column, in lower case.
    functions
        What the query may call.
    units
        Units of instants that are numbers: one for all streams, and STREAM=UNIT for some.
    formats, time_zones
        Formats of instants that are texts, and zones of instants without one, likewise.
    csv
        What is given about CSV.

    Raises
    ------
    typer.BadParameter
        If options contradict each other.
    ClusterError
        If a file cannot be read, or does not fit.
    """
    streams, tables = named_values(on), named_values(relations)
    if "" in tables:
        raise typer.BadParameter("a relation has a name: NAME=FILE", param_hint="--relation")
    for same in streams.keys() & tables.keys():
        raise typer.BadParameter(f"{tables[same][0]} is a stream or a relation, not both", param_hint="--relation")
    for name, paths in tables.values():
        if len(paths) > 1:
            raise typer.BadParameter(f"there are two files for {name}", param_hint="--relation")
    if len(streams.get("", ("", []))[1]) > 1:
        reason = "there are two files without a name: --on STREAM=FILE names a stream"
        raise typer.BadParameter(reason, param_hint="--on")
    stamps = of_streams(time_columns, streams, "--time-column", "columns of instants")
    given = {key: _unit(unit) for key, unit in of_streams(units, streams, "--time-unit", "units").items()}
    written = {key: _format(each) for key, each in of_streams(formats, streams, "--time-format", "formats").items()}
    zones = {key: _zone(each) for key, each in of_streams(time_zones, streams, "--time-zone", "zones").items()}
    styles = csv.styles({*streams, *tables})
    opened = {}
    for key, (name, paths) in streams.items():
        unit, format_ = given.get(key), written.get(key)
        if unit is None and format_ is None:
            unit, format_ = given.get(""), written.get("")
        if unit is not None and format_ is not None:
            raise typer.BadParameter(
                "instants are numbers of a unit or written in a format", param_hint="--time-format"
            )
        instants = _Instants(stamps.get(key) or stamps.get("", TIME), unit, format_, zones.get(key) or zones.get(""))
        opened[name] = _stream(name, paths, types, instants, styles.of(key))
    unnamed = opened.pop("", None)
    read = {
        name: open_table(Path(path), types=types, style=styles.of(key)) for key, (name, (path, *_)) in tables.items()
    }
    found = Files(opened, read, unnamed, functions)
    _check_types(types, found)
    if csv.option is not None and all(each.kind != "CSV" for each in found.tables):
        raise typer.BadParameter("none of the files is CSV", param_hint=csv.option)
    return found


def _unit(word: str) -> TimeUnit:
    if word not in {*TimeUnit}:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(TimeUnit)}", param_hint="--time-unit")
    return TimeUnit(word)


def _format(text: str) -> TimeFormat:
    found = TimeFormat(text)
    if (fault := found.fault) is not None:
        raise typer.BadParameter(f"{text!r} is no format of instants: {fault}", param_hint="--time-format")
    return found


def _zone(name: str) -> str:
    if name not in available_timezones():
        hint = did_you_mean(name, available_timezones()) or "zones are called Europe/Berlin or UTC"
        raise typer.BadParameter(f"there is no time zone {name!r}: {hint}", param_hint="--time-zone")
    return name


class _Instants(NamedTuple):
    column: str
    unit: TimeUnit | None
    format: TimeFormat | None
    zone: str | None


def _stream(
    name: str, given: Sequence[str], types: Mapping[str, FieldType], instants: _Instants, style: CsvStyle
) -> StreamFiles:
    paths = [path for each in given for path in _matching(Path(each))]
    real = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if real[number] in real[:number]:
            raise ClusterError(f"{path} is given twice for {name}", hint="its tuples would count twice")
    tables = [open_table(path, types=types, instants=instants.column, style=style) for path in paths]
    notation = Notation(instants.unit, style.decimal, instants.format, instants.zone)
    files = [StreamFile(table, instants.column, notation=notation) for table in tables]
    return files[0] if len(files) == 1 else JoinedFiles(files)


def _matching(path: Path) -> Iterator[Path]:
    """Yield a file, or those that match a pattern."""
    if path.exists() or not has_magic(str(path)):
        yield path
        return
    matching = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not matching:
        raise ClusterError(f"no file matches {path}")
    yield from matching


def _check_types(types: Mapping[str, FieldType], files: Files) -> None:
    known = [name for table in files.tables for name in table.rows.collect_schema()]
    keys = {column_key(each) for each in known}
    for name in [each for each in types if column_key(each) not in keys]:
        raise ClusterError(
            f"no file has a column {name!r}, which --type or --text names", hint=did_you_mean(name, known)
        )
