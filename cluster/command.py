"""``fjord cluster`` runs the cluster; ``fjord query`` adds, lists, drops, explains, bills and follows queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.try_command import try_query
from protocols.command_line import byte_size_option, duration_option
from protocols.durations import LONGEST_PAUSE_US

if TYPE_CHECKING:
    from cluster.service.client import ApiClient
    from cluster.service.settings import ClusterSettings

cluster = typer.Typer(help="Run the cluster: ingest, Fjord on Spark, HTTP API, publisher.")
query = typer.Typer(help="Add, list, drop, explain, bill and follow queries.", no_args_is_help=True)

query.command("try", no_args_is_help=True)(try_query)

Broker = Annotated[str, typer.Option("--broker", envvar="FJORD_BROKER", help="MQTT broker as HOST:PORT.")]
Api = Annotated[str, typer.Option("--api", envvar="FJORD_API", help="Address of the cluster's HTTP API.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_BROKER = "127.0.0.1:1883"
MOST_ROWS = 10**12
DEFAULT_API = "http://127.0.0.1:8642"


@cluster.command()
def run_cluster(
    *,
    broker: Broker = DEFAULT_BROKER,
    data: Annotated[
        Path, typer.Option(envvar="FJORD_CLUSTER_DATA", help="Folder of tables, registry and checkpoints.")
    ] = Path(".fjord/cluster"),
    name: Annotated[str, typer.Option(envvar="FJORD_CLUSTER", help="Name of this cluster.")] = "cluster",
    api_host: Annotated[str, typer.Option(envvar="FJORD_API_HOST", help="Address of the HTTP API.")] = "127.0.0.1",
    api_port: Annotated[
        int, typer.Option(envvar="FJORD_API_PORT", min=0, max=65535, help="Port of the HTTP API.")
    ] = 8642,
    master: Annotated[str, typer.Option(envvar="FJORD_SPARK_MASTER", help="Spark master URL.")] = "local[*]",
    buckets: Annotated[int, typer.Option(min=1, max=1024, help="Parts of operator state; fixed at first start.")] = 4,
    partitions: Annotated[int, typer.Option(min=1, max=1024, help="Spark tasks for stateful operators.")] = 2,
    driver_memory: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    max_rows: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, help="Rows of a stream that one micro-batch reads at most.")
    ] = 500_000,
    history_rows: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_ROWS, help="Rows of history that one micro-batch reads, about, for all queries with SINCE."
        ),
    ] = 500_000,
    max_queries: Annotated[int, typer.Option(min=1, help="More queries are refused.")] = 10_000,
    max_state: Annotated[
        int, byte_size_option("--max-state", help="Queries that would keep more are refused.", shown_default="4GiB")
    ] = 4 * 1024**3,
    max_rows_per_tuple: Annotated[
        int, typer.Option(min=1, help="Queries that would make more rows of one tuple are refused.")
    ] = 100_000,
    max_rows_per_second: Annotated[
        int, typer.Option(min=1, help="Queries with which windows would make more rows in a second are refused.")
    ] = 2_000_000,
    planning_seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400.0, help="Statements that take longer to plan are refused.")
    ] = 10.0,
    max_relation: Annotated[
        int, byte_size_option("--max-relation", help="Relations that are larger are not read.", shown_default="2GiB")
    ] = 2 * 1024**3,
    relation_memory: Annotated[
        int,
        byte_size_option(
            "--relation-memory", help="Relations that take more in a worker are partitioned.", shown_default="256MiB"
        ),
    ] = 256 * 1024**2,
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
            help="A broker that sends nothing for so long has hung.",
            shown_default="15s",
            least_us=1_000_000,
        ),
    ] = 15_000_000,
    silence_after: Annotated[
        int,
        duration_option(
            "--silence-after", help="A proxy offline for this long holds back nothing.", shown_default="30s"
        ),
    ] = 30_000_000,
    clock_tolerance: Annotated[
        int,
        duration_option(
            "--clock-tolerance", help="A proxy's clock further from the cluster's is reported.", shown_default="1m"
        ),
    ] = 60_000_000,
    results_backlog: Annotated[
        int,
        byte_size_option(
            "--results-backlog",
            help="Kept for a broker that is away for over a day; with more, the oldest is given up.",
            shown_default="16GiB",
        ),
    ] = 16 * 1024**3,
    results_size: Annotated[
        int | None,
        byte_size_option(
            "--results-size", help="How much of the results is kept once it is published.", shown_default="no bound"
        ),
    ] = None,
    stream_retention: Annotated[
        int | None,
        duration_option(
            "--stream-retention",
            help="How far back streams are kept, but for what is still to be read.",
            shown_default="for ever",
            least_us=1,
        ),
    ] = None,
    stream_size: Annotated[
        int | None,
        byte_size_option(
            "--stream-size",
            help="How much of each stream is kept, but for what is still to be read.",
            shown_default="no bound",
        ),
    ] = None,
) -> None:
    """Run the cluster until Ctrl-C.

    The broker's user and password come from FJORD_BROKER_USERNAME and FJORD_BROKER_PASSWORD, a token for the API from
    FJORD_API_TOKEN: without one, or with an empty one, the API asks for none and listens on the loopback address only.
    """
    import os

    from cluster.service.api_token import api_token
    from cluster.service.settings import ClusterSettings
    from protocols.broker_address import parse_broker

    _run(
        ClusterSettings(
            name=name,
            folder=data,
            broker=parse_broker(broker, os.environ),
            api_host=api_host,
            api_port=api_port,
            api_token=api_token(os.environ),
            master=master,
            buckets=buckets,
            partitions=partitions,
            driver_memory=driver_memory,
            results_bytes=results_size,
            stream_age_us=stream_retention,
            stream_bytes=stream_size,
            max_rows=max_rows,
            history_rows=history_rows,
            trigger_seconds=trigger / 1e6,
            commit_interval_seconds=commit_interval / 1e6,
            broker_silence_seconds=broker_silence / 1e6,
            silence_seconds=silence_after / 1e6,
            clock_tolerance_seconds=clock_tolerance / 1e6,
            results_backlog_bytes=results_backlog,
            max_queries=max_queries,
            max_state_bytes=max_state,
            max_rows_per_tuple=max_rows_per_tuple,
            max_rows_per_second=max_rows_per_second,
            planning_seconds=planning_seconds,
            max_relation_bytes=max_relation,
            relation_memory_bytes=relation_memory,
        )
    )


@query.command("add")
def add_query(
    sql: Annotated[str, typer.Argument(help="The query, or - to read it from standard input.")],
    *,
    name: Annotated[str | None, typer.Option(help="Its name; q1, q2, ... unless given.")] = None,
    api: Api = DEFAULT_API,
    as_json: AsJson = False,
) -> None:
    """Start a query and print the topic of its results."""
    import sys

    with make_client(api) as client:
        added = client.add(sys.stdin.read() if sql == "-" else sql, name)
    if as_json:
        print_json(added)
        return
    for warning in added["warnings"]:
        typer.echo(f"warning: {warning}", err=True)
    for text in mismatch_texts(added.get("mismatches", [])):
        typer.echo(f"warning: {text}", err=True)
    for read in added.get("history", []):
        since = "from the beginning" if read["since"] is None else f"since {read['since']}"
        typer.echo(f"reads first: {read['stream']} {since}, about {read['rows']:,} rows", err=True)
    typer.echo(f"{added['name']}  {added['topic']}")
    if added["epoch"] is None:
        typer.echo(added["state"], err=True)


@query.command("list")
def list_queries(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """List queries: those that run, and those that wait for a relation."""
    with make_client(api) as client:
        queries = client.queries()
    if as_json:
        print_json(queries)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "state", "rows", "lag", "since epoch", "query", box=None)
    for each in queries:
        since = "-" if each["epoch"] is None else str(each["epoch"])
        rows, lag = f"{each['rows']:,}", lag_text(each.get("lag"))
        table.add_row(each["name"], each["state"], rows, lag, since, " ".join(each["sql"].split()))
    Console(markup=False).print(table if queries else "no queries are running")


@query.command("show")
def show_query(
    name: Annotated[str, typer.Argument(help="Name of a query.")], *, api: Api = DEFAULT_API, as_json: AsJson = False
) -> None:
    """Show one query: whether it runs or waits, and for what."""
    with make_client(api) as client:
        found = client.query(name)
    if as_json:
        print_json(found)
        return
    for label, key in (("name", "name"), ("state", "state"), ("created", "created"), ("topic", "topic")):
        typer.echo(f"{label:10}{found[key]}")
    typer.echo(f"{'reads':10}{', '.join(found['reads'])}")
    typer.echo(f"{'rows':10}{found['rows']:,}")
    typer.echo(f"{'lag':10}{lag_text(found.get('lag'))}")
    typer.echo(f"{'query':10}{' '.join(found['sql'].split())}")
    for text in mismatch_texts(found.get("mismatches", [])):
        typer.echo(f"{'mismatch':10}{text}")
    for text in refusal_texts(found.get("refused_demands", [])):
        typer.echo(f"{'refused':10}{text}")


@query.command("drop")
def drop_query(
    names: Annotated[list[str], typer.Argument(help="Names of queries.")],
    *,
    api: Api = DEFAULT_API,
) -> None:
    """End queries; motes that nobody else asks go to sleep."""
    with make_client(api) as client:
        for name in names:
            client.drop(name)
            typer.echo(f"dropped {name}")


@query.command("tail")
def tail_query(
    name: Annotated[str, typer.Argument(help="Name of a query.")],
    *,
    after: Annotated[
        int | None, typer.Option(min=0, help="First print stored rows with a higher sequence number.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many rows.")] = None,
    broker: Broker = DEFAULT_BROKER,
    api: Api = DEFAULT_API,
) -> None:
    """Print a query's result rows as they are published, one JSON object a line."""
    import asyncio
    import contextlib
    import os

    from cluster.service.tail import tail
    from protocols.broker_address import parse_broker

    def show(message: bytes) -> None:
        typer.echo(message.decode())

    with make_client(api) as client, contextlib.suppress(BrokenPipeError):
        asyncio.run(tail(name, client, parse_broker(broker, os.environ), after=after, count=count, show=show))


