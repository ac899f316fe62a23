"""The JSON in which results and errors are published (docs/reference/protocol.md)."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.fjord.batch import instant_text
from cluster.storage.results_table import ERROR, ResultsTable


def result_message(
    query: str,
    sequence: int,
    start_us: int,
    end_us: int,
    row: str,
    *,
    sensors: dict[str, Any] | None = None,
    stale: dict[str, Any] | None = None,
) -> bytes:
    """Return the payload of one result row.

    Parameters
    ----------
    query
        Its name.
    sequence
        Counts the query's rows from 1.
    start_us, end_us
        The row is part of the answer at every instant in [start, end).
    row
        The row as a JSON object.
    sensors
        Notes on its sensors; see :func:`cluster.service.queries.lifetime_notes.lifetime_notes`.
    stale
        By name of a stale relation: seconds since it was last known to equal its source.
    """
    head: dict[str, Any] = {
        "query": query,
        "sequence": sequence,
        "start": instant_text(start_us),
        "end": instant_text(end_us),
        "row": msgspec.Raw(row.encode()),
    }
    if sensors is not None:
        head["sensors"] = sensors
    if stale is not None:
        head["stale"] = stale
    return msgspec.json.encode(head)


def error_message(query: str, sequence: int, start_us: int, message: str) -> bytes:
    """Return the payload of one error of a running query; `message` is a JSON string."""
    at = instant_text(start_us)
    return msgspec.json.encode({"query": query, "sequence": sequence, "at": at, "error": msgspec.Raw(message.encode())})


def stored_results(table: ResultsTable, query: str, after: int, limit: int) -> bytes:
    """Return rows of a query, dropped ones included, as a JSON array of the published messages.

    Parameters
    ----------
    table
        The results, opened for this call.
    query
        Its name.
    after
        Only rows with a higher sequence number.
    limit
        At most so many.
    """
    messages = [
        {
            "query": query,
            "sequence": row["sequence"],
            "start": instant_text(row["start_us"]),
            "end": instant_text(row["end_us"]),
            ("error" if row["kind"] == ERROR else "row"): msgspec.Raw(row["row"].encode()),
        }
        for row in table.rows_after(query, after, limit).iter_rows(named=True)
    ]
    return msgspec.json.encode(messages)
