"""`fjord query add FILE`: all queries in a file are started, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import Progress

from cluster.errors import MOST_REFUSED, ClusterError
from cluster.language.parameters import names_in
from cluster.service.client.api_client import ApiClient, RefusedError
from cluster.service.client.command import make_client, print_json
from cluster.service.value_rows import ValueRow, read_rows
from protocols.wire.names import folded

if TYPE_CHECKING:
    from cluster.local.query_arguments import GivenText

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