@query.command("explain")
def explain_query(
    sql: Annotated[str, typer.Argument(help="The query, or - to read it from standard input.")],
    *,
    energy: Annotated[bool, typer.Option("--energy", help="Show what it would cost the motes instead.")] = False,
    api: Api = DEFAULT_API,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --energy.")] = False,
) -> None:
    """Show what a query means and how it will be run, without running it; or, with --energy, what motes would spend."""
    import sys

    from cluster.energy_command import asks_for_energy, print_energy

    text = sys.stdin.read() if sql == "-" else sql
    energy = energy or asks_for_energy(text)
    if as_json and not energy:
        raise typer.BadParameter("only energy is explained in JSON", param_hint="--json")
    with make_client(api) as client:
        if not energy:
            typer.echo(client.explain(text).rstrip("\n"))
            return
        answer = client.explain_energy(text)
    if as_json:
        print_json(answer)
    else:
        print_energy(answer)


@query.command("bill")
def show_bill(*, api: Api = DEFAULT_API, as_json: AsJson = False) -> None:
    """Show each running query's fair share of the energy that motes draw and have spent."""
    from cluster.energy_command import print_bill

    with make_client(api) as client:
        bill = client.bill()
    if as_json:
        print_json(bill)
    else:
        print_bill(bill)


