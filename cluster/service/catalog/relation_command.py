"""``fjord relation`` creates, lists, shows and drops relations: tables elsewhere that queries join with streams."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.service.client.command import DEFAULT_API, Api, AsJson, make_client, print_json
from protocols.text.quantities import format_duration

relation = typer.Typer(help="Create, list, show and drop relations.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of a relation.")]


@relation.command("create")
def create_relation(
    sql: Annotated[str, typer.Argument(help="A CREATE RELATION statement, or - to read it from standard input.")],
    *,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Create a relation from a database, a file or the catalog of sensors, and read it for the first time.

    fjord relation create "CREATE RELATION incidents FROM 'postgresql://reader@db/roads' REFRESH EVERY 30 SECONDS"
    """
    import sys

    with make_client(api) as client:
        made = client.declare_relation(sys.stdin.read() if sql == "-" else sql)
    if as_json:
        print_json(made)
    elif made.get("dropped"):
        typer.echo(f"dropped {made['name']}")
    else:
        typer.echo(f"created {made['name']}: {_rows(made)} rows, {_state(made)}")


@relation.command("list")
def list_relations(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """List relations: their sources, their age, and the queries that read them."""
    with make_client(api) as client:
        relations = client.relations()
    if as_json:
        print_json(relations)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for header in ("name", "source", "rows", "version", "age", "state", "used by"):
        table.add_column(header, overflow="fold")
    for each in relations:
        table.add_row(
            each["name"],
            each["source"],
            _rows(each),
            _shown(each["version"]),
            _age(each),
            _state(each),
            ", ".join(each["used_by"]) or "-",
        )
    Console(markup=False).print(table if relations else "there are no relations")


@relation.command("show")
def show_relation(name: Name, *, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """Show a relation: its columns, its version, and how fresh it is."""
    with make_client(api) as client:
        found = client.relation(name)
    if as_json:
        print_json(found)
        return
    columns = ", ".join(
        f"{column['name']} {column['type']}" + (f" [{column['unit']}]" if column["unit"] else "")
        for column in found["columns"]
    )
    stale_after = found["stale_after"]
    for label, value in (
        ("name", found["name"]),
        ("source", found["source"]),
        ("columns", columns),
        ("rows", _rows(found)),
        ("bytes", _shown(found["bytes"])),
        ("version", _shown(found["version"])),
        ("age", _age(found)),
        ("refreshed every", _duration(found["refresh"])),
        ("stale after", "-" if stale_after is None else _duration(stale_after)),
        ("state", _state(found)),
        ("used by", ", ".join(found["used_by"]) or "-"),
        ("created by", " ".join(found["text"].split()) if found["text"] else "built in"),
    ):
        typer.echo(f"{label:16}{value}")


@relation.command("drop")
def drop_relation(
    names: Annotated[list[str], typer.Argument(help="Names of relations.")], *, api: Api = DEFAULT_API
) -> None:
    """Drop relations that no query reads."""
    with make_client(api) as client:
        for name in names:
            client.drop_relation(name)
            typer.echo(f"dropped {name}")


def _rows(found: dict[str, Any]) -> str:
    if found["rows"] is not None:
        return f"{found['rows']:,}"
    return "-" if found["estimated_rows"] is None else f"about {found['estimated_rows']:,}"


def _age(found: dict[str, Any]) -> str:
    return "-" if found["age"] is None else _duration(round(found["age"]))


def _duration(seconds: float) -> str:
    return format_duration(int(seconds * 1e6))


def _state(found: dict[str, Any]) -> str:
    if found["version"] is None and not found["reason"]:
        return "being read"
    return f"{found['state']}: {found['reason']}" if found["reason"] else str(found["state"])


def _shown(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
