"""Rows of what a window keeps: at every instant those of the definition, whatever the batches and restarts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from cluster.temporal.kept_rows import FOR_EVER, KeptRows, Numbered, Shown
from cluster.temporal.windows import CountWindow, TimeWindow
from tests.cluster.oracle.kept_definition import Sample, Window, rows_at, state_after
from tests.examples import seeds

LAST = 60


def random_samples(dice: random.Random) -> list[Sample]:
    """Samples in order, of some keys, with runs; several may have one stamp."""
    count, keys, repeats = dice.randrange(1, 40), dice.choice((1, 2, 5)), dice.choice((0.0, 0.5, 0.9))
    dense = dice.random() < 0.3
    stamps = sorted(dice.randrange(20 if dense else LAST) for _ in range(count))
    placed = sorted((stamp, dice.randrange(keys)) for stamp in stamps)
    runs: dict[int, int] = {}
    found = []
    for number, (stamp, key) in enumerate(placed):
        if key not in runs or dice.random() > repeats:
            runs[key] = runs.get(key, 0) + 1
        found.append(Sample(stamp, (key,), runs[key], (key, runs[key], number)))
    return found


def random_window(dice: random.Random) -> Window:
    size, slide = dice.choice((1, 5, 20, 70, 200)), dice.choice((1, 1, 2, 7))
    if dice.random() < 0.3:
        return Window(rows=dice.choice((1, 4, 12, 90)), slide=dice.choice((1, 2, 3)))
    return Window(size, slide)


def extent_of(window: Window, most: int) -> KeptRows:
    if window.rows is not None:
        return KeptRows(CountWindow(window.rows), most, window.slide)
    assert window.size is not None
    return KeptRows(TimeWindow(window.size - 1), most, window.slide)


def run(dice: random.Random, samples: list[Sample], window: Window, most: int) -> tuple[list[Shown], KeptRows]:
    """Take the samples in batches, with restarts and cuts in between."""
    extent, found = extent_of(window, most), []
    waiting, watermark = [*samples], 0
    while waiting:
        watermark += dice.choice((1, 3, 10, 40))
        ready = [each for each in waiting if each.stamp < watermark]
        waiting = waiting[len(ready) :]
        found += extent.take([Numbered(each.stamp, each.key, each.run, each.values) for each in ready], watermark)
        if dice.random() < 0.3:
            found += extent.cut(watermark)
        if dice.random() < 0.3:
            saved = extent.saved()
            extent = extent_of(window, most)
            extent.restore(saved)
    found += extent.take([], FOR_EVER)
    return found, extent


@seeds(300)
def test_rows_are_those_of_the_definition(seed: int) -> None:
    dice = random.Random(f"kept rows/{seed}")
    samples, window = random_samples(dice), random_window(dice)
    most = dice.choice((1, 2, 3, 5, 10, 100))
    shown, extent = run(dice, samples, window, most)
    assert all(since < until for since, until, _ in shown)
    for at in range(LAST + 220):
        found: Counter[Any] = Counter(tuple(each.content) for each in shown if each.since <= at < each.until)
        assert found == Counter(rows_at(samples, window, most, at)), (samples, window, most, at)
    if window.slide == 1:
        assert extent.dropped == len(state_after(samples, len(samples), window, most).evicted)


def test_a_row_of_which_nothing_was_left_goes_on_with_what_it_has_lost() -> None:
    extent = KeptRows(TimeWindow(99), 1)
    taken = [(10, 0), (20, 0), (30, 1), (40, 0)]
    samples = [Numbered(at, (key,), 1, (key, at)) for at, key in taken]
    shown = extent.take(samples, 45) + extent.cut(45)
    assert [each.content for each in shown if each.since == 40] == [((0, 40), 40, 40, 0.0)]
    assert extent.extent.vanished == 1  # that of key 1 alone
    assert extent.accuracy == 0.0
    # Once the window has passed what was dropped, the row is another one.
    later = extent.take([Numbered(150, (0,), 1, (0, 150))], 151) + extent.cut(151)
    assert [each.content for each in later if each.since == 150] == [((0, 150), 150, 150, 1.0)]


def test_notes_of_what_is_lost_are_bounded_by_the_window() -> None:
    extent = KeptRows(TimeWindow(499), 1)
    extent.take([Numbered(at, (at,), 1, (at,)) for at in range(5_000)], 5_000)
    assert len(extent.extent.lost) <= 1_002
