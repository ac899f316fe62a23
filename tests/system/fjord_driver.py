"""An engine in a process of its own, to be killed: it answers everything stored in a folder, reports it, and ends."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from cluster.spark.hosting import start_engine
from cluster.spark.session import SessionSettings, open_session
from cluster.spark.source import SourceOptions
from cluster.storage.results_table import ResultsTable

MAX_ROWS = 600
HISTORY_ROWS = 1_000
"""Rows of a micro-batch: few, so that there are many, and a kill falls into one."""


def say(word: str) -> None:
    """Print a word for the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(folder: Path, master: str, returned: int, rows: int) -> None:
    """Run until there is nothing left to do; tasks write their answers themselves if they have more than `returned`."""
    spark = open_session(SessionSettings(master=master, extra={"spark.executor.memory": "512m"}), folder / "spark")
    fjord = start_engine(
        spark,
        options=SourceOptions(
            str(folder / "streams"),
            str(folder / "plans"),
            4,
            2,
            rows,
            history_rows=HISTORY_ROWS,
            answers_returned=returned,
        ),
        checkpoint=folder / "checkpoint",
        results=ResultsTable(str(folder / "results"), "driver"),
        on_commit=lambda: None,
        run=uuid.uuid4().hex,
    )
    say("running")
    fjord.wait_until_idle()
    say("done")
    fjord.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
