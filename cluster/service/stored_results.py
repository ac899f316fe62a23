"""Rows of the results table as they were published: what a subscriber has missed."""

from __future__ import annotations

import msgspec

from cluster.fjord.instant_texts import instant_text
from cluster.storage.results_table import ERROR, ResultsTable


def stored_results(table: ResultsTable, query: str, after: int, limit: int) -> bytes:
    """Return rows of a query, dropped ones included, as a JSON array of the published messages.

    Parameters
    ----------
    table
        An own handle on the results.
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