def make_client(api: str) -> ApiClient:
    """Return a client of the API at an address, with the token of the environment."""
    import os

    from cluster.service.api_token import api_token
    from cluster.service.client import ApiClient

    return ApiClient(api, token=api_token(os.environ))


def mismatch_texts(mismatches: list[dict[str, Any]]) -> list[str]:
    """Return a sentence per proxy that offers a stream otherwise than it is declared."""
    return [
        f"proxy {each['proxy']}{'' if each['online'] else ' (offline)'} does not feed stream {each['stream']}, and its "
        f"sensors are not asked: {'; '.join(each['reasons'])}"
        for each in mismatches
    ]


def refusal_texts(refused: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each stream whose sensors are not asked for what a query needs."""
    return [
        f"sensors of stream {each['stream']} are not asked by "
        f"{'any proxy' if each['proxy'] is None else 'proxy ' + each['proxy']}"
        f"{'' if each['online'] else ' (offline)'}: {each['reason']}"
        for each in refused
    ]


def lag_text(lag: dict[str, Any] | None) -> str:
    """Return what is stored and not yet answered, as people read it.

    Examples
    --------
    >>> lag_text({"rows": 2400, "seconds": 1.25})
    '1.2s, 2,400 rows'
    """
    if lag is None:
        return "-"
    return f"{lag['seconds']:.1f}s, {lag['rows']:,} rows" if lag["rows"] or lag["seconds"] else "none"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import json

    typer.echo(json.dumps(value, indent=2))


def _run(settings: ClusterSettings) -> None:
    import asyncio

    from cluster.java import find_java

    java = find_java()  # without Java nothing else need be started
    from cluster.service.server import ClusterServer
    from cluster.spark.spark_log import SPARK_LOG

    async def serve() -> None:
        import signal

        server = ClusterServer(settings)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, server.stop)
        ready = asyncio.Event()

        async def announce() -> None:
            await ready.wait()
            typer.echo(f"the cluster is ready: API on http://{settings.api_host}:{settings.api_port}")

        announcing = asyncio.create_task(announce(), name="announce")
        try:
            await server.run(ready=ready)
        finally:
            announcing.cancel()

    log = settings.folder / SPARK_LOG
    typer.echo(f"Spark takes some seconds to start on {java.description}; what Spark writes is in {log}")
    asyncio.run(serve())
