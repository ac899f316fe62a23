"""Random lives of a stream's commits, without a disk: each batch is stored once, and acknowledged only then.

proxy     1 2 3 4 ...   from the first that is not acknowledged, again and again
commits   begun, made or not; its maker may never learn which, or be killed
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest import batch_reception
from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.ingest.batch_reception import Commit, CommitCycle, ToAcknowledge
from cluster.storage.stream_tables import ProxyPosition, StreamPosition
from protocols.wire.batches import Rejection

if TYPE_CHECKING:
    from cluster.ingest.arrow_batches import AdmittedRows

LANE = ("p", "e")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "begin", "made", "failed", "unknown", "look", "kill"]), st.integers(0, 3)
    ),
    min_size=30,
    max_size=90,
)
NOTHING = StreamPosition(None, {})


class Life:
    """A stream's commits over a table that is a list, and a proxy that sends batches in order."""

    def __init__(self) -> None:
        self.table: list[int] = []
        self.position = NOTHING
        self.acknowledged = 0
        self.begin_again()

    def begin_again(self) -> None:
        self.commits = CommitCycle(StreamAdmission(self.position))
        self.commits.admission.expect_known_proxies(0.0)
        self.commits.admission.open_lane(*LANE, max(self.table, default=0))
        self.under_way: Commit | None = None

    def send(self, ahead: int) -> None:
        """Send a batch: the first that is not acknowledged, or one after it."""
        sequence = self.acknowledged + 1 + ahead
        if self.commits.in_doubt is None and self.commits.admission.decide(*LANE, sequence) is Verdict.ACCEPT:
            self.commits.waiting.sequences[LANE] = sequence
            self.commits.waiting.admitted.append(cast("AdmittedRows", sequence))
            self.commits.admission.advance("p", sequence, sampling=True, now_seconds=0.0)

    def begin(self) -> None:
        if self.under_way is None and self.commits.in_doubt is None:
            self.under_way = self.commits.begin()

    def end(self, outcome: str, truth: int) -> None:
        commit = self.under_way
        if commit is None:
            return
        self.under_way = None
        if outcome == "made" or (outcome == "unknown" and truth % 2):
            self.table += cast("list[int]", commit.waiting.admitted)
            self.position = commit.position
        match outcome:
            case "made":
                self.acknowledge(self.commits.made(commit))
            case "failed":
                self.commits.failed(commit, 0.0)
            case _:
                self.commits.unknown(commit)

    def look(self) -> None:
        if (doubt := self.commits.in_doubt) is not None:
            self.acknowledge(
                self.commits.known(made=doubt.waiting.sequences.get(LANE, 0) <= max(self.table, default=0))
            )

    def acknowledge(self, found: ToAcknowledge) -> None:
        for lane, rejected in found:
            assert (lane, rejected) == (LANE, ())
            self.acknowledged = max(self.acknowledged, self.commits.admission.stored(*lane))

    def step(self, kind: str, number: int) -> None:
        match kind:
            case "send":
                self.send(number)
            case "begin":
                self.begin()
            case "look":
                self.look()
            case "kill":
                self.begin_again()
            case outcome:
                self.end(outcome, number)
        assert self.table == list(range(1, len(self.table) + 1)), "a batch is missing, or stored twice"
        assert self.acknowledged <= len(self.table), "acknowledged and not stored"
        assert self.position.watermark_us == (len(self.table) or None), "the watermark is not that of what is stored"


@given(STEPS)
def test_each_batch_is_stored_once_and_acknowledged_only_then(steps: list[tuple[str, int]]) -> None:
    life = Life()
    for kind, number in steps:
        life.step(kind, number)
    stored = len(life.table)
    life.step("made", 0)
    life.step("look", 0)
    for ahead in range(4 + stored):
        life.step("send", ahead)
    life.step("begin", 0)
    life.step("made", 0)
    assert life.acknowledged == len(life.table) >= 4


@pytest.mark.parametrize("made", [0, 1])
def test_what_came_after_a_commit_in_doubt_is_sent_again(made: int) -> None:
    life = Life()
    steps = [("send", 0), ("begin", 0), ("send", 1), ("unknown", made), ("look", 0), ("begin", 0), ("made", 0)]
    for kind, number in steps:
        life.step(kind, number)
    assert (life.table, life.acknowledged) == ([1][:made], made)


def test_a_commit_that_was_made_is_not_forgotten_while_another_begins() -> None:
    life = Life()
    life.send(0)
    life.begin()
    life.end("unknown", 1)
    with pytest.raises(ValueError, match="in doubt"):
        life.commits.begin()


