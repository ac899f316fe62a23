"""What one query may take of a worker of Spark, and which queries take more than their share. Pure.

    a fragment overruns its limit     the worker ends; the task is run again without that fragment, whose queries get an
                                      error row in place of their rows of this micro-batch
    it does so again and again        that of its queries which takes most is set aside: it is not computed any more

Pure: measurements and times are given.

**Which query takes so much of the workers' time that all others fall behind.**

A micro-batch is as long for all queries as for the one that takes longest. So a query that never overruns its limit can
still hold up all others, and takes more than its share if all of this holds for a whole window:

    it is computed for most of the time
    answers are late, at every look, and not less so than before: after an outage they become less so
    there are other queries

Pure: what workers have noted, lags and times are given.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from cluster.fjord.at_work import LOADING, Activity
from protocols.text.quantities import format_byte_size

STRIKES: Final = 3
"""A query is set aside at its third overrun, each in another micro-batch ..."""
STRIKES_WITHIN_SECONDS: Final = 3600.0
"""... and all within an hour."""
MUCH: Final = 1 / 8
"""A fragment that has taken so much of a worker's memory may be what is too much."""
CRASHES: Final = 3
"""One process that ends may have been killed for whatever reason; three that end over the same are no chance."""


class WorkLimits(msgspec.Struct, frozen=True):
    """What a fragment may take in a worker.

    Parameters
    ----------
    folder
        Where overruns are noted; empty if there are no limits.
    memory_bytes
        Most memory of the worker's process, besides files; 0 for no limit.
    seconds
        Longest time for one part of a micro-batch; 0 for no limit.
    value_bytes
        Most that one operator may keep in a bucket, which passes through Java's memory; 0 for no limit.
    sent_bytes
        Most that a fragment may send to the buckets in one part of a micro-batch, likewise.
    """

    folder: str = ""
    memory_bytes: int = 0
    seconds: float = 0.0
    value_bytes: int = 0
    sent_bytes: int = 0


class OverrunKind(StrEnum):
    """Which limit was overrun."""

    MEMORY = "memory"
    TIME = "time"
    STATE = "state"
    CRASH = "crash"
    """None: the process ended by itself, or something failed that has to do with no row."""


class Overrun(msgspec.Struct, frozen=True):
    """A fragment that has overrun a limit, or over which a worker has ended.

    Parameters
    ----------
    kind
        Which limit.
    activity
        What was computed; it has an owner.
    limit
        The limit, in words; of a state, the whole sentence.
    """

    kind: OverrunKind
    activity: Activity
    limit: str = ""

    @property
    def words(self) -> str:
        """The same as a sentence about a query."""
        operator = f" in operator {self.activity.operator}" if self.activity.operator else ""
        took = {
            OverrunKind.MEMORY: f"it took more memory than {self.limit}{operator}, the limit of a worker",
            OverrunKind.TIME: f"it took longer than {self.limit}{operator}, the limit of a query in a micro-batch",
            OverrunKind.STATE: self.limit,
            OverrunKind.CRASH: f"processes that computed it ended{operator}",
        }
        return took[self.kind]


