"""Late samples of windows by count: whole batches against one sample at a time."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

import numpy as np

from cluster.temporal.windows import newer_before, overtaken
from tests.examples import seeds


def one_by_one(window: list[tuple[int, int]], batch: Iterable[tuple[int, int]], limit: int) -> list[bool]:
    found = []
    for position in batch:
        found.append(len(window) == limit and position < window[0])
        if not found[-1] and position not in window:
            insort(window, position)
            del window[: max(0, len(window) - limit)]
    return found


@seeds(120)
def test_batches_find_the_same_late_samples(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, limit = int(random.integers(1, 900)), int(random.choice([1, 3, 50, 150, 400]))
    stamps = np.argsort(np.arange(count) + random.uniform(0, random.choice([1, 20, 150, 1_000]), count))
    if seed % 3 == 0:
        stamps = stamps // 2
    groups, begin = random.integers(0, 2, count), int(random.integers(0, count))
    positions = list(zip(stamps.tolist(), groups.tolist(), strict=True))
    window: list[tuple[int, int]] = []
    one_by_one(window, positions[:begin], limit)
    together = [*window, *positions[begin:]]
    rank = {position: place for place, position in enumerate(sorted(set(together)))}
    found = overtaken(np.array([rank[each] for each in together], np.int64), len(window), limit)
    assert found.tolist() == one_by_one(window, positions[begin:], limit)


def test_newer_ones_before_are_counted() -> None:
    ranks, counted = np.array([3, 0, 4, 1, 2, 3]), np.array([True, True, True, True, False, False])
    assert newer_before(ranks, counted).tolist() == [0, 1, 0, 2, 2, 1]
