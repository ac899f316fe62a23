"""Ranges laid out one after the other: many pairs of a number and a place, made by arrays at once.

first 4, 9   count 3, 1    ->    numbers 0, 0, 0, 1    places 4, 5, 6, 9
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def laid_out(first: Integers, count: Integers) -> tuple[Integers, Integers]:
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
