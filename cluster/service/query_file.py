"""`fjord query add FILE`: all queries in a file are started, or none; for each row of values, if there are any."""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from rich.progress import Progress

from cluster.errors import MOST_REFUSED, ClusterError
from cluster.language.errors import suggest
from cluster.language.parameter_values import Value, value_of_word
from cluster.language.parameters import names_in
from cluster.local.query_arguments import TOO_LARGE, is_too_large
from cluster.service.client.api_client import ApiClient, RefusedError
from cluster.service.client.command import make_client, print_json
from protocols.wire.names import folded

if TYPE_CHECKING:
    from cluster.local.query_arguments import GivenText

NAME = "name"
"""The column that names queries."""

_EMPTY = "write NULL, or '' for an empty text; a column of --text is never empty"


@dataclass(frozen=True, slots=True)
class ValueRow:
    """The values of one query.

    Parameters
    ----------
    line
        The line of the file in which they end.
    name
        Of the query; None for any.
    values
        By parameter.
    """

    line: int
    name: str | None
    values: dict[str, Value]


def read_rows(file: Path, texts: Collection[str], parameters: Sequence[str]) -> list[ValueRow]:
    """Return the rows of a CSV file, the first line of which has names of parameters.

    All values of a column have one type: the one that fits them all, or TEXT. NULL may be among those of every type.
    Blanks around a value are no part of it, unless its column is one of `texts`: there all is text, also NULL.

    Parameters
    ----------
    file
        The file; ``-`` is standard input.
    texts
        Names of columns whose values are texts as they stand.
    parameters
        Names that columns must have, in lower case.

    Raises
    ------
    ClusterError
        If the file cannot be read, has no rows, or has lines with too many, too few or missing values: all of those are
        named. Also if columns are not those of `parameters`, or two have one name.
    """
    names, records = _records(file)
    if not names:
        known = ",".join(parameters) or NAME
        raise ClusterError(f"{file} is empty", hint=f"the first line names the parameters: {known}")
    columns = {folded(column): place for place, column in enumerate(names)}
    _check_columns(file, names, texts, parameters)
    if faulty := [fault for line, cells in records if (fault := _fault(line, cells, names)) is not None]:
        raise ClusterError(f"{file} cannot be read:\n{listed(faulty)}", hint=_EMPTY)
    if not records:
        raise ClusterError(f"there are no rows in {file}", hint="each line behind the first one has values of a query")
    as_texts = {folded(each) for each in texts}
    typed = {
        names[place]: _typed([cells[place] for _, cells in records], as_text=column in as_texts)
        for column, place in columns.items()
        if column != NAME
    }
    for column, values in typed.items():
        for value, (line, _) in zip(values, records, strict=True):
            if is_too_large(value):
                raise ClusterError(f"line {line:,} of {file}: the value of {column} {TOO_LARGE}")
    named = columns.get(NAME)
    return [
        ValueRow(
            line,
            None if named is None else cells[named].strip(),
            {column: values[number] for column, values in typed.items()},
        )
        for number, (line, cells) in enumerate(records)
    ]


def listed(faults: Sequence[str]) -> str:
    """Return lines about faults, and how many are left out."""
    more = [f"and {len(faults) - MOST_REFUSED:,} more"] if len(faults) > MOST_REFUSED else []
    return "\n".join([*faults[:MOST_REFUSED], *more])


