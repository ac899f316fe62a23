"""Apache Flink SQL as a peer: many filters in one statement set, over the rows of a stream in CSV files.

Run by `benchmarks/peers.py` with the Python of an environment that has `apache-flink`. The package brings readers of
CSV and JSON, but none of Parquet. All queries share one scan of the files, which is Flink's default. What it takes over
an empty file is its start-up, and is measured beside what it takes over all rows. It is given up if one run does not
end in some time.

    python flink_peer.py FOLDER ROUNDS SECONDS_OF_A_RUN < conditions, one a line
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

COLUMNS = "stamp BIGINT, k BIGINT, x DOUBLE"


def main() -> None:
    """Measure, and print one JSON object: seconds of each round over all rows and over none, and rows answered.

    Instead of these, ``unfinished_s`` if a run over all rows is given up: how long it ran beyond one over none.
    """
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415 - in an environment of its own

    folder, rounds, limit_seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    conditions = sys.stdin.read().splitlines()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", str(os.cpu_count() or 1))
    settings.set("taskmanager.memory.network.max", "512mb")
    settings.set("pipeline.object-reuse", "true")
    settings.set("heartbeat.timeout", "1800s")  # with a thousand queries it is silent for longer than the usual 50 s
    found: dict[str, list[float]] = {"nothing": [], "rows": []}
    for _ in range(rounds + 1):  # the first round warms up
        for source, seconds in found.items():
            shutil.rmtree(folder / "answers" / source, ignore_errors=True)
            took = _seconds(environment, folder, source, conditions, limit_seconds)
            if took is None:
                if source == "nothing":
                    sys.exit(f"no end over no rows after {limit_seconds:.0f} s")
                print(json.dumps({"unfinished_s": limit_seconds - found["nothing"][-1]}), flush=True)
                os._exit(0)  # Java, which goes on with it, ends with this process
            seconds.append(took)
    answers = sum(len(file.read_text().splitlines()) for file in (folder / "answers" / "rows").rglob("part-*"))
    print(json.dumps({**{source: seconds[1:] for source, seconds in found.items()}, "answers": answers}))


def _seconds(environment, folder: Path, source: str, conditions: list[str], limit_seconds: float) -> float | None:  # type: ignore[no-untyped-def] # noqa: ANN001 - a type of Flink's
    """Return how long the queries take over the rows of a source; None if longer than the limit."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - in an environment of its own

    tables = ["readings", *(f"q{number}" for number in range(len(conditions)))]
    for table in tables:
        environment.execute_sql(f"DROP TABLE IF EXISTS {table}")
        path = folder / source if table == "readings" else folder / "answers" / source / table
        connector = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'"
        environment.execute_sql(f"CREATE TABLE {table} ({COLUMNS}) WITH ({connector})")
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
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
