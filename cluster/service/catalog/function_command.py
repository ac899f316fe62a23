"""``fjord function`` creates, lists and drops functions of users: Python functions that queries call."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.service.client.command import DEFAULT_API, Api, AsJson, make_client, print_json

function = typer.Typer(help="Create, list and drop Python functions that queries call.", no_args_is_help=True)


@function.command("create")
def create_function(
    sql: Annotated[str, typer.Argument(help="A CREATE FUNCTION statement, or - to read it from standard input.")],
    *,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Create a function of a module that is installed where queries run, and allowed by `fjord cluster --functions`.

    fjord function create "CREATE FUNCTION wear(speed REAL, load REAL) RETURNS REAL AS 'roads.wear:score'"
    """
    import sys

    with make_client(api) as client:
        made = client.declare_function(sys.stdin.read() if sql == "-" else sql)
    if as_json:
        print_json(made)
    elif made.get("dropped"):
        typer.echo(f"dropped {made['name']}")
    else:
        typer.echo(f"created {_shown(made)} from {made['path']}")


@function.command("list")
def list_functions(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """List functions: their types, where they come from, and what calls them."""
    with make_client(api) as client:
        functions = client.functions()
    if as_json:
        print_json(functions)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for header in ("function", "from", "language", "state", "used by"):
        table.add_column(header, overflow="fold")
    for each in functions:
        used_by = ", ".join(each["used_by"]) or "-"
        table.add_row(_shown(each), each["path"] or "-", each["language"] or "-", _state(each), used_by)
    Console(markup=False).print(table if functions else "there are no functions")


@function.command("drop")
def drop_function(
    names: Annotated[list[str], typer.Argument(help="Names of functions.")], *, api: Api = DEFAULT_API
) -> None:
    """Drop functions that no query calls."""
    with make_client(api) as client:
        for name in names:
            client.drop_function(name)
            typer.echo(f"dropped {name}")


def _shown(found: dict[str, Any]) -> str:
    return f"{found['shape']} {found['result'].upper()}" if found["shape"] else str(found["name"])


def _state(found: dict[str, Any]) -> str:
    if found["reason"]:
        return f"cannot be read: {found['reason']}"
    return "allowed" if found["allowed"] else "not allowed: its calls fail"
