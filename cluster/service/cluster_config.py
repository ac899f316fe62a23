"""Settings of a cluster as people write them: options of ``fjord cluster``, variables, and its file."""

from __future__ import annotations

from dataclasses import astuple
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cluster.functions.allowed import CALL_SECONDS, MEMORY_BYTES, listed
from cluster.service.client.command import DEFAULT_BROKER
from cluster.service.publishing.published import SHARDS
from protocols.command_line.settings_file import ByteSize, Duration, Program, Shown, reader
from protocols.mqtt.broker_address import parse_broker
from protocols.security.tls import TlsFiles, TlsNames
from protocols.text.quantities import LONGEST_PAUSE_US
from protocols.wire.topics import check_part_name

PROGRAM = Program("fjord cluster", "FJORD_CLUSTER_")
API_TLS = TlsNames("--api-client-ca", "--api-certificate", "--api-key")
MOST_ROWS = 10**12
SECOND_US = 1_000_000
GIB = 1024**3


class Replan(StrEnum):
    """Whether plans are chosen by their costs."""

    ON = "on"
    OFF = "off"


def _names(value: object) -> object:
    """Return names that are a list, or one text with commas between."""
    texts = [value] if isinstance(value, str) else value
    return listed(texts) if isinstance(texts, list | tuple) and all(isinstance(each, str) for each in texts) else value


def _name(text: str) -> str:
    return check_part_name(text, "cluster's name")


