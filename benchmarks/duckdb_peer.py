"""DuckDB as the peer of windowed aggregates and filters: the same Parquet files in, Parquet files out.

Its queries are written as careful users would write them: a scan of a window's stream is made once for
all queries that share it, tuples are first added up in panes, and windows are merged from panes. DuckDB reads a stored
table from end to end and may forget it; it keeps no state, numbers no answers and syncs nothing to the disk.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Filter:
    """A query for the tuples that meet a condition, in words that FjordSQL and DuckDB share."""

    condition: str

    @property
    def fjord(self) -> str:
        """The query in FjordSQL."""
        return f"SELECT k, x FROM readings WHERE {self.condition}"

    @property
    def duckdb(self) -> str:
        """The query in DuckDB's SQL, over the table `readings`."""
        return f"SELECT stamp, k, x FROM readings WHERE {self.condition}"


@dataclass(frozen=True, slots=True)
class Window:
    """Aggregates by key over a sliding window, sizes in seconds."""

    aggregates: tuple[str, ...]
    size: int
    slide: int

    @property
    def fjord(self) -> str:
        """The query in FjordSQL."""
        window = f"WINDOW(RANGE {self.size} SECONDS SLIDE {self.slide} SECONDS)"
        return f"SELECT k, {self._answers(None)} FROM readings {window} GROUP BY k"

    @property
    def duckdb(self) -> str:
        """The query in DuckDB's SQL, over the table `panes` of partial values."""
        slide_us, size_us = self.slide * SECOND_US, self.size * SECOND_US
        return f"""
            SELECT until, k, {self._answers(_MERGED)}
            FROM (SELECT unnest(range((pane + {slide_us - 1}) // {slide_us} * {slide_us},
                                      least(pane + {size_us}, getvariable('watermark') + 1),
                                      {slide_us})) AS until, *
                  FROM panes)
            GROUP BY until, k ORDER BY until, k"""

    @property
    def duckdb_plain(self) -> str:
        """The same without panes, over the table `readings`: every tuple once for each window that it is in."""
        slide_us, size_us = self.slide * SECOND_US, self.size * SECOND_US
        return f"""
            SELECT until, k, {self._answers(None)}
            FROM (SELECT unnest(range((stamp // {slide_us} + 1) * {slide_us},
                                      least(stamp + {size_us}, getvariable('watermark')) + 1,
                                      {slide_us})) AS until, *
                  FROM readings)
            GROUP BY until, k ORDER BY until, k"""

    def _answers(self, written: Mapping[str, str] | None) -> str:
        calls = [aggregate if written is None else written[aggregate] for aggregate in self.aggregates]
        return ", ".join(f"{call} AS answer{number}" for number, call in enumerate(calls))


_MERGED = {
    "COUNT(*)": "sum(n)",
    "COUNT(x)": "sum(n)",
    "SUM(x)": "sum(s)",
    "AVG(x)": "sum(s) / sum(n)",
    "MIN(x)": "min(least)",
    "MAX(x)": "max(greatest)",
    "STDDEV(x)": "sqrt((sum(q) - sum(s) * sum(s) / sum(n)) / (sum(n) - 1))",
    "VARIANCE(x)": "(sum(q) - sum(s) * sum(s) / sum(n)) / (sum(n) - 1)",
    "FIRST(x)": "arg_min(first_x, first_at)",
    "LAST(x)": "arg_max(last_x, last_at)",
}
_PARTIAL = {
    "n": "count(*)",
    "s": "sum(x)",
    "q": "sum(x * x)",
    "least": "min(x)",
    "greatest": "max(x)",
    "first_at": "min(stamp)",
    "first_x": "arg_min(x, stamp)",
    "last_at": "max(stamp)",
    "last_x": "arg_max(x, stamp)",
}
AGGREGATES = tuple(_MERGED)


def answer(
    files: Sequence[Path],
    queries: Sequence[Filter] | Sequence[Window],
    folder: Path,
    *,
    watermark_us: int,
    panes: bool = True,
) -> None:
    """Answer queries over Parquet files of a stream, each into a file of its own; windows in panes or plainly."""
    connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
    connection.execute(f"SET VARIABLE watermark = {watermark_us}")
    scan = f"read_parquet({[str(file) for file in files]})"
    stream = f"SELECT fjord_start_us AS stamp, k, x FROM {scan} WHERE fjord_default_rate"
    windows = [query for query in queries if isinstance(query, Window)]
    if windows and panes:
        width_us = math.gcd(*(each for query in windows for each in (query.size, query.slide))) * SECOND_US
        texts = " ".join(_MERGED[call] for query in windows for call in query.aggregates)
        partial = ", ".join(f"{sql} AS {name}" for name, sql in _PARTIAL.items() if re.search(rf"\b{name}\b", texts))
        pane = f"(stamp // {width_us} + 1) * {width_us}"
        connection.execute(
            f"CREATE TEMP TABLE panes AS SELECT {pane} AS pane, k, {partial} FROM ({stream}) GROUP BY ALL"
        )
    else:
        kind = "VIEW" if len(queries) == 1 else "TABLE"
        connection.execute(f"CREATE TEMP {kind} readings AS {stream}")
    folder.mkdir(parents=True)
    for number, query in enumerate(queries):
        text = query.duckdb_plain if isinstance(query, Window) and not panes else query.duckdb
        connection.execute(f"COPY ({text}) TO '{folder}/{number}.parquet'")
    connection.close()


def answered(folder: Path) -> tuple[int, float]:
    """Return how many rows were answered, and the sum of all values."""
    (found,) = duckdb.sql(f"SELECT count(*), sum(COLUMNS('x|answer.')) FROM '{folder}/*.parquet'").fetchall()
    return int(found[0]), sum(map(float, found[1:]))
