"""Rows made whole from the messages of a query with EMIT EARLY."""

from __future__ import annotations

import doctest
from typing import Any

from cluster.service.client import open_results
from cluster.service.client.open_results import OpenResults

AT = "2012-03-01T00:00:00Z"


def opened(sequence: int, query: str = "q") -> dict[str, Any]:
    return {"query": query, "sequence": sequence, "start": AT, "open": True, "row": {"n": sequence}}


def test_the_example_is_true() -> None:
    assert doctest.testmod(open_results).failed == 0


def test_whole_rows_and_errors_pass() -> None:
    whole = {"query": "q", "sequence": 1, "start": AT, "end": None, "row": {}}
    error = {"query": "q", "sequence": 2, "at": AT, "error": "it failed"}
    results = OpenResults()
    assert [results.read(whole), results.read(error)] == [whole, error]


def test_rows_are_closed_in_any_order_and_may_stay_for_ever() -> None:
    results = OpenResults()
    for sequence in (1, 2, 3):
        assert results.read(opened(sequence)) is None
    second = results.read({"query": "q", "sequence": 4, "closes": 2, "end": None})
    assert second == {"query": "q", "sequence": 2, "start": AT, "end": None, "row": {"n": 2}}
    assert [each["sequence"] for each in results.open] == [1, 3]


def test_queries_number_their_rows_each_for_itself() -> None:
    results = OpenResults()
    results.read(opened(1))
    results.read(opened(1, "other"))
    row = results.read({"query": "other", "sequence": 2, "closes": 1, "end": AT})
    assert row is not None
    assert row["query"] == "other"
    assert [each["query"] for each in results.open] == ["q"]


def test_the_end_of_a_row_that_was_not_read_is_returned_as_it_is() -> None:
    end = {"query": "q", "sequence": 9, "closes": 2, "end": AT}
    assert OpenResults().read(end) == end
