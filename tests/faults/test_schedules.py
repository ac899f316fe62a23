"""Schedules follow from their seeds, and together they cover every possible fault."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.faults.__main__ import DEFAULT_SCHEDULES, DEFAULT_SEED, LARGEST_GROUP
from tests.faults.schedules import POSSIBLE, WORKERS, Fault, Kind, Part, Schedule, Setting, drawn, grouped

SCHEDULES = [drawn(DEFAULT_SEED + number) for number in range(DEFAULT_SCHEDULES)]


def test_a_seed_is_a_schedule() -> None:
    assert [drawn(schedule.seed) for schedule in SCHEDULES] == SCHEDULES
    assert len({schedule.faults for schedule in SCHEDULES}) == DEFAULT_SCHEDULES


@pytest.mark.parametrize("first", [DEFAULT_SEED, 0, 17, 987_654])
def test_a_run_covers_every_fault_in_every_setting(first: int) -> None:
    schedules = [drawn(first + number) for number in range(DEFAULT_SCHEDULES)]
    faults = {(fault.kind, fault.part) for schedule in schedules for fault in schedule.faults}
    assert faults == set(POSSIBLE)
    assert {kind for kind, _ in faults} == set(Kind)
    assert {part for _, part in faults} == set(Part)
    assert {schedule.setting for schedule in schedules} == set(Setting)


def test_a_run_has_single_faults_and_several_at_once() -> None:
    assert {len(schedule.faults) for schedule in SCHEDULES} == {1, 2, 3}
    for schedule in SCHEDULES:
        parts = [fault.part for fault in schedule.faults]
        assert len(set(parts)) == len(parts), "one fault of a part at a time"
        assert [fault.at for fault in schedule.faults] == sorted(fault.at for fault in schedule.faults)


def test_faults_happen_where_they_can() -> None:
    for schedule in map(drawn, range(500)):
        for fault in schedule.faults:
            of_workers = fault.kind is Kind.EXECUTOR or fault.part in WORKERS
            assert not of_workers or schedule.setting is Setting.STANDALONE
            assert fault.kind is not Kind.OUTAGE or schedule.setting in {Setting.SHORT, Setting.SMALL}
            assert (fault.delay > 0) == (fault.kind is Kind.DELAY)
            assert 0 < fault.at <= fault.ends <= schedule.ends < 60


def test_schedules_of_a_setting_share_parts() -> None:
    groups = grouped(SCHEDULES, LARGEST_GROUP)
    assert sorted(chain(*groups), key=lambda each: each.seed) == SCHEDULES
    for group in groups:
        assert len({schedule.setting for schedule in group}) == 1
        assert 1 <= len(group) <= LARGEST_GROUP


def test_a_schedule_in_words() -> None:
    faults = (Fault(Kind.KILL, Part.BROKER, 1.0, 2.5), Fault(Kind.DELAY, Part.PROXY_LINK, 2.0, 3.0, 0.25))
    schedule = Schedule(7, Setting.LOCAL, faults)
    assert str(schedule) == "kill broker 1-3.5 s, delay proxy's link by 0.25 s 2-5 s"
    assert schedule.ends == 5.0