class WorkMeter:
    """Tells from measurements, taken again and again, which fragment overruns a limit.

    Memory is that of the whole process, and what it grows by between two measurements that of the fragment at work.
    Beyond the limit, the first of these is to blame:

        the fragment at work                                if it has taken much in this part, and not read its state
        of those that have taken much, the newest           the others ran well before it came
        the one that has taken most

    Parameters
    ----------
    limits
        The limits.
    """

    def __init__(self, limits: WorkLimits) -> None:
        self._limits = limits
        self._grown: Counter[str] = Counter()
        self._grown_now: Counter[str] = Counter()
        """The same in this part of a micro-batch, without the state that was read."""
        self._memory_bytes: int | None = None
        self._seconds: dict[str, float] = {}
        self._activities: dict[str, Activity] = {}

    def begin(self) -> None:
        """Note that another part of a micro-batch begins."""
        self._seconds.clear()
        self._grown_now.clear()

    def measured(self, activity: Activity, seconds: float, memory_bytes: int) -> Overrun | None:
        """Return what overruns a limit, if any fragment does.

        Parameters
        ----------
        activity
            What is computed.
        seconds
            Time since the last measurement.
        memory_bytes
            Memory that the process takes.
        """
        grown = 0 if self._memory_bytes is None else memory_bytes - self._memory_bytes
        self._memory_bytes = memory_bytes
        if activity.owner is None and grown < 0:
            self._give_back(-grown)
        if (owner := activity.owner) is not None:
            self._activities[owner] = activity
            self._grown[owner] = max(0, self._grown[owner] + grown)
            if activity.operator != LOADING:
                self._grown_now[owner] = max(0, self._grown_now[owner] + grown)
            self._seconds[owner] = self._seconds.get(owner, 0.0) + seconds
            if 0 < self._limits.seconds < self._seconds[owner]:
                return Overrun(OverrunKind.TIME, activity, f"{self._limits.seconds:g} s")
        if 0 < self._limits.memory_bytes < memory_bytes and self._grown:
            blamed = self._blamed(owner)
            found = msgspec.structs.replace(self._activities[blamed], micro_batch=activity.micro_batch)
            if blamed != owner or found.operator == LOADING:
                found = msgspec.structs.replace(found, operator=None)
            return Overrun(OverrunKind.MEMORY, found, format_byte_size(self._limits.memory_bytes))
        return None

    def _give_back(self, freed: int) -> None:
        """Take what the process has freed at rest from those that have grown in this part, the largest first."""
        for owner, size in self._grown_now.most_common():
            less = min(freed, size, self._grown[owner])
            self._grown_now[owner] -= less
            self._grown[owner] -= less
            freed -= less

    def heavy(self, seconds: float) -> list[tuple[Activity, float]]:
        """Return what has taken at least so long in this part of a micro-batch."""
        return [(self._activities[owner], took) for owner, took in self._seconds.items() if took >= seconds]

    def _blamed(self, owner: str | None) -> str:
        much = self._limits.memory_bytes * MUCH
        if owner is not None and self._grown_now[owner] >= much:
            return owner
        taken = [each for each, size in self._grown.items() if size >= much]
        if taken:
            return max(taken, key=lambda each: (self._activities[each].since, self._grown[each]))
        return self._grown.most_common(1)[0][0]


def stopped_by(overruns: Iterable[Overrun]) -> dict[str, str]:
    """Return by owner, in words, why it is not computed in a micro-batch, given what happened in earlier runs of it."""
    found: dict[str, str] = {}
    crashes: Counter[str] = Counter()
    for each in overruns:
        owner = each.activity.owner
        if owner is None:
            continue
        crashes[owner] += each.kind is OverrunKind.CRASH
        if each.kind is not OverrunKind.CRASH or crashes[owner] >= CRASHES:
            missing = "what came in this micro-batch is missing in its answers"
            found.setdefault(owner, f"{each.words}, and was stopped: {missing}")
    return found


class Strikes:
    """Counts in how many micro-batches fragments were stopped."""

    def __init__(self) -> None:
        self._struck: dict[str, dict[str, float]] = {}
        """By fragment and micro-batch: when."""
        self._newest: dict[str, str | None] = {}

    def passed_over(self, micro_batches: Mapping[str, Iterable[Overrun]]) -> None:
        """Note overruns that count for nothing: an earlier process has counted them."""
        for micro_batch, overruns in micro_batches.items():
            for each in overruns:
                for fragment in each.activity.fragments:
                    self._struck.setdefault(fragment, {})[micro_batch] = float("-inf")

    def noted(
        self,
        micro_batches: Mapping[str, Iterable[Overrun]],
        now_seconds: float,
        newest: Callable[[str], str | None] = lambda fragment: fragment,
    ) -> dict[str, str]:
        """Return the fragments that are stopped again and again: why, in words. Their count begins anew.

        Parameters
        ----------
        micro_batches
            By micro-batch: all overruns in it that are known.
        now_seconds
            A time that only goes forward.
        newest
            Returns the newest query of a fragment, or None if there is no such fragment. When that changes, a fragment
            begins anew: what remains of it may have nothing to do with what it took.
        """
        for fragment in list(self._struck):
            query = newest(fragment)
            if self._newest.setdefault(fragment, query) != query:
                self._newest[fragment] = query
                self._struck[fragment] = dict.fromkeys(self._struck[fragment], float("-inf"))
        found: dict[str, str] = {}
        for micro_batch, overruns in micro_batches.items():
            known = list(overruns)
            stopped = stopped_by(known)
            for each in known:
                if each.activity.owner in stopped:
                    for fragment in each.activity.fragments:
                        self._newest.setdefault(fragment, newest(fragment))
                        struck = self._struck.setdefault(fragment, {})
                        struck.setdefault(micro_batch, now_seconds)
                        recent = [at for at in struck.values() if now_seconds - at <= STRIKES_WITHIN_SECONDS]
                        if len(recent) >= STRIKES:
                            found.setdefault(fragment, each.words)
        for fragment in found:
            # Micro-batches that were counted stay known: only what comes later counts.
            self._struck[fragment] = dict.fromkeys(self._struck[fragment], float("-inf"))
        return found


