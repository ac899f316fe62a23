"""Two processes on copies of one data folder: whatever either deletes, the cluster has stored as that one wrote it.

    spools      1a 2a 3a | 1a 2a 3b       each process writes its own batches behind those of before the copy
    channel     3b 2a 3a                  any of them may be lost, or come twice; acks reach both
    cluster     1a 2a 3a                  accepts what follows what it has; acks name the writer of the last

The real decisions of both sides, without disks or a broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.storage.stream_tables import LastBatch, ProxyPosition, StreamPosition
from protocols.wire.batches import WRITER_BYTES, Ack
from protocols.wire.frames import VERSION
from proxy.running.stream_deliveries import Contested, PublishBatch, PublishResumption, StreamDeliveries

LANE = ("p", "e")
S = 1_000_000


@dataclass(frozen=True)
class Content:
    """A batch: its number, its writer, and the writer that it follows. No two that differ have the same."""

    sequence: int
    writer: bytes
    follows: bytes


@dataclass
class Copy:
    """A folder, and the process that runs on it."""

    writer: bytes
    waiting: dict[int, Content] = field(default_factory=dict)
    spooled: int = 0
    last: bytes = bytes(WRITER_BYTES)
    stopped: bool = False
    streams: StreamDeliveries = field(init=False)

    def __post_init__(self) -> None:
        self.start(self.writer)

    def start(self, writer: bytes) -> None:
        self.writer, self.stopped = writer, False
        self.streams = StreamDeliveries(*LANE, in_flight=4, resend_after_us=3 * S)
        self.streams.connected(0)
        if self.spooled:
            self.streams.restore(
                "s",
                acknowledged=min(self.waiting, default=self.spooled + 1) - 1,
                spooled=self.spooled,
                writers=[(each.sequence, each.writer) for each in self.waiting.values()],
            )
            self.streams.connected(0)

    def write(self, now_us: int) -> None:
        self.spooled += 1
        self.waiting[self.spooled] = Content(self.spooled, self.writer, self.last)
        self.last = self.writer
        self.streams.spooled("s", self.spooled, now_us, self.writer)

    def copied(self, writer: bytes) -> Copy:
        return Copy(writer, dict(self.waiting), self.spooled, self.last)


class World:
    """Copies of a folder, and a cluster."""

    def __init__(self) -> None:
        self.drawn = 0
        self.copies = [Copy(self.draw())]
        self.channel: list[tuple[Content, bool]] = []
        self.acks: list[Ack] = []
        self.table: list[Content] = []
        self.accepted: list[Content] = []
        self.position = StreamPosition()
        self.now_us = 0
        self.begin()

    def draw(self) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(WRITER_BYTES, "big")

    def begin(self) -> None:
        """Start the cluster with what its table has."""
        self.accepted = list(self.table)
        self.admission = StreamAdmission(self.position)
        self.admission.expect_known_proxies(0.0)
        self.admission.open_lane(*LANE, len(self.table))
        for each in self.running:
            each.streams.cluster_began(self.now_us)

    @property
    def running(self) -> list[Copy]:
        return [each for each in self.copies if not each.stopped]

    def send(self, copy: Copy) -> None:
        while (due := copy.streams.next()) is not None:
            assert not isinstance(due, PublishResumption), "nothing is lost here"
            assert isinstance(due, PublishBatch)
            copy.streams.published("s", due.sequence, 1)
            self.channel.append((copy.waiting[due.sequence], copy.streams.reads_writers))

    def deliver(self, place: int) -> None:
        if not self.channel:
            return
        batch, named = self.channel.pop(place % len(self.channel))
        shown = batch if named else replace(batch, writer=b"", follows=b"")
        verdict = self.admission.decide(*LANE, shown.sequence, writer=shown.writer, follows=shown.follows)
        if verdict is Verdict.ACCEPT:
            self.accepted.append(batch)
            last = LastBatch(LANE[1], shown.sequence, shown.writer.hex()) if shown.writer else None
            self.admission.advance(LANE[0], shown.sequence, sampling=True, now_seconds=0.0, last=last)
        else:
            self.acks.append(self.ack())

    def commit(self) -> None:
        if len(self.table) == len(self.accepted):
            return
        self.position = self.admission.current_position()
        self.table = list(self.accepted)
        self.admission.committed({LANE: len(self.table)}, self.position)
        self.acks.append(self.ack())

    def ack(self) -> Ack:
        stored, writer = self.admission.stored(*LANE), self.admission.writer(*LANE)
        return Ack(VERSION, *LANE, "s", stored, packed=True, writer=writer)

    def acknowledge(self, place: int) -> None:
        if self.acks:
            ack = self.acks.pop(place % len(self.acks))
            for each in self.running:
                notices = each.streams.acknowledged(ack, self.now_us)
                each.stopped = any(isinstance(notice, Contested) for notice in notices)
                self.delete(each)

    def delete(self, copy: Copy) -> None:
        through = copy.streams.take_deletions().get("s", 0)
        for sequence in [each for each in copy.waiting if each <= through]:
            deleted = copy.waiting.pop(sequence)
            assert self.table[sequence - 1] == deleted, "a batch is deleted that is not stored"

    def calm(self) -> None:
        """Lose nothing any more."""
        for _ in range(12 + 4 * sum(len(each.waiting) for each in self.copies)):
            self.now_us += 20 * S
            for each in self.running:
                each.streams.time_passed(self.now_us)
                self.send(each)
            while self.channel:
                self.deliver(0)
            self.commit()
            while self.acks:
                self.acknowledge(0)


def learned() -> World:
    """Return a world whose proxy knows already that the cluster reads writers, and has sent a batch that names its."""
    world = World()
    for _ in range(2):
        world.copies[0].write(0)
        world.calm()
    assert world.copies[0].streams.reads_writers
    assert world.admission.writer(*LANE) == world.copies[0].writer
    return world


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("write", "send", "deliver", "lose", "commit", "acknowledge", "restart", "copy", "cluster")),
        st.integers(0, 7),
    ),
    max_size=60,
)


@given(EVENTS)
def test_what_is_deleted_is_stored_as_it_was_written(events):
    world = learned()
    for kind, number in events:
        copy = world.copies[number % len(world.copies)]
        match kind:
            case "write" if not copy.stopped:
                copy.write(world.now_us)
            case "send" if not copy.stopped:
                world.send(copy)
            case "deliver":
                world.deliver(number)
            case "lose" if world.channel:
                world.channel.pop(number % len(world.channel))
            case "commit":
                world.commit()
            case "acknowledge":
                world.acknowledge(number)
            case "restart":
                copy.start(world.draw())
            case "copy" if len(world.copies) < 3:
                world.copies.append(copy.copied(world.draw()))
            case "cluster":
                world.begin()
            case _:
                pass
    world.calm()
    stored = {(each.sequence, each.writer) for each in world.table}
    for each in world.running:
        assert not each.waiting, "one that no other contests is rid of all its batches"
    if len(world.copies) == 1:
        assert world.running, "one process alone is never stopped, however often it is killed"
    assert len(stored) == len(world.table)


@pytest.mark.parametrize("kills", [0, 1, 3])
def test_a_process_that_is_killed_and_started_goes_on_without_a_wait(kills):
    world = learned()
    copy = world.copies[0]
    for _ in range(kills):
        copy.write(0)
        world.send(copy)
        world.deliver(0)
        copy.start(world.draw())
    world.commit()
    copy.start(world.draw())
    copy.write(0)
    for _ in range(3):  # no time passes
        world.send(copy)
        while world.channel:
            world.deliver(0)
        world.commit()
        while world.acks:
            world.acknowledge(0)
    assert not copy.waiting
    assert not copy.stopped
    assert len(world.table) == 2 + kills + 1


def test_a_copy_that_is_ahead_of_the_original_keeps_what_it_cannot_send():
    world = learned()
    original = world.copies[0]
    copy = original.copied(world.draw())
    world.copies.append(copy)
    original.write(0)
    for _ in range(3):
        copy.write(0)
    world.send(original)
    world.deliver(0)
    world.commit()
    world.calm()
    assert copy.stopped
    assert len(copy.waiting) == 3
    assert not original.stopped
    assert not original.waiting


def test_a_batch_does_not_follow_one_of_another_process_if_what_is_between_was_lost():
    world = learned()
    original = world.copies[0]
    copy = original.copied(world.draw())
    world.copies.append(copy)
    copy.streams.reads_writers = True
    original.write(0)
    world.send(original)
    world.deliver(0)
    for _ in range(2):
        copy.write(0)
    world.send(copy)
    assert [each.sequence for each, _ in world.channel] == [3, 4]
    del world.channel[0]
    world.deliver(0)
    world.commit()
    assert len(world.table) == 3
    assert world.admission.counters.contested == 1
    world.calm()
    assert (original.stopped, copy.stopped) == (False, True)


def test_a_folder_that_was_set_back_stops_before_it_uses_a_number_twice():
    world = learned()
    copy = world.copies[0]
    copy.write(0)
    before = copy.copied(world.draw())
    copy.write(0)
    world.calm()
    world.copies = [before]
    world.calm()
    assert before.stopped
    assert len(before.waiting) == 1


def test_a_cluster_knows_only_the_writer_of_the_batch_that_it_stored_last():
    last = LastBatch("e", 5, "01" * WRITER_BYTES)
    admission = StreamAdmission(StreamPosition(0, {"p": ProxyPosition(0, sampling=True, last=last)}))
    for epoch, stored in (("e", 5), ("e", 6), ("f", 5)):
        admission.open_lane("p", epoch, stored)
        known = (epoch, stored) == ("e", 5)
        assert admission.writer("p", epoch) == (b"\x01" * WRITER_BYTES if known else b"")
