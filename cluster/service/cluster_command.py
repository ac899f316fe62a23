"""`fjord cluster`: run a cluster."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.service.cluster_config import PROGRAM, ClusterConfig, Replan
from protocols.command_line.options import byte_size_option, record_option
from protocols.command_line.setting_options import with_options

if TYPE_CHECKING:
    from cluster.service.running.settings import ClusterSettings
    from protocols.recording.recorder import Recorder

LEAST_WORKER_BYTES = 512 * 1024**2
"""A default limit on a worker is not lower: libraries and small plans take half of it."""

cluster = typer.Typer(help="Run the cluster: ingest, engine on Spark, HTTP API, publisher.")


@cluster.command()
@with_options(ClusterConfig, PROGRAM)
def run_cluster(
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
        int,
        byte_size_option(
            "--record-size", help="Largest size of that log; the oldest goes first.", shown_default="64MiB"
        ),
    ] = 64 * 1024**2,
    config: Annotated[
        Path | None, typer.Option(envvar="FJORD_CLUSTER_CONFIG", help="TOML file with settings.", dir_okay=False)
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Write all settings as a commented TOML file, and exit.")
    ] = False,
    **settings: object,
) -> None:
    """Run the cluster until Ctrl-C.

    A setting comes from its option, else from its variable, else from the file of --config, else it is the default.
    The broker's user and password come from FJORD_BROKER_USERNAME and FJORD_BROKER_PASSWORD, files for TLS to it from
    FJORD_BROKER_CA, FJORD_BROKER_CERTIFICATE and FJORD_BROKER_KEY. A token for the API that allows everything comes
    from FJORD_API_TOKEN, tokens with roles from the file of --api-tokens. Without any token the API needs none, allows
    everything, and listens on the loopback address only.
    """
    from protocols.command_line.settings_file import as_toml, check_variables, load

    check_variables(os.environ, ClusterConfig, PROGRAM)
    found = load(ClusterConfig, PROGRAM, settings, {}, config)  # options have the values of variables
    if print_config:
        typer.echo(as_toml(found, PROGRAM))
        return
    _check(found, record)
    _run(_settings_of(found, adopt=adopt), record, record_size)


def _check(found: ClusterConfig, record: Path | None) -> None:
    """Raise an error if settings exclude each other, or a certificate cannot be used."""
    import time

    from protocols.security.tls import check_at_start

    if found.api_tls is not None:
        if found.api_tls.certificate is None:
            raise typer.BadParameter("needs --api-certificate and --api-key", param_hint="--api-client-ca")
        check_at_start(found.api_tls, time.time())
    if record is not None and found.replan is Replan.ON:
        raise typer.BadParameter(
            "is not possible with --record: plans are chosen by what Spark has measured, which is in no log",
            param_hint="--replan on",
        )


def _settings_of(config: ClusterConfig, *, adopt: bool) -> ClusterSettings:
    """Return settings as a cluster uses them, with the secrets of the environment."""
    from cluster.functions.allowed import FunctionRules, checked_patterns
    from cluster.service.client.api_token import api_token
    from cluster.service.running.settings import ClusterSettings
    from cluster.spark.settings_file import read_spark_settings
    from protocols.mqtt.broker_address import parse_broker

    return ClusterSettings(
        name=config.name,
        folder=config.data,
        adopt=adopt,
        broker=parse_broker(config.broker, os.environ),
        keys=config.keys,
        api_host=config.api_host,
        api_port=config.api_port,
        api_tls=config.api_tls,
        api_token=api_token(os.environ),
        api_tokens=config.api_tokens,
        api_allowed_hosts=config.api_allowed_host,
        api_allowed_origins=config.api_allowed_origin,
        master=config.master,
        buckets=config.buckets,
        partitions=config.partitions,
        driver_memory=config.driver_memory,
        spark={} if config.spark_settings is None else read_spark_settings(config.spark_settings),
        publishers=config.publishers,
        results_bytes=config.results_size,
        stream_age_us=config.stream_retention,
        stream_bytes=config.stream_size,
        max_rows=config.max_rows,
        history_rows=config.history_rows,
        trigger_seconds=config.trigger / 1e6,
        commit_interval_seconds=config.commit_interval / 1e6,
        broker_silence_seconds=config.broker_silence / 1e6,
        hang_seconds=config.hang_after / 1e6,
        worker_memory_bytes=_memory_of_a_worker() if config.worker_memory is None else config.worker_memory,
        query_seconds=config.query_time / 1e6,
        query_share=config.query_share,
        gone_after_seconds=None if config.gone_after is None else config.gone_after / 1e6,
        clock_tolerance_seconds=config.clock_tolerance / 1e6,
        results_backlog_bytes=config.results_backlog,
        max_queries=config.max_queries,
        max_state_bytes=config.max_state,
        max_busy=math.inf if config.max_busy is None else config.max_busy,
        max_rows_per_tuple=config.max_rows_per_tuple,
        max_rows_per_second=config.max_rows_per_second,
        max_answers_per_second=config.max_answers_per_second,
        max_aggregate_columns=config.max_aggregate_columns,
        max_characters_per_second=config.max_characters_per_second,
        planning_seconds=config.planning_seconds,
        replan=config.replan is not Replan.OFF,
        max_relation_bytes=config.max_relation,
        relation_folders=(*_started_in(), *config.relation_folder),
        relation_hosts=config.relation_host,
        relation_credentials=config.relation_credentials,
        relation_memory_bytes=config.relation_memory,
        functions=FunctionRules(checked_patterns(config.functions), config.function_seconds, config.function_memory),
    )


def _memory_of_a_worker() -> int:
    """Return what each worker may take, if as many are at work as there are processors."""
    from cluster.local.memory_limit import default_limit

    return max(default_limit() // (os.cpu_count() or 1), LEAST_WORKER_BYTES)


def _started_in() -> tuple[Path, ...]:
    """Return the folder in which the cluster is started; services are often started in the root, which is not meant."""
    here = Path.cwd()
    return () if here == here.parent else (here,)


def _run(settings: ClusterSettings, record: Path | None, record_size: int) -> None:
    import asyncio
    import contextlib

    from cluster.spark.java import find_java
    from protocols.security.private_files import keep_private

    keep_private()
    java = find_java()  # without Java, nothing else is started
    from cluster.spark.spark_log import SPARK_LOG

    log = settings.folder / SPARK_LOG
    typer.echo(f"Spark takes some seconds to start on {java.description}; what Spark writes is in {log}")
    import signal
    import sys

    from cluster.service.running.early import begin

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # to remove what is begun
    begun = begin(settings, java)
    from cluster.service.own_name import claim_of
    from cluster.service.recorded_run import begin_recording, run_on
    from cluster.service.server import ClusterServer
    from protocols.recording.timeline import TickingLoop
    from protocols.security.expiry import watched

    async def check_name() -> None:
        async with claim_of(settings, stop=lambda: None):
            pass

    async def serve_under_name() -> None:
        async with claim_of(settings, stop=lambda: signal.raise_signal(signal.SIGTERM)) as since_us:
            await serve(None, since_us)

    async def serve(recorder: Recorder | None, since_us: int | None = None) -> None:
        server = ClusterServer(settings, begun, recorder, since_us=since_us)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, server.stop if recorder is None else recorder.stop)
        ready = asyncio.Event()

        async def announce() -> None:
            await ready.wait()
            typer.echo(f"the cluster is ready: API on {settings.api_address}")

        announcing = asyncio.create_task(announce(), name="announce")
        try:
            await (server.run(ready=ready) if recorder is None else run_on(recorder, server, ready))
        finally:
            announcing.cancel()

    with contextlib.ExitStack() as stack:
        stack.callback(begun.java.end)
        stack.enter_context(watched(settings.certificates))
        if record is None:
            asyncio.run(serve_under_name())
            return
        asyncio.run(check_name())  # it is not recorded
        recorder = begin_recording(record, record_size, settings)
        stack.callback(recorder.close)
        with asyncio.Runner(loop_factory=lambda: TickingLoop(recorder)) as runner:
            runner.run(serve(recorder))
