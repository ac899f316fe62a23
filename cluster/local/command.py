"""``fjord query try`` answers a query over files, at once, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import ClusterError
from cluster.local.query_arguments import QUERY_HELP, Settings, one_query, text_given, values_given
from protocols.command_line.application import show_error
from protocols.command_line.options import byte_size_option
from protocols.text.plain_text import printable

if TYPE_CHECKING:
    import polars as pl

    from cluster.expressions.user_functions import UserFunction
    from cluster.language.parameter_values import Value
    from cluster.local.answer_formats import Format, OutputFile
    from cluster.local.tried_query import Files
    from cluster.local.trying import Trial

FORMATS = ("table", "json", "csv", "parquet")
_BY_SUFFIX = {
    ".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".txt": "table",
}  # fmt: skip
SHOWN_FROM_ROWS = 1_000_000
"""Files with fewer rows are read before a progress bar could be seen."""


def try_query(
    sql: Annotated[str, typer.Argument(help=QUERY_HELP)],
    *,
    settings: Settings = None,
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
        list[str] | None,
        typer.Option(metavar="[STREAM=]NAME", help="Column of instants in files of streams; time unless given."),
    ] = None,
    time_unit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STREAM=]s|ms|us|ns",
            help="Unit of instants that are numbers since 1970; whole microseconds unless given.",
        ),
    ] = None,
    time_format: Annotated[
        list[str] | None,
        typer.Option(metavar="[STREAM=]FORMAT", help="How instants are written, such as '%d.%m.%Y %H:%M:%S'."),
    ] = None,
    time_zone: Annotated[
        list[str] | None,
        typer.Option(metavar="[STREAM=]ZONE", help="Zone of instants without an offset; UTC unless given."),
    ] = None,
    separator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STREAM=]MARK", help="What separates values in CSV: ';', '|', tab; a comma unless given."
        ),
    ] = None,
    decimal: Annotated[
        list[str] | None,
        typer.Option(metavar="[STREAM=].|,", help="What stands before decimals in CSV; a point unless given."),
    ] = None,
    null: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A word in CSV that stands for NULL; again for more.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="COLUMN", help="Read a column as TEXT, such as numbers of sensors."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="Read a column as BOOLEAN, INTEGER, REAL or TEXT."),
    ] = None,
    create: Annotated[
        list[str] | None,
        typer.Option(
            "--create",
            metavar="STATEMENT",
            help="A CREATE FUNCTION statement, or a file NAME.sql of some; again for more.",
        ),
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(
            "--functions",
            envvar="FJORD_FUNCTIONS",
            metavar="MODULE",
            help="A module that functions may come from: roads.wear, or roads.* for all of a package; again for more.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="table|json|csv|parquet", help="A table unless --output ends otherwise."),
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

    from cluster.local.answer_formats import OutputFile
    from cluster.local.csv_options import CsvOptions
    from cluster.local.memory_limit import MemoryLimitError, default_limit, limited_memory
    from cluster.local.tried_files import open_files, types_given

    kind = _format(format_, output)
    types = types_given(type_ or [], text or [])
    csv = CsvOptions(separator or (), decimal or (), null or ())
    query, values = one_query(text_given(sql)), values_given(settings or [])
    written = None if output is None else OutputFile(output)

    def end(error: MemoryLimitError) -> None:
        # The main thread is inside a computation that cannot be interrupted.
        show_error(error)
        if written is not None:
            written.discard()
        os._exit(1)

    with limited_memory(default_limit() if memory is None else memory, end):
        made = _functions(create or [], functions or [])
        opened = partial(
            open_files, on, relation or [], time_column or [], types, made, units=time_unit or [],
            formats=time_format or [], time_zones=time_zone or [], csv=csv,
        )  # fmt: skip
        trial = _trial(query, values, opened)
        if written is None or output is None:
            _print(_lines(trial, kind, trial.answers()))
        else:
            _write(trial, kind, written, output)


def _trial(sql: str, values: Mapping[str, Value], files: Callable[[], Files]) -> Trial:
    from cluster.language.errors import FjordSqlError
    from cluster.language.parameters import bind
    from cluster.local.trying import Trial

    try:
        bound = bind(sql, values)
        with bound.placed():
            trial = Trial(bound.text, files())
    except FjordSqlError as error:
        raise ClusterError(f"{error.message}\n{error.underlined()}", hint=error.hint) from None
    for warning in trial.warnings:
        typer.echo(f"warning: {printable(warning)}", err=True)
    return trial


def _functions(statements: Iterable[str], allowed: Iterable[str]) -> tuple[UserFunction, ...]:
    """Return the functions that a query may call; from now on they may be called."""
    from cluster.functions.allowed import FunctionRules, checked_patterns, listed
    from cluster.functions.calling import CALLS
    from cluster.language.errors import FjordSqlError
    from cluster.local.declared_functions import declared_functions

    texts = [each.text for given in statements for each in text_given(given).statements]
    rules = FunctionRules(checked_patterns(listed(allowed)))
    try:
        found = declared_functions(texts, rules)
    except FjordSqlError as error:
        raise ClusterError(f"{error.message}\n{error.underlined()}", hint=error.hint) from None
    if found:
        CALLS.use(rules)
    return found


def _format(given: str | None, output: Path | None) -> Format:
    from cluster.local.answer_formats import Format

    if given is not None and given not in FORMATS:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(FORMATS)}", param_hint="--format")
    suffix = "" if output is None else output.suffix.lower()
    if given is None and suffix and suffix not in _BY_SUFFIX:
        raise typer.BadParameter(
            f"{suffix} is the suffix of no format: {', '.join(_BY_SUFFIX)} are, and --format {'|'.join(FORMATS)} "
            "names the format of any file",
            param_hint="--output",
        )
    found = Format(given or _BY_SUFFIX.get(suffix, "table"))
    if found is Format.PARQUET and output is None:
        raise typer.BadParameter("a Parquet file needs a name: --output FILE", param_hint="--format")
    return found


def _lines(trial: Trial, kind: Format, pieces: Iterable[pl.DataFrame]) -> Iterator[str]:
    from cluster.local.answer_formats import Format, csv_lines, json_lines, table_lines

    if kind is Format.JSON:
        return json_lines(pieces)
    return csv_lines(pieces, trial.columns) if kind is Format.CSV else table_lines(pieces, trial.columns, trial.grid)


def _print(lines: Iterable[str]) -> None:
    """Print lines, until all are printed or the reader has closed the pipe."""
    import os
    import sys

    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer cannot be written either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise ClusterError(f"the answer cannot be printed: {error.strerror or error}") from None


def _write(trial: Trial, kind: Format, file: OutputFile, output: Path) -> None:
    """Write a file; a device or a pipe is written to as answers arrive."""
    from cluster.local.answer_formats import Format, write_parquet

    if kind is Format.PARQUET and not file.is_whole:
        raise ClusterError(f"{output} is not a file, and Parquet is written to files only", hint="use --format json")
    try:
        with file.writing() as path, _progress(trial.rows) as progress:
            pieces = trial.answers(progress=progress)
            if kind is Format.PARQUET:
                write_parquet(pieces, trial.columns, path, trial.types)
            else:
                with path.open("w", encoding="utf-8") as opened:
                    opened.writelines(f"{line}\n" for line in _lines(trial, kind, pieces))
    except OSError as error:
        raise ClusterError(f"{output} cannot be written: {error.strerror or error}") from None
    typer.echo(f"written: {output}", err=True)


@contextmanager
def _progress(rows: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many of so many rows have been read; yield the function that counts them."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    shown = rows >= SHOWN_FROM_ROWS and console.is_terminal
    with Progress(console=console, transient=True, disable=not shown) as bar:
        reading = bar.add_task("rows", total=rows)
        yield lambda count: bar.update(reading, advance=count)
