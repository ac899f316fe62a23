"""`fjord query add FILE`: all queries in a file are started, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import Progress

from cluster.service.client.api_client import ApiClient
from cluster.service.client.command import make_client, print_json

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
