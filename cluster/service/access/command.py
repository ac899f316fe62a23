"""``fjord token`` draws tokens of the HTTP API, and shows which a file has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.service.client.command import AsJson, print_json

token = typer.Typer(help="Create tokens of the HTTP API, and list those of a file.", no_args_is_help=True)


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="The person or program that is to use it.")],
    *,
    role: Annotated[str, typer.Option(help="read, query or admin.")],
    file: Annotated[
        Path | None, typer.Option(help="Add the entry to this file, which `fjord cluster --api-tokens` reads.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a token and print it, this once: the entry for the file of tokens has only its digest.

    fjord token create grafana --role read --file tokens.toml
    """
    from cluster.service.access.roles import Role
    from cluster.service.access.tokens import add_token, new_token

    if role not in list(Role):
        raise typer.BadParameter(f"{role!r} is none of {', '.join(Role)}", param_hint="--role")
    drawn, entry = new_token(name, Role(role))
    if file is not None:
        add_token(file, entry)
    if as_json:
        print_json({"name": entry.name, "role": entry.role, "sha256": entry.sha256, "token": drawn})
        return
    typer.echo(drawn)
    if file is None:
        typer.echo(f"\n{entry.toml}", nl=False)


@token.command("list")
def list_tokens(file: Annotated[Path, typer.Argument(help="A file of tokens.")], *, as_json: AsJson = False) -> None:
    """Check a file of tokens, and list their names and roles."""
    from cluster.service.access.tokens import read_tokens

    found = read_tokens(file)
    if as_json:
        print_json([{"name": each.name, "role": each.role, "sha256": each.sha256} for each in found])
        return
    for each in found:
        typer.echo(f"{each.name}  {each.role}")
