"""``fjord plan alternatives`` and ``migrate``: the plans with which a running query could go on, and one of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.service.client.command import DEFAULT_API, Api, AsJson, make_client, print_json, print_whole
from protocols.command_line.options import duration_option

Name = Annotated[str, typer.Argument(help="Name of a query that runs.")]
HEADINGS = ("", "plan", "work/s", "kept rows", "rows", "what is different")
_MIGRATIONS = {"whole": "stay whole", "cut": "are cut"}


def list_alternatives(
    query: Name,
    *,
    most: Annotated[int, typer.Option(min=1, max=1_000, help="List so many of the cheapest.")] = 20,
    show: Annotated[int | None, typer.Option(metavar="N", help="Show this plan as a tree instead.")] = None,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """List the plans with which a query could go on: what they are expected to cost, and what becomes of its rows.

    The plan that runs is marked with *, and one that is to follow it with >. `fjord plan migrate QUERY --to N` takes
    another one; numbers stay the same.
    """
    with make_client(api) as client:
        found = client.alternatives(query, 1_000 if show is not None else most)
    if show is not None:
        _show(query, show, found)
    elif as_json:
        print_json(found)
    else:
        _print(found)
        for each in found:
            if each["comes"]:
                typer.echo(_follows(query, each))


def _follows(query: str, each: dict[str, Any]) -> str:
    """Return in words that a query goes on with a plan."""
    plan = "another plan" if each["number"] is None else f"plan {each['number']:,}"
    if each["waits_for"]:
        return f"> {query} goes on with {plan} later: it waits for {each['waits_for']}"
    at = "the beginning" if each["at"] is None else each["at"]
    return f"> {query} goes on with {plan} from {at} on; until then it runs by the plan marked with *"


def _show(query: str, number: int, found: list[dict[str, Any]]) -> None:
    trees = [each["plan"] for each in found if each["number"] == number]
    if not trees:
        raise typer.BadParameter(f"query {query} has no plan {number}", param_hint="--show")
    typer.echo(trees[0])


def _print(found: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in HEADINGS[1:4] else "left", no_wrap=True)
    for each in found:
        becomes = "" if each["runs"] else _MIGRATIONS.get(each["migration"], "-")
        least = "" if each["complete"] or each["work_us"] is None else "> "
        table.add_row(
            "*" if each["runs"] else ">" if each["comes"] else "",
            "-" if each["number"] is None else f"{each['number']:,}",
            "?" if each["work_us"] is None else f"{least}{each['work_us'] / 1000:,.3g}ms",
            "?" if each["kept_rows"] is None else f"{least}{each['kept_rows']:,.0f}",
            becomes,
            each["what"],
        )
    print_whole(table)
    for reason in dict.fromkeys(each["refused"] for each in found if each["refused"]):
        typer.echo(f"-: {reason}")


def migrate(
    query: Name,
    *,
    to: Annotated[int, typer.Option("--to", min=1, metavar="N", help="The number of the plan.")],
    deadline: Annotated[
        int | None,
        duration_option(
            "--deadline",
            help="Take over so long after the last tuple read, where nothing bounds how far back the plan reaches.",
            shown_default="none",
        ),
    ] = None,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Let a query go on with another of its plans: see `fjord plan alternatives`. Nothing stops."""
    with make_client(api) as client:
        state = client.migrate(query, to, None if deadline is None else deadline / 1e6)
    if as_json:
        print_json(state)
    elif state["waits_for"]:
        typer.echo(f"{query} waits for {state['waits_for']}")
    else:
        at = "the beginning" if state["at"] is None else state["at"]
        typer.echo(f"{query} goes on with plan {to:,} from {at} on{', where rows are cut' if state['cut'] else ''}")
