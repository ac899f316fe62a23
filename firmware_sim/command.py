"""``fjord motes``: simulated motes, connected to a proxy."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocols.command_line.options import (
    DefaultCommandGroup,
    UsualValueCommand,
    byte_size_option,
    duration_option,
    record_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from firmware_sim.fleet import Fleet
    from firmware_sim.recorded_run import RunOptions
    from protocols.mqtt.link import BrokerAddress

app = typer.Typer(cls=DefaultCommandGroup, help="Simulated motes.")

DEFAULT_WORLD, DEFAULT_MOTES, DEFAULT_STREAM = "traffic", 64, "traffic"
MOST_MOTES = 100_000
"""As in :class:`firmware_sim.recorded_run.RunOptions`, which costs imports."""
LONGEST_LIFETIME_US = 36_500 * 86_400_000_000
LONGEST_PERIOD_US = 366 * 86_400_000_000
"""As in :mod:`protocols.wire.frames`, which costs imports."""
USUAL_VEHICLES, USUAL_KEPT, USUAL_CHANGED, USUAL_LISTEN_US = 5.0, 1.0, 0.1, 50_000
"""What `fjord motes power` takes unless it is given."""
USUAL_PERIOD = "usual"


@app.callback()
def motes() -> None:
    """Simulated motes: `run` them live, or ask what programs cost (`power`) and how long motes last (`lifetime`).

    `profiles` lists the devices and batteries that these know.
    """


class RunCommand(UsualValueCommand):
    """``fjord motes run``; ``--resample`` may stand without its period."""

    usual = ("--resample", USUAL_PERIOD)


@app.command(cls=RunCommand)
def run(
    *,
    broker: Annotated[
        str,
        typer.Option(
            envvar="FJORD_BROKER", help="MQTT broker, HOST or HOST:PORT; without a port it is 1883, or 8883 with TLS."
        ),
    ] = "127.0.0.1",
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
        typer.Option(min=1, max=MOST_MOTES, help="How many, in a generated world.", show_default=str(DEFAULT_MOTES)),
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random values.")] = 1,
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
    resample: Annotated[
        int | None,
        duration_option(
            "--resample",
            help="Sample a trace again, at this period unless a query has SAMPLE, or at the commonest of the trace: "
            "a reading holds until the next one, and where one is missing a sample is NULL. Without this option a "
            "trace is replayed as it is.",
            shown_default=False,
            least_us=1_000,
            most_us=LONGEST_PERIOD_US,
            usual=USUAL_PERIOD,
        ),
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
    keys: Annotated[
        Path | None, typer.Option(envvar="FJORD_MOTES_KEYS", help="File of the motes' keys.", dir_okay=False)
    ] = None,
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
    record: Annotated[Path | None, record_option()] = None,
    record_size: Annotated[
        int, byte_size_option(help="Largest size of that log; the oldest goes first.", shown_default="64MiB")
    ] = 64 * 1024 * 1024,
) -> None:
    """Run live motes until Ctrl-C.

    Motes sleep until a query demands their samples. A trace begins when a query demands it; without a trace, motes
    in a generated world sample in real time. The broker's user and password come from FJORD_BROKER_USERNAME and
    FJORD_BROKER_PASSWORD; with TLS, files come from FJORD_BROKER_CA, FJORD_BROKER_CERTIFICATE and FJORD_BROKER_KEY.
    """
    import os

    from firmware_sim.recorded_run import RunOptions
    from protocols.mqtt.broker_address import parse_broker
    from protocols.security.expiry import files_to_watch, watched

    if trace is None:
        _refuse(
            "only with --trace: without one, motes sense a generated world",
            {
                "--stream": stream is not None,
                "--time-column": time_column is not None,
                "--sensor-column": sensor_column is not None,
                "--field": bool(field),
                "--resample": resample is not None,
                "--speed": speed != 1.0,
                "--exit-at-end": exit_at_end,
            },
        )
    else:
        _refuse(
            "cannot be combined with --trace",
            {"--world": world is not None, "--motes": motes is not None, "--period": period is not None},
        )
    if lifetime is not None and battery is None:
        raise typer.BadParameter("motes without a --battery last for ever", param_hint="--lifetime")
    options = RunOptions(
        proxy=proxy,
        world=world or DEFAULT_WORLD,
        motes=motes or DEFAULT_MOTES,
        period_us=period if trace is None else resample or None,
        as_recorded=trace is not None and resample is None,
        seed=seed,
        trace=None if trace is None else str(trace),
        stream=stream or DEFAULT_STREAM,
        time_column=time_column or "time",
        sensor_column=sensor_column or "sensor",
        fields=tuple(field or ()),
        speed=speed,
        hold_us=hold,
        exit_at_end=exit_at_end,
        seconds=None if duration is None else duration / 1e6,
        preset=preset,
        radio=None if radio is None else str(radio),
        keys=None if keys is None else str(keys),
        battery=battery,
        lifetime_us=lifetime or 0,
        counted=counters is not None,
    )
    address = parse_broker(broker, os.environ)
    with watched(files_to_watch(broker=address.tls)):
        if record is None:
            fleet = _run(options, address, counters)
        else:
            fleet = _record(options, address, counters, record, record_size)
    sampled = sum(mote.counters.samples for mote in fleet.motes)
    packets = sum(mote.counters.packets for mote in fleet.motes)
    typer.echo(f"motes: {len(fleet.motes)}, samples: {sampled:,}, packets: {packets:,}")


@app.command()
def power(
    *,
    preset: Annotated[
        str, typer.Option(help="Device profile: a name, or a TOML file; +seal behind it is the same with keys.")
    ] = "atmel8515",
    program: Annotated[str, typer.Option(help="raw, events or count (the paper's), or a TOML file.")] = "raw",
    rate: Annotated[float | None, typer.Option(help="Samples a second; a file has its own.")] = None,
    battery: Annotated[
        str | None, typer.Option(help="A name, or ideal:MAH; the preset's usual one unless given.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=-60, max=85, help="Of the battery, in degrees Celsius.")] = 20.0,
    vehicles: Annotated[
        float | None, typer.Option(min=0, help="Vehicles a second that pass.", show_default=str(USUAL_VEHICLES))
    ] = None,
    kept: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of samples in the program's bands.", show_default=str(USUAL_KEPT)),
    ] = None,
    changed: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of samples outside their dead band.", show_default=str(USUAL_CHANGED)),
    ] = None,
    loss: Annotated[float, typer.Option(min=0, max=0.99, help="Share of transmissions that fail.")] = 0.0,
    listen_every: Annotated[
        int | None,
        duration_option(
            "--listen-every", help="raw, events, count: listen this often.", shown_default="never", least_us=1
        ),
    ] = None,
    listen_for: Annotated[
        int | None,
        duration_option("--listen-for", help="raw, events, count: listen this long.", shown_default="50ms", least_us=1),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, help="Plot power against rate into this file.")] = None,
) -> None:
    """Show the draw of a sampling program on a device, component by component, and how long the battery lasts."""
    from firmware_sim.power.power_report import PowerQuestion, answer, reasons_without_effect
    from firmware_sim.printing import print_power
    from protocols.power.estimate import Workload
    from protocols.power.profiles import doubts_about
    from protocols.wire.programs import ListenSchedule

    if plot is not None:
        from firmware_sim.power.plots import check_plot_file

        check_plot_file(plot)
    listen_for_us = USUAL_LISTEN_US if listen_for is None else listen_for
    listen = None if listen_every is None else ListenSchedule(listen_every, listen_for_us)
    workload = Workload(
        vehicles_per_second=USUAL_VEHICLES if vehicles is None else vehicles,
        kept_share=USUAL_KEPT if kept is None else kept,
        changed_share=USUAL_CHANGED if changed is None else changed,
        loss=loss,
    )
    report = answer(PowerQuestion(preset, program, rate, battery, temperature, workload, listen))
    given = {
        "--vehicles": vehicles,
        "--kept": kept,
        "--changed": changed,
        "--listen-every": listen_every,
        "--listen-for": listen_for,
    }
    without_effect = reasons_without_effect(report, listens=listen_every is not None, plotted=plot is not None)
    _warn(
        f"{each} has no effect{without_effect[each]}"
        for each in given
        if given[each] is not None and each in without_effect
    )
    _warn(doubts_about(report.profile))
    if plot is not None:
        from firmware_sim.power.plots import plot_power

        plot_power(report, plot)
    print_power(report, as_json=as_json)


@app.command()
def profiles(
    name: Annotated[str | None, typer.Argument(help="A preset: print its file, a start for your own.")] = None,
) -> None:
    """List the device profiles and batteries that come with Fjord, or print a profile as TOML."""
    from firmware_sim.printing import print_known
    from protocols.power.profiles import preset_text

    if name is None:
        print_known()
    else:
        typer.echo(preset_text(name), nl=False)


@app.command()
def lifetime(
    *,
    fleet: Annotated[Path, typer.Option(dir_okay=False, help="The fleet: a TOML file.")],
    queries: Annotated[Path, typer.Option(dir_okay=False, help="Queries, each ended by a semicolon.")],
    days: Annotated[float, typer.Option(min=0.1, max=36_500, help="How many days to simulate.")] = 90.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random values.")] = 1,
    sealed: Annotated[bool, typer.Option("--sealed", help="All motes have keys: price the seals of packets.")] = False,
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
    from protocols.power.profiles import doubts_about

    if plot is not None:
        from firmware_sim.power.plots import check_plot_file

        check_plot_file(plot)
    planned = load_fleet(fleet)
    if sealed:
        planned = planned.with_keys()
    profiles = {mote.profile.name: mote.profile for mote in planned.motes}
    _warn(doubt for profile in profiles.values() for doubt in doubts_about(profile))
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


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _refuse(reason: str, given: Mapping[str, bool]) -> None:
    """Reject the first option that was given and would have no effect."""
    for option, is_given in given.items():
        if is_given:
            raise typer.BadParameter(reason, param_hint=option)


def _run(options: RunOptions, broker: BrokerAddress, counters: Path | None) -> Fleet:
    """Run motes, and return them."""
    import asyncio

    from firmware_sim.fleet import run_until
    from firmware_sim.recorded_run import make_fleet

    async def run() -> Fleet:
        stop = asyncio.Event()
        _stop_on_signals(stop.set)
        fleet = make_fleet(options, broker)
        with _watching(fleet, counters) as look:
            await run_until(fleet, stop, options.seconds, look)
        return fleet

    return asyncio.run(run())


def _record(options: RunOptions, broker: BrokerAddress, counters: Path | None, folder: Path, size: int) -> Fleet:
    """Run motes and record what happens; return them."""
    import asyncio
    import contextlib

    from firmware_sim.recorded_run import begin_recording, run_on
    from protocols.recording.timeline import TickingLoop

    with contextlib.ExitStack() as stack:
        recorder = begin_recording(folder, size, options)
        stack.callback(recorder.close)

        async def run() -> Fleet:
            _stop_on_signals(recorder.stop)
            return await run_on(
                recorder, options, broker, lambda fleet: stack.enter_context(_watching(fleet, counters))
            )

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            return runner.run(run())


def _stop_on_signals(stop: Callable[[], None]) -> None:
    import asyncio
    import signal

    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop)


@contextmanager
def _watching(fleet: Fleet, counters: Path | None) -> Iterator[Callable[[], None]]:
    """Return what keeps the counters' file up to date and, on a terminal, shows the progress of a trace."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        shown = bar.add_task("motes sleep", total=1.0 if fleet.ends_us is not None else None)

        def look() -> None:
            sampling = sum(mote.sampling for mote in fleet.motes)
            words = f"{sampling} of {len(fleet.motes)} motes sample"
            bar.update(shown, completed=fleet.progress or 0.0, description=words)
            _write(fleet, counters)

        yield look
        _write(fleet, counters)


def _write(fleet: Fleet, counters: Path | None) -> None:
    if counters is None:
        return
    import json

    unfinished = counters.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"packets_not_heard": fleet.packets_lost, "motes": fleet.counters()}, indent=1))
    unfinished.replace(counters)