def _broker(text: str) -> str:
    """Return an address that can be read; files for TLS are looked at later."""
    parse_broker(text, {})
    return text


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class ClusterConfig(BaseModel):
    """How a cluster runs. Durations are microseconds and sizes bytes inside; people write ``100ms`` and ``64KiB``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, BeforeValidator(reader(_name)), Shown(variable="FJORD_CLUSTER")] = Field(
        "cluster", description="Name of this cluster."
    )
    broker: Annotated[str, BeforeValidator(reader(_broker)), Shown(variable="FJORD_BROKER")] = Field(
        DEFAULT_BROKER, description="MQTT broker, HOST or HOST:PORT; without a port it is 1883, or 8883 with TLS."
    )
    data: Path = Field(Path(".fjord/cluster"), description="Folder of tables, registry and checkpoints.")
    keys: Annotated[Path | None, Shown(metavar="FILE", unset="none")] = Field(
        None, description="File of this cluster's keys."
    )
    api_host: Annotated[str, Shown(variable="FJORD_API_HOST")] = Field(
        "127.0.0.1", description="Address of the HTTP API."
    )
    api_port: Annotated[int, Shown(variable="FJORD_API_PORT")] = Field(
        8642, ge=0, le=65_535, description="Port of the HTTP API."
    )
    api_tokens: Annotated[Path | None, Shown(variable="FJORD_API_TOKENS", metavar="FILE", unset="none")] = Field(
        None, description="File of tokens with roles, as `fjord token create` makes it."
    )
    api_allowed_host: Annotated[Names, Shown(variable="FJORD_API_ALLOWED_HOSTS")] = Field(
        (), description="A name by which the API may be called."
    )
    api_allowed_origin: Annotated[Names, Shown(variable="FJORD_API_ALLOWED_ORIGINS")] = Field(
        (), description="A site whose pages may use the API."
    )
    api_certificate: Annotated[str, Shown(variable="FJORD_API_CERTIFICATE", metavar="FILE")] = Field(
        "", description="Certificate of the HTTP API, for TLS."
    )
    api_key: Annotated[str, Shown(variable="FJORD_API_KEY", metavar="FILE")] = Field(
        "", description="Key of that certificate."
    )
    api_client_ca: Annotated[str, Shown(variable="FJORD_API_CLIENT_CA", metavar="FILE")] = Field(
        "", description="Authority that certificates of clients must come from; without one they need none."
    )
    master: Annotated[str, Shown(variable="FJORD_SPARK_MASTER")] = Field("local[*]", description="Spark master URL.")
    buckets: int = Field(4, ge=1, le=1024, description="Parts of operator state; fixed at first start.")
    partitions: int = Field(2, ge=1, le=1024, description="Spark tasks for stateful operators.")
    driver_memory: str = Field("1g", pattern=r"^[1-9]\d{0,8}[kKmMgGtT]$", description="Heap of Spark's driver.")
    spark_settings: Annotated[Path | None, Shown(variable="FJORD_SPARK_SETTINGS", metavar="FILE", unset="none")] = (
        Field(
            None,
            description="File of further settings of Spark, in the form of spark-defaults.conf; for a cluster of "
            "machines.",
        )
    )
    max_rows: int = Field(
        500_000,
        ge=1,
        le=MOST_ROWS,
        description="Rows of a stream that one micro-batch reads at most; four times as many for a query alone.",
    )
    history_rows: int = Field(
        500_000,
        ge=1,
        le=MOST_ROWS,
        description="About how many rows of history one micro-batch reads, for all queries with SINCE.",
    )
    publishers: int = Field(
        1, ge=1, le=SHARDS, description="Processes that publish results, each those of its share of the queries."
    )
    max_queries: int = Field(50_000, ge=1, description="Further queries are rejected.")
    max_state: Annotated[int, ByteSize()] = Field(
        4 * GIB,
        description="Queries that would make operators keep more state are rejected; those with ranges get sizes that "
        "leave a fifth of it free.",
    )
    max_busy: Annotated[float | None, Shown(unset="no limit")] = Field(
        None,
        ge=0.001,
        description="Windows and granularities with ranges get sizes with which all queries take so much of "
        "processors' time at most, as estimated: 1.5 is one and a half. Queries that do not fit at their least are "
        "rejected.",
    )
    max_rows_per_tuple: int = Field(
        100_000, ge=1, description="Queries that would make more rows of one tuple are rejected."
    )
    max_rows_per_second: int = Field(
        2_000_000, ge=1, description="Queries whose windows would make more rows in a second are rejected."
    )
    max_answers_per_second: int = Field(
        250_000,
        ge=1,
        description="Queries that would answer so many more rows in a second than streams bring are rejected: a "
        "publisher publishes some 150,000.",
    )
    max_aggregate_columns: int = Field(
        2_000,
        ge=1,
        description="Queries with which all aggregates would have more columns are rejected: each takes about a "
        "quarter of a millisecond in every micro-batch.",
    )
    max_characters_per_second: int = Field(
        25_000_000,
        ge=1,
        description="Queries with which all long texts that queries make and answer would have more characters in a "
        "second are rejected: a core makes 70 million at least, but answers take much longer.",
    )
    planning_seconds: float = Field(
        10.0, ge=0.1, le=86_400.0, description="Statements that take longer to plan are rejected."
    )
    replan: Annotated[Replan | None, Shown(unset="on, or off with --record")] = Field(
        None,
        description="Whether plans are chosen by their estimated costs, and running queries go on with cheaper ones "
        "when figures change.",
    )
    max_relation: Annotated[int, ByteSize()] = Field(2 * GIB, description="Relations that are larger are not read.")
    relation_folder: Annotated[tuple[Path, ...], Shown(variable="FJORD_RELATION_FOLDERS", metavar="FOLDER")] = Field(
        (), description="A folder whose files relations may read, besides that in which the cluster is started."
    )
    relation_host: Annotated[Names, Shown(variable="FJORD_RELATION_HOSTS")] = Field(
        (), description="A PostgreSQL server that relations may connect to, besides those of this machine."
    )
    relation_credentials: Annotated[
        Path | None, Shown(variable="FJORD_RELATION_CREDENTIALS", metavar="FILE", unset="none")
    ] = Field(None, description="File of passwords for these servers, in the form of ~/.pgpass.")
    relation_memory: Annotated[int, ByteSize()] = Field(
        256 * 1024**2, description="Relations that take more in a worker are partitioned."
    )
    functions: Annotated[Names, Shown(variable="FJORD_FUNCTIONS", metavar="MODULE")] = Field(
        (), description="A module that functions of users may come from: roads.wear, or roads.* for a package."
    )
    function_seconds: float = Field(
        CALL_SECONDS, ge=0.01, le=3600.0, description="A function that takes longer for a batch is ended."
    )
    function_memory: Annotated[int, ByteSize()] = Field(
        MEMORY_BYTES, description="A function that takes more memory fails."
    )
    trigger: Annotated[int, Duration(most_us=LONGEST_PAUSE_US)] = Field(
        0, description="Least time between two micro-batches."
    )
    commit_interval: Annotated[int, Duration(most_us=LONGEST_PAUSE_US)] = Field(
        100_000, description="Least time between two commits of a stream."
    )
    broker_silence: Annotated[int, Duration(least_us=SECOND_US)] = Field(
        15 * SECOND_US, description="A broker that sends nothing for this long has hung."
    )
    hang_after: Annotated[int, Duration(least_us=SECOND_US)] = Field(
        600 * SECOND_US,
        description="Spark starts again if rows wait, and nothing was computed to its end for this long.",
    )
    worker_memory: Annotated[int | None, ByteSize(), Shown(unset="half of what is free, divided by the processors")] = (
        Field(
            None,
            description="A query with which a Python process of Spark takes more is stopped; after three times within "
            "an hour it is set aside.",
        )
    )
    query_time: Annotated[int, Duration(least_us=SECOND_US)] = Field(
        20 * SECOND_US,
        description="A query that takes longer for a part of a micro-batch is stopped; after three times within an "
        "hour it is set aside.",
    )
    query_share: float = Field(
        0.75,
        ge=0.0,
        le=1.0,
        description="A query that is computed for this share of a minute in which all answers are late is set aside "
        "if there are others; 0 for no limit.",
    )
    gone_after: Annotated[
        int | None, Duration(least_us=SECOND_US), Shown(unset="never", aliases=("--silence-after",))
    ] = Field(None, description="A proxy offline for this long no longer holds back watermarks.")
    clock_tolerance: Annotated[int, Duration()] = Field(
        60 * SECOND_US, description="Clocks of proxies that differ by more are reported."
    )
    results_backlog: Annotated[int, ByteSize()] = Field(
        16 * GIB, description="Results to keep for a broker that is away for over a day; beyond, the oldest go."
    )
    results_size: Annotated[int, ByteSize()] = Field(
        16 * GIB, description="How much of the results is kept once it is published."
    )
    stream_retention: Annotated[int | None, Duration(least_us=1), Shown(unset="for ever")] = Field(
        None, description="How far back streams are kept, besides rows that are still to be read."
    )
    stream_size: Annotated[int | None, ByteSize(), Shown(unset="no bound")] = Field(
        None, description="How much of each stream is kept, besides rows that are still to be read."
    )

    @property
    def api_tls(self) -> TlsFiles | None:
        """Files for TLS of the API; None for none.

        Raises
        ------
        SecurityError
            If one of certificate and key is missing.
        """
        files = (self.api_client_ca, self.api_certificate, self.api_key)
        return API_TLS.read(dict(zip(astuple(API_TLS), files, strict=True)))
