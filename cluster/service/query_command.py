"""`fjord query`: add, list, drop, explain, bill and follow queries."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.local.command import try_query
from cluster.local.query_arguments import (
    QUERY_HELP,
    Settings,
    file_text,
    names_query,
    one_query,
    placed,
    text_given,
    values_given,
)
from cluster.service.client.command import (
    DEFAULT_API,
    DEFAULT_BROKER,
    Api,
    AsJson,
    Broker,
    lag_text,
    make_client,
    mismatch_texts,
    print_json,
    print_lines,
    refusal_texts,
    rejection_texts,
    trouble_texts,
    wait_texts,
)

if TYPE_CHECKING:
    from cluster.service.client.api_client import ApiClient


class TailFormat(StrEnum):
    """How followed rows are printed."""

    TABLE = "table"
    JSON = "json"


NEW_LINE = "\n"
LONGEST_STATE = 20
"""Characters of a state in a list; `fjord query show` has the rest."""
query = typer.Typer(help="Add, list, drop, explain, bill and follow queries.", no_args_is_help=True)

query.command("try", no_args_is_help=True)(try_query)


@query.command("add")
def add_query(
    sql: Annotated[
        str | None, typer.Argument(help="The query, a file NAME.sql of queries, or - to read them from standard input.")
    ] = None,
    *,
    settings: Settings = None,
    name: Annotated[str | None, typer.Option(help="Its name; q1, q2, ... unless given.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Start all queries in this file (- for standard input), or none. Each ends with a semicolon; "
            "a line `-- name: NAME` before one names it.",
        ),
    ] = None,
    set_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Start a query for each row of this file (- for standard input), or none. Its columns are parameters; "
            "a column `name` names the queries.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="COLUMN", help="Values of this column of --set-from are texts."),
    ] = None,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Start a query, or those in a file, and print the topics of their results.

    For example: fjord query add slow.sql --set limit=40 --set road='A 7'
    """
    if (sql is None) == (file is None):
        raise typer.BadParameter("give either a query, or --file", param_hint="SQL")
    given = text_given(str(sql)) if file is None else file_text(file)
    values = values_given(settings or [])
    if set_from is not None or text:
        if set_from is None:
            raise typer.BadParameter("columns are those of --set-from FILE.csv", param_hint="--text")
        if name is not None:
            raise typer.BadParameter("the queries are named by the column `name`", param_hint="--name")
        if str(set_from) == "-" and "-" in (sql, str(file)):
            raise typer.BadParameter("standard input has the query already", param_hint="--set-from")
        from cluster.service.query_file import add_rows

        add_rows(given, values, set_from, text or [], api, as_json=as_json)
        return
    statements = () if given.source is None else given.statements
    if len(statements) > 1:
        if name is not None:
            raise typer.BadParameter("queries in a file have their names there", param_hint="--name")
        from cluster.service.query_file import add_together

        add_together(given, values, api, as_json=as_json)
        return
    sent = given.text
    if statements:
        sent, name = placed(given.text, statements[0]), name or statements[0].name
    with make_client(api) as client:
        added = client.add(sent, name, values)
    if as_json:
        print_json(added if file is None else [added])
        return
    for warning in added["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    for mismatch in [*mismatch_texts(added.get("mismatches", [])), *trouble_texts(added.get("troubles", []))]:
        typer.echo(f"warning: {mismatch}", err=True)
    for read in added.get("history", []):
        since = "from the beginning" if read["since"] is None else f"since {read['since']}"
        typer.echo(f"reads first: {read['stream']} {since}, about {read['rows']:,} rows", err=True)
    typer.echo(f"{added['name']}  {added['topic']}")
    if added["epoch"] is None:
        typer.echo(added["state"], err=True)


@query.command("list")
def list_queries(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """List queries: those that run, and those that wait for a relation."""
    from cluster.service.client.faults import print_faults

    with make_client(api) as client:
        queries = client.queries()
        if not as_json:
            print_faults(client)
    if as_json:
        print_json(queries)
        return
    if not queries:
        typer.echo("no queries are running")
        return
    print_lines(
        ("name", "state", "rows", "lag", "query"),
        [
            (
                each["name"],
                each["state"],
                f"{each['rows']:,}",
                lag_text(each.get("lag")),
                " ".join(each["sql"].split()),
            )
            for each in queries
        ],
        most={"state": LONGEST_STATE},
    )


@query.command("show")
def show_query(
    name: Annotated[str, typer.Argument(help="Name of a query.")], *, api: Api = DEFAULT_API, as_json: AsJson = False
) -> None:
    """Show one query: whether it runs or waits, and what it waits for."""
    from cluster.service.client.faults import print_faults

    with make_client(api) as client:
        found = client.query(name)
        if not as_json:
            print_faults(client)
    if as_json:
        print_json(found)
        return
    for label, key in (("name", "name"), ("state", "state"), ("created", "created"), ("topic", "topic")):
        typer.echo(f"{label:10}{found[key]}")
    if found.get("emit"):
        typer.echo(f"{'emit':10}{found['emit']}")
    typer.echo(f"{'reads':10}{', '.join(found['reads'])}")
    typer.echo(f"{'rows':10}{found['rows']:,}")
    typer.echo(f"{'lag':10}{lag_text(found.get('lag'))}")
    if unpublished := found.get("unpublished_commits"):
        typer.echo(f"{'published':10}up to the last {unpublished:,} commits of results")
    typer.echo(f"{'query':10}{found['sql'].strip().replace(NEW_LINE, NEW_LINE + ' ' * 10)}")
    for each in found.get("sizes") or []:
        typer.echo(f"{'sizes':10}{each['quality']} from {each['from'] or 'the beginning'}")
    if kept := found.get("kept"):
        typer.echo(f"{'kept':10}{kept['words']}")
    for text in mismatch_texts(found.get("mismatches", [])):
        typer.echo(f"{'mismatch':10}{text}")
    for text in refusal_texts(found.get("refused_demands", [])):
        typer.echo(f"{'refused':10}{text}")
    for text in wait_texts(found.get("waits_for") or []):
        typer.echo(f"{'waits':10}{text}")
    for text in trouble_texts(found.get("troubles", [])):
        typer.echo(f"{'trouble':10}{text}")
    for text in rejection_texts(found.get("rejected", [])):
        typer.echo(f"{'rejected':10}{text}")


@query.command("drop")
def drop_query(
    names: Annotated[list[str], typer.Argument(help="Names of queries.")],
    *,
    api: Api = DEFAULT_API,
) -> None:
    """Drop queries; motes that no other query demands go to sleep."""
    with make_client(api) as client:
        for name in names:
            client.drop(name)
            typer.echo(f"dropped {name}")


@query.command("tail")
def tail_query(
    name: Annotated[str, typer.Argument(help="Name of a query.")],
    *,
    after: Annotated[
        int | None, typer.Option(min=0, help="First print stored rows with a higher sequence number.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many rows.")] = None,
    form: Annotated[
        TailFormat | None,
        typer.Option(
            "--format", envvar="FJORD_TAIL_FORMAT", help="A table on a terminal and JSON elsewhere unless given."
        ),
    ] = None,
    broker: Broker = DEFAULT_BROKER,
    api: Api = DEFAULT_API,
) -> None:
    """Print a query's result rows as they are published: as a table, or as one JSON object a line."""
    import asyncio
    import contextlib
    import os
    import sys

    from cluster.service.client.tail import tail
    from protocols.mqtt.broker_address import parse_broker

    with make_client(api) as client, contextlib.suppress(BrokenPipeError):
        if form is TailFormat.TABLE or (form is None and sys.stdout.isatty()):
            show = _table_of(name, client)
        else:

            def show(message: bytes) -> None:
                typer.echo(message.decode())

        asyncio.run(tail(name, client, parse_broker(broker, os.environ), after=after, count=count, show=show))


def _table_of(name: str, client: ApiClient) -> Callable[[bytes], None]:
    """Return what prints a row of a query as a line of a table; without a token its windows are not known."""
    from cluster.service.client.api_client import RefusedError
    from cluster.service.tail_table import TailTable

    try:
        windows = client.query(name).get("windows")
    except RefusedError:
        windows = None
    table = TailTable(windows)

    def show(message: bytes) -> None:
        for line in table.lines(message):
            typer.echo(line)

    return show


@query.command("explain")
def explain_query(
    sql: Annotated[str, typer.Argument(help=f"{QUERY_HELP[:-1]}; or the name of a query that runs.")],
    *,
    settings: Settings = None,
    energy: Annotated[bool, typer.Option("--energy", help="Show what it would cost the motes instead.")] = False,
    api: Api = DEFAULT_API,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; only with --energy.")] = False,
) -> None:
    """Show what a query means and how it will be run, without running it; or, with --energy, what motes would spend.

    It needs a running cluster, which knows the streams: fjord query try answers a query over files without one.

    Of a query that runs, given by its name: what is expected of its operators, beside what they do.
    """
    from cluster.service.billing.command import asks_for_energy, print_energy

    if names_query(sql) and not energy:
        with make_client(api) as client:
            typer.echo(client.running_plan(sql).rstrip("\n"))
        return
    text, values = one_query(text_given(sql)), values_given(settings or [])
    energy = energy or asks_for_energy(text)
    if as_json and not energy:
        raise typer.BadParameter("JSON is printed with --energy only", param_hint="--json")
    with make_client(api) as client:
        if not energy:
            typer.echo(client.explain(text, values).rstrip("\n"))
            return
        answer = client.explain_energy(text, values)
    if as_json:
        print_json(answer)
    else:
        print_energy(answer)


@query.command("bill")
def show_bill(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """Show each running query's fair share of the energy that motes draw and have spent."""
    from cluster.service.billing.command import print_bill

    with make_client(api) as client:
        bill = client.bill()
    if as_json:
        print_json(bill)
    else:
        print_bill(bill)
