"""From which instants on a query with history reads its streams."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.operators import Join, Union
from cluster.operators.source import History
from cluster.plan.history import EVER_US, history_starts, sources_with_history, with_history_starts
from tests.cluster.plan.plans import ALSO_A, A, B, where, window

BACK, EVER = replace(A, history=History(100)), replace(B, history=History(None))
PLAN = window(Join(where(BACK, '"x" > 1'), EVER, None), 50)


def test_what_looks_back_begins_where_the_stream_stands_less_so_much() -> None:
    begun = with_history_starts(PLAN, 7, {"a": 1_000, "b": 1_000})
    assert [(source.stream, history) for source, history in sources_with_history(begun)] == [
        ("a", History(100, 900, 7)), ("b", History(None, EVER_US, 7)),
    ]  # fmt: skip
    assert with_history_starts(begun, 7, {"a": 1_000, "b": 1_000}) == begun
    assert history_starts(begun) == {"a": 900, "b": EVER_US}


def test_of_a_stream_of_which_nothing_is_stored_all_is_read() -> None:
    for stands in ({}, {"a": None}, {"a": EVER_US + 50}):
        assert history_starts(with_history_starts(BACK, 1, stands)) == {"a": EVER_US}


def test_a_stream_is_read_from_the_earliest_instant_that_any_part_needs() -> None:
    earlier = replace(A, history=History(300))
    for both in (Union(BACK, earlier), Union(earlier, BACK)):
        assert history_starts(with_history_starts(both, 1, {"a": 1_000})) == {"a": 700}


def test_what_does_not_look_back_stays_as_it_is() -> None:
    live = window(Union(A, ALSO_A), 50)
    assert list(sources_with_history(live)) == []
    assert with_history_starts(live, 3, {"a": 1_000}) is live
    assert history_starts(live) == {}
    assert history_starts(with_history_starts(Union(BACK, ALSO_A), 1, {"a": 1_000, "also_a": 1_000})) == {"a": 900}
