"""Which coalescing queries are eager: a 0-1 programme, solved again when costs drift. Pure.

papers/coalescing.md section 3.6.

Minimise  sum of (E_j - L_j) x_j + F z,  with  z >= 1 - x_j  for each query j:  x_j = 1 if j is eager, z = 1 if there is
a lazy extent. Without further constraints comparing would do; `most_bytes` makes it a knapsack.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from cluster.temporal.cost_model import Prices
from cluster.temporal.windows import ExtentError

MOST_ENUMERATED = 16
SMALLEST_GAIN = 0.05
"""Of its cost, by which another choice has to be better before extents are changed."""


def optimal(
    prices: Prices, sizes: Sequence[float] = (), lazy_bytes: float = 0, most_bytes: float | None = None
) -> frozenset[int]:
    """Return the queries that are eager in the cheapest choice. A query that costs the same both ways is lazy.

    Parameters
    ----------
    prices
        Of each query, and of the lazy extent.
    sizes, lazy_bytes, most_bytes
        Bytes of each eager extent and of the lazy one, and how many all may have together; None if that is no limit.

    Raises
    ------
    ExtentError
        If no choice is within `most_bytes`.
    """
    count = len(prices.eager)
    if not count:
        return frozenset()
    saved = np.subtract(prices.eager, prices.lazy)
    scale = max(1e-300, float(np.abs([*prices.eager, *prices.lazy, prices.shared]).max()))
    objective = np.append(saved, prices.shared) / scale
    lazy_exists = LinearConstraint(np.hstack([np.eye(count), np.ones((count, 1))]), lb=1)
    constraints = [lazy_exists]
    if most_bytes is not None:
        constraints.append(LinearConstraint(np.append(sizes, lazy_bytes), ub=most_bytes))
    found = milp(
        objective,
        integrality=np.ones(count + 1),
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 0},
    )
    if found.x is None:
        raise ExtentError(f"no choice of extents within {most_bytes} bytes", hint="allow more, or shorten the window")
    chosen = frozenset(np.flatnonzero(found.x[:count] > 0.5).tolist())  # noqa: PLR2004 - 0 or 1, nearly
    # The solver stops within a millionth, and knows no rule for ties.
    cheaper = frozenset(one for one in chosen if prices.eager[one] < prices.lazy[one])
    bytes_then = sum(sizes[one] for one in cheaper) + lazy_bytes if most_bytes is not None else 0.0
    fits = most_bytes is None or bytes_then <= most_bytes
    return cheaper if fits and prices.total(cheaper) <= prices.total(chosen) else chosen


def by_comparing(prices: Prices) -> frozenset[int]:
    """Return the same without a solver: all, or those that are cheaper eager."""
    everything = frozenset(range(len(prices.eager)))
    cheaper = frozenset(one for one in everything if prices.eager[one] < prices.lazy[one])
    return everything if prices.total(everything) < prices.total(cheaper) else cheaper


def by_enumerating(prices: Prices) -> frozenset[int]:
    """Return the same by trying all choices of at most 16 queries; the smallest of equal ones."""
    count = len(prices.eager)
    if count > MOST_ENUMERATED:
        raise ExtentError(
            f"2 ** {count} choices are too many to try", hint=f"of {MOST_ENUMERATED} queries they are not"
        )
    choices = (frozenset(each) for size in range(count + 1) for each in combinations(range(count), size))
    return min(choices, key=lambda chosen: (prices.total(chosen), len(chosen), sorted(chosen)))


def reconsidered(current: frozenset[int], prices: Prices) -> frozenset[int]:
    """Return the choice to go on with: the optimal one if it is enough cheaper by today's prices, else the current one.

    Changing extents has a price, and measured costs waver; so a choice stays until another is 5 % cheaper.
    """
    best = optimal(prices)
    return best if prices.total(best) < (1 - SMALLEST_GAIN) * prices.total(current) else current
