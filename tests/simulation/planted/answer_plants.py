"""Faults that are planted where a cluster computes answers; whole deployments find them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from cluster.fjord.batch import START, Batch
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.pane_aggregation import PaneAggregate
from cluster.fjord.operators.sampling import Sample
from proxy.counting.sample_account import SampleAccount
from tests.simulation.planted.plant import Plants, Simulation, nothing, put

if TYPE_CHECKING:
    from proxy.counting.sample_account import Coverage, ReceivedPacket

PLANTS = Plants(Simulation.DEPLOYMENT)


@PLANTS.planted("answers of a window left out", "every window that has ended is answered")
def _window_left_out() -> None:
    ended = PaneAggregate._ended

    def without_last(self: PaneAggregate, before_us: int) -> pl.DataFrame:
        found = ended(self, before_us)
        return found.filter(pl.col(START) < pl.col(START).max()) if found[START].n_unique() > 1 else found

    put(PaneAggregate, "_ended", without_last)


@PLANTS.planted("pane merged twice", "each sample counts once in a window")
def _pane_twice() -> None:
    add = PaneAggregate._add

    def twice(self: PaneAggregate, rows: pl.DataFrame) -> None:
        add(self, rows)
        if rows[START].n_unique() > 1:
            add(self, rows.filter(pl.col(START) == pl.col(START).max()))

    put(PaneAggregate, "_add", twice)


@PLANTS.planted("panes forgotten in a restart", "windows hold what came before a restart")
def _panes_forgotten() -> None:
    put(PaneAggregate, "restore", nothing)


@PLANTS.planted("windows forgotten in a restart", "aggregates hold what came before a restart")
def _windows_forgotten() -> None:
    put(MergeAggregate, "restore", nothing)


@PLANTS.planted("more samples than SAMPLE asks for", "SAMPLE gives the samples of its period")
def _more_samples() -> None:
    transition = Sample.transition

    def oftener(self: Sample, port: int, batch: Batch) -> Batch:
        return batch if self._period_us is not None else transition(self, port, batch)

    put(Sample, "transition", oftener)


@PLANTS.planted("late samples of a mote that begins count as seen", "COMPLETENESS counts late samples, also the first")
def _late_seen() -> None:
    start = SampleAccount._start

    def started(self: SampleAccount, coverage: Coverage, received: ReceivedPacket, first_us: int | None) -> None:
        start(self, coverage, replace(received, watermark_us=None), first_us)

    put(SampleAccount, "_start", started)
