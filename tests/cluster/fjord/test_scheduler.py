"""Schedulers: turns for all, or time in proportion to tickets."""

from __future__ import annotations

from cluster.fjord.dataflow import RoundRobin, Tickets


def test_round_robin_takes_every_ready_operator_in_turn() -> None:
    scheduler = RoundRobin()
    assert [scheduler.choose([0, 1, 2]) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [scheduler.choose([0, 2]) for _ in range(3)] == [2, 0, 2]


def test_tickets_share_time_in_proportion() -> None:
    scheduler = Tickets({0: 3})
    chosen = []
    for _ in range(400):
        operator = scheduler.choose([0, 1])
        scheduler.charge(operator, 1.0)
        chosen.append(operator)
    assert chosen.count(0) == 300
    assert chosen.count(1) == 100


def test_an_expensive_operator_gets_fewer_turns() -> None:
    scheduler = Tickets()
    turns = [0, 0]
    for _ in range(110):
        operator = scheduler.choose([0, 1])
        scheduler.charge(operator, (10.0, 1.0)[operator])
        turns[operator] += 1
    assert turns == [10, 100]
