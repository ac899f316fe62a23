"""What KEEP n TUPLES means, sample by sample, with nothing kept between steps: the state is found anew each time.

Samples come in the order of stamps, keys (NULLs last) and values. Each that comes ends the one before it of its key;
then what the window has passed goes, and, if too many are left, the one whose loss is the least. Fragments are kept
neighbours of one run. Loss: of an end the share of its fragment's length, one for a sample by itself; of one between
others, that share and one. The newest of each key cannot go, unless there are no others; of equal losses, the oldest
goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PIECES = 64


@dataclass(frozen=True, slots=True)
class Sample:
    stamp: int
    key: tuple[Any, ...]
    run: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """By time if `size` is there, else the last `rows`."""

    size: int | None = None
    slide: int = 1
    rows: int | None = None


Row = tuple[tuple[Any, ...], int, int, float]
"""Values, begin, end, quality."""


@dataclass(slots=True)
class _State:
    samples: Sequence[Sample]
    window: Window
    kept: list[int] = field(default_factory=list)
    begun: dict[tuple[Any, int], int] = field(default_factory=dict)
    """Where a row began: its first sample behind the last kept one that expired, unless all that was dropped has."""
    evicted: list[int] = field(default_factory=list)

    def run_of(self, number: int) -> tuple[Any, int]:
        return self.samples[number].key, self.samples[number].run

    def end_of(self, number: int, known: int) -> int | None:
        """When the next sample of the key came, if it is among so many."""
        key = self.samples[number].key
        return next((each.stamp for each in self.samples[number + 1 : known] if each.key == key), None)

    def expire(self, passed: Any) -> None:
        for number in [each for each in self.kept if passed(each)]:
            self.kept.remove(number)
            of_run = [each for each in self.kept if self.run_of(each) == self.run_of(number)]
            if of_run:
                self.begun[self.run_of(number)] = self.samples[of_run[0]].stamp

    def fragments(self, known: int) -> list[list[int]]:
        by_run: dict[Any, list[int]] = {}
        for number in self.kept:
            by_run.setdefault(self.run_of(number), []).append(number)
        for run, numbers in by_run.items():
            between = [n for n in range(numbers[0], known) if self.run_of(n) == run and n <= numbers[-1]]
            assert between == numbers, "rows are never split"
        return list(by_run.values())

    def drop_one(self, known: int) -> None:
        losses: list[tuple[float, int]] = []
        for numbers in self.fragments(known):
            lengths = {n: (self.end_of(n, known) or self.samples[n].stamp) - self.samples[n].stamp for n in numbers}
            total = sum(lengths.values())
            for number in numbers:
                if self.end_of(number, known) is None:
                    continue
                inside = number not in (numbers[0], numbers[-1])
                share = 1.0 if len(numbers) == 1 else lengths[number] / total if total else 0.0
                losses.append((inside + share, number))
        victim = min(losses)[1] if losses else self.kept[0]
        self.evicted.append(victim)
        self.kept.remove(victim)


def state_after(samples: Sequence[Sample], known: int, window: Window, most: int) -> _State:
    """The state when the first `known` samples have come."""
    state = _State(samples, window)
    for number in range(known):
        stamp = samples[number].stamp

        def passed(each: int, number: int = number, stamp: int = stamp) -> bool:
            if window.rows is not None:
                return each <= number - window.rows
            return samples[each].stamp <= stamp - (window.size or 0)

        state.expire(passed)
        run = state.run_of(number)
        dropped = (each for each in state.evicted if state.run_of(each) == run)
        if not any(state.run_of(each) == run for each in state.kept) and all(map(passed, dropped)):
            state.begun[run] = stamp
        state.kept.append(number)
        if len(state.kept) > most:
            state.drop_one(number + 1)
    return state


def rows_at(samples: Sequence[Sample], window: Window, most: int, instant: int) -> list[Row]:
    """The rows at an instant."""
    if window.rows is not None:
        known = sum(each.stamp <= instant for each in samples) // window.slide * window.slide
        state = state_after(samples, known, window, most)
        piece = -(-window.rows // PIECES)
        first = max(known - window.rows, 0) // piece * piece
        begins = samples[first].stamp if samples else 0
    else:
        assert window.size is not None
        border = (instant + 1) // window.slide * window.slide - 1
        known = sum(each.stamp <= border for each in samples)
        state = state_after(samples, known, window, most)
        state.expire(lambda each: samples[each].stamp <= border - (window.size or 0))
        piece = -(-window.size // PIECES)
        begins = (border - window.size + 1) // piece * piece
    found: list[Row] = []
    for numbers in state.fragments(known):
        run = state.run_of(numbers[0])
        begin = samples[numbers[0]].stamp
        own = [n for n in range(known) if state.run_of(n) == run]
        end = state.end_of(numbers[-1], known)
        end = samples[numbers[-1]].stamp if end is None else end
        exact_end = state.end_of(own[-1], known)
        exact_end = samples[own[-1]].stamp if exact_end is None else exact_end
        length = exact_end - min(begin, max(state.begun[run], begins))
        found.append((samples[numbers[0]].values, begin, end, (end - begin) / length if length else 1.0))
    return found
