"""What it costs to keep a coalescing query eager or lazy, and which are eager: a 0-1 programme. Pure.

papers/coalescing.md section 3. Costs are of a window by count, in any unit of time.

**Which coalescing queries are eager: a 0-1 programme, solved again when costs drift.**

papers/coalescing.md section 3.6.

Minimise  sum of (E_j - L_j) x_j + F z,  with  z >= 1 - x_j  for each query j:  x_j = 1 if j is eager, z = 1 if there is
a lazy extent. Without further constraints comparing would do; `most_bytes` makes it a knapsack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from cluster.temporal.windows import ExtentError

STAMP_BYTES = 8


@dataclass(frozen=True)
class Constants:
    """Time of one operation on an extent, all in the same unit.

    Parameters
    ----------
    insert, delete, merge, split, detach
        Of an eager extent: a run that is new, one that goes with its only sample, a sample that joins a run, one that
        cuts a run (beside its insertion), and one that expires from the front of a run.
    lazy_insert, lazy_delete
        Of the lazy extent; as in the paper those of the eager one if they are None.
    read
        One run of an eager extent, or a sample of the lazy one if `lazy_read` is None.
    coalesce
        What a sample of the lazy extent takes beside that if it joins the one before.
    lazy_read
        One sample of the lazy extent.
    """

    insert: float
    delete: float
    merge: float
    split: float
    detach: float
    read: float
    coalesce: float
    lazy_insert: float | None = None
    lazy_delete: float | None = None
    lazy_read: float | None = None

    @property
    def into_lazy(self) -> float:
        """Of an insertion into the lazy extent."""
        return self.insert if self.lazy_insert is None else self.lazy_insert

    @property
    def out_of_lazy(self) -> float:
        """Of an expiry from it."""
        return self.delete if self.lazy_delete is None else self.lazy_delete

    @property
    def read_lazily(self) -> float:
        """Of reading a sample of it."""
        return self.read if self.lazy_read is None else self.lazy_read


@dataclass(frozen=True)
class Workload:
    """What a coalescing query meets.

    Parameters
    ----------
    coalescing, disorder
        Probabilities that a sample goes on with the one before, and that it comes out of order.
    window
        Samples of the window.
    arrived
        Samples so far; None for the steady state, in which costs of updates are those of one sample.
    eager_bytes, lazy_bytes
        Of a row of its eager extent, and of the lazy one.
    """

    coalescing: float
    disorder: float
    window: int
    arrived: int | None
    eager_bytes: int
    lazy_bytes: int

    def __post_init__(self) -> None:
        for name, share in (("coalesce", self.coalescing), ("come out of order", self.disorder)):
            if not 0 <= share <= 1:
                raise ExtentError(f"a probability of {share} to {name}", hint="probabilities are from 0 to 1")
        if self.window < 1 or (self.arrived is not None and self.arrived < 1):
            raise ExtentError(f"{self.arrived} samples of a window of {self.window}", hint="there is at least 1")

    @property
    def size(self) -> int:
        """Samples in the window now."""
        return self.window if self.arrived is None else min(self.arrived, self.window)

    @property
    def _linked(self) -> float:
        """How many samples of the window go on with the one before, on average; the first of all never does."""
        first = self.arrived is not None and self.arrived <= self.window
        return self.coalescing * (self.size - first)

    def eager_memory(self) -> float:
        """Return bytes of an eager extent (equation 1)."""
        return self._linked * STAMP_BYTES + (self.size - self._linked) * self.eager_bytes

    def lazy_memory(self) -> float:
        """Return bytes of the lazy extent (equation 2)."""
        return self.size * self.lazy_bytes

    def eager_update(self, costs: Constants) -> float:
        """Return what updates of an eager extent cost, of all samples so far or of one in the steady state (3)."""
        first = _arrival(0.0, 0.0, costs)
        each = _arrival(self.coalescing, self.disorder, costs)
        goes = self.coalescing * costs.detach + (1 - self.coalescing) * costs.delete
        if self.arrived is None:
            return each + goes
        gone = max(0, self.arrived - self.window)
        return first + (self.arrived - 1) * each + (costs.delete + (gone - 1) * goes if gone else 0)

    def lazy_update(self, costs: Constants) -> float:
        """Return what updates of the lazy extent cost (4)."""
        if self.arrived is None:
            return costs.into_lazy + costs.out_of_lazy
        return self.arrived * costs.into_lazy + max(0, self.arrived - self.window) * costs.out_of_lazy

    def eager_scan(self, costs: Constants) -> float:
        """Return what reading an eager extent costs (5)."""
        return costs.read * self.eager_memory() / self.eager_bytes

    def lazy_scan(self, costs: Constants) -> float:
        """Return what coalescing and reading the lazy extent costs (6)."""
        return self.size * costs.read_lazily + self._linked * costs.coalesce


def _arrival(coalescing: float, disorder: float, costs: Constants) -> float:
    return (1 - coalescing) * (costs.insert + disorder * costs.split) + coalescing * costs.merge


@dataclass(frozen=True)
class Weights:
    """How much memory, updates and scans count: at least one more than 0."""

    memory: float
    update: float
    scan: float

    def __post_init__(self) -> None:
        values = (self.memory, self.update, self.scan)
        if not all(math.isfinite(each) and each >= 0 for each in values) or not any(values):
            raise ExtentError(f"weights of {values}", hint="write numbers of 0 or more, one of them more than 0")

    def cost(self, largest: Maxima, *, memory: float = 0.0, update: float = 0.0, scan: float = 0.0) -> float:
        """Return what memory, updates and scans cost together, each as a share of the largest."""
        return (
            self.memory * memory / largest.memory
            + self.update * update / largest.update
            + self.scan * scan / largest.scan
        )


@dataclass(frozen=True)
class Maxima:
    """What costs are divided by: the largest memory, update and scan, all more than 0."""

    memory: float
    update: float
    scan: float

    def __post_init__(self) -> None:
        if not min(self.memory, self.update, self.scan) > 0:
            raise ExtentError(f"costs at most {self.memory}, {self.update}, {self.scan}", hint="each has to be above 0")


@dataclass(frozen=True)
class Prices:
    """What the choice is made of: of each query if it is eager, and if it is lazy; and what the one lazy extent costs.

    `shared` is paid if and only if some query is lazy. The paper leaves it out, which may choose wrongly.
    """

    eager: tuple[float, ...]
    lazy: tuple[float, ...]
    shared: float

    def total(self, chosen: Iterable[int]) -> float:
        """Return the cost if these queries are eager."""
        eager = frozenset(chosen)
        each = sum(self.eager[one] if one in eager else self.lazy[one] for one in range(len(self.eager)))
        return each + (self.shared if len(eager) < len(self.eager) else 0.0)


def maxima(work: Workload, costs: Constants, grid: Iterable[tuple[float, float, Constants]] | None = None) -> Maxima:
    """Return the maxima of a workload (papers/coalescing.md section 3.4).

    Parameters
    ----------
    work, costs
        Of the query.
    grid
        Probabilities to coalesce and to come out of order, with the constants there, over which updates are looked at,
        those of the lazy extent included; None for the paper's, where all samples coalesce.
    """
    if grid is None:
        update = _with(work, 1.0, work.disorder).eager_update(costs)
    else:
        eager = (_with(work, coalescing, disorder).eager_update(there) for coalescing, disorder, there in grid)
        update = max([work.lazy_update(costs), *eager])
    return Maxima(work.window * work.lazy_bytes, update, work.size * (costs.read_lazily + costs.coalesce))


def prices(
    queries: Sequence[tuple[Workload, Constants]], weights: Weights, largest: Maxima, *, with_shared: bool = True
) -> Prices:
    """Return what a choice among queries costs, by the model; `with_shared` is False for the paper's objective."""
    if not queries:
        return Prices((), (), 0.0)
    eager = tuple(
        weights.cost(largest, memory=work.eager_memory(), update=work.eager_update(costs), scan=work.eager_scan(costs))
        for work, costs in queries
    )
    lazy = tuple(weights.cost(largest, scan=work.lazy_scan(costs)) for work, costs in queries)
    work, costs = queries[0]
    shared = weights.cost(largest, memory=work.lazy_memory(), update=work.lazy_update(costs))
    return Prices(eager, lazy, shared if with_shared else 0.0)


def _with(work: Workload, coalescing: float, disorder: float) -> Workload:
    return Workload(coalescing, disorder, work.window, work.arrived, work.eager_bytes, work.lazy_bytes)


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
