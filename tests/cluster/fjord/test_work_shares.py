"""A query that takes more than its share: computed most of the time, while others are late and get no less so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.fjord.overruns import WINDOW_SECONDS, Worked, WorkShares

LATE = 5.0


def first_found(
    shares: WorkShares,
    *,
    share: float = 0.9,
    lag: Callable[[float], float] = lambda _: LATE,
    fragments: int = 2,
    workers: int = 1,
    seconds: float = 200.0,
) -> tuple[float, str] | None:
    """Return when a fragment is found that works for a share of the time, and which, by a look a second."""
    now = 0.0
    while now < seconds:
        now += 1.0
        worked = [Worked(f"m{now}", process, ("greedy",), share) for process in range(workers)]
        worked += [Worked(f"m{now}", 0, ("other",), share / 4)]
        found = shares.noted(worked, lag_seconds=lag(now), fragments=fragments, now_seconds=now)
        if found is not None:
            return now, found[0]
    return None


def test_a_fragment_that_is_computed_most_of_the_time_is_found_after_a_minute() -> None:
    assert first_found(WorkShares(0.75)) == (WINDOW_SECONDS + 1, "greedy")


def test_the_reason_has_figures() -> None:
    shares, found = WorkShares(0.75), None
    for now in range(1, 70):
        worked = [Worked(str(now), 1, ("a",), 0.8)]
        found = found or shares.noted(worked, lag_seconds=3.4, fragments=2, now_seconds=float(now))
    assert found == ("a", "it was computed for 49 of 60 s, in which queries were 3 s behind or more")


@pytest.mark.parametrize(
    "lag",
    [
        lambda _: 1.9,
        lambda now: 0.0 if now % 50 == 0 else LATE,
        lambda now: 600.0 - now / 2,
        lambda now: 0.0 if now % 80 > 50 else LATE,
    ],
    ids=["in time", "late at times", "less late all the time", "again and again, but not for a minute"],
)
def test_others_that_are_not_held_up_change_nothing(lag: Callable[[float], float]) -> None:
    assert first_found(WorkShares(0.75), lag=lag) is None


def test_alone_it_may_take_what_there_is() -> None:
    assert first_found(WorkShares(0.75), fragments=1) is None


def test_less_than_the_share_is_allowed_and_so_is_everything_without_a_limit() -> None:
    assert first_found(WorkShares(0.95)) is None
    assert first_found(WorkShares(0.0)) is None


def test_workers_beside_each_other_do_not_add_up() -> None:
    assert first_found(WorkShares(0.75), share=0.5, workers=4) is None


def test_parts_of_one_worker_add_up() -> None:
    shares = WorkShares(0.75)
    for now in range(1, 70):
        worked = [Worked(str(now), 1, ("a",), 0.4)] * 2
        if shares.noted(worked, lag_seconds=LATE, fragments=2, now_seconds=float(now)):
            return
    pytest.fail("it is not found")


def test_it_begins_anew_after_each_find() -> None:
    shares = WorkShares(0.75)
    first = first_found(shares)
    assert first is not None
    later = [
        now
        for now in range(int(first[0]) + 1, int(first[0]) + 200)
        if shares.noted([Worked(str(now), 1, ("b",), 1.0)], lag_seconds=LATE, fragments=2, now_seconds=float(now))
    ]
    assert later[0] > first[0] + WINDOW_SECONDS


def test_without_work_there_is_nothing_to_look_at() -> None:
    shares = WorkShares(0.75)
    assert shares.idle(0.0)
    shares.noted([Worked("m", 1, ("a",), 1.0)], lag_seconds=LATE, fragments=2, now_seconds=1.0)
    assert not shares.idle(2.0)
    assert shares.idle(2.0 + WINDOW_SECONDS)
