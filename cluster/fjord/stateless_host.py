"""The host of queries without state: runs the operators next to the scans, micro-batch by micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import polars as pl

from cluster.fjord.answers import Answers, Failures
from cluster.fjord.at_work import NOW
from cluster.fjord.collecting import HostOutput
from cluster.fjord.counters import CounterReports, Totals
from cluster.fjord.upstream_dataflow import Emitted, UpstreamDataflow
from cluster.physical.nodes import Fragment


class StatelessHost:
    """Runs the fragments without state; between micro-batches it keeps nothing on which an answer depends.

    Parameters
    ----------
    fragments
        The fragments of the plan.
    clock
        A monotonic clock in seconds, for the frequency of repeated errors and reported counters.
    """

    def __init__(self, fragments: Iterable[Fragment], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers = {each.identity: Answers(each, clock=clock) for each in fragments}
        self._reports = CounterReports(clock)

    def process(self, dataflow: UpstreamDataflow, at_us: int) -> HostOutput:
        """Run one part of a micro-batch; errors get the instant `at_us`."""
        found = [answer for emitted in dataflow.run() for answer in self._rows_of(emitted)]
        self._reports.add(dataflow.counters)
        for answers in self._answers.values():
            failed = Failures(dataflow.failures, dataflow.lost_us)
            found.extend(answers.errors(Failures({}, {}), failed, bucket=0, buckets=1, at_us=at_us))
        return HostOutput(found, self._reports.report() if self._reports.due else {})

    def _rows_of(self, emitted: Emitted) -> list[pl.DataFrame]:
        if emitted.rows is None or not emitted.rows.height:
            return []
        fragment, rows = emitted.fragment.identity, emitted.rows.height
        NOW.begin(fragment)
        began = time.process_time()
        found = list(self._answers[fragment].of(emitted.rows))
        did = Totals(fragment, transitions=1, rows_in=rows, rows_out=rows, seconds=time.process_time() - began)
        self._reports.add({emitted.end.id: did})
        return found
