"""The stored rows of the stream, and the answers that DuckDB computes from them: those that queries should give."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.faults.samples import Answer, MissingSamples, Sample

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.checks import Window

ATTEMPTS = 20
PAUSE_SECONDS = 0.25
ANSWERS = {
    "rows": """
        SELECT fjord_start_us, fjord_start_us + 1, sensor, speed, flow FROM samples
        WHERE fjord_start_us >= $begin AND fjord_start_us < $end""",
    "sums": """
        SELECT tick - 1, tick + 999_999, segment, count(*), sum(flow), min(speed) FROM samples, ticks
        WHERE fjord_start_us >= tick - 2_000_000 AND fjord_start_us < tick GROUP BY tick, segment""",
    "pairs": """
        SELECT b.fjord_start_us, b.fjord_start_us + 1, a.segment, a.flow, b.flow
        FROM samples a JOIN samples b ON a.segment = b.segment AND a.lane = 1 AND b.lane = 2
        AND b.fjord_start_us >= a.fjord_start_us AND b.fjord_start_us < a.fjord_start_us + 500_000
        WHERE b.fjord_start_us >= $begin AND b.fjord_start_us < $end""",
    "seen": """
        SELECT tick - 1, tick + 999_999, sensor, sum(fjord_expected - fjord_missing)::DOUBLE / sum(fjord_expected)
        FROM missing_samples JOIN ticks ON fjord_start_us >= tick - 1_000_000 AND fjord_start_us < tick
        WHERE EXISTS (
            SELECT 1 FROM samples WHERE samples.sensor = missing_samples.sensor
            AND samples.fjord_start_us >= tick - 1_000_000 AND samples.fjord_start_us < tick
        )
        GROUP BY tick, sensor""",
    "probes": """
        SELECT fjord_start_us, fjord_start_us + 1, n FROM samples
        WHERE fjord_start_us >= $begin AND fjord_start_us < $end""",
}
"""For each query its answers that begin in a window: start, end, and the columns in order."""


class Stored:
    """The present content of a stream's table, without later commits.

    Parameters
    ----------
    root
        Folder of the table.
    window
        Earlier rows are loaded as well, as far as windows reach.
    """

    def __init__(self, root: Path, window: Window) -> None:
        self.window = window
        self._database = duckdb.connect()
        self._load(str(root), window.begin_us - 10_000_000)
        self._database.execute(
            "CREATE TABLE ticks AS SELECT unnest(generate_series($first, $last, 1_000_000)) AS tick",
            {"first": -(-(window.begin_us + 1) // 1_000_000) * 1_000_000, "last": window.end_us},
        )

    def samples(self) -> list[Sample]:
        """Return all samples that were loaded, copies too."""
        rows = self._database.execute("SELECT fjord_mote, fjord_start_us, speed, flow FROM samples").fetchall()
        return [Sample(*row) for row in rows]

    def missing_samples(self) -> list[MissingSamples]:
        """Return the counts of missing samples."""
        rows = self._database.execute(
            "SELECT fjord_mote, fjord_start_us + 1, fjord_expected, fjord_missing FROM missing_samples"
        ).fetchall()
        return [MissingSamples(*row) for row in rows]

    def others(self) -> int:
        """Return the number of other rows: with any, the expected answers would be wrong."""
        (row,) = self._database.execute(
            "SELECT count(*) FROM stream WHERE fjord_form IS NOT NULL AND fjord_expected IS NULL"
        ).fetchall()
        return int(row[0])

    def answers(self, query: str) -> list[Answer]:
        """Return the answers of a query that begin in the window."""
        limits = {"begin": self.window.begin_us, "end": self.window.end_us}
        sql = ANSWERS[query]
        rows = self._database.execute(sql, {name: us for name, us in limits.items() if f"${name}" in sql}).fetchall()
        return [Answer(row[0], row[1], tuple(row[2:])) for row in rows if row[0] in self.window]

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _load(self, root: str, since_us: int) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                files = DeltaTable(root).file_uris()
                self._database.execute(
                    "CREATE OR REPLACE TABLE stream AS "
                    f"SELECT * FROM read_parquet({files!r}, union_by_name = true) WHERE fjord_start_us >= {since_us}"
                )
                break
            except (DeltaError, duckdb.IOException):  # merged meanwhile
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_SECONDS)
        try:
            self._database.execute("CREATE VIEW samples AS SELECT * FROM stream WHERE fjord_form IS NULL")
        except duckdb.BinderException:  # there are only samples
            self._database.execute("CREATE VIEW samples AS SELECT * FROM stream")
        with contextlib.suppress(duckdb.BinderException):  # no query demands counts of the stream
            self._database.execute(
                "CREATE VIEW missing_samples AS SELECT * FROM stream WHERE fjord_expected IS NOT NULL"
            )
