"""The pairing of a zipper join: arrays of stamps in, pairs of places out (:class:`Zip` in `zipping` uses it).

    left      u1    u2              upstream: u1 is overtaken by u2 and stays unmatched
    right              d2     d3    downstream, from 0 to 3 later: d2 takes u2, d3 is unmatched

Tuples further apart than the bounds are wide can never be paired, so sorted stamps fall into blocks. Nearly all blocks
hold a tuple of each side, or of one side only, or one instant, and are answered all at once; the others one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Stamps = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds on the right stamp minus the left one."""

    low_us: int
    high_us: int


def zip_stamps(
    keys: Places, stamps: Stamps, sides: NDArray[np.bool_], bounds: Bounds, known_us: tuple[int, int]
) -> tuple[Places, Places, Places]:
    """Return the pairs of tuples, and those that stay unmatched.

    Parameters
    ----------
    keys
        A number for each combination of keys.
    stamps
        The stamps.
    sides
        False for left, True for right. Tuples are sorted by key and, within a key and a side, by stamp; and so that
        ``2 * stamp + low + high`` of the left and ``2 * stamp`` of the right are in order.
    bounds
        The bounds on pairs.
    known_us
        By side: the stamp before which all tuples are known.

    Returns
    -------
    tuple
        Places of the left tuples of pairs, of their partners, and of those that surely stay unmatched. The rest is
        undecided.
    """
    if not len(stamps):
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    position = 2 * stamps + np.where(sides, 0, bounds.low_us + bounds.high_us)
    begins = np.flatnonzero(
        np.concatenate(([True], (np.diff(keys) != 0) | (np.diff(position) > bounds.high_us - bounds.low_us)))
    )
    ends = np.append(begins[1:], len(stamps))
    of_right = np.add.reduceat(sides.astype(np.int64), begins)
    of_left = ends - begins - of_right
    pair = (of_left == 1) & (of_right == 1)
    one_side = (of_left == 0) | (of_right == 0)
    first = begins[pair]
    left_places = np.where(sides[first], first + 1, first)
    right_places = np.where(sides[first], first, first + 1)
    final = _final(stamps[left_places], stamps[right_places], bounds, known_us)
    lefts, rights = [left_places[final]], [right_places[final]]
    single = np.repeat(one_side, ends - begins)
    last = stamps + np.where(sides, -bounds.low_us, bounds.high_us)
    unmatched = [np.flatnonzero(single & (last < np.where(sides, known_us[0], known_us[1])))]
    for block in np.flatnonzero(~pair & ~one_side):
        found = _block(stamps, sides, range(begins[block], ends[block]), bounds, known_us)
        for places, more in zip((lefts, rights, unmatched), found, strict=True):
            places.append(np.asarray(more, np.int64))
    return np.concatenate(lefts), np.concatenate(rights), np.concatenate(unmatched)


def _final(left: Stamps, right: Stamps, bounds: Bounds, known_us: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pairs for which no nearer partner can come any more."""
    of_left = (left >= right) | (np.minimum(right, right - bounds.low_us) < known_us[0])
    of_right = (right >= left) | (np.minimum(left, left + bounds.high_us) < known_us[1])
    return of_left & of_right


def _block(
    stamps: Stamps, sides: NDArray[np.bool_], block: range, bounds: Bounds, known_us: tuple[int, int]
) -> tuple[list[int], list[int], list[int]]:
    """Pair the tuples of a block one by one."""
    places = np.arange(block.start, block.stop)
    right_ones = sides[block.start : block.stop]
    queues = (places[~right_ones].tolist(), places[right_ones].tolist())
    stamped = (stamps[queues[0]].tolist(), stamps[queues[1]].tolist())
    heads = [0, 0]
    pairs: tuple[list[int], list[int]] = ([], [])
    unmatched: list[int] = []
    low, high = bounds.low_us, bounds.high_us
    while heads[0] < len(queues[0]) and heads[1] < len(queues[1]):
        left, right = stamped[0][heads[0]], stamped[1][heads[1]]
        if not low <= right - left <= high:
            late = 0 if right - left > high else 1
            unmatched.append(queues[late][heads[late]])
            heads[late] += 1
            continue
        if left != right:
            early = 0 if left < right else 1
            nearest = min(right, right - low) if early == 0 else min(left, left + high)
            overtaking = bisect_right(stamped[early], nearest, heads[early]) - 1
            if stamped[early][overtaking] > stamped[early][heads[early]]:
                unmatched.append(queues[early][heads[early]])
                heads[early] += 1
                continue
            if known_us[early] <= nearest:
                return *pairs, unmatched  # a nearer partner may still come
        for side in (0, 1):
            pairs[side].append(queues[side][heads[side]])
            heads[side] += 1
    for side, reach in ((0, high), (1, -low)):
        rest = zip(queues[side][heads[side] :], stamped[side][heads[side] :], strict=True)
        unmatched += [place for place, stamp in rest if stamp + reach < known_us[1 - side]]
    return *pairs, unmatched
