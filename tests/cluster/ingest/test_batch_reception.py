"""What becomes of batches, without a table: random orders of what several proxies send, and of what commits become.

    proxies  p1 p2 p3 ...  q1 q2 ...     from the first that is not acknowledged, again and again
    batches  fit | of other columns | malformed | partly or wholly too late | lost by their proxy
    commits  made | failed | unknown

In the end, when all is calm, each batch was received once, in order, and acknowledged then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from cluster.ingest import batch_reception
from cluster.ingest.admission import StreamAdmission
from cluster.ingest.batch_reception import (
    AcknowledgeNow,
    BatchReception,
    Commit,
    CommitCycle,
    CommitSoon,
    Decision,
    GiveUpLost,
    Lane,
    LeaveOutLate,
    LeaveToProxy,
    Reject,
)
from cluster.storage.stream_tables import StreamPosition
from protocols.wire.batches import Batch, Column, PackedBatch, Resumption, make_columns, pack_batch, unpack_batch
from protocols.wire.frames import VERSION
from protocols.wire.streams import Field, FieldType, StreamSchema

SCHEMA = StreamSchema("speeds", (Field("speed", FieldType.REAL),))
OTHER = StreamSchema("speeds", (Field("depth", FieldType.REAL),))
LIMIT = 1_500
ROWS = 3
NOTHING = StreamPosition(None, {})
PROXIES = ("p", "q")


def batch(proxy: str, sequence: int, *, first_us: int | None = None, schema: StreamSchema = SCHEMA) -> PackedBatch:
    """Return a batch of a few samples, one microsecond apart; its watermark is that of its last sample."""
    first_us = 10 * sequence if first_us is None else first_us
    stamps = [first_us + number for number in range(ROWS)]
    columns = make_columns(schema, stamps, ["m"] * ROWS, [True] * ROWS, {schema.fields[0].name: [1.0] * ROWS})
    return pack_batch(Batch(VERSION, proxy, "e", "speeds", sequence, stamps[-1], True, ROWS, columns))


def malformed(proxy: str, sequence: int) -> PackedBatch:
    columns = unpack_batch(batch(proxy, sequence)).columns[1:]
    return pack_batch(Batch(VERSION, proxy, "e", "speeds", sequence, 0, True, ROWS, columns))


class Reception:
    """A stream without a table: what commits have stored is a list."""

    def __init__(self) -> None:
        self.commits = CommitCycle(StreamAdmission(NOTHING))
        self.reception = BatchReception(SCHEMA, self.commits, 0.0)
        self.stored: Counter[Lane] = Counter()
        self.rows = 0
        self.acknowledged: Counter[str] = Counter()
        self.now = 0.0

    def open(self, lane: Lane) -> None:
        if self.reception.lacks(lane):
            self.commits.admission.open_lane(*lane, self.stored[lane])

    def receive(self, sent: PackedBatch, *, offer_fits: bool = True) -> list[Decision]:
        self.now += 1.0
        self.open((sent.proxy, sent.epoch))
        return self.carry_out(sent.proxy, self.reception.receive(sent, self.now, offer_fits=offer_fits))

    def resume(self, proxy: str, first: int) -> list[Decision]:
        self.open((proxy, "e"))
        return self.carry_out(proxy, self.reception.resume(Resumption(VERSION, proxy, "e", "speeds", first)))

    def carry_out(self, proxy: str, decisions: Sequence[Decision]) -> list[Decision]:
        if AcknowledgeNow() in decisions:
            self.acknowledge((proxy, "e"))
        return list(decisions)

    def acknowledge(self, lane: Lane) -> None:
        self.open(lane)
        through = self.commits.admission.stored(*lane)
        assert through <= self.stored[lane], "acknowledged and not stored"
        self.acknowledged[lane[0]] = max(self.acknowledged[lane[0]], through)

    def store(self, commit: Commit) -> None:
        for lane, sequence in commit.waiting.sequences.items():
            assert sequence > self.stored[lane], "stored twice"
            self.stored[lane] = sequence
        self.rows += sum(each.rows for each in commit.waiting.admitted)

    def commit(self, outcome: str = "made") -> None:
        if self.commits.in_doubt is not None:
            return
        commit = self.commits.begin()
        if outcome in {"made", "unknown and made"}:
            self.store(commit)
        match outcome:
            case "made":
                for lane, _ in self.commits.made(commit):
                    self.acknowledge(lane)
            case "failed":
                self.commits.failed(commit, 0.0)
            case _:
                self.doubted = outcome == "unknown and made"
                self.commits.unknown(commit)

    def look(self) -> None:
        if self.commits.in_doubt is not None:
            for lane, _ in self.commits.known(made=self.doubted):
                self.acknowledge(lane)


OUTCOMES = st.sampled_from(["made", "made", "failed", "unknown", "unknown and made"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(PROXIES), st.integers(0, 3)),
        st.tuples(st.just("send"), st.sampled_from(PROXIES), st.just(0)),
        st.tuples(
            st.just("commit"), st.sampled_from(["made", "made", "failed", "unknown", "unknown and made"]), st.just(0)
        ),
        st.tuples(st.sampled_from(["look", "offer"]), st.just(""), st.just(0)),
    ),
    max_size=80,
)
KINDS = st.lists(st.sampled_from(["fits", "fits", "other", "malformed", "late", "lost"]), min_size=60, max_size=60)


class Life(Reception):
    """Proxies that send what each batch was drawn to be."""

    def __init__(self, kinds: list[str]) -> None:
        super().__init__()
        self.kinds = kinds
        self.offer_fits = False
        """Whether the proxies' present offer is as declared: batches of other columns are of an older one then."""

    def step(self, kind: str, name: str, number: int) -> None:
        match kind:
            case "send":
                self.send(name, self.acknowledged[name] + 1 + number)
            case "commit":
                self.commit(name)
            case "look":
                self.look()
            case _:
                self.offer_fits = not self.offer_fits

    def send(self, proxy: str, sequence: int) -> None:
        kind = self.kinds[(sequence + PROXIES.index(proxy)) % len(self.kinds)]
        waiting, doubt = self.commits.waiting, self.commits.in_doubt
        lane, before_bytes = (proxy, "e"), waiting.bytes
        before = waiting.sequences.get(lane, self.stored[lane])
        match kind:
            case "lost":
                found = self.resume(proxy, sequence + 1) if before == sequence - 1 else []
            case "malformed":
                found = self.receive(malformed(proxy, sequence), offer_fits=self.offer_fits)
            case "late":
                found = self.receive(batch(proxy, sequence, first_us=10 * sequence - 12), offer_fits=self.offer_fits)
            case _:
                sent = batch(proxy, sequence, schema=OTHER if kind == "other" else SCHEMA)
                found = self.receive(sent, offer_fits=self.offer_fits)
        taken = self.commits.waiting.sequences.get(lane, self.stored[lane])
        assert taken in {before, sequence}, "a number is left out"
        assert (CommitSoon() in found) == (taken > before), "what waits is not committed, or nothing waits"
        assert taken == before or sequence == before + 1
        if doubt is not None:
            assert (found, waiting.sequences) == ([], {}), "admitted while a commit is in doubt"
        if kind == "other" and not self.offer_fits:
            assert taken == before, "what may fit later is given up"
        if kind != "lost" and before_bytes >= LIMIT:
            assert found == []
        assert waiting.bytes < LIMIT + 1_500, "more waits than the limit and one batch"


