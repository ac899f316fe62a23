"""A few inputs of each target, and that a fault behind any decoder would be found; ``make fuzz`` tries many more."""

from __future__ import annotations

import gc
import random
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from protocols.acquisition import merging
from protocols.errors import FrameError
from proxy.fleet import fleet
from proxy.motes.packet_numbers import PacketNumbers
from tests.counted_calls import TooManyCallsError, calls
from tests.fuzz import measuring
from tests.fuzz.__main__ import main
from tests.fuzz.fleet_target import FleetTarget
from tests.fuzz.measuring import Finding, Tally, run_input, run_inputs
from tests.fuzz.repeating import MOST_REPEATED, confirm
from tests.fuzz.targets import all_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from protocols.errors import FjordError

FEW = {
    "frames": 300,
    "fleet": 25,
    "devices": 25,
    "statements": 60,
    "batches": 10,
    "entries": 40,
    "requests": 8,
    "questions": 12,
}
TARGETS = all_targets()


def named(target: str, count: int, seed: int = 0) -> list[str]:
    return [f"{target}/{seed}/{number}" for number in range(count)]


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_raises_anything_but_our_own_errors(name: str) -> None:
    tally = Tally()
    for _ in run_inputs(TARGETS[name], named(name, FEW[name]), tally):
        pass
    # How long a step takes depends on what else the machine does: `make fuzz` has limits.
    assert [each for each in tally.findings if not each.what.startswith("took")] == []
    assert tally.inputs == FEW[name]
    assert tally.steps > tally.inputs, "some are accepted, and go on"


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_is_drawn_again_from_its_name(name: str) -> None:
    first, again = (
        [given(step) for step, _ in zip(TARGETS[name].steps(random.Random("x")), range(3), strict=False)]
        for _ in range(2)
    )
    assert first == again


def given(step: Callable[[], object]) -> list[object]:
    """Return the payloads and texts that a step is given."""
    return [each for each in getattr(step, "args", ()) if isinstance(each, bytes | str)]


class Scripted:
    """A target whose only input consists of some steps."""

    name = "scripted"
    errors: tuple[type[FjordError], ...] = (FrameError,)

    def __init__(self, *steps: Callable[[], object], limit_seconds: float = 0.02) -> None:
        self._steps = steps
        self.limit_seconds = limit_seconds

    def steps(self, _: random.Random) -> Iterator[Callable[[], object]]:
        yield from self._steps


def raising(error: Exception) -> None:
    raise error


def working(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def found(*steps: Callable[[], object], **limit: float) -> Tally:
    tally = Tally()
    run_input(Scripted(*steps, **limit), "scripted/1/0", tally)
    return tally


def test_garbage_is_collected_between_steps() -> None:
    collecting: list[bool] = []
    found(lambda: collecting.append(gc.isenabled()), partial(raising, FrameError("shape", "odd")), limit_seconds=60.0)
    assert (collecting, gc.isenabled()) == ([False], True)


def test_a_collection_is_not_interrupted_as_a_step_that_is_stuck() -> None:
    armed: list[bool] = []

    def note(phase: str, _: object) -> None:
        if phase == "start":
            armed.append(signal.getitimer(signal.ITIMER_VIRTUAL) != (0.0, 0.0))

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1, 1, 1)
    try:
        found(lambda: [[each] for each in range(100)], limit_seconds=60.0)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert armed, "garbage was collected"
    assert not any(armed)


def test_our_own_errors_are_refusals() -> None:
    tally = found(partial(raising, FrameError("shape", "odd")), lambda: None, limit_seconds=60.0)
    assert (tally.steps, tally.refused, tally.findings) == (2, 1, [])


def test_other_errors_long_steps_and_endless_ones_are_findings() -> None:
    tally = found(partial(raising, ZeroDivisionError("by zero")), lambda: None)
    assert [each.what for each in tally.findings] == ["ZeroDivisionError: by zero"]
    assert (tally.foreign, tally.over_limit, tally.steps) == (1, 0, 1)
    assert "in raising" in tally.findings[0].detail
    assert found(partial(working, 0.03)).over_limit == 1
    endless = found(partial(working, 60.0))
    assert endless.over_limit == 1
    assert endless.findings[0].what == f"took more than {measuring.STUCK * 0.02:g} s"


