"""``fjord demo``: from motes to result topics on this machine, with nothing else set up."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from protocols.command_line.options import duration_option

app = typer.Typer()


class Scene(StrEnum):
    """What is shown."""

    TRAFFIC = "traffic"
    REPLAN = "replan"


OF_TRAFFIC = ("duration", "motes", "trace", "speed")
"""Options of which the other scenes have no use."""


@app.command()
def demo(
    context: typer.Context,
    *,
    scene: Annotated[
        Scene,
        typer.Option(
            help="traffic: motes and three queries. replan: rates of streams change, and a query that joins them goes "
            "on with another plan; it takes two to three minutes."
        ),
    ] = Scene.TRAFFIC,
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
    """Run broker, cluster, proxy and motes, add three queries and show results as they come.

    Another scene is named with --scene; --keep alone holds for it, too.
    """
    from protocols.security.private_files import keep_private

    keep_private()
    if scene is Scene.REPLAN:
        _refuse_options_of_traffic(context, scene)
        from cluster.demo.replan_scene import run_replan_scene

        run_replan_scene(keep)
        return
    from cluster.demo.run import DemoSettings, run_demo

    run_demo(DemoSettings(duration_seconds=duration / 1e6, motes=motes, trace=trace, speed=speed, keep=keep))


def _refuse_options_of_traffic(context: typer.Context, scene: Scene) -> None:
    for name in OF_TRAFFIC:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"the scene {scene} has no use for it; leave it out", param_hint=f"--{name}")
