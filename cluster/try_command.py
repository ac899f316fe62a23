"""``fjord query try`` answers a query over files, at once, without a cluster."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import ClusterError
from protocols.command_line import byte_size_option, show_error
from protocols.printable_text import printable

if TYPE_CHECKING:
    from cluster.local.answer_formats import Format
    from cluster.local.output_file import OutputFile
    from cluster.local.tried_query import Files
    from cluster.local.trying import Trial
    from protocols.streams import FieldType

_NAMED = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_]*)=(?P<file>.+)", re.DOTALL)
FORMATS = ("table", "json", "parquet")
_BY_SUFFIX = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
SHOWN_FROM_ROWS = 1_000_000
"""Files with fewer rows are read before anybody could look at a progress bar."""


def try_query(
    sql: Annotated[str, typer.Argument(help="The query, or - to read it from standard input.")],
    *,
    on: Annotated[
        list[str],
        typer.Option(
            "--on", metavar="[STREAM=]FILE", help="CSV, Parquet or JSON lines: a stream's tuples; again for more files."
        ),
    ],
    relation: Annotated[
        list[str] | None, typer.Option("--relation", metavar="NAME=FILE", help="Likewise: a relation's rows.")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of instants in files of streams; time unless given.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="COLUMN", help="Read a column as TEXT, such as numbers of sensors."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="Read a column as BOOLEAN, INTEGER, REAL or TEXT."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="table|json|parquet", help="A table unless --output says otherwise."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the answer there.")] = None,
    memory: Annotated[
        int | None,
        byte_size_option("--memory", help="End with an error when more is needed; half of what is free unless given."),
    ] = None,
) -> None:
    """Answer a query over files, before anything is deployed.

    For example: fjord query try "SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR)" --on traffic=day.parquet

    Files of streams have a column of instants; every other column is a field. Where they end nothing more comes, and
    windows that are open answer.
    """
    import os
    import sys

    from cluster.local.memory_limit import MemoryLimitError, default_limit, limited_memory
    from cluster.local.output_file import OutputFile

    kind = _format(format_, output)
    types = _types(type_ or [], text or [])
    query = sys.stdin.read() if sql == "-" else sql
    written = None if output is None else OutputFile(output)

    def end(error: MemoryLimitError) -> None:
        # The main thread is in the midst of a computation that nothing can interrupt.
        show_error(error)
        if written is not None:
            written.discard()
        os._exit(1)

    with limited_memory(default_limit() if memory is None else memory, end):
        trial = _trial(query, lambda: _files(on, relation or [], time_column, types))
        if written is None or output is None:
            _print(_lines(trial, kind))
        else:
            _write(trial, kind, written, output)


def _trial(sql: str, files: Callable[[], Files]) -> Trial:
    from cluster.language.errors import FjordSqlError
    from cluster.local.trying import Trial

    try:
        trial = Trial(sql, files())
    except FjordSqlError as error:
        raise ClusterError(f"{error.message}\n{error.underlined()}", hint=error.hint) from None
    for warning in trial.warnings:
        typer.echo(f"warning: {printable(warning)}", err=True)
    return trial


def _format(given: str | None, output: Path | None) -> Format:
    from cluster.local.answer_formats import Format

    if given is not None and given not in FORMATS:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    suffix = "" if output is None else output.suffix.lower()
    found = Format(given or _BY_SUFFIX.get(suffix, "table"))
    if found is Format.PARQUET and output is None:
        raise typer.BadParameter("a Parquet file needs a name: --output FILE", param_hint="--format")
    return found


def _types(given: list[str], texts: list[str]) -> dict[str, FieldType]:
    from protocols.streams import FieldType

    found: dict[str, FieldType] = {}
    for each in [*given, *(f"{name}=TEXT" for name in texts)]:
        name, equals, type_ = each.rpartition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{each!r} is no COLUMN=TYPE", param_hint="--type")
        if type_.lower() not in {known.value for known in FieldType}:
            known = ", ".join(known.value.upper() for known in FieldType)
            raise typer.BadParameter(f"{type_!r} is none of {known}", param_hint="--type")
        if found.setdefault(name.casefold(), FieldType(type_.lower())).value != type_.lower():
            raise typer.BadParameter(f"{name} has one type", param_hint="--type")
    return found


def _files(on: list[str], relations: list[str], time_column: str | None, types: Mapping[str, FieldType]) -> Files:
    from cluster.local.joined_files import JoinedFiles
    from cluster.local.stream_files import TIME, StreamFile
    from cluster.local.table_files import open_table
    from cluster.local.tried_query import Files

    streams, tables = _named(on), _named(relations)
    if "" in tables:
        raise typer.BadParameter("a relation has a name: NAME=FILE", param_hint="--relation")
    for folded in streams.keys() & tables.keys():
        raise typer.BadParameter(f"{tables[folded][0]} is a stream or a relation, not both", param_hint="--relation")
    for given, option, hint in ((streams, "--on", ": --on STREAM=FILE names a stream"), (tables, "--relation", "")):
        for folded, (name, paths) in given.items():
            if len(paths) > 1 and not (option == "--on" and folded):
                whose = f"for {name}" if folded else f"without a name{hint}"
                raise typer.BadParameter(f"there are two files {whose}", param_hint=option)
    instants = time_column or TIME
    opened = {
        name: [StreamFile(open_table(path, types=types, instants=instants), instants) for path in _matching(paths)]
        for name, paths in streams.values()
    }
    joined = {name: files[0] if len(files) == 1 else JoinedFiles(files) for name, files in opened.items()}
    unnamed = joined.pop("", None)
    found = Files(joined, {name: open_table(path, types=types) for name, (path, *_) in tables.values()}, unnamed)
    _check_types(types, found)
    return found


def _check_types(types: Mapping[str, FieldType], files: Files) -> None:
    from cluster.language.errors import did_you_mean

    known = [name for table in files.tables for name in table.rows.collect_schema()]
    for name in types.keys() - {each.casefold() for each in known}:
        raise ClusterError(
            f"no file has a column {name!r}, which --type or --text name", hint=did_you_mean(name, known)
        )


def _named(given: list[str]) -> dict[str, tuple[str, list[Path]]]:
    """Return names, as they are first written, and files; by name in small letters, "" if there is none."""
    found: dict[str, tuple[str, list[Path]]] = {}
    for each in given:
        named = _NAMED.fullmatch(each)
        name, file = (named["name"], named["file"]) if named else ("", each)
        found.setdefault(name.casefold(), (name, []))[1].append(Path(file))
    return found


def _matching(paths: list[Path]) -> Iterator[Path]:
    """Yield files, and in the place of a pattern those that match it."""
    for path in paths:
        if path.exists() or not glob.has_magic(str(path)):
            yield path
            continue
        matching = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not matching:
            raise ClusterError(f"no file matches {path}")
        yield from map(Path, matching)


def _lines(trial: Trial, kind: Format) -> Iterator[str]:
    from cluster.local.answer_formats import Format, json_lines, table_lines

    pieces = trial.answers()
    return json_lines(pieces) if kind is Format.JSON else table_lines(pieces, trial.columns)


def _print(lines: Iterable[str]) -> None:
    """Print lines, until all are printed or nobody reads on."""
    import os
    import sys

    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer has nowhere to go either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise ClusterError(f"the answer cannot be printed: {error.strerror or error}") from None


def _write(trial: Trial, kind: Format, file: OutputFile, output: Path) -> None:
    """Write a file; into a device or a pipe, write as it comes."""
    from cluster.local.answer_formats import Format, json_lines, table_lines, write_parquet

    if kind is Format.PARQUET and not file.is_whole:
        raise ClusterError(f"{output} is no file, and Parquet is written to files only", hint="use --format json")
    try:
        with file.writing() as path, _progress(trial.rows) as progress:
            pieces = trial.answers(progress=progress)
            if kind is Format.PARQUET:
                write_parquet(pieces, trial.columns, path)
            else:
                lines = json_lines(pieces) if kind is Format.JSON else table_lines(pieces, trial.columns)
                with path.open("w", encoding="utf-8") as opened:
                    opened.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise ClusterError(f"{output} cannot be written: {error.strerror or error}") from None
    typer.echo(f"written: {output}", err=True)


@contextmanager
def _progress(rows: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many of so many rows have been read; give what says so."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    shown = rows >= SHOWN_FROM_ROWS and console.is_terminal
    with Progress(console=console, transient=True, disable=not shown) as bar:
        reading = bar.add_task("rows", total=rows)
        yield lambda count: bar.update(reading, advance=count)