def test_a_fleet_that_breaks_at_an_odd_packet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    announced = PacketNumbers.announced

    def breaking(self: PacketNumbers, boot: int) -> bool:
        if boot >= 2**62:
            raise IndexError("there is no such boot")
        return announced(self, boot)

    monkeypatch.setattr(PacketNumbers, "announced", breaking)
    assert searched("fleet", 60).foreign > 0


@pytest.mark.parametrize(
    ("name", "module", "bound", "lost"),
    [
        ("fleet/1/65", fleet, "MOST_COUNTS", 10**9),
        ("fleet/1/77", merging, "STEPS_AT_ONCE", merging.MOST_STEPS),
    ],
    ids=["counts of a cut", "search for a new mote"],
)
def test_a_lost_bound_is_found(
    name: str, module: ModuleType, bound: str, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = longest_step(name)
    monkeypatch.setattr(module, bound, lost)
    with pytest.raises(TooManyCallsError):
        longest_step(name, 3 * most)


def longest_step(name: str, most: int | None = None) -> int:
    return max(calls(step, most=most) for step in TARGETS["fleet"].steps(random.Random(name)))


def test_a_search_for_an_error_goes_on_behind_a_slow_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(_: FleetTarget, dice: random.Random) -> Iterator[Callable[[], object]]:
        yield partial(working, 0.03) if turns.pop() else partial(raising, IndexError("there is no such boot"))

    turns = [False, True]
    monkeypatch.setattr(FleetTarget, "steps", steps)
    monkeypatch.setattr(FleetTarget, "limit_seconds", 0.02)
    tally = searched("fleet", 2)
    assert (tally.inputs, tally.over_limit, tally.foreign) == (2, 1, 1)


def test_an_input_that_is_slow_once_is_shown_and_no_fault() -> None:
    wrong, slow, stuck = Finding("x/1/0", "KeyError: 1"), Finding("x/1/1", "took 1.00 s"), Finding("x/1/2", "took more")
    again = {"x/1/1": [], "x/1/2": [Finding("x/1/2", "took 2.00 s")]}
    tally = Tally(findings=[wrong, slow, stuck])
    confirm(tally, lambda name: Tally(findings=again[name]))
    assert tally.findings == [wrong, *again["x/1/2"]]
    assert tally.slow_once == [slow]
    assert (tally.foreign, tally.over_limit) == (1, 1)


def test_where_many_inputs_are_slow_most_are_not_repeated() -> None:
    slow = [Finding(f"x/1/{number}", "took 1.00 s") for number in range(MOST_REPEATED + 3)]
    tally = Tally(findings=slow.copy())
    confirm(tally, lambda _: Tally())
    assert tally.findings == slow[MOST_REPEATED:]
    assert tally.slow_once == slow[:MOST_REPEATED]


def test_an_input_is_repeated_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FleetTarget, "limit_seconds", 0.0)
    tally = searched("fleet", 1)
    assert tally.over_limit == 1
    confirm(tally)
    assert [each.input for each in tally.slow_once] == ["fleet/0/0"], "there, the limit is as it was"


def searched(name: str, count: int) -> Tally:
    """Run inputs up to an error; how long their steps take depends on what else the machine does."""
    tally = Tally()
    for each in run_inputs(TARGETS[name], named(name, count), tally):
        if each.foreign:
            break
    return tally


def test_the_command_shows_a_table_and_repeats_an_input() -> None:
    done = CliRunner().invoke(main, ["--only", "frames/1/0", "--only", "entries/1/0"])
    assert done.exit_code == 0, done.output
    assert "2 inputs, 0 errors other than our own, 0 over their limit" in done.output
    wrong = CliRunner().invoke(main, ["--target", "nothing"])
    assert wrong.exit_code == 2
    assert "there is no target 'nothing'; targets are frames, fleet" in wrong.output


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_minutes_in_which_nothing_or_no_end_is_found_are_refused(minutes: str) -> None:
    done = CliRunner().invoke(main, ["--minutes", minutes])
    assert done.exit_code == 2
    assert "Invalid value for '--minutes'" in done.output
