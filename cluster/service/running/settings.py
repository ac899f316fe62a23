"""Settings of a cluster, with their defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.functions.allowed import FunctionRules
from cluster.spark.session import SessionSettings
from protocols.mqtt.link import SILENCE_SECONDS, BrokerAddress
from protocols.security.expiry import files_to_watch
from protocols.security.tls import TlsFiles

DEFAULT_API_PORT = 8642
DEFAULT_BUCKETS = 4


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How to run a cluster.

    Parameters
    ----------
    name
        Of this cluster; part of topics.
    folder
        Where stream tables, results, plans, registry and checkpoint are kept.
    adopt
        Whether a folder that was copied, restored or moved to this machine is used.
    broker
        The MQTT broker.
    keys
        The file of its keys; None for none.
    broker_silence_seconds
        A broker that sends nothing for so long counts as hung, and the cluster connects again.
    api_host, api_port
        Where the HTTP API listens; loopback unless a token is set.
    api_tls
        Certificate and key of the API, and the authority of its clients' certificates; None for no TLS.
    api_token
        A token of the role admin. Requests carry theirs as ``Authorization: Bearer``; if there is neither this one nor
        a file of tokens, they need none.
    api_tokens
        A file of tokens with roles; None for none.
    api_allowed_hosts
        Names by which the API may be called, besides `api_host` and those of the loopback device.
    api_allowed_origins
        Sites whose pages may use the API, such as ``https://fjord.example``, besides the API's own.
    master
        Spark's master URL.
    buckets
        Parts into which operator state is divided. Fixed for the life of a data folder.
    partitions
        Spark tasks that run stateful operators.
    driver_memory
        Heap of Spark's driver.
    spark
        Further settings of Spark; they win.
    max_rows
        Rows of a stream that one micro-batch reads at most: its answers pass through the driver's memory. Up to four
        times as many if only a few queries can answer each row.
    history_rows
        About how many rows of history one micro-batch reads, for all queries with history.
    trigger_seconds
        Least time between two micro-batches.
    hang_seconds
        If no micro-batch ends for so long while rows wait, the engine is started again. Twice `trigger_seconds` at
        least.
    worker_memory_bytes
        A query with which a worker of Spark takes more memory, besides files, is stopped; 0 for no limit.
    query_seconds
        A query that takes longer for a part of a micro-batch is stopped; 0 for no limit.
    query_share
        A query that is computed for this share of the time, while all answers are late, is set aside; 0 for no limit.
    commit_interval_seconds
        Least time between two commits to a stream table.
    gone_after_seconds
        A proxy offline for this long no longer holds back the watermarks of streams that have no such time of their
        own; None for never, so that what waits in its spool is never late.
    clock_tolerance_seconds
        A proxy's clock that differs by more from the cluster's is reported as wrong, and versions of relations begin no
        later than this in the future, whatever stamps streams have.
    results_backlog_bytes
        Unpublished results to keep for a broker that is away for over a day. Beyond it the oldest are not published but
        counted as lost; the API still has their rows.
    publishers
        How many processes publish results, each those of its share of the queries.
    stream_age_us
        How far behind its low watermark a stream is kept, unless it has a budget of its own; None for no bound.
    stream_bytes
        How much of a stream is kept on disk, likewise; None for no bound.
    results_bytes
        How much of published results is kept on disk; None for no bound, as clusters of earlier versions had.
    max_queries
        Further queries are rejected.
    max_state_bytes
        Queries with which operators would keep more state than this are refused.
    max_busy
        Sizes of queries with ranges are such that all queries together are estimated to take so much of processors'
        time at most; 1 is one processor.
    max_rows_per_tuple
        Queries that would make more rows than this of one tuple are refused, whatever the rate of the stream.
    max_rows_per_second
        Queries with which operators would make more additional rows than this in a second are refused. A core makes
        about three million.
    max_answers_per_second
        Queries that would answer so many more rows in a second than streams bring are refused.
    max_aggregate_columns
        Queries with which aggregates would have more columns than this are refused: each takes time in a micro-batch.
    max_characters_per_second
        Queries with which all long texts that queries make and answer would have more characters in a second are
        refused. With 16 million, half of them answered, two cores with other work were 3 s later with all answers.
    planning_seconds
        Statements whose planning takes longer are refused.
    replan
        Whether plans are chosen by their costs, and running queries go on with cheaper ones.
    max_relation_bytes
        Larger relations are not read.
    relation_folders
        Folders whose files relations may read; by default the one in which the cluster was started.
    relation_hosts
        PostgreSQL servers that relations may connect to, besides those of this machine.
    relation_credentials
        A file with their passwords; None for none.
    relation_memory_bytes
        What one table of relations may take of a worker's memory; larger tables are partitioned.
    functions
        What functions of users may be and take.
    """

    name: str = "cluster"
    folder: Path = Path(".fjord/cluster")
    adopt: bool = False
    broker: BrokerAddress = field(default_factory=BrokerAddress)
    keys: Path | None = None
    broker_silence_seconds: float = SILENCE_SECONDS
    api_host: str = "127.0.0.1"
    api_port: int = DEFAULT_API_PORT
    api_tls: TlsFiles | None = None
    api_token: str | None = field(default=None, repr=False)
    api_tokens: Path | None = None
    api_allowed_hosts: tuple[str, ...] = ()
    api_allowed_origins: tuple[str, ...] = ()
    master: str = "local[*]"
    buckets: int = DEFAULT_BUCKETS
    partitions: int = 2
    driver_memory: str = "1g"
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_rows: int = 500_000
    history_rows: int = 500_000
    trigger_seconds: float = 0.0
    hang_seconds: float = 600.0
    worker_memory_bytes: int = 0
    query_seconds: float = 20.0
    query_share: float = 0.75
    commit_interval_seconds: float = 0.1
    gone_after_seconds: float | None = None
    clock_tolerance_seconds: float = 60.0
    results_backlog_bytes: int = 16 * 1024**3
    publishers: int = 1
    stream_age_us: int | None = None
    stream_bytes: int | None = None
    results_bytes: int | None = 16 * 1024**3
    max_queries: int = 50_000
    max_state_bytes: int = 4 * 1024**3
    max_busy: float = math.inf
    max_rows_per_tuple: int = 100_000
    max_rows_per_second: int = 2_000_000
    max_answers_per_second: int = 250_000
    max_aggregate_columns: int = 2_000
    max_characters_per_second: int = 25_000_000
    planning_seconds: float = 10.0
    replan: bool = True
    max_relation_bytes: int = 2 * 1024**3
    relation_folders: tuple[Path, ...] = (Path(),)
    relation_hosts: tuple[str, ...] = ()
    relation_credentials: Path | None = None
    relation_memory_bytes: int = 256 * 1024**2
    functions: FunctionRules = field(default_factory=FunctionRules)

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files that no relation may read."""
        keys = (tls.key for tls in (self.api_tls, self.broker.tls) if tls is not None)
        named = (self.api_tokens, self.relation_credentials, self.broker.password_file, self.keys, *keys)
        return tuple(Path(each) for each in named if each is not None)

    @property
    def api_address(self) -> str:
        """Address of the API."""
        host = f"[{self.api_host}]" if ":" in self.api_host else self.api_host
        return f"{'http' if self.api_tls is None else 'https'}://{host}:{self.api_port}"

    @property
    def certificates(self) -> dict[str, str]:
        """Files of certificates by what they are for."""
        return files_to_watch(broker=self.broker.tls, api=self.api_tls)

    @property
    def heap_bytes(self) -> int:
        """The heap of Spark's driver; 1 GiB if that cannot be read."""
        found = re.fullmatch(r"(\d+)([kmgt]?)b?", self.driver_memory.strip().lower())
        if found is None:
            return 1024**3
        return int(found[1]) << 10 * (" kmgt".index(found[2]) if found[2] else 2)

    @property
    def session(self) -> SessionSettings:
        """How Spark is run."""
        return SessionSettings(self.master, self.partitions, self.driver_memory, {**self.spark})
