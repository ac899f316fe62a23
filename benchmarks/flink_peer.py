"""Apache Flink SQL as a peer: many filters in one statement set, over the rows of a stream in CSV files.

Run by `benchmarks/peers.py` with the Python of an environment that has `apache-flink`. The package brings readers of
CSV and JSON, but none of Parquet. All queries share one scan of the files, which is Flink's default. What it takes over
an empty file is its start-up, and is measured beside what it takes over all rows.

    python flink_peer.py FOLDER ROUNDS < conditions, one a line
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
    """Measure, and print one JSON object: seconds of each round over all rows and over none, and rows answered."""
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415 - in an environment of its own

    folder, rounds, conditions = Path(sys.argv[1]), int(sys.argv[2]), sys.stdin.read().splitlines()
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
            seconds.append(_seconds(environment, folder, source, conditions))
    answers = sum(len(file.read_text().splitlines()) for file in (folder / "answers" / "rows").rglob("part-*"))
    print(json.dumps({**{source: seconds[1:] for source, seconds in found.items()}, "answers": answers}))


def _seconds(environment, folder: Path, source: str, conditions: list[str]) -> float:  # type: ignore[no-untyped-def] # noqa: ANN001 - a type of Flink's
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
    statements.execute().wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