@given(STEPS, KINDS)
@example([("send", "p", 0), ("send", "p", 1)], ["fits"] * 60)
def test_each_batch_is_received_once_and_acknowledged_when_it_is_stored(
    steps: list[tuple[str, str, int]], kinds: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_reception, "MAX_WAITING_BYTES", LIMIT)
        life = Life(kinds)
        for step in steps:
            life.step(*step)
        life.look()
        life.offer_fits = True
        life.step("commit", "made", 0)  # what waits may take all the room
        before = life.acknowledged.copy()
        for _ in range(8):
            for proxy in PROXIES:
                life.step("send", proxy, 0)
            life.step("commit", "made", 0)
    for proxy in PROXIES:
        assert life.acknowledged[proxy] == life.stored[proxy, "e"] >= before[proxy] + 8


def test_the_next_batch_waits_and_others_are_answered_twice_an_interval() -> None:
    life = Reception()
    assert life.receive(batch("p", 1)) == [CommitSoon()]
    assert life.receive(batch("p", 3)) == [AcknowledgeNow()]
    reception = BatchReception(SCHEMA, life.commits, 1.0)
    again = [reception.receive(batch("p", 1), 9.0 + each / 10, offer_fits=True) for each in range(4)]
    assert again == [[AcknowledgeNow()], [AcknowledgeNow()], [], []]


