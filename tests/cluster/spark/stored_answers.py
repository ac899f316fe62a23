"""The answers in a results table, as tests compare them."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from cluster.storage.results_table import ResultsTable


def answers_in(results: ResultsTable) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a results table by query: start, end, and values; fail if an error is among them."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    columns = ["query", "start_us", "end_us", "kind", "row"]
    for query, start_us, end_us, kind, row in pl.scan_delta(results.root).select(columns).collect().iter_rows():
        assert kind == "row", row
        found.setdefault(query, []).append((start_us, end_us, *msgspec.json.decode(row).values()))
    return found
