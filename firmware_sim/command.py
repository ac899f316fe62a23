"""``fjord motes``: simulated motes, connected to a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocols.command_line.options import DefaultCommandGroup, duration_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firmware_sim.fleet import Fleet
    from firmware_sim.phenomena.worlds import Phenomenon

app = typer.Typer(cls=DefaultCommandGroup, help="Simulated motes.")

DEFAULT_WORLD, DEFAULT_MOTES, DEFAULT_STREAM = "traffic", 64, "traffic"
LONGEST_LIFETIME_US = 36_500 * 86_400_000_000


@app.callback()
def motes() -> None:
    """Simulated motes: `run` them live, or ask what programs cost (`power`) and how long motes last (`lifetime`)."""


@app.command()
def run(
    *,
    broker: Annotated[str, typer.Option(envvar="FJORD_BROKER", help="MQTT broker as HOST:PORT.")] = "127.0.0.1:1883",
    proxy: Annotated[str, typer.Option(envvar="FJORD_PROXY", help="The proxy that owns the motes.")] = "roadside",
    world: Annotated[
        str | None,
        typer.Option(
            help="What they sense: traffic (loops), road (single vehicles at 180 Hz) or climate (rooms).",
            show_default=DEFAULT_WORLD,
        ),
    ] = None,
    motes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="How many, in a generated world.", show_default=str(DEFAULT_MOTES)),
    ] = None,
    period: Annotated[
        int | None,
        duration_option(
            "--period",
            help="Sample period for queries without SAMPLE.",
            shown_default="the world's",
            least_us=1_000,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random values.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Replay this CSV or Parquet file instead of generating traffic.")
    ] = None,
    stream: Annotated[str | None, typer.Option(help="Stream that a trace feeds.", show_default=DEFAULT_STREAM)] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column of a trace with the instants.", show_default="time")
    ] = None,
    sensor_column: Annotated[
        str | None, typer.Option(help="Column of a trace with the sensors' names.", show_default="sensor")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="Column of a trace to replay, as NAME or NAME:UNIT; all others unless given."),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="How much faster than real time a trace runs.")
    ] = 1.0,
    hold: Annotated[
        int,
        duration_option(
            "--hold", help="A trace waits this long until queries demand samples of all motes.", shown_default="30s"
        ),
    ] = 30_000_000,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", help="Stop when a trace has ended.")] = False,
    duration: Annotated[
        int | None, duration_option("--duration", help="Stop after this long.", shown_default="never")
    ] = None,
    preset: Annotated[str, typer.Option(help="Device profile of the motes: a name, or a TOML file.")] = "telosb",
    battery: Annotated[
        str | None, typer.Option(help="Battery of each mote: a name, or ideal:MAH; an endless one unless given.")
    ] = None,
    lifetime: Annotated[
        int | None,
        duration_option(
            "--lifetime",
            help="How long each battery must last, whatever queries demand.",
            shown_default="no limit",
            most_us=LONGEST_LIFETIME_US,
        ),
    ] = None,
    radio: Annotated[
        Path | None, typer.Option(dir_okay=False, help="TOML file with the faults of the radio; none unless given.")
    ] = None,
    counters: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Write every mote's counters and joules here, every second, as JSON."),
    ] = None,
) -> None:
    """Run live motes until Ctrl-C.

    Motes sleep until a query demands their samples. A trace begins when a query demands it; without a trace, motes
    in a generated world sample in real time. The broker's user and password come from FJORD_BROKER_USERNAME and
    FJORD_BROKER_PASSWORD.
    """
    import asyncio
    import os

    from firmware_sim.fleet import Fleet, FleetSettings
    from firmware_sim.phenomena.trace import Trace, TraceColumns
    from firmware_sim.phenomena.worlds import make_world
    from firmware_sim.power.batteries import find_battery
    from firmware_sim.radio.channel import read_faults
    from protocols.mqtt.broker_address import parse_broker
    from protocols.wire.topics import check_name

    phenomenon: Phenomenon
    if trace is None:
        _refuse(
            "only with --trace: without one, motes sense a generated world",
            {
                "--stream": stream is not None,
                "--time-column": time_column is not None,
                "--sensor-column": sensor_column is not None,
                "--field": bool(field),
                "--speed": speed != 1.0,
                "--exit-at-end": exit_at_end,
            },
        )
        phenomenon = make_world(
            world or DEFAULT_WORLD, motes=motes or DEFAULT_MOTES, seed=seed, default_period_us=period
        )
    else:
        _refuse(
            "cannot be combined with --trace",
            {"--world": world is not None, "--motes": motes is not None, "--period": period is not None},
        )
        columns = TraceColumns(
            time_column or "time", sensor_column or "sensor", dict(_field(text) for text in field or [])
        )
        phenomenon = Trace(trace, columns=columns, stream=check_name(stream or DEFAULT_STREAM, "stream"))
    if lifetime is not None and battery is None:
        raise typer.BadParameter("motes without a --battery last for ever", param_hint="--lifetime")
    settings = FleetSettings(
        proxy=check_name(proxy, "proxy"),
        broker=parse_broker(broker, os.environ),
        speed=speed,
        hold_us=hold,
        exit_at_end=exit_at_end,
        seed=seed,
        preset=preset,
        battery=None if battery is None else find_battery(battery),
        lifetime_us=lifetime or 0,
        faults=None if radio is None else read_faults(radio),
    )
    asyncio.run(_run(Fleet(phenomenon, settings), counters, None if duration is None else duration / 1e6))


@app.command()
def power(
    *,
    preset: Annotated[str, typer.Option(help="Device profile: a name, or a TOML file.")] = "atmel8515",
    program: Annotated[str, typer.Option(help="raw, events or count (the paper's), or a TOML file.")] = "raw",
    rate: Annotated[float | None, typer.Option(help="Samples a second; a file has its own.")] = None,
    battery: Annotated[
        str | None, typer.Option(help="A name, or ideal:MAH; the preset's usual one unless given.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=-60, max=85, help="Of the battery, in degrees Celsius.")] = 20.0,
    vehicles: Annotated[float, typer.Option(min=0, help="Vehicles a second that pass.")] = 5.0,
    kept: Annotated[float, typer.Option(min=0, max=1, help="Share of samples in the program's bands.")] = 1.0,
    changed: Annotated[float, typer.Option(min=0, max=1, help="Share of samples outside their dead band.")] = 0.1,
    loss: Annotated[float, typer.Option(min=0, max=0.99, help="Share of transmissions that fail.")] = 0.0,
    listen_every: Annotated[
        int | None,
        duration_option("--listen-every", help="raw, events, count: listen this often.", shown_default="never"),
    ] = None,
    listen_for: Annotated[
        int, duration_option("--listen-for", help="raw, events, count: listen this long.", shown_default="50ms")
    ] = 50_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Plot power against rate into this file.")] = None,
) -> None:
    """Show the draw of a sampling program on a device, component by component, and how long the battery lasts."""
    from firmware_sim.power.power_report import PowerQuestion, answer
    from firmware_sim.printing import print_power
    from protocols.power.estimate import Workload
    from protocols.wire.programs import ListenSchedule

    listen = None if listen_every is None else ListenSchedule(listen_every, listen_for)
    workload = Workload(vehicles_per_second=vehicles, kept_share=kept, changed_share=changed, loss=loss)
    report = answer(PowerQuestion(preset, program, rate, battery, temperature, workload, listen))
    if plot is not None:
        from firmware_sim.power.plots import plot_power

        plot_power(report, plot)
    print_power(report, as_json=as_json)


@app.command()
def lifetime(
    *,
    fleet: Annotated[Path, typer.Option(dir_okay=False, help="The fleet: a TOML file.")],
    queries: Annotated[Path, typer.Option(dir_okay=False, help="Queries, each ended by a semicolon.")],
    days: Annotated[float, typer.Option(min=0.1, max=36_500, help="How many days to simulate.")] = 90.0,
    seed: Annotated[int, typer.Option(help="Seed of all random values.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Plot the report into this file.")] = None,
) -> None:
    """Show which mote of a fleet dies first and why, and what each query costs in days of life."""
    from rich.console import Console
    from rich.progress import Progress

    from firmware_sim.lifetime.fleet_file import load_fleet
    from firmware_sim.lifetime.query_file import load_queries
    from firmware_sim.lifetime.report import make_report
    from firmware_sim.printing import print_lifetime

    planned = load_fleet(fleet)
    loaded = load_queries(queries, planned.motes[0].description.stream)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task(f"{len(planned.motes)} motes, {days:g} days", total=1.0)
        report = make_report(
            planned, loaded, days=days, seed=seed, progress=lambda share: bar.update(shown, completed=share)
        )
    if plot is not None:
        from firmware_sim.lifetime.plots import plot_lifetime

        plot_lifetime(report, plot)
    print_lifetime(report, as_json=as_json)


def _refuse(reason: str, given: Mapping[str, bool]) -> None:
    """Reject the first option that was given and would have no effect."""
    for option, is_given in given.items():
        if is_given:
            raise typer.BadParameter(reason, param_hint=option)


def _field(text: str) -> tuple[str, str]:
    name, _, unit = text.partition(":")
    return name, unit


async def _run(fleet: Fleet, counters: Path | None, seconds: float | None) -> None:
    import asyncio
    import contextlib
    import signal

    running = asyncio.create_task(fleet.run(), name="fleet")
    watching = asyncio.create_task(_watch(fleet, counters), name="watch")
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(running, timeout=seconds)
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        _write(fleet, counters)
    sampled = sum(mote.counters.samples for mote in fleet.motes)
    packets = sum(mote.counters.packets for mote in fleet.motes)
    typer.echo(f"motes: {len(fleet.motes)}, samples: {sampled:,}, packets: {packets:,}")


async def _watch(fleet: Fleet, counters: Path | None) -> None:
    """Keep the counters' file up to date and, on a terminal, show the progress of a trace."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        shown = bar.add_task("motes sleep", total=1.0 if fleet.ends_us is not None else None)
        while True:
            sampling = sum(mote.sampling for mote in fleet.motes)
            words = f"{sampling} of {len(fleet.motes)} motes sample"
            bar.update(shown, completed=fleet.progress or 0.0, description=words)
            _write(fleet, counters)
            await asyncio.sleep(1.0)


def _write(fleet: Fleet, counters: Path | None) -> None:
    if counters is None:
        return
    import json

    unfinished = counters.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"packets_not_heard": fleet.packets_lost, "motes": fleet.counters()}, indent=1))
    unfinished.replace(counters)
