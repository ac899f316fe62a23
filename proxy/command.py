"""``fjord proxy``: a proxy beside a gateway, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocols.command_line.options import byte_size_option, record_option
from protocols.command_line.setting_options import with_options
from proxy.running.settings import PROGRAM, ProxySettings, load_settings

if TYPE_CHECKING:
    from protocols.mqtt.messages import BrokerAddress
    from protocols.sealing.keys import PartKeys
    from protocols.sealing.seals import PartSeals
    from proxy.storage.stores import Stores

app = typer.Typer(add_completion=False)


@app.command()
@with_options(ProxySettings, PROGRAM)
def proxy(
    *,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Use a data folder that was copied, restored or moved here, and whose original runs no more.",
        ),
    ] = False,
    record: Annotated[Path | None, record_option()] = None,
    record_size: Annotated[
        int, byte_size_option(help="Largest size of that log; the oldest goes first.", shown_default="64MiB")
    ] = 64 * 1024 * 1024,
    config: Annotated[
        Path | None, typer.Option(envvar="FJORD_PROXY_CONFIG", help="TOML file with settings.", dir_okay=False)
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Write all settings as a commented TOML file, and exit.")
    ] = False,
    **settings: object,
) -> None:
    """Run a proxy until Ctrl-C: it sends motes their sampling programs and forwards their samples.

    A setting comes from its option, else from its variable, else from the file of --config, else it is the default.
    """
    import os

    from protocols.command_line.settings_file import as_toml, check_variables
    from protocols.mqtt.broker_address import broker_password
    from protocols.security.private_files import keep_private

    check_variables(os.environ, ProxySettings, PROGRAM)
    found = load_settings(settings, {}, config)  # options have the values of variables
    if print_config:
        typer.echo(as_toml(found, PROGRAM))
        return
    keep_private()
    _run(found, broker_password(os.environ), record, record_size, adopt=adopt)


def _seals_of(keys: PartKeys, settings: ProxySettings, stores: Stores) -> PartSeals:
    """Return the seals of a proxy; motes whose secrets were renewed begin their numbers anew."""
    from protocols.sealing.seals import PartSeals

    seals = PartSeals(keys, settings.folder)
    stores.spool.forget_positions(seals.renewed_motes)
    return seals


def _fitting(settings: ProxySettings) -> ProxySettings:
    from proxy.running.settings import fitting
    from proxy.storage.database import disk_bytes

    return fitting(settings, disk_bytes(settings.folder))


def _checked_address(settings: ProxySettings, password: str | None) -> BrokerAddress:
    import time

    from protocols.security.tls import check_at_start

    address = settings.broker_address(password)
    if address.tls is not None:
        check_at_start(address.tls, time.time())
    return address


def _run(settings: ProxySettings, password: str | None, record: Path | None, record_size: int, *, adopt: bool) -> None:
    import asyncio
    import contextlib

    from protocols.recording.timeline import TickingLoop
    from protocols.sealing.seals import PartSeals, load_part_keys
    from protocols.security.expiry import ExpiryCollector, files_to_watch, watched
    from proxy.drivers.settings import load_drivers
    from proxy.running.link_interface import claim_of, mqtt_link, status_of
    from proxy.running.metrics import serve_metrics
    from proxy.running.recorded_run import begin_recording, run_on
    from proxy.running.service import ProxyService
    from proxy.storage.stores import open_stores

    address = _checked_address(settings, password)
    certificates = files_to_watch(broker=address.tls)
    drivers = load_drivers(Path(settings.drivers)) if settings.drivers else []
    keys = load_part_keys(Path(settings.keys), proxy=settings.name) if settings.keys else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(watched(certificates))
        stores = stack.enter_context(
            open_stores(settings.folder, settings.name, quarantine_entries=settings.quarantine_entries, adopt=adopt)
        )
        settings = _fitting(settings)
        seals = None if keys is None else _seals_of(keys, settings, stores)
        of_claim = None if keys is None else PartSeals(keys, settings.folder, purpose="claim")
        own = status_of(settings.name, stores.spool.epoch)
        make_link = mqtt_link(address, silence_seconds=settings.broker_silence / 1e6, seals=seals)

        def began(service: ProxyService) -> None:
            if settings.metrics_port is not None:
                stack.callback(serve_metrics(service.metrics, settings.metrics_port, ExpiryCollector(certificates)))
            typer.echo(f"proxy: {settings.name} at broker {address}, data in {settings.folder}")

        async def run() -> None:
            stop = asyncio.Event()
            _stop_on_signals(stop.set)
            async with claim_of(own, address, stop.set, of_claim):
                service = ProxyService(settings, stores, make_link, drivers=drivers, began_us=own.since_us)
                began(service)
                await service.run(stop)

        async def check_name() -> None:
            async with claim_of(own, address, lambda: None, of_claim):
                pass

        if record is None:
            asyncio.run(run())
            return
        asyncio.run(check_name())  # it is not recorded
        recorder = begin_recording(record, record_size, settings)
        stack.callback(recorder.close)

        async def run_recorded() -> None:
            _stop_on_signals(recorder.stop)
            await run_on(recorder, settings, stores, make_link, drivers, began)

        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(run_recorded())


def _stop_on_signals(stop: Callable[[], None]) -> None:
    import asyncio
    import signal

    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop)
