"""Apache Flink SQL as a peer at its best: many filters in one statement set, over rows that it makes itself.

Run by `benchmarks/peers.py` with the Python of an environment that has `apache-flink`. The rows come from Flink's own
generator, and answers go to its blackhole: nothing is read from a disk and nothing is written. All queries share one
source, which is Flink's default. The first round warms up; what counts is the net run time that Flink reports of its
job, without planning, deployment and start-up. It is given up if one run does not end in some time.

    python flink_peer.py ROWS KEYS ROUNDS SECONDS_OF_A_RUN < conditions, one a line
"""

from __future__ import annotations

import json
import os
import sys
import time

COLUMNS = "stamp BIGINT, k BIGINT, x DOUBLE"


def main() -> None:
    """Measure, and print one JSON object: net seconds of each round, and what they took in all.

    Instead of these, ``unfinished_s`` if a run is given up: how long it ran.
    """
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415 - in an environment of its own

    rows, keys, rounds = (int(each) for each in sys.argv[1:4])
    limit_seconds = float(sys.argv[4])
    conditions = sys.stdin.read().splitlines()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", str(os.cpu_count() or 1))
    settings.set("taskmanager.memory.network.max", "512mb")
    settings.set("pipeline.object-reuse", "true")
    settings.set("heartbeat.timeout", "1800s")  # with a thousand queries it is silent for longer than the usual 50 s
    environment.execute_sql(
        f"""CREATE TABLE readings ({COLUMNS}) WITH (
            'connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '1000000000',
            'fields.stamp.kind' = 'sequence', 'fields.stamp.start' = '1', 'fields.stamp.end' = '{rows}',
            'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}', 'fields.x.min' = '0', 'fields.x.max' = '{keys}')"""
    )
    for number in range(len(conditions)):
        environment.execute_sql(f"CREATE TABLE q{number} ({COLUMNS}) WITH ('connector' = 'blackhole')")
    net, whole = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        seconds = _net_seconds(environment, conditions, limit_seconds)
        if seconds is None:
            print(json.dumps({"unfinished_s": limit_seconds}), flush=True)
            os._exit(0)  # Java, which goes on with it, ends with this process
        net.append(seconds)
        whole.append(time.perf_counter() - began)
    print(json.dumps({"net": net[1:], "whole": whole[1:]}))


def _net_seconds(environment, conditions: list[str], limit_seconds: float) -> float | None:  # type: ignore[no-untyped-def] # noqa: ANN001 - a type of Flink's
    """Return the net run time of one job; None if it takes longer than the limit."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - in an environment of its own

    statements = environment.create_statement_set()
    for number, condition in enumerate(conditions):
        statements.add_insert_sql(f"INSERT INTO q{number} SELECT stamp, k, x FROM readings WHERE {condition}")
    began = time.perf_counter()
    running = statements.execute()
    left_seconds = limit_seconds - (time.perf_counter() - began)
    if left_seconds <= 0:
        return None
    try:
        running.wait(round(left_seconds * 1_000))
    except Py4JJavaError as error:
        if "TimeoutException" not in str(error.java_exception):
            raise
        return None
    client = running.get_job_client()
    return client.get_job_execution_result().result().get_net_runtime() / 1_000


if __name__ == "__main__":
    main()