def test_a_lane_is_not_opened_while_it_is_unknown_what_the_table_has() -> None:
    life = Reception()
    life.receive(batch("p", 1))
    life.commit("unknown and made")
    assert not life.reception.lacks(("p", "f"))
    assert life.receive(batch("q", 1)) == life.resume("q", 3) == []
    life.look()
    assert life.reception.lacks(("p", "f"))


def test_a_batch_of_other_columns_is_left_to_its_proxy_until_its_offer_fits_and_reported_once() -> None:
    life = Reception()
    (left,) = life.receive(batch("p", 1, schema=OTHER), offer_fits=False)
    assert isinstance(left, LeaveToProxy)
    assert "depth" in left.reason
    assert life.receive(batch("p", 1, schema=OTHER), offer_fits=False) == []
    assert life.receive(batch("p", 2), offer_fits=False) == []
    rejected, soon = life.receive(batch("p", 1, schema=OTHER))
    assert isinstance(rejected, Reject)
    assert soon == CommitSoon()
    assert life.commits.admission.counters.rejected_rows == ROWS


def test_rows_that_come_too_late_are_left_out_and_counted() -> None:
    life = Reception()
    life.receive(batch("p", 1, first_us=100))
    late, _ = life.receive(batch("p", 2, first_us=101))
    assert isinstance(late, LeaveOutLate)
    assert (late.reason, len(late.first)) == ("stamped before the stream's watermark 102", 1)
    wholly, _ = life.receive(batch("p", 3, first_us=50))
    assert isinstance(wholly, LeaveOutLate)
    counters = life.commits.admission.counters
    assert (counters.rows, counters.late_rows) == (ROWS + 2, 1 + ROWS)
    assert len(life.commits.waiting.admitted) == 2
    life.commit()
    assert life.stored["p", "e"] == 3


def test_what_waits_in_memory_is_bounded_and_the_rest_is_left_to_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reception, "MAX_WAITING_BYTES", 1_400)  # for two batches of the same columns
    life = Reception()
    assert [life.receive(batch("p", sequence)) for sequence in (1, 2, 3, 4)] == [[CommitSoon()], [CommitSoon()], [], []]
    assert life.commits.admission.counters.deferred == 2
    assert life.receive(batch("q", 1)) == []
    assert [lane for lane, _ in life.commits.made(life.commits.begin())] == [("p", "e"), ("q", "e")]
    assert life.receive(batch("p", 3)) == [CommitSoon()]


def test_batches_that_their_proxy_lost_are_counted_with_the_commit() -> None:
    life = Reception()
    life.receive(batch("p", 1))
    lost, soon = life.resume("p", 4)
    assert isinstance(lost, GiveUpLost)
    assert "2 batches before 4" in lost.reason
    assert soon == CommitSoon()
    assert life.resume("p", 4) == [AcknowledgeNow()]
    life.commit()
    assert (life.acknowledged["p"], life.commits.admission.counters.lost_batches) == (3, 2)


def test_what_waits_is_counted_with_the_layouts_of_ever_new_columns() -> None:
    life = Reception()
    sizes = [0]
    for sequence in range(1, 5):
        sent = unpack_batch(batch("p", sequence))
        more = tuple(Column(f"more{sequence}_{n}", FieldType.BOOLEAN, b"", bytes(ROWS)) for n in range(100))
        life.receive(pack_batch(replace(sent, columns=sent.columns + more)))
        sizes.append(life.commits.waiting.bytes)
    assert min(after - before for before, after in pairwise(sizes)) > 100 * 256
    same = life.commits.waiting.bytes
    life.receive(pack_batch(replace(unpack_batch(batch("p", 5)), columns=sent.columns + more)))
    assert life.commits.waiting.bytes - same < 1_000
