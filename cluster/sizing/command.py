"""``fjord bench``: what deployments of several sizes need, measured on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocols.command_line.options import duration_option

app = typer.Typer()

LOADS_HELP = (
    "A load as MOTESxQUERIES, such as 300x100, with @PERIOD (else 1s) and ! for a query that answers every sample."
)


@app.command()
def bench(
    *,
    load: Annotated[
        list[str] | None, typer.Option(help=LOADS_HELP, show_default="seven, from 64x3 to 4000x100@250ms!")
    ] = None,
    duration: Annotated[
        int,
        duration_option("--duration", help="How long each load is measured.", shown_default="20s", least_us=1_000_000),
    ] = 20_000_000,
    settle: Annotated[
        int, duration_option("--settle", help="How long it runs before.", shown_default="15s")
    ] = 15_000_000,
    longest_silence: Annotated[
        int | None,
        duration_option(
            "--longest-silence",
            help="As of `fjord proxy`: motes send a packet at least this often.",
            shown_default="none",
        ),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(dir_okay=False, help="Write the table here, too.")] = None,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Draw cores and memory into this file.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="For the parts' data; else one for temporary files."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure what deployments of several sizes need: cores, memory, disk.

    Each load runs on a broker, a proxy and a cluster of its own on this machine, beside simulated motes, which are not
    counted. A load that they cannot keep up with names the stage that limits it, and is the last.
    """
    import signal

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from cluster.service.client.command import print_whole
    from cluster.sizing.loads import DEFAULT_LOADS, parse_load
    from cluster.sizing.measuring import Measurement, measure
    from cluster.sizing.sizing_table import as_json as to_json
    from cluster.sizing.sizing_table import markdown as to_markdown
    from cluster.sizing.sizing_table import plot as draw
    from cluster.sizing.sizing_table import rich_table
    from protocols.event_log import configure_logging

    loads = [parse_load(text) for text in load] if load else list(DEFAULT_LOADS)
    configure_logging("warning")
    # SIGTERM ends it as Ctrl-C does, so that no child process is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: list[Measurement] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(loads))
        for each in loads:

            def show(what: str, text: str = each.text) -> None:
                bar.update(task, description=f"{text}: {what}")

            found.append(
                measure(
                    each,
                    settle_seconds=settle / 1e6,
                    seconds=duration / 1e6,
                    progress=show,
                    folder=folder,
                    longest_silence_us=longest_silence,
                )
            )
            bar.advance(task)
            if found[-1].limit is not None:
                break
    if markdown is not None:
        markdown.write_text(to_markdown(found), encoding="utf-8")
    if plot is not None:
        draw(found, plot)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(to_json(found)).decode())
    else:
        print_whole(rich_table(found))
