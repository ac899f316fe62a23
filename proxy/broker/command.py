"""``fjord broker``: a broker for this machine, until Ctrl-C."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from proxy.broker.choice import BrokerSettings

app = typer.Typer(add_completion=False)


class _WantedEngine(StrEnum):
    AUTO = "auto"
    MOSQUITTO = "mosquitto"
    AMQTT = "amqtt"


@app.command()
def broker(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 for a free one.")] = 1883,
    engine: Annotated[
        _WantedEngine, typer.Option(help="auto: Mosquitto where it is installed, else the embedded amqtt.")
    ] = _WantedEngine.AUTO,
    persist: Annotated[
        Path | None, typer.Option(help="Folder that keeps sessions and retained messages.", file_okay=False)
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="Users and passwords, made by mosquitto_passwd.", exists=True, dir_okay=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print where it listens as a line of JSON.")] = False,
) -> None:
    """Run an MQTT broker on this machine until Ctrl-C."""
    import asyncio

    from protocols.security.private_files import keep_private
    from proxy.broker.choice import BrokerSettings

    keep_private()
    settings = BrokerSettings(host=host, port=port, persist=persist, password_file=password_file)
    asyncio.run(_run(settings, engine, as_json=as_json))


async def _run(settings: BrokerSettings, engine: _WantedEngine, *, as_json: bool) -> None:
    import asyncio
    import signal

    from proxy.broker.errors import BrokerFailedError
    from proxy.broker.running import broker_by_settings

    stop_requested = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop_requested.set)
    async with broker_by_settings(settings, engine.value) as (address, running):
        if as_json:
            shown = {name: getattr(address, name) for name in ("host", "port", "engine", "reason")}
            typer.echo(json.dumps(shown))
        else:
            typer.echo(f"broker: {address.engine} on {address.host} port {address.port} ({address.reason})")
        stopping = asyncio.create_task(stop_requested.wait(), name="stop requested")
        ended = asyncio.create_task(running.wait_ended(), name="broker ended")
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not stop_requested.is_set():
            raise BrokerFailedError(ended.result())
        ended.cancel()
        stopping.cancel()