def test_rejected_batches_are_acknowledged_with_their_reasons() -> None:
    cycle = CommitCycle(StreamAdmission(NOTHING))
    cycle.admission.open_lane(*LANE, 0)
    cycle.waiting.sequences[LANE], cycle.waiting.lost = 2, 1
    cycle.waiting.rejected[LANE] = [Rejection(2, "reason")]
    assert cycle.made(cycle.begin()) == [(LANE, (Rejection(2, "reason"),))]
    assert cycle.admission.counters.lost_batches == 1
    assert cycle.waiting.sequences == {}


@pytest.mark.parametrize(("gone", "work", "doubt"), [(True, False, False), (False, True, False), (False, False, True)])
def test_a_commit_is_due_for_three_reasons(*, gone: bool, work: bool, doubt: bool) -> None:
    proxies = {"p": ProxyPosition(5, sampling=True), "q": ProxyPosition(9, sampling=True)}
    cycle = CommitCycle(StreamAdmission(StreamPosition(5, proxies), gone_after=lambda: 10.0))
    cycle.admission.expect_known_proxies(0.0)
    assert not cycle.due(9.0, work=False)
    if gone:
        assert cycle.time_passed("q", 9.0, counted_seconds=10.0)
    if doubt:
        cycle.unknown(cast("Commit", SimpleNamespace()))
    assert cycle.due(9.0, work=work)


def test_going_on_without_a_proxy_is_committed_like_a_batch() -> None:
    proxies = {"p": ProxyPosition(5, sampling=True), "q": ProxyPosition(9, sampling=True)}
    cycle = CommitCycle(StreamAdmission(StreamPosition(5, proxies), gone_after=lambda: 10.0))
    cycle.admission.expect_known_proxies(0.0)
    cycle.time_passed("q", 10.0, counted_seconds=10.0)
    commit = cycle.begin()
    assert commit.position == StreamPosition(9, {"p": ProxyPosition(5, sampling=True, gone=True), "q": proxies["q"]})
    cycle.failed(commit, 10.0)
    assert cycle.admission.watermark_us == 5
    assert not cycle.due(10.5, work=False)
    assert cycle.time_passed("q", 11.0, counted_seconds=1.0)
    assert cycle.due(11.0, work=False)


def test_no_time_counts_while_a_commit_is_in_doubt() -> None:
    proxies = {"p": ProxyPosition(5, sampling=True), "q": ProxyPosition(9, sampling=True)}
    cycle = CommitCycle(StreamAdmission(StreamPosition(5, proxies), gone_after=lambda: 10.0))
    cycle.admission.expect_known_proxies(0.0)
    cycle.unknown(cast("Commit", SimpleNamespace()))
    assert not cycle.time_passed("q", 100.0, counted_seconds=100.0)


@pytest.mark.parametrize(("outcome", "behind"), [("failed", 0), ("failed", 1), ("unknown", 0)])
def test_lanes_of_a_commit_that_was_not_made_are_asked_for_with_the_next(outcome: str, behind: int) -> None:
    life = Life()
    if behind:
        life.begin()
    life.send(0)
    if not behind:
        life.begin()
    life.end(outcome, 0)
    life.look()
    assert life.commits.due(1.0, work=False)
    assert life.commits.made(life.commits.begin()) == [(LANE, ())]
    assert life.commits.admission.stored(*LANE) == 0
    assert not life.commits.due(100.0, work=False)
    assert life.commits.made(life.commits.begin()) == []


@pytest.mark.parametrize("begun", [True, False])
def test_a_lane_that_came_again_by_itself_is_not_asked_for(*, begun: bool) -> None:
    life = Life()
    life.send(0)
    life.begin()
    life.end("failed", 0)
    commit = life.commits.begin()
    life.send(0)
    if begun:
        commit = life.commits.begin()
    assert life.commits.made(commit) == [(LANE, ())] * begun


def test_after_a_failure_commits_are_tried_at_growing_intervals_until_a_batch_is_stored() -> None:
    life = Life()
    tries = []
    for second in range(80):
        if life.commits.due(float(second), work=second == 0):
            tries.append(second)
            if second == 0:
                life.send(0)
            life.commits.failed(life.commits.begin(), float(second))
    assert tries == [0, 1, 3, 7, 15, 31, 47, 63, 79]
    life.commits.made(life.commits.begin())  # nothing in it: it does not say that one with batches is made
    life.send(0)
    life.commits.failed(life.commits.begin(), 100.0)
    assert not life.commits.due(115.0, work=False)
    assert life.commits.due(116.0, work=False)
    life.send(0)
    life.commits.made(life.commits.begin())
    life.acknowledged = 1
    life.send(0)
    life.commits.failed(life.commits.begin(), 200.0)
    assert life.commits.due(201.0, work=False)


def test_lanes_left_to_their_proxies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reception, "MOST_LEFT", 2)
    cycle = CommitCycle(StreamAdmission(NOTHING))
    for name in "rqp":
        cycle.leave((name, "e"))
    assert cycle.made(cycle.begin()) == [(("q", "e"), ()), (("r", "e"), ())]