def _records(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with _opened(file) as opened:
            reader = csv.reader(opened, strict=True)
            names = [each.strip() for each in next(reader, [])]
            records = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{file} cannot be read: {error}") from error
    except csv.Error as error:
        raise ClusterError(f"{file} cannot be read: line {reader.line_num}: {error}") from error
    return names, records


def _opened(file: Path) -> TextIO:
    if str(file) == "-":
        return TextIOWrapper(sys.stdin.buffer, newline="", encoding="utf-8-sig")
    return file.open(newline="", encoding="utf-8-sig")


def _check_columns(file: Path, names: Sequence[str], texts: Collection[str], parameters: Sequence[str]) -> None:
    columns = [folded(name) for name in names]
    if NAME in columns and NAME in parameters:
        hint = f"give the parameter :{NAME} of the query another name"
        raise ClusterError(f"the column {NAME} of {file} names queries", hint=hint)
    if missing := [each for each in parameters if each not in columns]:
        hint = f"add a column {missing[0]}, or give all of them one value: --set {missing[0]}=VALUE"
        raise ClusterError(f"no column of {file} is for the parameter :{missing[0]}", hint=hint)
    for name, column in zip(names, columns, strict=True):
        if columns.count(column) > 1:
            raise ClusterError(f"there are two columns {name!r} in {file}", hint="names have no case")
        if column not in parameters and column != NAME:
            raise ClusterError(
                f"the query has no parameter {name!r}, which is a column of {file}",
                hint=suggest(name, [*parameters, NAME], what="columns may be"),
            )
    for name in texts:
        if folded(name) not in columns:
            raise ClusterError(f"there is no column {name!r} in {file}", hint=suggest(name, names, what="columns are"))


def _fault(line: int, cells: Sequence[str], names: Sequence[str]) -> str | None:
    if len(cells) != len(names):
        return f"line {line:,} has {len(cells):,} value{'' if len(cells) == 1 else 's'} for {len(names):,} columns"
    missing = next((name for name, cell in zip(names, cells, strict=True) if not cell.strip()), None)
    return None if missing is None else f"line {line:,} has no value for {missing}"


def _typed(words: Sequence[str], *, as_text: bool) -> list[Value]:
    if as_text:
        return list(words)
    values = [value_of_word(word.strip()) for word in words]
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1:
        return values
    if types == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [
        value if value is None or isinstance(value, str) else word.strip()
        for word, value in zip(words, values, strict=True)
    ]


LOOK_SECONDS = 0.5
"""Between two looks at how far the cluster has come."""


def add_together(given: GivenText, values: Mapping[str, Any], api: str, *, as_json: bool) -> None:
    """Start the queries of a text, and print the topics of their results.

    Parameters
    ----------
    given
        The text.
    values
        Of parameters, for all of them.
    api
        Address of the cluster.
    as_json
        Whether to print JSON.

    Raises
    ------
    RefusedError
        If one of them is rejected: then none has been started.
    """
    with make_client(api) as client:
        added = _with_progress(client, lambda: client.add_together(given.text, values))
    _print_added(added, as_json=as_json)


def add_rows(
    given: GivenText, values: Mapping[str, Any], file: Path, texts: Collection[str], api: str, *, as_json: bool
) -> None:
    """Start a query for each row of values, or none, and print the topics of their results.

    Parameters
    ----------
    given
        The text of the query.
    values
        Of parameters that are the same in all rows.
    file
        The rows, in a CSV file.
    texts
        Names of its columns whose values are texts.
    api
        Address of the cluster.
    as_json
        Whether to print JSON.

    Raises
    ------
    ClusterError
        If the file cannot be read, or rows are rejected: then no query has been started.
    """
    same = {folded(name) for name in values}
    parameters = [name for name in names_in(given.text) if name not in same]
    rows = read_rows(file, texts, parameters)
    sent = [{"name": each.name, "parameters": each.values} for each in rows]
    with make_client(api) as client:
        try:
            added = _with_progress(client, lambda: client.add_together(given.text, values, sent))
        except RefusedError as error:
            if error.row is None:
                raise
            raise refused_rows(error, rows, file) from error
    _print_added(added, as_json=as_json)


def refused_rows(error: RefusedError, rows: Sequence[ValueRow], file: Path) -> ClusterError:
    """Return the error about all rejected rows, with their lines."""
    refused = [error, *error.others]
    places = [f"line {rows[each.row - 1].line:,} of {file}: {each.alone}" for each in refused if each.row]
    many = f"{len(refused):,} of {len(rows):,} rows are" if len(refused) > 1 else f"1 of {len(rows):,} rows is"
    more = " or more" if len(refused) >= MOST_REFUSED else ""
    return ClusterError("\n".join([f"{many} rejected{more}, and no query is added", *places]))


def _print_added(added: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(added)
        return
    for each in added:
        typer.echo(f"{each['name']}  {each['topic']}")


def _with_progress(client: ApiClient, add: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what `add` returns, and meanwhile show on a terminal how far the cluster has come."""
    found: list[list[dict[str, Any]]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(add())
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            failed.append(error)

    # A daemon: after a Ctrl-C, nothing waits for it, and the cluster notices that the connection is closed.
    adding = threading.Thread(target=run, daemon=True)
    adding.start()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("planning", total=None)
        while adding.is_alive():
            adding.join(LOOK_SECONDS)
            if console.is_terminal and adding.is_alive() and (state := client.status().get("adding")) is not None:
                done = state["planned"] == state["queries"]
                progress.update(
                    task,
                    description="starting" if done else f"planned {state['planned']:,} of {state['queries']:,}",
                    total=state["queries"],
                    completed=state["planned"],
                )
    if failed:
        raise failed[0]
    return found[0]
