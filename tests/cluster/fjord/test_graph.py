"""The dataflow itself: operators and queues, run to quiescence; one failing query stops no other."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.errors import PlanError
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.counters import counters_of
from cluster.fjord.dataflow import (
    Dataflow,
    PullQueue,
    PushQueue,
    Queue,
    RoundRobin,
    RunningOperator,
    Scheduler,
    Tickets,
)
from cluster.fjord.operator import Operator
from cluster.fjord.operators.multiplexing import Multiplex
from cluster.fjord.operators.reordering import Reorder


class AddOne(Operator):
    def transition(self, port: int, batch: Batch) -> Batch:
        return Batch(batch.rows.with_columns(pl.col(START) + 1, pl.col(END) + 1), batch.watermark_us + 1)


class Fails(Operator):
    def transition(self, port: int, batch: Batch) -> Batch:
        raise ZeroDivisionError("boom")


class Ports(Operator):
    input_count = 2

    def __init__(self) -> None:
        self.seen: list[int] = []

    def transition(self, port: int, batch: Batch) -> Batch:
        self.seen.append(port)
        return batch


def batch(*starts: int, watermark: int = 0) -> Batch:
    ends = [start + 1 for start in starts]
    return Batch(pl.DataFrame({START: list(starts), END: ends}, schema={START: pl.Int64, END: pl.Int64}), watermark)


def starts(queue: PushQueue) -> list[int]:
    found: list[int] = []
    while (one := queue.get()) is not None:
        found.extend(one.rows[START].to_list())
    return found


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_an_operator_cannot_tell_which_queue_it_has(kind: str) -> None:
    batches = [batch(1, 2), batch(3)]
    queue: PushQueue | PullQueue
    if kind == "push":
        queue = PushQueue()
        for each in batches:
            queue.put(each)
    else:
        queue = PullQueue(lambda: batches.pop(0) if batches else None)
    dataflow = Dataflow()
    last = dataflow.add("twice", AddOne(), [dataflow.add("once", AddOne(), [queue], owner="q")], owner="q")
    outlet = dataflow.outlet(last)
    dataflow.run()
    assert starts(outlet) == [3, 4, 5]


def test_several_outputs_share_one_batch() -> None:
    queue = PushQueue()
    dataflow = Dataflow()
    shared = dataflow.add("shared", AddOne(), [queue], owner="q")
    left, right = dataflow.outlet(shared), dataflow.outlet(shared)
    queue.put(batch(1))
    dataflow.run()
    one, other = left.get(), right.get()
    assert one is other is not None
    assert shared.counters.transitions == 1
    assert (shared.counters.rows_in, shared.counters.rows_out) == (1, 1)


def test_a_failing_query_stops_no_other() -> None:
    queue = PushQueue()
    dataflow = Dataflow()
    shared = dataflow.add("shared", AddOne(), [queue], owner="stream")
    bad = dataflow.outlet(dataflow.add("bad", Fails(), [shared], owner="bad@1"))
    good = dataflow.outlet(dataflow.add("good", AddOne(), [shared], owner="good@1"))
    queue.put(batch(1))
    dataflow.run()
    assert starts(bad) == []
    assert starts(good) == [3]
    assert "boom" in str(dataflow.failures["bad@1"])
    assert set(dataflow.failures) == {"bad@1"}


class Answers(Operator):
    """Answers what it was made with, whatever it is given."""

    def __init__(self, *answers: Batch) -> None:
        self._answers = list(answers)

    def transition(self, port: int, batch: Batch) -> Batch:
        return self._answers.pop(0)


BROKEN = {
    "before the watermark 10": (batch(5, watermark=10), batch(9, watermark=20)),
    "the watermark 9 after 10": (batch(watermark=10), batch(watermark=9)),
    "not in the order of their starts": (batch(watermark=0), batch(3, 2, watermark=9)),
    "never valid, from 4 to 4": (
        batch(watermark=0),
        Batch(pl.DataFrame({START: [3, 4], END: [9, 4]}), 9),
    ),
}


@pytest.mark.parametrize(("fault", "answers"), BROKEN.items())
def test_an_operator_that_breaks_the_contract_fails_its_query_by_name_and_is_counted(
    fault: str, answers: tuple[Batch, ...]
) -> None:
    queue = PushQueue()
    dataflow = Dataflow()
    shared = dataflow.add("shared", Ports(), [queue, PushQueue()], owner="stream")
    wrong = dataflow.add("q1/0 Wrong", Answers(*answers), [shared], owner="q1")
    bad = dataflow.outlet(wrong)
    good = dataflow.outlet(dataflow.add("q2/0 Right", AddOne(), [shared], owner="q2"))
    queue.put(batch(1))
    queue.put(batch(1))
    dataflow.run()
    assert starts(bad) == starts(queue_of(answers[0]))
    assert starts(good) == [2, 2]
    assert "operator q1/0 Wrong of query q1 answered" in str(dataflow.failures["q1"])
    assert fault in str(dataflow.failures["q1"])
    assert set(dataflow.failures) == {"q1"}
    assert counters_of(dataflow.operators)["q1/0 Wrong"].broken == 1


@pytest.mark.parametrize(("fault", "given"), BROKEN.items())
def test_what_comes_from_elsewhere_is_checked_where_it_is_taken(fault: str, given: tuple[Batch, ...]) -> None:
    dataflow = Dataflow()
    outlet = dataflow.outlet(dataflow.add("q1/0 First", Multiplex(), [queue_of(*given)], owner="q1"))
    dataflow.run()
    assert starts(outlet) == starts(queue_of(given[0])), "what was right before has gone on"
    assert "operator q1/0 First of query q1 was given" in str(dataflow.failures["q1"])
    assert fault in str(dataflow.failures["q1"])


def queue_of(*batches: Batch) -> PushQueue:
    queue = PushQueue()
    for each in batches:
        queue.put(each)
    return queue


def test_what_repairs_disorder_is_given_any() -> None:
    dataflow = Dataflow()
    disordered = [Batch(batch(7, 5, watermark=6).rows, 6), batch(2, 6, watermark=9)]
    outlet = dataflow.outlet(dataflow.add("q1/0 Reorder", Reorder(()), [queue_of(*disordered)], owner="q1"))
    dataflow.run()
    assert not dataflow.failures
    assert starts(outlet) == [5, 6, 7]


def test_ports_are_taken_in_turn() -> None:
    left, right = PushQueue(), PushQueue()
    operator = Ports()
    dataflow = Dataflow()
    dataflow.outlet(dataflow.add("join", operator, [left, right], owner="q"))
    for queue in (left, left, right, right):
        queue.put(batch(1))
    dataflow.run()
    assert operator.seen == [0, 1, 0, 1]


def test_a_full_queue_holds_its_producer_back_and_loses_nothing() -> None:
    queue = PushQueue(capacity=500)
    dataflow = Dataflow()
    first = dataflow.add("first", AddOne(), [queue], owner="q")
    outlet = dataflow.outlet(dataflow.add("second", AddOne(), [first], owner="q"))
    for start in range(300):
        queue.put(batch(start))
    dataflow.run()
    assert starts(outlet) == [start + 2 for start in range(300)]


def test_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(PlanError, match="2 inputs"):
        Dataflow().add("join", Ports(), [PushQueue()], owner="q")


class Counting(Dataflow):
    """Counts how often it asks whether an operator can work."""

    asked = 0

    def _can_work(self, placed: RunningOperator) -> bool:
        self.asked += 1
        return super()._can_work(placed)


class LooksAtAll(Dataflow):
    """The definition: all operators that can work are found anew for each transition."""

    def run(self) -> None:
        for placed in self._placed:
            for queue in placed.inputs:
                queue.wake()
        while ready := self._able():
            self._step(self._placed[self._scheduler.choose(ready)])


class Noting(Operator):
    """Notes its name at each transition, and fails at one of them."""

    def __init__(self, name: int, noted: list[int], input_count: int, fails_at: int) -> None:
        self._name, self._noted = name, noted
        self.input_count = input_count
        self._left = fails_at

    def transition(self, port: int, batch: Batch) -> Batch:
        self._noted.append(self._name)
        self._left -= 1
        if self._left == 0:
            raise ZeroDivisionError("boom")
        return Batch(batch.rows, 0)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[list[int | None], int, int]]:
    """Draw operators: each with what it takes from, None for a source; its owner; the transition that fails."""
    found = []
    for place in range(draw(st.integers(1, 8))):
        below = st.none() if place == 0 else st.one_of(st.none(), st.integers(0, place - 1))
        found.append((draw(st.lists(below, min_size=1, max_size=3)), draw(st.integers(0, 2)), draw(st.integers(0, 9))))
    return found


def noted_by(kind: type[Dataflow], scheduler: Scheduler, graph: list[tuple[list[int | None], int, int]]) -> list[int]:
    """Return the places of the operators of a graph in the order in which they work, over several runs."""
    noted: list[int] = []
    dataflow = kind(scheduler=scheduler, clock=lambda: float(len(noted)))
    placed: list[RunningOperator] = []
    pushed: list[PushQueue] = []
    for place, (below, owner, fails_at) in enumerate(graph):
        inputs: list[Queue | RunningOperator] = []
        for number, each in enumerate(below):
            if each is not None:
                inputs.append(placed[each])
            elif number % 2:
                pushed.append(PushQueue(capacity=200))
                inputs.append(pushed[-1])
            else:
                given = [batch(), None, batch(), batch()]
                inputs.append(PullQueue(lambda given=given: given.pop(0) if given else None))
        operator = Noting(place, noted, len(below), fails_at)
        placed.append(dataflow.add(str(place), operator, inputs, owner=str(owner)))
    for count in (3, 1, 90):
        for queue in pushed:
            for _ in range(count):
                if queue.ready:
                    queue.put(batch())
        dataflow.run()
        noted.append(-1)
    return noted


@given(graph=graphs(), in_turn=st.booleans())
@example(graph=[([None, None], 0, 0), ([0], 0, 0)], in_turn=False)  # the queue between them gets full
def test_operators_work_in_the_order_that_looking_at_all_of_them_gives(
    graph: list[tuple[list[int | None], int, int]], in_turn: bool
) -> None:
    expected, found = (
        noted_by(kind, RoundRobin() if in_turn else Tickets({0: 30}), graph) for kind in (LooksAtAll, Dataflow)
    )
    assert found == expected


def test_a_transition_looks_at_the_operators_beside_it_however_many_there_are() -> None:
    dataflow = Counting()
    for number in range(1_000):
        queue = queue_of(batch(number))
        dataflow.outlet(
            dataflow.add("twice", AddOne(), [dataflow.add("once", AddOne(), [queue], owner="q")], owner="q")
        )
    dataflow.run()
    assert sum(each.counters.transitions for each in dataflow.operators) == 2_000
    assert dataflow.asked == 2 * 2_000 + 2 * 2_000, "all before and after, and two at each transition"
