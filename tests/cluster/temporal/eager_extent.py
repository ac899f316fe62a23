"""An extent that is coalesced at all times (papers/coalescing.md sections 2.3 and 2.4). Pure.

A run keeps its start and the stamps of its other samples. A late sample between them either joins the run or cuts it:

run     A |----A----A--------)  B          stamps 1 {3, 6}, B at 8
C at 4  A |----)                           1 {3}
               C |--)                      4
                    A |------)             6: the second half starts at its own first sample
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush

from cluster.temporal.windows import Key, Link, Position, Values, rank
from tests.cluster.temporal.runs import Coalesced, canonical


class Run:
    """A coalesced sample in the making: `values` has one entry, or one for each sample where links are no equality."""

    __slots__ = ("end", "later", "start", "values")

    def __init__(self, start: int, later: list[int], end: int, values: list[Values]) -> None:
        self.start = start
        self.later = later
        self.end = end
        self.values = values

    @property
    def last(self) -> int:
        """The stamp of its newest sample."""
        return self.later[-1] if self.later else self.start


@dataclass
class Counters:
    """What updates have done, and what they have learned about their samples."""

    inserts: int = 0
    merges: int = 0
    forward_merges: int = 0
    splits: int = 0
    detaches: int = 0
    deletes: int = 0
    preceded: int = 0
    """Samples with an earlier one in their group when they came."""
    linked: int = 0
    """Those of them that went on with the run before."""
    out_of_order: int = 0
    """Samples older than the newest of their group."""
    taken: int = 0

    @property
    def coalescing_probability(self) -> float:
        """How likely a sample goes on with the run of the one before."""
        return self.linked / self.preceded if self.preceded else 0.0

    @property
    def disorder(self) -> float:
        """How likely a sample is older than the newest of its group."""
        return self.out_of_order / self.taken if self.taken else 0.0


class EagerExtent:
    """The runs of every group of a window, for one coalescing query.

    Parameters
    ----------
    link
        Which sample goes on with the one before.
    key_length
        How many of the first attributes of a group order samples of one stamp.
    """

    def __init__(self, link: Link, key_length: int | None = None) -> None:
        self._link = link
        self._one_value = link.transitive
        self._key_length = key_length
        self._groups: dict[Key, list[Run]] = {}
        self._heads: list[tuple[Position, Key, Key]] = []
        self.samples = 0
        self.counters = Counters()

    def insert(self, stamp: int, group: Key, values: Values) -> None:
        """Add a sample that has been accepted. If the link predicate fails, nothing has changed."""
        runs = self._groups.get(group, [])
        place = bisect_left(runs, stamp, key=lambda run: run.start)
        before, after = (runs[place - 1] if place else None), (runs[place] if place < len(runs) else None)
        inside = before is not None and stamp < before.last
        joins_before = before is not None and self._link(self._value_up_to(before, stamp), values)
        follower = before if inside else after
        joins_after = follower is not None and self._link(values, self._value_from(follower, stamp))
        self._learn(runs, stamp, before, joins=joins_before)
        self._groups[group] = runs
        if inside and before is not None:
            if joins_before and joins_after:
                self._add_inside(before, stamp, values)
                return
            runs.insert(place, self._cut(before, stamp))
        self._add_between(runs, place, Run(stamp, [], stamp, [values]), before=joins_before, after=joins_after)
        if runs[0].start == stamp:
            self._note_head(group, stamp)

    def expire(self, oldest: Position | None) -> None:
        """Drop samples before the oldest live position, all if there is none. Runs lose only their first samples."""
        if oldest is None:
            self.counters.deletes += self.runs
            self._groups, self._heads, self.samples = {}, [], 0
            return
        while self._heads and self._heads[0][0] < oldest:
            (start, key), _, group = heappop(self._heads)
            runs = self._groups.get(group)
            if not runs or runs[0].start != start:
                continue  # an earlier sample came, or this one has been dropped
            self._drop_before(group, runs, oldest[0] + (key < oldest[1]))

    def _drop_before(self, group: Key, runs: list[Run], stamp: int) -> None:
        gone = 0
        while gone < len(runs) and runs[gone].last < stamp:
            self.samples -= 1 + len(runs[gone].later)
            self.counters.deletes += 1
            gone += 1
        del runs[:gone]
        if not runs:
            del self._groups[group]
            return
        head = runs[0]
        if head.start < stamp:
            kept = bisect_left(head.later, stamp)
            head.start = head.later[kept]
            del head.later[: kept + 1]
            if not self._one_value:
                del head.values[: kept + 1]
            self.samples -= kept + 1
            self.counters.detaches += kept + 1
        self._note_head(group, head.start)

    def scan(self) -> list[Coalesced]:
        """Return the runs, in canonical order."""
        return canonical(
            Coalesced(group, run.values[0], run.start, run.end, tuple(run.later))
            for group, runs in self._groups.items()
            for run in runs
        )

    @property
    def runs(self) -> int:
        """How many coalesced samples there are."""
        return sum(map(len, self._groups.values()))

    def bytes(self, row_bytes: int, stamp_bytes: int = 8) -> int:
        """Return what it takes to store: a row for each run, and a stamp for each other sample."""
        runs = self.runs
        return runs * row_bytes + (self.samples - runs) * stamp_bytes

    def _note_head(self, group: Key, start: int) -> None:
        whole = rank(group)
        heappush(self._heads, ((start, whole[: self._key_length]), whole, group))

    def _learn(self, runs: list[Run], stamp: int, before: Run | None, *, joins: bool) -> None:
        self.samples += 1
        self.counters.taken += 1
        self.counters.out_of_order += bool(runs) and stamp < runs[-1].last
        self.counters.preceded += before is not None
        self.counters.linked += joins

    def _value_up_to(self, run: Run, stamp: int) -> Values:
        """Return the values of a run's last sample before a stamp."""
        return run.values[0] if self._one_value else run.values[bisect_left(run.later, stamp)]

    def _value_from(self, run: Run, stamp: int) -> Values:
        """Return the values of a run's first sample after a stamp."""
        if self._one_value or stamp < run.start:
            return run.values[0]
        return run.values[bisect_left(run.later, stamp) + 1]

    def _add_inside(self, run: Run, stamp: int, values: Values) -> None:
        """Add a sample that both neighbours of one run link with."""
        self.counters.merges += 1
        place = bisect_left(run.later, stamp)
        run.later.insert(place, stamp)
        if not self._one_value:
            run.values.insert(place + 1, values)

    def _cut(self, run: Run, stamp: int) -> Run:
        """Take from a run what is after a stamp inside it, and return that: it starts at its own first sample."""
        self.counters.splits += 1
        place = bisect_left(run.later, stamp)
        values = run.values[:] if self._one_value else run.values[place + 1 :]
        half = Run(run.later[place], run.later[place + 1 :], run.end, values)
        del run.later[place:]
        if not self._one_value:
            del run.values[place + 1 :]
        return half

    def _add_between(self, runs: list[Run], place: int, sample: Run, *, before: bool, after: bool) -> None:
        """Add a sample behind runs[place - 1] and before runs[place], and join it with those that it links with."""
        if place < len(runs):
            sample.end = runs[place].start
        if after:
            follower = runs.pop(place)
            sample.later = [follower.start, *follower.later]
            sample.end = follower.end
            if not self._one_value:
                sample.values += follower.values
        if before:
            self.counters.merges += 1
            run = runs[place - 1]
            run.later += [sample.start, *sample.later]
            run.end = sample.end
            if not self._one_value:
                run.values += sample.values
            return
        if place:
            runs[place - 1].end = sample.start
        runs.insert(place, sample)
        self.counters.forward_merges += after
        self.counters.inserts += not after
