"""Queries that keep no state, micro-batch by micro-batch: from what runs next to the scans to their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import polars as pl

from cluster.fjord.answers import COUNT_EVERY_SECONDS, Answers, counters_row
from cluster.fjord.counters import Counters, Totals, added
from cluster.fjord.upstream_dataflow import Emitted, UpstreamDataflow
from cluster.physical.nodes import Fragment


class StatelessHost:
    """What a host without state keeps between micro-batches: nothing that an answer depends on.

    Parameters
    ----------
    fragments
        Of the plan.
    clock
        Seconds that only go forward: for how often errors are repeated, and counters are reported.
    """

    def __init__(self, fragments: Iterable[Fragment], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = {each.identity: Answers(each, clock=clock) for each in fragments}
        self._counted: Counters = {}
        self._clock = clock
        self._reported_at = clock()

    def process(self, dataflow: UpstreamDataflow, at_us: int) -> list[pl.DataFrame]:
        """Run one part of a micro-batch; return the answers, and the instant `at_us` with errors."""
        found = [answer for emitted in dataflow.run() for answer in self._rows_of(emitted)]
        self._counted = added(self._counted, dataflow.counters)
        for answers in self._answers.values():
            found.extend(answers.errors({}, dataflow.failures, bucket=0, buckets=1, at_us=at_us))
        found.extend(self._counters())
        return found

    def _rows_of(self, emitted: Emitted) -> list[pl.DataFrame]:
        if emitted.rows is None or not emitted.rows.height:
            return []
        fragment, rows = emitted.fragment.identity, emitted.rows.height
        began = time.perf_counter()
        found = list(self._answers[fragment].of(emitted.rows))
        did = Totals(fragment, transitions=1, rows_in=rows, rows_out=rows, seconds=time.perf_counter() - began)
        self._counted = added(self._counted, {emitted.end.id: did})
        return found

    def _counters(self) -> list[pl.DataFrame]:
        """Report now and then what operators did."""
        if self._clock() - self._reported_at < COUNT_EVERY_SECONDS:
            return []
        counted, self._counted, self._reported_at = self._counted, {}, self._clock()
        return [counters_row(counted)]
