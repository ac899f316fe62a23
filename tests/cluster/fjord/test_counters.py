"""Counters of operators: added up, and reported now and then, so that each is reported once."""

from __future__ import annotations

from cluster.fjord.counters import REPORT_EVERY_SECONDS, CounterReports, Totals, since, summed


def totals(transitions: int, *, rows_in: int = 0, deepest: int = 0) -> Totals:
    return Totals("stream s", transitions, rows_in=rows_in, deepest=deepest)


def test_counters_of_parts_are_added_up_by_operator() -> None:
    parts = ({"scan": totals(1, rows_in=5, deepest=3)}, {}, {"scan": totals(2, deepest=2), "sum": totals(4)})
    assert summed(parts) == {"scan": totals(3, rows_in=5, deepest=3), "sum": totals(4)}


def test_what_an_operator_did_since_the_last_reading_leaves_out_idle_ones() -> None:
    before = {"scan": totals(1, rows_in=5), "sum": totals(4)}
    assert since({"scan": totals(3, rows_in=9), "sum": totals(4)}, before) == {"scan": totals(2, rows_in=4)}


def test_each_counter_is_reported_once_and_no_more_often_than_the_clock_allows() -> None:
    now = [0.0]
    reports = CounterReports(lambda: now[0])
    reports.add({"scan": totals(1)})
    reports.add({"scan": totals(1)})
    assert not reports.due
    now[0] += REPORT_EVERY_SECONDS
    assert reports.due
    assert reports.report() == {"scan": totals(2)}
    assert not reports.due
    assert reports.report() == {}
