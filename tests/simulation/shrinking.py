"""A schedule that fails is made smaller while it still fails: without faults, queries, motes that do not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.simulation.schedules import SAMPLES_SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.schedules import Schedule

MOST_ATTEMPTS = 80


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that have one thing less, those without a fault first."""
    for place in reversed(range(len(schedule.faults))):
        yield replace(schedule, faults=_without(schedule.faults, place))
    for place, query in reversed(tuple(enumerate(schedule.queries))):
        if query.sql != SAMPLES_SQL:  # without it motes send no samples, which oracles look for
            yield replace(schedule, queries=_without(schedule.queries, place))
    if len(schedule.motes) > 1:
        for place in reversed(range(len(schedule.motes))):
            yield replace(schedule, motes=_without(schedule.motes, place))
    if schedule.publishers != (1,):
        yield replace(schedule, publishers=(1,))
    last = len(schedule.proxies) - 1
    if last and all(mote.proxy != last for mote in schedule.motes):
        yield replace(schedule, proxies=schedule.proxies[:-1], faults=tuple(_of_others(schedule, last)))
    for place, fault in enumerate(schedule.faults):
        if fault.lasts > 2.0:
            shorter = replace(fault, lasts=round(fault.lasts / 2, 3))
            yield replace(schedule, faults=(*schedule.faults[:place], shorter, *schedule.faults[place + 1 :]))


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], most_attempts: int = MOST_ATTEMPTS) -> Schedule:
    """Return a smaller schedule that fails, too; `fails` runs one."""
    attempts = 0
    found = True
    while found:
        found = False
        for candidate in smaller(schedule):
            attempts += 1
            if attempts > most_attempts:
                return schedule
            if fails(candidate):
                schedule, found = candidate, True
                break
    return schedule


def _without(items: tuple[object, ...], place: int) -> tuple[object, ...]:
    return items[:place] + items[place + 1 :]


def _of_others(schedule: Schedule, proxy: int) -> Iterator[object]:
    return (fault for fault in schedule.faults if fault.target not in {f"p{proxy}", f"g{proxy}"})
