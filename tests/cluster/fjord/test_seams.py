"""Rows that are cut at a handover, put together again: papers/pipes_migration.md section 5.4, and what comes early.

old plan    |--------|
new plan             |------|
                     T
"""

from __future__ import annotations

import polars as pl

from cluster.fjord.answers import in_order
from cluster.fjord.waiting_answers import closed_at_once

T = 10
Answer = tuple[str, int, int, str, str]


def row(start: int, end: int, value: str, kind: str = "row", query: str = "q") -> Answer:
    return query, start, end, kind, value


def old(start: int, value: str, kind: str = "row", query: str = "q", *, cut: bool = True) -> Answer:
    """A row of the plan that hands over at T."""
    return row(start, T, value, f"{kind} until{'!' if cut else ''}", query)


def new(end: int, value: str, kind: str = "row", query: str = "q", *, cut: bool = True) -> Answer:
    """A row of the plan that takes over at T."""
    return row(T, end, value, f"{kind} since{'!' if cut else ''}", query)


def fused(*buckets: list[Answer]) -> list[Answer]:
    columns = {"query": pl.String, "start_us": pl.Int64, "end_us": pl.Int64, "kind": pl.String, "row": pl.String}
    return in_order(pl.DataFrame(each, schema=columns, orient="row") for each in buckets).rows()


def test_halves_are_one_row_in_the_order_of_their_beginnings() -> None:
    x, y = '{"v":1}', '{"v":2}'
    assert fused([old(5, x), old(7, y)], [new(20, y), new(20, x)]) == [row(5, 20, x), row(7, 20, y)]


def test_a_half_without_partner_is_never_lost() -> None:
    assert fused([old(3, "{}")], []) == [row(3, T, "{}")]
    assert fused([], [new(15, "{}")]) == [row(T, 15, "{}")]
    assert fused([old(3, '{"v":1}')], [new(15, '{"v":2}')]) == [row(3, T, '{"v":1}'), row(T, 15, '{"v":2}')]
    assert len(fused([old(3, "{}", query="p")], [new(15, "{}")])) == 2


def test_as_many_are_put_together_as_there_are_in_both_plans() -> None:
    found = fused([old(5, "{}"), old(3, "{}")], [old(4, "{}")], [new(18, "{}"), new(12, "{}")])
    assert found == [row(3, 12, "{}"), row(4, 18, "{}"), row(5, T, "{}")]


def test_what_both_plans_end_and_begin_at_the_instant_stays_apart() -> None:
    ends, begins = old(3, "{}", cut=False), new(15, "{}", cut=False)
    assert fused([ends], [begins]) == [row(3, T, "{}"), row(T, 15, "{}")]
    assert fused([old(3, "{}")], [begins]) == [row(3, 15, "{}")]
    assert fused([ends], [new(15, "{}")]) == [row(3, 15, "{}")]
    assert fused([ends, old(2, "{}")], [new(15, "{}"), begins]) == [row(2, 15, "{}"), row(3, T, "{}"), row(T, 15, "{}")]


def test_of_open_rows_nothing_is_sent() -> None:
    assert fused([old(3, "{}", "closes")], [new(12, "{}", "open")]) == []
    assert fused([old(3, "{}", "closes")], [new(12, "{}")]) == [row(3, 12, "{}", "closes")]
    assert fused([old(3, "{}")], [new(12, "{}", "open")]) == [row(3, 12, "{}", "open")]
    assert fused([old(3, "{}", "closes")], []) == [row(3, T, "{}", "closes")]
    assert fused([], [new(12, "{}", "open")]) == [row(T, 12, "{}", "open")]


def test_the_end_of_a_row_of_the_new_plan_may_be_that_of_an_earlier_one() -> None:
    assert fused([new(30, "{}", "closes")]) == [row(T, 30, "{}", "closes_earlier")]
    again = row(T, 30, "{}", "closes since! until!")
    following = row(30, 40, "{}", "row since!")
    assert fused([again], [following]) == [row(T, 40, "{}", "closes_earlier")], "it hands over, too"


def test_the_last_digits_of_reals_do_not_matter() -> None:
    a, b = '{"total":0.30000000000000004}', '{"total":0.3}'
    assert fused([old(3, a)], [new(12, b)]) == [row(3, 12, a)]
    assert len(fused([old(3, '{"total":0.31}')], [new(12, b)])) == 2


def test_what_is_closed_in_the_micro_batch_in_which_it_is_opened_is_a_row() -> None:
    opened, closes = row(T, 12, "{}", "open since!"), row(T, 15, "{}", "closes since!")
    other = row(T, 14, "{}", "closes")
    assert closed_at_once([opened, closes]) == [row(T, 15, "{}", "row since!")]
    assert closed_at_once([opened, other, closes]) == [row(T, 14, "{}", "row since!"), closes]
    assert closed_at_once([other, row(3, 4, "{}")]) == [other, row(3, 4, "{}")]
    assert closed_at_once([row(3, 5, "{}", "open"), row(3, T, "{}", "closes until!")]) == [
        row(3, T, "{}", "row until!")
    ]
