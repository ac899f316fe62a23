"""Streams that keep the contract of queues and nothing more, and what an operator makes of them.

Rows come in any batch whose predecessors' watermarks allow it, so later batches may begin before earlier ones end;
there are batches of one row, batches without rows, and equal stamps. See cluster/fjord/dataflow.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from hypothesis import strategies as st

from cluster.fjord.batch import ALWAYS, END, NEVER, START, Batch
from cluster.fjord.dataflow import QueueContract
from cluster.fjord.operator import Operator
from cluster.fjord.operators.aggregation import MergeAggregate
from cluster.fjord.operators.partial_aggregation import PartialAggregate
from cluster.fjord.saved_state import pack_state, unpack_state
from cluster.operators.columns import AggregateCall, Column, Output, Scalar, Schema
from cluster.operators.extent import Link
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.streams import FieldType

LAST = 24
"""No row starts after this instant."""
HORIZON = 70
"""Nothing changes any more at this one."""
NAMES = (("k", "n"), ("k2", "n2"))
Row = tuple[int, int, str | None, int]


def frame(rows: Sequence[Row], port: int = 0) -> pl.DataFrame:
    """Return rows as an operator takes them: an interval, a text and a number."""
    text, number = NAMES[port]
    return pl.DataFrame(rows, schema={START: pl.Int64, END: pl.Int64, text: pl.String, number: pl.Int64}, orient="row")


LEFT, RIGHT = frame([]), frame([], 1)
COLUMNS: Schema = (Column("k", FieldType.TEXT), Column("n", FieldType.INTEGER))
KEY = COLUMNS[:1]
ONLY_K = (Output("k", read_scalar('"k"', FieldType.TEXT)),)
CALLS = (
    AggregateCall("c", "count", None, FieldType.INTEGER),
    AggregateCall("s", "sum", read_scalar('"n"', FieldType.INTEGER), FieldType.INTEGER),
    AggregateCall("m", "max", read_scalar('"n"', FieldType.INTEGER), FieldType.INTEGER),
)
NO_LESS = Link(read_scalar('"n" >= "before"', FieldType.BOOLEAN), (("before", "n"),))


def condition(sql: str) -> Scalar:
    """Return a condition."""
    return read_scalar(sql, FieldType.BOOLEAN)


def merged(keys: Schema) -> MergeAggregate:
    """Return what makes groups of partial ones."""
    return MergeAggregate(keys, CALLS)


def _unchanged(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


@dataclass(frozen=True)
class Case:
    """An operator and what it stands between.

    Parameters
    ----------
    make
        Returns the operator.
    chronons
        Whether it takes only rows that are valid at one instant.
    below
        Returns stateless operators that make its input of rows of :func:`frame`.
    settled
        Makes the rows of the answer comparable, where it may be put in different words; from all batches at once.
    granule
        Only instants that are multiples of this are promised.
    instantaneous
        Whether it answers rows that are valid at one instant if those of the left are: see
        :attr:`Node.is_instantaneous`.
    """

    make: Callable[[], Operator]
    chronons: bool = False
    below: Callable[[], Sequence[Operator]] = tuple
    settled: Callable[[pl.DataFrame], pl.DataFrame] = _unchanged
    granule: int = 1
    instantaneous: bool = False


def counted(keys: Schema) -> Case:
    """Partial rows are as many as batches; what counts is what they add up to."""
    names = tuple(key.name for key in keys)
    return Case(
        lambda: PartialAggregate(names, CALLS),
        settled=lambda rows: merged(keys).transition(0, Batch(rows.sort(START), NEVER)).rows,
    )


@st.composite
def physical(draw: Any, *, chronons: bool, port: int = 0) -> list[Batch]:
    """Draw the batches of one queue."""
    lengths = st.just(1) if chronons else st.sampled_from((1, 2, 3, 5, 9, 14))
    rows = draw(
        st.lists(
            st.builds(
                lambda start, length, key, number: (start, start + length, key, number),
                st.integers(0, LAST), lengths, st.sampled_from(["a", "b", None]), st.integers(0, 1),
            ),
            max_size=9,
        )
    )  # fmt: skip
    watermarks = [ALWAYS, *sorted(draw(st.lists(st.integers(-1, LAST + 12), max_size=10)))]
    pieces: list[list[Row]] = [[] for _ in watermarks]
    for row in rows:
        allowed = sum(watermark <= row[0] for watermark in watermarks)
        pieces[draw(st.integers(0, allowed - 1))].append(row)
    batches = []
    for piece, watermark in zip(pieces, [*watermarks[1:], NEVER], strict=True):
        singly = draw(st.booleans())
        for row in piece if singly else ():
            batches.append(Batch(frame([row], port), batches[-1].watermark_us if batches else ALWAYS))
        together = [] if singly else sorted(piece, key=lambda row: row[0])
        batches.append(Batch(frame(together, port), watermark))
    return batches


def run(case: Case, inputs: Sequence[Sequence[Batch]], data: st.DataObject | None) -> pl.DataFrame:
    """Return all rows that an operator answers, having checked that the answer keeps the contract.

    Parameters
    ----------
    case
        The operator.
    inputs
        By port.
    data
        Where to draw how ports take turns, and when the operator is built anew from its saved state; None for one port
        after the other, and never.
    """
    subject, contract = case.make(), QueueContract()
    taken = [QueueContract() for _ in inputs]
    to_come = [list(batches) for batches in inputs]
    answers: list[Batch] = []
    while any(to_come):
        ports = [port for port, batches in enumerate(to_come) if batches]
        port = ports[0] if data is None else data.draw(st.sampled_from(ports))
        batch = to_come[port].pop(0)
        for operator in case.below():
            batch = operator.transition(0, batch)
        taken[port].check(batch, "the test itself gave")
        answer = subject.transition(port, batch)
        contract.check(answer, f"{type(subject).__name__} answered")
        answers.append(answer)
        if data is not None and data.draw(st.integers(0, 2)) == 0:
            state = pack_state(subject.save())
            subject = case.make()
            if len(state) > len(pack_state({})):
                subject.restore(unpack_state(state))
    assert answers[-1].watermark_us == NEVER, "the end of all inputs ends the answer"
    assert len({tuple(answer.rows.schema.items()) for answer in answers}) == 1, "one schema, with and without rows"
    return pl.concat([answer.rows for answer in answers])


def at_once(batches: Sequence[Batch]) -> list[Batch]:
    """Return the same rows in one batch; equal starts in the order in which they came."""
    rows = pl.concat([batch.rows for batch in batches])
    return [Batch(rows.sort(START, maintain_order=True), NEVER)]


def snapshots(case: Case, rows: pl.DataFrame) -> list[Counter[tuple[Any, ...]]]:
    """Return what rows say at each promised instant."""
    found = [Counter[tuple[Any, ...]]() for _ in range(0, HORIZON, case.granule)]
    for start, end, *values in case.settled(rows).rows():
        first = -(-max(start, 0) // case.granule)
        last = -(-min(end, HORIZON) // case.granule)
        for place in range(first, last):
            found[place][tuple(values)] += 1
    return found
