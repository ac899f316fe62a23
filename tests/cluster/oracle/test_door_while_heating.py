"""The example of docs/reference/sql/intervals.md: for how long has the door been open while the heating ran?

The rooms are those of the simulated climate; a thermostat in each of them heats below 20.5 degC until 21 degC. The
answer is computed from the samples by adding up what two step functions have in common, and from the simulation itself,
second by second.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pytest

from cluster.fjord.batch import NEVER
from cluster.testing import EOF, QueryRun, ScriptedSource
from firmware_sim.phenomena.indoor_climate import IndoorClimate

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "sql" / "intervals.md").read_text(encoding="utf-8")
EXAMPLES = [
    each for each in re.findall(r"^```sql\n(SELECT .*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "door_open" in each
]
(QUERY,) = (each for each in EXAMPLES if "COALESCE" in each)
(BOUNDED,) = (each for each in EXAMPLES if "VALID UNTIL NEXT" in each)
ROOMS = 2
SECOND = 1_000_000
BEGIN, END = 8 * 3600, 14 * 3600
"""From 8 to 14 o'clock, in seconds since 1970."""
Steps = list[tuple[int, bool]]
Answer = tuple[int, int | None, str, float]


def simulated(seed: int) -> tuple[dict[str, Steps], dict[str, Steps], dict[str, float]]:
    """Return, by room, the samples of door and heating, in microseconds, and for how many seconds both were on."""
    world = IndoorClimate(ROOMS, seed=seed)
    dice = random.Random(seed)
    doors: dict[str, Steps] = {}
    heating: dict[str, Steps] = {}
    truth: dict[str, float] = {}
    for mote in range(ROOMS):
        room = str(world.motes[mote].properties["room"])
        phase, period = dice.randrange(5), 5
        doors[room], heating[room], truth[room] = [], [], 0.0
        runs = False
        for second in range(BEGIN, END):
            temperature, is_open = world.sense(mote, second * SECOND, ("temperature", "door_open"))
            assert isinstance(temperature, float)
            if runs != (heats := temperature < 20.5 or (runs and temperature < 21.0)):
                heating[room].append((second * SECOND + 1, heats))  # it reports changes, and its state now and then
                runs = heats
            elif second % 60 == phase:
                heating[room].append((second * SECOND + 1, runs))
            if second % period == phase:
                doors[room].append((second * SECOND, bool(is_open)))
            truth[room] += bool(is_open) and runs
    return doors, heating, truth


def answers_of(sql: str, doors: dict[str, Steps], heating: dict[str, Steps]) -> list[Answer]:
    """Return begin, end, room and seconds of each row."""

    def source(column: str, steps: dict[str, Steps]) -> ScriptedSource:
        tuples = [(at, {"room": room, column: on}) for room, those in steps.items() for at, on in those]
        items = [*sorted(tuples, key=itemgetter(0)), EOF()]
        return ScriptedSource({"room": str, column: bool}, items, batch_size=2000, lateness="0us")

    found = QueryRun(sql, {"climate": source("door_open", doors), "heating": source("running", heating)}).run()
    return [(each.start, each.end, each.row["room"], each.row["seconds"]) for each in found]


def in_common(one: Steps, other: Steps, until: int) -> float:
    """Return for how many seconds both are on, of what is known from samples before `until`: up to their last ones."""
    both = [[step for step in steps if step[0] < until] for steps in (one, other)]
    if not all(both):
        return 0.0
    instants = sorted({at for steps in both for at, _ in steps})
    first, last = max(steps[0][0] for steps in both), min(steps[-1][0] for steps in both)
    stamps = [[at for at, _ in steps] for steps in both]
    total = 0
    for begin, end in pairwise(instants):
        if first <= begin and end <= last:
            states = [steps[bisect_right(at, begin) - 1][1] for steps, at in zip(both, stamps, strict=True)]
            total += (end - begin) * all(states)
    return total / SECOND


@pytest.mark.parametrize("seed", [1, 2])
def test_for_how_long_the_door_has_been_open_while_the_heating_ran(seed: int) -> None:
    doors, heating, truth = simulated(seed)
    answers = answers_of(QUERY, doors, heating)
    assert answers
    for hour in range(9, 15):
        at = hour * 3600 * SECOND
        rows = {room: seconds for start, end, room, seconds in answers if start <= at < (end or NEVER)}
        for room in doors:
            expected = in_common(doors[room], heating[room], at)
            assert rows.get(room, 0.0) == pytest.approx(expected, abs=1e-3), (room, hour)
    for room, seconds in truth.items():
        # A door is sampled every five seconds: half of that is missed at either end, on average.
        assert in_common(doors[room], heating[room], END * SECOND) == pytest.approx(seconds, abs=0.15 * seconds + 10)
    assert sum(truth.values()) > 60


def test_a_sensor_that_is_gone_holds_nothing_for_longer_than_max() -> None:
    """The other query of the page: what held before a gap holds until MAX, and not through the gap."""
    minute = 60 * SECOND
    doors = {"101": [(n * minute, True) for n in range(5)] + [(60 * minute, True), (61 * minute, False)]}
    heating = {"101": [(n * minute + 1, True) for n in range(62)] + [(62 * minute, False)]}
    gap, whole = (max(seconds for _, _, _, seconds in answers_of(sql, doors, heating)) for sql in (BOUNDED, QUERY))
    assert gap == pytest.approx(4 * 60 + 2 * 60 + 60, abs=1e-3)  # four samples, two minutes of the fifth, and the last
    assert whole == pytest.approx(61 * 60, abs=1e-3)
