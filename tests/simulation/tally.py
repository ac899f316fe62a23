"""What many schedules came to: a bar while they run, on a terminal, and lines at the end."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from tests.simulation.running import Outcome


class Tally:
    """Counts outcomes."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.schedules = self.failed = 0
        self.kinds: Counter[str] = Counter()
        """Of violations: in how many schedules."""
        self.faults: Counter[str] = Counter()
        self.interrupted = False
        self._simulated = self._worked = 0.0
        self._seconds: list[float] = []
        self._faults_of_each: list[int] = []

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        self.schedules += 1
        self.failed += bool(outcome.violations)
        self.kinds.update({each.kind for each in outcome.violations})
        self.faults.update(outcome.happened)
        self._worked += outcome.work_seconds
        self._seconds.append(outcome.seconds)
        self._faults_of_each.append(sum(outcome.happened.values()))

    def lines(self) -> Iterator[str]:
        """Yield what is shown at the end."""
        for kind, times in sorted(self.faults.items()):
            yield f"{times:7,}  {kind}"
        if self.schedules and self._worked:
            simulated = sum(self._seconds)
            least, most = min(self._faults_of_each), max(self._faults_of_each)
            yield (
                f"{simulated / 3600:,.1f} simulated hours in {(time.monotonic() - self.began) / 60:.1f} minutes:"
                f" {simulated / self._worked:,.0f} an hour on one core,"
                f" {self._worked / self.schedules:.2f} s of work for a schedule"
            )
            yield f"each of {min(self._seconds) / 60:.1f} simulated minutes at least, with {least} to {most} faults"
        lost, doubled, stalled, wrong = (self.kinds[kind] for kind in ("lost", "doubled", "stalled", "wrong"))
        more = f", {wrong} otherwise wrong" if wrong else ""
        yield f"{self.schedules} schedules, {lost} lost, {doubled} doubled, {stalled} stalled{more}"


class Shown:
    """A bar on a terminal, with what a tally has so far; nothing elsewhere.

    Parameters
    ----------
    tally
        The tally.
    until
        When no more schedules begin, by the monotonic clock; None if that is not set.
    schedules
        How many there will be; None if that is not known.
    console
        Where it is shown.
    """

    def __init__(
        self, tally: Tally, *, until: float | None, schedules: int | None, console: Console | None = None
    ) -> None:
        self._tally, self._until, self._schedules = tally, until, schedules
        console = console or Console(stderr=True)
        columns = TextColumn("{task.fields[done]}"), BarColumn(), TextColumn("{task.fields[left]}")
        # Without a thread that refreshes: the process is forked for each schedule.
        self._bar = Progress(
            *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("schedules", total=1.0, done="", left="")

    def __enter__(self) -> Self:
        self._bar.start()
        self.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let something else be shown meanwhile."""
        self._bar.stop()
        yield
        self._bar.start()

    def refresh(self) -> None:
        """Show what there is now."""
        tally, passed = self._tally, time.monotonic() - self._tally.began
        shares = [tally.schedules / self._schedules] if self._schedules else []
        shares += [passed / (self._until - tally.began)] if self._until is not None else []
        share = min(1.0, max(shares, default=0.0))
        left = f"{passed / share - passed:,.0f} s left" if share else ""
        done = f"{tally.schedules:,} schedules, {tally.faults.total():,} faults, {tally.failed} failed"
        self._bar.update(self._task, completed=share, done=done, left=left, refresh=True)
