from __future__ import annotations

import pytest

from proxy.running.unpublished import EntrySchedule


@pytest.mark.parametrize(
    ("notes", "due"),
    [
        # (time, changed); then the times at which an entry is due, checked at every unit
        ([(0, True)], [0]),
        ([(0, True), (3, True)], [0, 10]),
        ([(0, False), (3, False)], [0, 50]),
        ([(0, False), (3, False), (20, True)], [0, 20]),
        ([(0, True), (3, True), (4, False)], [0, 10]),
    ],
)
def test_changed_entries_are_due_sooner_than_counters(notes, due):
    schedule = EntrySchedule(changed_interval_us=10, counters_interval_us=50)
    found = []
    for now in range(60):
        for time, changed in notes:
            if time == now:
                schedule.note("m", changed=changed)
        found += [now] if schedule.due(now) else []
    assert found == due


def test_after_a_reconnect_everything_is_due_again():
    schedule = EntrySchedule(10, 50)
    schedule.note("m", changed=True)
    assert schedule.due(0) == ["m"]
    schedule.forget_published()
    assert (schedule.due(9), schedule.due(10)) == ([], ["m"])


def test_entries_that_are_due_together_have_one_order_in_every_process():
    schedule = EntrySchedule(10, 50)
    names = [f"m{number:02}" for number in range(50)]
    for name in names:
        schedule.note(name, changed=True)
    assert schedule.due(0) == names
