"""``fjord demo``: from motes to result topics on this machine, with nothing else set up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocols.command_line.options import duration_option

app = typer.Typer()


@app.command()
def demo(
    *,
    duration: Annotated[
        int, duration_option("--duration", help="How long to show results, once everything runs.", shown_default="60s")
    ] = 60_000_000,
    motes: Annotated[int, typer.Option(min=1, max=10_000, help="Motes of the traffic generator.")] = 64,
    trace: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Replay this CSV or Parquet file (time, sensor, speed) instead."
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, help="How much faster than real time a trace is replayed.")
    ] = 720.0,
    keep: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep all data and logs here; else they are removed.")
    ] = None,
) -> None:
    """Run broker, cluster, proxy and motes, add three queries and show results as they come."""
    from cluster.demo.run import DemoSettings, run_demo

    run_demo(DemoSettings(duration_seconds=duration / 1e6, motes=motes, trace=trace, speed=speed, keep=keep))
