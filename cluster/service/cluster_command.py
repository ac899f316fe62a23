"""`fjord cluster`: run a cluster."""

from __future__ import annotations

import math
from dataclasses import astuple
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.functions.allowed import CALL_SECONDS, MEMORY_BYTES, FunctionRules, checked_patterns, listed
from cluster.service.client.command import DEFAULT_BROKER, Broker
from cluster.service.publishing.shares import SHARDS
from protocols.command_line.options import byte_size_option, duration_option, record_option
from protocols.text.durations import LONGEST_PAUSE_US

if TYPE_CHECKING:
    from cluster.service.running.settings import ClusterSettings
    from protocols.recording.recorder import Recorder


class Replan(StrEnum):
    """Whether plans are chosen by their costs."""

    ON = "on"
    OFF = "off"


cluster = typer.Typer(help="Run the cluster: ingest, engine on Spark, HTTP API, publisher.")

MOST_ROWS = 10**12
LEAST_WORKER_BYTES = 512 * 1024**2
"""A default limit on a worker is not lower: libraries and small plans take half of it."""


@cluster.command()
def run_cluster(
    *,
    broker: Broker = DEFAULT_BROKER,
    data: Annotated[
        Path, typer.Option(envvar="FJORD_CLUSTER_DATA", help="Folder of tables, registry and checkpoints.")
    ] = Path(".fjord/cluster"),
    name: Annotated[str, typer.Option(envvar="FJORD_CLUSTER", help="Name of this cluster.")] = "cluster",
    keys: Annotated[
        Path | None,
        typer.Option(envvar="FJORD_CLUSTER_KEYS", help="File of this cluster's keys.", dir_okay=False),
    ] = None,
    api_host: Annotated[str, typer.Option(envvar="FJORD_API_HOST", help="Address of the HTTP API.")] = "127.0.0.1",
    api_port: Annotated[
        int, typer.Option(envvar="FJORD_API_PORT", min=0, max=65535, help="Port of the HTTP API.")
    ] = 8642,
    api_tokens: Annotated[
        Path | None,
        typer.Option(envvar="FJORD_API_TOKENS", help="File of tokens with roles, as `fjord token create` makes it."),
    ] = None,
    api_allowed_host: Annotated[
        list[str] | None,
        typer.Option(envvar="FJORD_API_ALLOWED_HOSTS", help="A name by which the API may be called; repeatable."),
    ] = None,
    api_allowed_origin: Annotated[
        list[str] | None,
        typer.Option(envvar="FJORD_API_ALLOWED_ORIGINS", help="A site whose pages may use the API; repeatable."),
    ] = None,
    api_certificate: Annotated[
        str,
        typer.Option(envvar="FJORD_API_CERTIFICATE", metavar="FILE", help="Certificate of the HTTP API, for TLS."),
    ] = "",
    api_key: Annotated[str, typer.Option(envvar="FJORD_API_KEY", metavar="FILE", help="Key of that certificate.")] = "",
    api_client_ca: Annotated[
        str,
        typer.Option(
            envvar="FJORD_API_CLIENT_CA",
            metavar="FILE",
            help="Authority that certificates of clients must come from; without one they need none.",
        ),
    ] = "",
    master: Annotated[str, typer.Option(envvar="FJORD_SPARK_MASTER", help="Spark master URL.")] = "local[*]",
    buckets: Annotated[int, typer.Option(min=1, max=1024, help="Parts of operator state; fixed at first start.")] = 4,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Spark tasks for stateful operators.")] = 2,
    driver_memory: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    spark_settings: Annotated[
        Path | None,
        typer.Option(
            envvar="FJORD_SPARK_SETTINGS",
            dir_okay=False,
            help="File of further settings of Spark, in the form of spark-defaults.conf; for a cluster of machines.",
        ),
    ] = None,
    max_rows: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_ROWS,
            help="Rows of a stream that one micro-batch reads at most; four times as many for a query alone.",
        ),
    ] = 500_000,
    history_rows: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_ROWS,
            help="About how many rows of history one micro-batch reads, for all queries with SINCE.",
        ),
    ] = 500_000,
    publishers: Annotated[
        int,
        typer.Option(min=1, max=SHARDS, help="Processes that publish results, each those of its share of the queries."),
    ] = 1,
    max_queries: Annotated[int, typer.Option(min=1, help="Further queries are rejected.")] = 50_000,
    max_state: Annotated[
        int,
        byte_size_option(
            "--max-state",
            help="Queries that would make operators keep more state are rejected; those with ranges get sizes that "
            "leave a fifth of it free.",
            shown_default="4GiB",
        ),
    ] = 4 * 1024**3,
    max_busy: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Windows and granularities with ranges get sizes with which all queries take so much of processors' "
            "time at most, as estimated: 1.5 is one and a half. Queries that do not fit at their least are rejected.",
            show_default="no limit",
        ),
    ] = None,
    max_rows_per_tuple: Annotated[
        int, typer.Option(min=1, help="Queries that would make more rows of one tuple are rejected.")
    ] = 100_000,
    max_rows_per_second: Annotated[
        int, typer.Option(min=1, help="Queries whose windows would make more rows in a second are rejected.")
    ] = 2_000_000,
    max_answers_per_second: Annotated[
        int,
        typer.Option(
            min=1,
            help="Queries that would answer so many more rows in a second than streams bring are rejected: a publisher "
            "publishes some 150,000.",
        ),
    ] = 250_000,
    max_aggregate_columns: Annotated[
        int,
        typer.Option(
            min=1,
            help="Queries with which all aggregates would have more columns are rejected: each takes about a quarter "
            "of a millisecond in every micro-batch.",
        ),
    ] = 2_000,
    max_characters_per_second: Annotated[
        int,
        typer.Option(
            min=1,
            help="Queries with which all long texts that queries make and answer would have more characters in a "
            "second are rejected: a core makes 70 million at least, but answers take much longer.",
        ),
    ] = 25_000_000,
    planning_seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400.0, help="Statements that take longer to plan are rejected.")
    ] = 10.0,
    replan: Annotated[
        Replan | None,
        typer.Option(
            help="Whether plans are chosen by their estimated costs, and running queries go on with cheaper ones when "
            "figures change.",
            show_default="on, or off with --record",
        ),
    ] = None,
    max_relation: Annotated[
        int, byte_size_option("--max-relation", help="Relations that are larger are not read.", shown_default="2GiB")
    ] = 2 * 1024**3,
    relation_folder: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="FJORD_RELATION_FOLDERS",
            help="A folder whose files relations may read, besides that in which the cluster is started; repeatable.",
        ),
    ] = None,
    relation_host: Annotated[
        list[str] | None,
        typer.Option(
            envvar="FJORD_RELATION_HOSTS",
            help="A PostgreSQL server that relations may connect to, besides those of this machine; repeatable.",
        ),
    ] = None,
    relation_credentials: Annotated[
        Path | None,
        typer.Option(
            envvar="FJORD_RELATION_CREDENTIALS", help="File of passwords for these servers, in the form of ~/.pgpass."
        ),
    ] = None,
    relation_memory: Annotated[
        int,
        byte_size_option(
            "--relation-memory", help="Relations that take more in a worker are partitioned.", shown_default="256MiB"
        ),
    ] = 256 * 1024**2,
    functions: Annotated[
        list[str] | None,
        typer.Option(
            envvar="FJORD_FUNCTIONS",
            metavar="MODULE",
            help="A module that functions of users may come from: roads.wear, or roads.* for a package; repeatable.",
        ),
    ] = None,
    function_seconds: Annotated[
        float,
        typer.Option(min=0.01, max=3600.0, help="A function that takes longer for a batch is ended."),
    ] = CALL_SECONDS,
    function_memory: Annotated[
        int,
        byte_size_option("--function-memory", help="A function that takes more memory fails.", shown_default="1GiB"),
    ] = MEMORY_BYTES,
    trigger: Annotated[
        int,
        duration_option(
            "--trigger", help="Least time between two micro-batches.", shown_default="0s", most_us=LONGEST_PAUSE_US
        ),
    ] = 0,
    commit_interval: Annotated[
        int,
        duration_option(
            "--commit-interval",
            help="Least time between two commits of a stream.",
            shown_default="100ms",
            most_us=LONGEST_PAUSE_US,
        ),
    ] = 100_000,
    broker_silence: Annotated[
        int,
        duration_option(
            "--broker-silence",
            help="A broker that sends nothing for this long has hung.",
            shown_default="15s",
            least_us=1_000_000,
        ),
    ] = 15_000_000,
    hang_after: Annotated[
        int,
        duration_option(
            "--hang-after",
            help="Spark starts again if rows wait, and nothing was computed to its end for this long.",
            shown_default="10m",
            least_us=1_000_000,
        ),
    ] = 600_000_000,
    worker_memory: Annotated[
        int | None,
        byte_size_option(
            "--worker-memory",
            help="A query with which a Python process of Spark takes more is stopped; after three times within an hour "
            "it is set aside.",
            shown_default="half of what is free, divided by the processors",
        ),
    ] = None,
    query_time: Annotated[
        int,
        duration_option(
            "--query-time",
            help="A query that takes longer for a part of a micro-batch is stopped; after three times within an hour "
            "it is set aside.",
            shown_default="20s",
            least_us=1_000_000,
        ),
    ] = 20_000_000,
    query_share: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="A query that is computed for this share of a minute in which all answers are late is set aside if "
            "there are others; 0 for no limit.",
        ),
    ] = 0.75,
    gone_after: Annotated[
        int | None,
        duration_option(
            "--gone-after",
            "--silence-after",
            help="A proxy offline for this long no longer holds back watermarks.",
            shown_default="never",
            least_us=1_000_000,
        ),
    ] = None,
    clock_tolerance: Annotated[
        int,
        duration_option(
            "--clock-tolerance", help="Clocks of proxies that differ by more are reported.", shown_default="1m"
        ),
    ] = 60_000_000,
    results_backlog: Annotated[
        int,
        byte_size_option(
            "--results-backlog",
            help="Results to keep for a broker that is away for over a day; beyond, the oldest go.",
            shown_default="16GiB",
        ),
    ] = 16 * 1024**3,
    results_size: Annotated[
        int,
        byte_size_option(
            "--results-size", help="How much of the results is kept once it is published.", shown_default="16GiB"
        ),
    ] = 16 * 1024**3,
    stream_retention: Annotated[
        int | None,
        duration_option(
            "--stream-retention",
            help="How far back streams are kept, besides rows that are still to be read.",
            shown_default="for ever",
            least_us=1,
        ),
    ] = None,
    stream_size: Annotated[
        int | None,
        byte_size_option(
            "--stream-size",
            help="How much of each stream is kept, besides rows that are still to be read.",
            shown_default="no bound",
        ),
    ] = None,
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
) -> None:
    """Run the cluster until Ctrl-C.

    The broker's user and password come from FJORD_BROKER_USERNAME and FJORD_BROKER_PASSWORD, files for TLS to it from
    FJORD_BROKER_CA, FJORD_BROKER_CERTIFICATE and FJORD_BROKER_KEY. A token for the API that allows everything comes
    from FJORD_API_TOKEN, tokens with roles from the file of --api-tokens. Without any token the API needs none, allows
    everything, and listens on the loopback address only.
    """
    import os
    import time

    from cluster.service.client.api_token import api_token
    from cluster.service.running.settings import ClusterSettings
    from cluster.spark.settings_file import read_spark_settings
    from protocols.mqtt.broker_address import parse_broker
    from protocols.security.tls import TlsNames, check_at_start

    names = TlsNames("--api-client-ca", "--api-certificate", "--api-key")
    api_tls = names.read(dict(zip(astuple(names), (api_client_ca, api_certificate, api_key), strict=True)))
    if api_tls is not None:
        if api_tls.certificate is None:
            raise typer.BadParameter("needs --api-certificate and --api-key", param_hint="--api-client-ca")
        check_at_start(api_tls, time.time())
    if record is not None and replan is Replan.ON:
        raise typer.BadParameter(
            "is not possible with --record: plans are chosen by what Spark has measured, which is in no log",
            param_hint="--replan on",
        )
    _run(
        ClusterSettings(
            name=name,
            folder=data,
            adopt=adopt,
            broker=parse_broker(broker, os.environ),
            keys=keys,
            api_host=api_host,
            api_port=api_port,
            api_tls=api_tls,
            api_token=api_token(os.environ),
            api_tokens=api_tokens,
            api_allowed_hosts=tuple(_listed(api_allowed_host)),
            api_allowed_origins=tuple(_listed(api_allowed_origin)),
            master=master,
            buckets=buckets,
            partitions=partitions,
            driver_memory=driver_memory,
            spark={} if spark_settings is None else read_spark_settings(spark_settings),
            publishers=publishers,
            results_bytes=results_size,
            stream_age_us=stream_retention,
            stream_bytes=stream_size,
            max_rows=max_rows,
            history_rows=history_rows,
            trigger_seconds=trigger / 1e6,
            commit_interval_seconds=commit_interval / 1e6,
            broker_silence_seconds=broker_silence / 1e6,
            hang_seconds=hang_after / 1e6,
            worker_memory_bytes=_memory_of_a_worker() if worker_memory is None else worker_memory,
            query_seconds=query_time / 1e6,
            query_share=query_share,
            gone_after_seconds=None if gone_after is None else gone_after / 1e6,
            clock_tolerance_seconds=clock_tolerance / 1e6,
            results_backlog_bytes=results_backlog,
            max_queries=max_queries,
            max_state_bytes=max_state,
            max_busy=math.inf if max_busy is None else max_busy,
            max_rows_per_tuple=max_rows_per_tuple,
            max_rows_per_second=max_rows_per_second,
            max_answers_per_second=max_answers_per_second,
            max_aggregate_columns=max_aggregate_columns,
            max_characters_per_second=max_characters_per_second,
            planning_seconds=planning_seconds,
            replan=replan is not Replan.OFF,
            max_relation_bytes=max_relation,
            relation_folders=(*_started_in(), *(relation_folder or ())),
            relation_hosts=tuple(_listed(relation_host)),
            relation_credentials=relation_credentials,
            relation_memory_bytes=relation_memory,
            functions=FunctionRules(checked_patterns(listed(functions or ())), function_seconds, function_memory),
        ),
        record,
        record_size,
    )


def _memory_of_a_worker() -> int:
    """Return what each worker may take, if as many are at work as there are processors."""
    import os

    from cluster.local.memory_limit import default_limit

    return max(default_limit() // (os.cpu_count() or 1), LEAST_WORKER_BYTES)


def _listed(values: list[str] | None) -> list[str]:
    """Return names that are options, or one variable with commas between."""
    return [name for value in values or () for each in value.split(",") if (name := each.strip())]


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
    from protocols.recording.ticking_loop import TickingLoop
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
