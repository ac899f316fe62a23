"""Which demands are merged, without a fleet: random orders of demands and merges; the last demand is the last word."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.messages import Message
from protocols.wire.demands import StreamDemand
from protocols.wire.frames import VERSION
from proxy.running.merge_schedule import LONGEST_PAUSE_SECONDS, MergeSchedule, ReceivedDemand, pause_seconds

STREAMS = ("a", "b", "c")
Arrival = tuple[str, bool]
"""A demand on a stream, which has motes then or not."""
ARRIVALS = st.lists(st.tuples(st.sampled_from(STREAMS), st.booleans()), max_size=3)


class Merging:
    """Demands that are taken, as the shell takes them."""

    def __init__(self) -> None:
        self.schedule = MergeSchedule()
        self.latest = dict.fromkeys(STREAMS, 0)
        self.taken = dict.fromkeys(STREAMS, 0)

    def received(self, arrivals: list[Arrival]) -> None:
        for stream, has_motes in arrivals:
            self.latest[stream] += 1
            demand = StreamDemand(VERSION, "c1", stream, self.latest[stream], ())
            latest = ReceivedDemand(demand, (), Message("topic", b""))
            if self.schedule.received(latest, has_motes=has_motes):
                self.take(latest)

    def take(self, latest: ReceivedDemand) -> None:
        demand = latest.demand
        assert demand.epoch > self.taken[demand.stream], "an earlier demand is the last word"
        self.taken[demand.stream] = demand.epoch

    def merge(self, meanwhile: Callable[[], list[Arrival]]) -> int:
        found = self.schedule.take()
        for latest in found:
            self.schedule.under_way = True
            self.received(meanwhile())
            self.schedule.under_way = False
            self.take(latest)
        return len(found)


@given(st.lists(st.tuples(ARRIVALS, st.lists(ARRIVALS, max_size=3)), max_size=12))
def test_the_last_demand_on_each_stream_is_taken_last(steps: list[tuple[list[Arrival], list[list[Arrival]]]]) -> None:
    merging = Merging()
    for arrivals, later in steps:
        merging.received(arrivals)
        left = iter(later)
        assert merging.merge(lambda left=left: next(left, [])) <= len(STREAMS)  # type: ignore[misc]
    merging.merge(list)
    assert merging.schedule.settled
    assert merging.taken == merging.latest


def test_a_demand_waits_where_there_is_something_to_merge_or_a_merge_is_being_made() -> None:
    merging = Merging()
    merging.received([("a", False), ("b", True), ("b", True)])
    assert (merging.taken["a"], merging.taken["b"], merging.schedule.settled) == (1, 0, False)
    assert merging.merge(lambda: [("a", False)]) == 1
    assert (merging.taken["a"], merging.taken["b"], merging.schedule.settled) == (1, 2, False)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.5), (0.125, 0.5), (0.5, 2.0), (60.0, LONGEST_PAUSE_SECONDS)])
def test_merges_take_a_fifth_of_the_time_at_most(took: float, pause: float) -> None:
    assert pause_seconds(took) == pause
