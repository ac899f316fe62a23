"""Extents that are eager or lazy as costs measured while they run advise (papers/coalescing.md section 3.3).

Now and then the latest samples run through both kinds of extent beside the real ones, each operation timed. The model
makes the window's costs of these, the 0-1 programme chooses, and extents change if that is enough cheaper. Answers do
not change, and no sample is lost: see :class:`SharedExtents`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.temporal.cost_model import Constants, Maxima, Prices, Weights, Workload, prices, reconsidered
from cluster.temporal.windows import CountWindow, ExtentError, Link
from tests.cluster.temporal.admission import Verdict
from tests.cluster.temporal.measuring import Measured, Sample, measured, workload
from tests.cluster.temporal.runs import Coalesced
from tests.cluster.temporal.shared_extents import (
    CoalescingQuery,
    SharedExtents,
    StreamSchema,
    lazy_row_bytes,
    row_bytes,
)

PROBED_WINDOW = 100
"""Samples of the window in which costs are measured; those of the real window follow from the model."""
TIMED = 300
"""Samples that are timed once it is full."""

Measure = Callable[[Sequence[Sample], int, Link, tuple[int, int]], Measured]


@dataclass(frozen=True)
class Decided:
    """A choice, and what it was made of."""

    prices: Prices
    eager: frozenset[CoalescingQuery]
    changed: bool


class AdaptingExtents:
    """Extents of a window by count, with a choice that is looked at anew every so many samples.

    Parameters
    ----------
    schema, window, queries
        As of :class:`SharedExtents`; all are lazy at first.
    weights
        How much memory, an update and a scan count. With s scans for each sample, weigh scans by s.
    every
        Samples between two looks, at least as many as a look needs. Looking takes some ten milliseconds for a query.
    measure
        Measures samples of a query.
    """

    def __init__(
        self,
        schema: StreamSchema,
        window: CountWindow,
        queries: Sequence[CoalescingQuery],
        weights: Weights,
        *,
        every: int = 100_000,
        measure: Measure = measured,
    ) -> None:
        if every < PROBED_WINDOW + TIMED:
            raise ExtentError(f"a look every {every} samples", hint=f"one needs {PROBED_WINDOW + TIMED}")
        self.extents = SharedExtents(schema, window, queries, [])
        self._schema = schema
        self._window = window
        self._weights = weights
        self._every = every
        self._measure = measure
        self._latest: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=PROBED_WINDOW + TIMED)
        self._since = 0
        self.decisions = 0
        """How many looks there were."""
        self.changes = 0
        """How many of them changed extents."""

    def insert(self, stamp: Any, row: Mapping[str, Any]) -> Verdict:
        """Take one sample, as :class:`SharedExtents` does; decide anew if it is time."""
        verdict = self.extents.insert(stamp, row)
        if verdict is Verdict.ACCEPTED:
            self._latest.append((stamp, row))
            self._since += 1
            if self._since >= self._every:
                self.decide()
        return verdict

    def answer(self, query: CoalescingQuery) -> list[Coalesced]:
        """Return the coalesced samples of a query, in canonical order."""
        return self.extents.answer(query)

    def decide(self) -> Decided | None:
        """Measure, choose, and change extents if that is enough cheaper; None while there are too few samples."""
        if len(self._latest) < PROBED_WINDOW + TIMED:
            return None
        self._since = 0
        queries = self.extents.queries
        pairs = [self._measured(query) for query in queries]
        priced = prices(pairs, self._weights, _largest(pairs))
        current = frozenset(place for place, query in enumerate(queries) if query in self.extents.eager)
        chosen = reconsidered(current, priced)
        self.extents.choose(queries[place] for place in chosen)
        self.decisions += 1
        self.changes += chosen != current
        return Decided(priced, frozenset(queries[place] for place in chosen), chosen != current)

    def _measured(self, query: CoalescingQuery) -> tuple[Workload, Constants]:
        """Return what a query meets in its window, and what operations cost, by the latest samples."""
        samples = [
            (stamp, tuple(row[name] for name in query.groups), tuple(row[name] for name in query.attributes))
            for stamp, row in self._latest
        ]
        bytes_of_rows = row_bytes(query), lazy_row_bytes(self._schema)
        found = self._measure(samples, PROBED_WINDOW, query.link, bytes_of_rows)
        return workload(found, self._window.samples, bytes_of_rows), found.constants


def _largest(pairs: Sequence[tuple[Workload, Constants]]) -> Maxima:
    """Return the largest memory, update and scan of either way, none of them 0."""
    return Maxima(
        max(max(work.eager_memory(), work.lazy_memory()) for work, _ in pairs),
        max(1e-9, *(max(work.eager_update(costs), work.lazy_update(costs)) for work, costs in pairs)),
        max(1e-9, *(max(work.eager_scan(costs), work.lazy_scan(costs)) for work, costs in pairs)),
    )
