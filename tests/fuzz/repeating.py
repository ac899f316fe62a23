"""Whether inputs that took too long do so again, each in a process of its own.

While a machine stands still, its time is charged to whatever ran. An input decides all that its steps do, so one that
is slow is slow again; one that is not is shown, and no fault.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from tests.fuzz.measuring import Tally, run_input
from tests.fuzz.targets import all_targets

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_REPEATED = 20
"""Inputs of a target; if more took too long, all others are faults."""


def repeated(name: str) -> Tally:
    """Run an input in this process."""
    tally = Tally()
    run_input(all_targets()[name.partition("/")[0]], name, tally)
    return tally


def repeated_alone(name: str) -> Tally:
    """Run an input in a new process that has run nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(repeated, name).result()


def confirm(tally: Tally, repeat: Callable[[str], Tally] = repeated_alone) -> None:
    """Keep inputs that took too long among the findings only if they do so again, or show another fault then."""
    slow = [each for each in tally.findings if each.is_slow][:MOST_REPEATED]
    again = {each.input: repeat(each.input).findings for each in slow}
    tally.slow_once += [each for each in slow if not again[each.input]]
    tally.findings = [
        kept
        for each in tally.findings
        for kept in (again[each.input] if each.is_slow and each.input in again else [each])
    ]