WINDOW_SECONDS: Final = 60.0
LATE_SECONDS: Final = 2.0
"""Answers that are later than this are late."""
SHRINKS_SECONDS: Final = 1.0
"""While what has waited is worked off, the least lag shrinks by more than this in half a window."""
NOTED_SECONDS: Final = 0.2
"""A part of a micro-batch in which a fragment takes less is not worth a note."""


class Worked(msgspec.Struct, frozen=True):
    """What a fragment has taken of one part of a micro-batch.

    Parameters
    ----------
    micro_batch
        The micro-batch.
    process
        The worker: its parts follow each other, those of others run beside them.
    fragments
        The fragment, or those that share what was computed.
    seconds
        How long it was computed.
    """

    micro_batch: str
    process: int
    fragments: tuple[str, ...]
    seconds: float


class WorkShares:
    """Adds up what fragments take.

    Parameters
    ----------
    most
        The share of the time for which a fragment may be computed while all answers are late; 0 for no limit.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._worked: deque[tuple[float, Worked]] = deque()
        self._lags: deque[tuple[float, float]] = deque()
        """When it was looked, and how far the queries were behind."""

    def idle(self, now_seconds: float) -> bool:
        """Return whether nothing has taken much for a whole window: then there is nothing to look at."""
        self._forget(now_seconds - WINDOW_SECONDS)
        if not self._worked:
            self._lags.clear()
        return not self._worked

    def noted(
        self, worked: Iterable[Worked], *, lag_seconds: float, fragments: int, now_seconds: float
    ) -> tuple[str, str] | None:
        """Return the fragment that takes more than its share, and why it does; None if none does.

        Parameters
        ----------
        worked
            What workers have noted since the last look.
        lag_seconds
            How far the queries are behind that are behind most.
        fragments
            How many there are in the plan.
        now_seconds
            A time that only goes forward.
        """
        self._worked += ((now_seconds, each) for each in worked)
        self._lags.append((now_seconds, lag_seconds))
        begin = now_seconds - WINDOW_SECONDS
        self._forget(begin)
        while len(self._lags) > 1 and self._lags[1][0] <= begin:
            self._lags.popleft()
        if not self._most or fragments < 2 or self._lags[0][0] > begin or not self._all_late(begin):  # noqa: PLR2004
            return None
        taken = self._taken()
        if not taken:
            return None
        fragment, seconds = max(taken.items(), key=lambda each: each[1])
        if seconds < self._most * WINDOW_SECONDS:
            return None
        least = min(lag for _, lag in self._lags)
        self._worked.clear()
        self._lags.clear()
        return fragment, (
            f"it was computed for {min(seconds, WINDOW_SECONDS):.0f} of {WINDOW_SECONDS:.0f} s, in which queries were "
            f"{least:.0f} s behind or more"
        )

    def _forget(self, before: float) -> None:
        while self._worked and self._worked[0][0] < before:
            self._worked.popleft()

    def _all_late(self, begin: float) -> bool:
        middle = begin + WINDOW_SECONDS / 2
        first = min((lag for at, lag in self._lags if at < middle), default=0.0)
        then = min((lag for at, lag in self._lags if at >= middle), default=0.0)
        return first >= LATE_SECONDS and then >= max(LATE_SECONDS, first - SHRINKS_SECONDS)

    def _taken(self) -> dict[str, float]:
        """Return for how long each fragment was computed; workers side by side count once."""
        by_worker: dict[tuple[str, str], dict[int, float]] = {}
        for _, each in self._worked:
            for fragment in each.fragments:
                workers = by_worker.setdefault((fragment, each.micro_batch), {})
                workers[each.process] = workers.get(each.process, 0.0) + each.seconds
        found: dict[str, float] = {}
        for (fragment, _), workers in by_worker.items():
            found[fragment] = found.get(fragment, 0.0) + max(workers.values())
        return found
