"""papers/pipes_algebra.md section 9.6: what may leave an operator when, step by step.

Ours emit a row once the watermark has passed its start, where the digest also emits what starts exactly at it: rows
that start together leave together, whatever the batches. So a step may emit less than the printed one, never more; and
what starts before the printed watermark must be out. Distinct is the exception: its queues promise no start order from
batch to batch (cluster/fjord/dataflow.py), so what is not covered goes at once, before what may still start earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from cluster.fjord.batch import NEVER, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.join import Join
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.operators.set_operations import Distinct
from cluster.operators.columns import AggregateCall
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType
from tests.cluster.papers.notation import Rows, frame, physical


@dataclass
class Trace:
    """An operator, what it has emitted, and what it was allowed to."""

    operators: list[Operator]
    inputs: list[pl.DataFrame]
    emitted: Rows = field(default_factory=list)
    allowed: Rows = field(default_factory=list)

    def step(self, port: int, rows: Rows, watermark: int, *, allowed: Rows, reached: int) -> None:
        """Feed rows and progress; compare with what the digest emits and the watermark it reaches."""
        columns = self.inputs[port]
        batch = Batch(pl.DataFrame(rows, schema=columns.schema, orient="row"), watermark)
        batch = self.operators[0].transition(port, batch)
        for operator in self.operators[1:]:
            batch = operator.transition(0, batch)
        self.emitted += batch.rows.rows()
        self.allowed += allowed
        assert batch.watermark_us == reached
        assert all(row in self.allowed for row in self.emitted), "nothing earlier than allowed"
        due = [row for row in self.allowed if row[0] < reached]
        assert sorted(row for row in self.emitted if row[0] < reached) == sorted(due), "nothing later than due"


def test_9_6_equi_join() -> None:
    condition = read_scalar('"e" = "f"', FieldType.BOOLEAN)
    join = Join(frame([]), frame([], "f"), condition)
    trace = Trace([join], [frame([]), frame([], "f")])
    trace.step(0, physical("k[5,20)"), 5, allowed=[], reached=-(2**62))
    trace.step(0, physical("k[30,40)"), 30, allowed=[], reached=-(2**62))
    trace.step(1, physical("k[1,8)"), 1, allowed=[], reached=1)
    trace.step(1, [], 10, allowed=[(5, 8, "k", "k")], reached=10)
    trace.step(1, physical("k[25,35)"), 25, allowed=[], reached=25)
    trace.step(1, [], 35, allowed=[(30, 35, "k", "k")], reached=30)
    trace.step(0, [], 51, allowed=[], reached=35)
    right = join.save()["right"]
    assert isinstance(right, pl.DataFrame)
    assert right.height == 0, "the right side is purged"


def test_9_6_sum() -> None:
    call = AggregateCall("s", "sum", read_scalar('"n"', FieldType.INTEGER), FieldType.INTEGER)
    columns = frame([], "n", kind=pl.Int64)
    trace = Trace([PartialAggregate((), (call,)), MergeAggregate((), (call,))], [columns])
    trace.step(0, [(1, 6, 4)], 1, allowed=[], reached=1)
    trace.step(0, [(3, 8, 5)], 3, allowed=[(1, 3, 4)], reached=3)
    trace.step(0, [], 5, allowed=[], reached=3)
    trace.step(0, [], 6, allowed=[(3, 6, 9)], reached=6)
    trace.step(0, [(6, 7, 7)], 6, allowed=[], reached=6)
    trace.step(0, [], NEVER, allowed=[(6, 7, 12), (7, 8, 5)], reached=NEVER)


def test_9_6_distinct() -> None:
    trace = Trace([Distinct(frame([]))], [frame([])])
    trace.step(0, physical("a[0,5)"), 0, allowed=physical("a[0,5)"), reached=0)
    trace.step(0, physical("a[2,9)"), 2, allowed=physical("a[5,9)"), reached=2)
    trace.step(0, physical("a[4,6)"), 4, allowed=[], reached=4)
    trace.step(0, physical("b[4,6)"), 4, allowed=physical("b[4,6)"), reached=4)
    trace.step(0, physical("a[6,11)"), 6, allowed=physical("a[9,11)"), reached=6)
    trace.step(0, physical("a[10,12)"), 10, allowed=physical("a[11,12)"), reached=10)
    trace.step(0, [], NEVER, allowed=[], reached=NEVER)
