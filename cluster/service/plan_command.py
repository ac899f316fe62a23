"""``fjord plan`` shows and draws the plan that all queries share, and other plans with which one could go on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cluster.errors import ClusterError
from cluster.service.client.command import DEFAULT_API, Api, AsJson, make_client, print_json, print_whole
from protocols.command_line.options import duration_option

if TYPE_CHECKING:
    from rich.table import Table

    from cluster.costs.prices import Prices

Name = Annotated[str, typer.Argument(help="Name of a query that runs.")]
ALTERNATIVES_HEADINGS = ("", "plan", "work/s", "kept rows", "rows", "what is different")
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
    for heading in ALTERNATIVES_HEADINGS:
        table.add_column(heading, justify="right" if heading in ALTERNATIVES_HEADINGS[1:4] else "left", no_wrap=True)
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


plan = typer.Typer(help="Show and draw the plan that all queries share.", no_args_is_help=True)

plan.command("alternatives")(list_alternatives)
plan.command("migrate")(migrate)

FORMATS = {".mmd": "mermaid", ".md": "mermaid", ".dot": "dot", ".gv": "dot"}
HEADINGS = ("runs", "rows in", "rows out", "rows/s", "out per row", "us per row", "seconds", "queue", "dropped")
WHOLE = 100
"""Rates from here on are shown without decimals."""
DRAWN_BY_GRAPHVIZ = (".svg", ".png", ".pdf")


@plan.command("show")
def show_plan(
    *,
    operators: Annotated[
        bool,
        typer.Option(
            "--operators", help="Also list every operator, its queues, and its rates of the last half minute."
        ),
    ] = False,
    difference: Annotated[bool, typer.Option("--diff", help="Show the last change of the plan instead.")] = False,
    since: Annotated[
        int | None, typer.Option("--since", help="With --diff: show all changes since this epoch.")
    ] = None,
    api: Api = DEFAULT_API,
) -> None:
    """Print the shared plan: its fragments, their queries, where they run, and how much they have done."""
    with make_client(api) as client:
        if difference or since is not None:
            typer.echo(client.plan_difference(since), nl=False)
            return
        typer.echo(client.plan("text"))
        if operators:
            _print_operators(client.operators())


def _print_operators(operators: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("operator", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in operators:
        numbers = (each["transitions"], each["rows_in"], each["rows_out"])
        rates = (each["rows_in_per_second"], each["rows_out_per_row"], each["microseconds_per_row"])
        table.add_row(
            each["operator"], *(f"{number:,}" for number in numbers), *map(_rate, rates), f"{each['seconds']:.2f}",
            f"{each['deepest']:,}", f"{each['dropped']:,}",
        )  # fmt: skip
    print_whole("", table)


@plan.command("history")
def show_history(
    *,
    last: Annotated[int, typer.Option(min=1, max=1_000, help="How many epochs.")] = 20,
    api: Api = DEFAULT_API,
) -> None:
    """Print how the plan came to be: when it changed, for which queries, and how many operators came and went."""
    from rich.table import Table

    with make_client(api) as client:
        steps, migrations = client.plan_history(last), client.migrations()
    if not steps:
        typer.echo("the plan has not changed yet")
        return
    table = Table(box=None)
    for heading in ("epoch", "at", "change"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "epoch" else "left")
    table.add_column("operators", no_wrap=True, justify="right")
    for each in steps:
        at = datetime.fromtimestamp(each["at_seconds"], UTC).isoformat(sep=" ", timespec="seconds")
        table.add_row(
            f"{each['epoch']:,}", at.removesuffix("+00:00"), each["words"],
            f"+{each['operators_come']:,} -{each['operators_go']:,}",
        )  # fmt: skip
    print_whole(table)
    for each in migrations:
        if each["waits_for"]:
            typer.echo(_waits(each))


def _waits(migration: Mapping[str, Any]) -> str:
    """Return in words what a migration waits for."""
    why = f" ({migration['why']})" if migration["why"] else ""
    return f"{migration['query']} is to go on with another plan{why}, and waits for {migration['waits_for']}"


@plan.command("migrations")
def show_migrations(*, api: Api = DEFAULT_API) -> None:
    """Print the queries that go on with another plan: from which instant on, or what they wait for."""
    with make_client(api) as client:
        found = client.migrations()
    if not found:
        typer.echo("no query is migrating")
    for each in found:
        if each["waits_for"]:
            typer.echo(_waits(each))
            continue
        why = f" ({each['why']})" if each["why"] else ""
        at = "the beginning" if each["at"] is None else each["at"]
        cut = ", where rows are cut" if each["cut"] else ""
        typer.echo(
            f"{each['query']} goes on as planned in epoch {each['to_epoch']:,} from {at} on{cut}{why}; "
            f"until then as planned in epoch {each['from_epoch']:,}"
        )


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.3g}"


@plan.command("calibrate")
def calibrate(
    *,
    data: Annotated[
        Path, typer.Option(envvar="FJORD_CLUSTER_DATA", help="The data folder of the cluster that is to use them.")
    ] = Path(".fjord/cluster"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the prices only, and write no file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what steps of operators cost on this machine, for estimates. It takes about a minute.

    The prices are written into the data folder of a cluster, which uses them at once, whether it runs or not.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from cluster.local.calibration import calibrated, runs
    from cluster.service.queries.operator_prices import check_folder, write_prices

    if not dry_run:
        check_folder(data)
    columns = TextColumn("measuring {task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=runs())
        found = calibrated(
            lambda kind: bar.update(task, description=kind.lower(), advance=1),
            machine=f"{platform.node()}, {platform.machine()}, {os.cpu_count()} processors",
            measured=datetime.now(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00"),
        )
    written = None if dry_run else write_prices(data, found)
    if as_json:
        print_json({"file": None if written is None else str(written), **msgspec.to_builtins(found)})
        return
    print_whole(_price_table(found))
    if written is not None:
        typer.echo(f"written: {written}")


def _price_table(prices: Prices) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for heading in ("us for", "a batch", "a row in", "a row out", "a kept row and batch", "a pair compared"):
        table.add_column(heading, justify="left" if heading == "us for" else "right", no_wrap=True)
    for kind, each in sorted(prices.kinds.items()):
        table.add_row(kind.lower(), *(f"{value:,.4g}" if value else "-" for value in msgspec.structs.astuple(each)))
    return table


@plan.command("draw")
def draw_plan(
    file: Annotated[Path, typer.Argument(help="File to write: .mmd (Mermaid), .dot (Graphviz), .svg, .png or .pdf.")],
    *,
    api: Api = DEFAULT_API,
) -> None:
    """Draw the shared plan as a graph: arrows show how many queries use them, boxes how much they have done."""
    kind = file.suffix.lower()
    if kind not in FORMATS and kind not in DRAWN_BY_GRAPHVIZ:
        raise ClusterError(
            f"the format of {file.name} is unknown",
            hint=f"end the name with {', '.join((*FORMATS, *DRAWN_BY_GRAPHVIZ))}",
        )
    with make_client(api) as client:
        text = client.plan(FORMATS.get(kind, "dot"))
    if kind in FORMATS:
        drawn = (f"```mermaid\n{text}```\n" if kind == ".md" else text).encode()
    else:
        drawn = _rendered(text, kind)
    try:
        file.write_bytes(drawn)
    except OSError as error:
        raise ClusterError(f"{file} cannot be written: {error.strerror or error}") from None
    typer.echo(f"written: {file}")


def _rendered(text: str, kind: str) -> bytes:
    """Return a graph in Graphviz' language as a picture, drawn by the library from PyPI or by the program `dot`."""
    import shutil
    import subprocess
    import warnings

    from protocols.child_process import child_environment

    try:
        from pygraphviz import AGraph
    except ImportError:
        program = shutil.which("dot")
        if program is None:
            raise ClusterError(
                f"{kind} files are drawn by Graphviz, which is not installed",
                hint="pip install 'fjord[plots]', or write a .mmd file, which GitHub and many editors draw",
            ) from None
        drawn = subprocess.run(
            [program, f"-T{kind[1:]}"], input=text.encode(), capture_output=True, check=False, env=child_environment()
        )
        if drawn.returncode:
            raise ClusterError(f"Graphviz failed: {drawn.stderr.decode(errors='replace').strip()}") from None
        return drawn.stdout
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fonts of this machine
        picture = AGraph(string=text).draw(format=kind[1:], prog="dot")
    return bytes(picture)
