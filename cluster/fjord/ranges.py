"""Ranges of places, by arrays: laid out one after the other, and reduced, so many at once as memory is to hold.

first 4, 9   count 3, 1    ->    numbers 0, 0, 0, 1    places 4, 5, 6, 9
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

AT_ONCE = 2_000_000
"""About how many places are laid out at once."""


def laid_out(first: Places, count: Places) -> tuple[Places, Places]:
    """Return the places of ranges in their order, each with the number of its range.

    Parameters
    ----------
    first, count
        By range: its first place, and how many it has; 0 for an empty one.

    Returns
    -------
    tuple
        The number of a range for each place, and the places.
    """
    numbers = np.repeat(np.arange(len(count)), count)
    places = np.arange(len(numbers)) - np.repeat(np.cumsum(count) - count - first, count)
    return numbers, places


def blocks(sums: Places) -> Iterator[tuple[int, int]]:
    """Yield ranges of numbers that have :data:`AT_ONCE` places together at most, but one number at least.

    Parameters
    ----------
    sums
        By number: how many places it and those before it have.
    """
    begin = 0
    while begin < len(sums):
        before = int(sums[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(sums, before + AT_ONCE, side="right")))
        yield begin, end
        begin = end


def reduced(values: NDArray[np.generic], low: Places, high: Places, combine: np.ufunc) -> NDArray[np.generic]:
    """Return the result of each of some ranges, none of them empty: each depends on its own values only."""
    found = np.empty(len(low), values.dtype)
    sizes = high - low
    for begin, end in blocks(np.cumsum(sizes)):
        own = sizes[begin:end]
        _, places = laid_out(low[begin:end], own)
        found[begin:end] = combine.reduceat(values[places], np.cumsum(own) - own)
    return found
