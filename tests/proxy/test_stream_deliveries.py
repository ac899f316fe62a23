"""Delivery of several streams, without a link or a disk: random orders of what can happen to a proxy's batches.

    spool    a1 a2 a3 b1      read --> bytes | damaged | cannot be read now
    channel  a1 b1 a2         one connection; lost with it
    cluster  a1 b1            stores the next of each stream, and acknowledges what it has

In the end, when all is calm, the cluster has each batch once, in order, and the spool is empty.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.wire.batches import Ack, Rejection
from protocols.wire.frames import VERSION
from proxy.running.stream_deliveries import (
    MOST_PUBLISHED_BYTES,
    AckRefused,
    BatchesLost,
    BatchesStored,
    BatchRejected,
    Notice,
    PublishBatch,
    PublishResumption,
    SendingAgain,
    StreamDeliveries,
)

S = 1_000_000
STREAMS = ("a", "b")
DAMAGED = frozenset({("a", 2), ("b", 1), ("b", 4)})


def deliveries(in_flight: int = 3) -> StreamDeliveries:
    return StreamDeliveries("p", "e", in_flight=in_flight, resend_after_us=3 * S)


def ack(
    stream: str, through: int, *rejected: Rejection, proxy: str = "p", epoch: str = "e", cluster: str | None = None
) -> Ack:
    return Ack(VERSION, proxy, epoch, stream, through, rejected, cluster)


def all_due(streams: StreamDeliveries) -> list[tuple[str, int]]:
    found = []
    while (each := streams.next()) is not None:
        found.append((each.stream, each.sequence if isinstance(each, PublishBatch) else -each.first))
    return found


class World:
    """A spool, a channel and a cluster, each a list."""

    def __init__(self) -> None:
        self.streams = deliveries()
        self.spool: dict[str, list[int]] = {stream: [] for stream in STREAMS}
        self.spooled: Counter[str] = Counter()
        self.channel: list[PublishBatch | PublishResumption] = []
        self.stored: Counter[str] = Counter()
        self.skipped: set[tuple[str, int]] = set()
        self.connected = False
        self.acknowledged: Counter[str] = Counter()
        self.now_us = 0

    def note(self, notices: list[Notice]) -> None:
        for each in notices:
            assert not isinstance(each, BatchesLost | BatchRejected | AckRefused)
            if isinstance(each, BatchesStored):
                self.acknowledged[each.stream] += each.batches

    def step(self, kind: str, stream: str) -> None:
        self.now_us += S
        getattr(self, kind)(stream)
        queued = [each for name in STREAMS for each in self.streams._to_send if each[0] == name]
        assert queued == sorted(set(queued)), "a batch is queued twice, or before an earlier one"
        if not self.connected:
            assert queued == [], "batches are queued for no connection"

    def spool_batch(self, stream: str) -> None:
        self.spooled[stream] += 1
        self.spool[stream].append(self.spooled[stream])
        self.note(self.streams.spooled(stream, self.spooled[stream], self.now_us))

    def publish(self, _: str) -> None:
        if self.connected and (found := self.streams.next()) is not None:
            self.published(found)

    def published(self, found: PublishBatch | PublishResumption) -> None:
        if isinstance(found, PublishBatch):
            assert found.sequence in self.spool[found.stream], "a batch is published that is not on disk any more"
            if (found.stream, found.sequence) in DAMAGED:
                self.note(self.streams.damaged(found.stream, found.sequence, self.now_us))
                return
        self.channel.append(found)

    def cannot_read(self, _: str) -> None:
        found = self.streams.next() if self.connected else None
        if isinstance(found, PublishBatch):
            self.note(self.streams.unreadable(found.stream, self.now_us))
            assert all(stream != found.stream for stream, _ in self.streams._to_send)
        elif found is not None:
            self.channel.append(found)

    def arrives(self, stream: str, *, answered: bool = True) -> None:
        if not self.channel:
            return
        found = self.channel.pop(0)
        if isinstance(found, PublishBatch):
            assert (found.stream, found.sequence) not in DAMAGED
            if found.sequence == self.stored[found.stream] + 1:
                self.stored[found.stream] += 1
        elif found.first > self.stored[found.stream] + 1:
            assert found.first == self.stored[found.stream] + 2, "batches that are on disk are given up"
            self.stored[found.stream] += 1
            self.skipped.add((found.stream, self.stored[found.stream]))
        if answered:
            self.note(self.streams.acknowledged(ack(found.stream, self.stored[found.stream]), self.now_us))

    def arrives_unanswered(self, stream: str) -> None:
        self.arrives(stream, answered=False)

    def gets_lost(self, _: str) -> None:
        del self.channel[:1]

    def connects(self, _: str) -> None:
        self.channel.clear()
        self.connected = True
        self.note(self.streams.connected(self.now_us))

    def disconnects(self, _: str) -> None:
        self.channel.clear()
        self.connected = False
        self.note(self.streams.disconnected(self.now_us))

    def cluster_begins(self, _: str) -> None:
        self.note(self.streams.cluster_began(self.now_us))

    def waits(self, _: str) -> None:
        self.note(self.streams.time_passed(self.now_us))

    def deletes(self, _: str) -> None:
        for stream, through in self.streams.take_deletions().items():
            assert through <= self.stored[stream], "a batch is deleted that the cluster lacks"
            self.spool[stream] = [each for each in self.spool[stream] if each > through]

    def restarts(self, _: str) -> None:
        self.channel.clear()
        self.connected = False
        self.streams = deliveries()
        for stream, waiting in self.spool.items():
            spooled = self.spooled[stream]
            # Acknowledged batches that were not deleted yet are sent, and acknowledged, once more.
            self.acknowledged[stream] = min(self.acknowledged[stream], spooled - len(waiting))
            self.streams.restore(stream, acknowledged=min(waiting, default=spooled + 1) - 1, spooled=spooled)


KINDS = (
    *("spool_batch", "publish", "publish", "arrives", "arrives", "arrives_unanswered", "gets_lost", "cannot_read"),
    *("connects", "disconnects", "cluster_begins", "waits", "deletes", "restarts"),
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(STREAMS)), max_size=120))
@example([(kind, "a") for kind in ("spool_batch", "connects", "publish", "arrives", "restarts")])
def test_each_batch_arrives_once_and_is_deleted_then(steps: list[tuple[str, str]]) -> None:
    world = World()
    for kind, stream in steps:
        world.step(kind, stream)
    world.step("connects", "")
    for _ in range(40 + 6 * sum(world.spooled.values())):
        for kind in ("publish", "arrives", "waits", "deletes"):
            world.step(kind, "")
    assert world.stored == world.spooled
    assert world.skipped == {(stream, each) for stream, each in DAMAGED if each <= world.spooled[stream]}
    assert not any(world.spool.values())
    assert world.acknowledged <= world.spooled


def with_batches(count: int, *, in_flight: int = 3) -> StreamDeliveries:
    streams = deliveries(in_flight)
    streams.connected(0)
    for stream in STREAMS:
        for sequence in range(1, count + 1):
            streams.spooled(stream, sequence, 0)
    return streams


def test_streams_share_the_queue_in_the_order_of_their_batches() -> None:
    streams = deliveries()
    streams.connected(0)
    for stream, sequence in [("a", 1), ("b", 1), ("a", 2)]:
        streams.spooled(stream, sequence, 0)
    assert all_due(streams) == [("a", 1), ("b", 1), ("a", 2)]
    assert not streams.due


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (ack("a", 1, proxy="q"), "epoch"),
        (ack("a", 1, epoch="f"), "epoch"),
        (ack("c", 1), "stream"),
        (ack("a", 3), "ahead"),
    ],
)
def test_an_acknowledgement_that_cannot_be_for_these_batches_changes_nothing(found: Ack, reason: str) -> None:
    streams = with_batches(2)
    assert [each.reason for each in streams.acknowledged(found, 0) if isinstance(each, AckRefused)] == [reason]
    assert streams.take_deletions() == {}
    assert len(all_due(streams)) == 4


def test_only_the_first_cluster_that_has_stored_a_batch_is_obeyed() -> None:
    streams = with_batches(3)
    assert streams.acknowledged(ack("a", 0, cluster="c/1"), 0) == []
    assert streams.cluster is None, "it has stored nothing yet"
    streams.acknowledged(ack("a", 99, cluster="c/1"), 0)
    assert streams.cluster is None, "what cannot be right binds it to no cluster"
    assert streams.acknowledged(ack("a", 1, cluster="c/2"), 0) == [BatchesStored("a", 1)]
    assert streams.cluster == "c/2"
    for other in ("c/1", "d/2", None):
        (refused,) = streams.acknowledged(ack("a", 3, cluster=other), 0)
        assert isinstance(refused, AckRefused)
        assert (refused.reason, "'c/2'" in refused.problem) == ("cluster", True)
    assert streams.take_deletions() == {"a": 1}
    assert streams.acknowledged(ack("b", 3, cluster="c/2"), 0) == [BatchesStored("b", 3)]


def test_clusters_that_name_none_are_obeyed_until_one_names_itself() -> None:
    streams = with_batches(3)
    assert streams.acknowledged(ack("a", 1), 0) == [BatchesStored("a", 1)]
    assert streams.acknowledged(ack("a", 2, cluster="c/2"), 0) == [BatchesStored("a", 1)]
    assert [each.reason for each in streams.acknowledged(ack("a", 3), 0) if isinstance(each, AckRefused)] == ["cluster"]


def test_what_is_acknowledged_while_it_is_queued_is_not_published() -> None:
    streams = with_batches(2)
    assert streams.acknowledged(ack("a", 1), 0) == [BatchesStored("a", 1)]
    assert all_due(streams) == [("a", 2), ("b", 1), ("b", 2)]
    assert streams.take_deletions() == {"a": 1}
    assert streams.take_deletions() == {}


def test_a_new_connection_begins_each_stream_again_and_a_new_cluster_only_where_there_is_one() -> None:
    streams = with_batches(1)
    assert streams.next() == PublishBatch("a", 1)
    streams.cluster_began(0)
    assert all_due(streams) == [("a", 1), ("b", 1)]
    streams.disconnected(0)
    streams.cluster_began(0)
    assert all_due(streams) == []
    streams.connected(0)
    assert all_due(streams) == [("a", 1), ("b", 1)]


def test_after_a_gap_or_silence_a_stream_begins_again_and_others_stay_as_they_are() -> None:
    streams = with_batches(2)
    assert streams.acknowledged(ack("a", 0), 0) == []
    assert streams.acknowledged(ack("a", 0), 0) == [SendingAgain("a", 1, "gap")]
    assert all_due(streams) == [("b", 1), ("b", 2), ("a", 1)], "a window of three is halved"
    assert streams.time_passed(3 * S) == [SendingAgain("a", 1, "silence"), SendingAgain("b", 1, "silence")]


def test_a_cluster_that_lost_batches_is_made_to_resume_before_anything_is_sent() -> None:
    streams = with_batches(3)
    streams.acknowledged(ack("a", 2), 0)
    (once,) = streams.acknowledged(ack("a", 0), 0)
    assert isinstance(once, AckRefused)
    assert once.reason == "regressed"
    again = streams.acknowledged(ack("a", 0), 0)
    assert again[1:] == [BatchesLost("a", 3), SendingAgain("a", 3, "loss")]
    assert all_due(streams)[0] == ("a", -3)


def test_rejections_are_noted_once_and_only_of_batches_that_this_acknowledges() -> None:
    streams = with_batches(3)
    first, second, unsent = (Rejection(sequence, "reason") for sequence in (1, 2, 3))
    assert streams.acknowledged(ack("a", 1, first), 0) == [BatchRejected("a", 1, "reason"), BatchesStored("a", 1)]
    found = streams.acknowledged(ack("a", 2, first, second, unsent), 0)
    assert found == [BatchRejected("a", 2, "reason"), BatchesStored("a", 1)]


def test_a_stream_that_cannot_be_read_pauses_until_it_is_silent_for_long() -> None:
    streams = with_batches(2)
    assert streams.next() == PublishBatch("a", 1)
    assert streams.unreadable("a", 0) == []
    assert all_due(streams) == [("b", 1), ("b", 2)]
    streams.time_passed(3 * S - 1)
    assert not streams.due
    streams.time_passed(3 * S)
    assert all_due(streams) == [("b", 1), ("a", 1), ("a", 2)]


def test_a_stream_with_many_bytes_on_their_way_waits_and_others_do_not() -> None:
    streams = with_batches(3)
    published = []
    while (found := streams.next()) is not None:
        assert isinstance(found, PublishBatch)
        published.append((found.stream, found.sequence))
        streams.published(*published[-1], MOST_PUBLISHED_BYTES // 2 if found.stream == "a" else 1)
    assert published == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
    streams.acknowledged(ack("b", 3), 0)
    assert streams.next() is None
    streams.acknowledged(ack("a", 1), 0)
    assert streams.next() == PublishBatch("a", 3)


def test_many_bytes_that_were_lost_do_not_keep_the_first_batch_from_being_sent_again() -> None:
    streams = with_batches(3)
    for sequence in (1, 2):
        assert streams.next() == PublishBatch("a", sequence)
        streams.published("a", sequence, MOST_PUBLISHED_BYTES // 2)
    assert all_due(streams) == [("b", 1), ("b", 2), ("b", 3)]
    streams.time_passed(3 * S)
    assert all_due(streams) == [("b", 1), ("a", 1)]
    streams.acknowledged(ack("a", 1), 3 * S)
    assert all_due(streams) == [("a", 2)]


def test_a_batch_that_is_larger_than_may_be_on_the_way_goes_alone() -> None:
    streams = with_batches(2)
    assert streams.next() == PublishBatch("a", 1)
    streams.published("a", 1, 2 * MOST_PUBLISHED_BYTES)
    assert all_due(streams) == [("b", 1), ("b", 2)]
    streams.acknowledged(ack("a", 1), 0)
    assert all_due(streams) == [("a", 2)]
