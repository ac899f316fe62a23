"""The samples that a window keeps of more than it has room for, whatever chooses which go. Pure.

papers/cals.md section 2.3. A sample holds until the next one of its group. A dropped one takes its interval along: the
sample before it does not grow over the gap, and equal values on both sides of a gap are two rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cluster.temporal.windows import CountWindow, Equal, ExtentError, Key, Values, Window

_EQUAL = Equal()


class Piece(NamedTuple):
    """A coalesced row of what is kept."""

    group: Key
    values: Values
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Sample:
    """A sample that is kept. `end` is its own start while it is the newest of its group: it is *open*."""

    number: int
    """How many came before it, of all groups."""
    start: int
    end: int
    group: Key
    values: Values
    open: bool = True
    before: Sample | None = None
    """The kept sample of its group before it, whatever lies between."""
    after: Sample | None = None

    def goes_on_from(self, earlier: Sample | None) -> bool:
        """Return whether it is in the fragment of the sample before."""
        return earlier is not None and earlier.end == self.start and _EQUAL(earlier.values, self.values)


class KeptSamples(ABC):
    """Samples of a window, at most so many.

    Parameters
    ----------
    window
        What the window would hold with room for all.
    most
        How many are kept, at least 1.

    Samples come in the order of stamps, each group's strictly unless `tied`.
    """

    tied = False
    """Whether samples of a group may have one stamp: the first of these then lasts no time."""

    def __init__(self, window: Window, most: int) -> None:
        if most < 1:
            raise ExtentError(f"room for {most} samples", hint="keep at least 1")
        self.window = window
        self.most = most
        self.kept: OrderedDict[int, Sample] = OrderedDict()
        """By number, oldest first."""
        self._newest: dict[Key, tuple[int, Sample | None]] = {}
        self._arrived = 0
        self.dropped = 0
        """How many went for lack of room."""

    def arrive(self, stamp: int, values: Values, group: Key = ()) -> int | None:
        """Take a sample; return the number of the one that went for lack of room, or None."""
        number = self._arrived
        self._arrived += 1
        last_number, last = self._newest.get(group, (-1, None))
        if last is not None and last.number == last_number:
            if stamp < last.start or (stamp == last.start and not self.tied):
                raise ExtentError(f"a sample of {stamp} us after one of {last.start} us", hint="send them in order")
            last.end, last.open = stamp, False
            self._closed(last)
        self._expire(number, stamp)
        last = last if last is not None and last.number in self.kept else None
        new = Sample(number, stamp, stamp, group, values, before=last)
        if last is not None:
            last.after = new
        self.kept[number] = new
        self._newest[group] = (number, new)
        self._added(new)
        return self._make_room(new) if len(self.kept) > self.most else None

    def _make_room(self, new: Sample) -> int:
        victim = self._victim(new)
        self.dropped += 1
        self._remove(victim)
        return victim.number

    def pieces(self, now_us: int) -> list[Piece]:
        """Return the coalesced rows of what is kept, by start; open samples hold until now."""
        return [
            Piece(each[0].group, each[0].values, each[0].start, now_us if each[-1].open else each[-1].end)
            for each in fragments(self.kept.values())
        ]

    @abstractmethod
    def _victim(self, new: Sample) -> Sample:
        """Return the sample to drop of one more than there is room for."""

    def _added(self, new: Sample) -> None:  # noqa: B027 - not all take notes
        """Note a sample that has come."""

    def _closed(self, sample: Sample) -> None:  # noqa: B027 - as above
        """Note that the next sample of its group has come after it."""

    def _removed(self, sample: Sample, *, expired: bool) -> None:  # noqa: B027 - as above
        """Note a sample that goes, by age or for lack of room; its neighbours are still linked to it."""

    def _remove(self, sample: Sample, *, expired: bool = False) -> None:
        self._removed(sample, expired=expired)
        del self.kept[sample.number]
        if sample.before is not None:
            sample.before.after = sample.after
        if sample.after is not None:
            sample.after.before = sample.before
        number, newest = self._newest[sample.group]
        if newest is sample:
            self._newest[sample.group] = (number, sample.before)
            if sample.before is None:  # nothing of the group is kept: its next sample has no neighbour
                del self._newest[sample.group]

    def _expire(self, number: int, stamp: int) -> None:
        while self.kept:
            oldest = next(iter(self.kept.values()))
            if isinstance(self.window, CountWindow):
                if oldest.number > number - self.window.samples:
                    return
            elif oldest.start >= stamp - self.window.length_us:
                return
            self._remove(oldest, expired=True)


def fragments(samples: Iterable[Sample]) -> Iterable[list[Sample]]:
    """Yield fragments of samples that are kept, each from its first to its last."""
    for sample in samples:
        if sample.goes_on_from(sample.before):
            continue
        found = [sample]
        while found[-1].after is not None and found[-1].after.goes_on_from(found[-1]):
            found.append(found[-1].after)
        yield found
