"""What many schedules came to is counted, and shown while they run."""

import io
import time

from rich.console import Console

from tests.simulation.running import Outcome
from tests.simulation.schedules import drawn
from tests.simulation.tally import Shown, Tally
from tests.simulation.violations import Violation


def tally(*outcomes):
    counted = Tally()
    for violations, happened, seconds in outcomes:
        counted.add(Outcome(drawn(1), tuple(violations), happened, seconds, 2.0))
    return counted


def test_what_went_well():
    *faults, _, each, last = tally(([], {"reset": 3}, 600.0), ([], {"reset": 1, "disk full": 4}, 660.0)).lines()
    assert [line.split(maxsplit=1) for line in faults] == [["4", "disk full"], ["4", "reset"]]
    assert each == "each of 10.0 simulated minutes at least, with 3 to 5 faults"
    assert last == "2 schedules, 0 lost, 0 doubled, 0 stalled"


def test_what_went_wrong():
    found = [Violation("lost", "a"), Violation("lost", "b"), Violation("wrong", "c")]
    assert list(tally((found, {}, 1.0)).lines())[-1] == "1 schedules, 1 lost, 0 doubled, 0 stalled, 1 otherwise wrong"


def shown(**options):
    console = Console(file=io.StringIO(), width=120, **options)
    counted = tally(([Violation("lost", "a")], {"reset": 3}, 600.0))
    counted.began -= 10
    with Shown(counted, until=time.monotonic() + 10, schedules=None, console=console):
        pass
    return console.file.getvalue()


def test_a_terminal_shows_how_far_it_is():
    text = shown(force_terminal=True)
    assert "1 schedules, 3 faults, 1 failed" in text
    assert "10 s left" in text


def test_a_pipe_gets_no_bar():
    assert shown() == ""
