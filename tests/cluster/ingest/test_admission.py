"""Admission: each batch once, in order; the watermark waits for those who sample, and for nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.storage.stream_tables import ProxyPosition, StreamPosition


def admission(position: StreamPosition | None = None) -> StreamAdmission:
    found = StreamAdmission(position or StreamPosition(), silence_seconds=10)
    found.recall(0.0)
    found.open_lane("p", "e", 0)
    return found


def test_next_batch_is_taken_others_are_not() -> None:
    subject = admission()
    judged = [subject.judge("p", "e", sequence) for sequence in (1, 1, 3, 2, 1, 3)]
    assert judged == [Verdict.TAKE, Verdict.REPEATED, Verdict.GAP, Verdict.TAKE, Verdict.REPEATED, Verdict.TAKE]
    assert subject.stored("p", "e") == 0
    subject.committed({("p", "e"): 3}, StreamPosition())
    assert subject.stored("p", "e") == 3


def test_each_epoch_of_a_proxy_has_its_own_numbers() -> None:
    subject = admission()
    subject.open_lane("p", "f", 7)
    assert subject.judge("p", "f", 8) is Verdict.TAKE
    assert subject.judge("p", "e", 1) is Verdict.TAKE


def test_a_batch_that_does_not_fit_is_held_with_all_that_follow_until_it_does() -> None:
    subject = admission()
    judged = [
        subject.judge("p", "e", sequence, fits=fits)
        for sequence, fits in [
            (1, True),
            (3, False),
            (2, False),
            (3, True),
            (1, False),
            (2, False),
            (2, True),
            (4, True),
        ]
    ]
    take, gap, hold, repeated = Verdict.TAKE, Verdict.GAP, Verdict.HOLD, Verdict.REPEATED
    assert judged == [take, gap, hold, hold, repeated, hold, take, gap]
    assert (subject.counters.held, subject.counters.taken, subject.counters.gaps) == (3, 2, 2)


def test_a_proxy_whose_samples_are_held_is_waited_for_no_longer_than_one_that_is_away() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    subject.judge("p", "e", 1, fits=False)
    assert (subject.holds("p"), subject.holds("q")) == (True, False)
    for proxy in ("p", "q"):
        subject.heard(proxy, 11)
    assert subject.time_passed(11)
    assert subject.watermark_us == 50
    assert subject.judge("p", "e", 1) is Verdict.TAKE
    assert subject.advance("p", 60, sampling=True, now_seconds=11) == 50
    assert subject.advance("q", 70, sampling=True, now_seconds=11) == 60


def test_watermark_is_the_minimum_of_those_who_sample() -> None:
    subject = admission()
    assert subject.advance("p", 10, sampling=True, now_seconds=0) == 10
    assert subject.advance("q", 5, sampling=True, now_seconds=0) == 10  # never back
    assert subject.advance("p", 20, sampling=True, now_seconds=0) == 10
    assert subject.advance("q", 12, sampling=True, now_seconds=0) == 12
    assert subject.advance("q", 13, sampling=False, now_seconds=0) == 20


def test_when_all_stop_the_last_promise_holds() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    assert subject.advance("p", 99, sampling=False, now_seconds=0) == 99


def test_silent_proxy_stalls_nobody_and_may_come_back() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 10, sampling=True, now_seconds=0)
    subject.advance("p", 50, sampling=True, now_seconds=9)
    assert not subject.time_passed(10)
    assert subject.time_passed(11)
    assert subject.watermark_us == 50
    assert subject.counters.silent_proxies == 1
    subject.advance("q", 60, sampling=True, now_seconds=12)
    assert subject.watermark_us == 50
    assert subject.advance("p", 70, sampling=True, now_seconds=12) == 60


def test_proxy_that_is_alive_though_quiet_is_waited_for() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 5, sampling=True, now_seconds=0)
    subject.heard("q", 10)
    subject.heard("p", 10)
    assert not subject.time_passed(15)
    assert subject.watermark_us == 10


def test_restart_waits_for_the_proxies_the_table_remembers() -> None:
    stored = StreamPosition(10, {"p": ProxyPosition(10, True), "q": ProxyPosition(30, True)})
    subject = admission(stored)
    assert subject.watermark_us == 10
    assert subject.advance("q", 40, sampling=True, now_seconds=1) == 10
    assert subject.time_passed(11)
    assert subject.watermark_us == 40


def test_failed_commit_leaves_everything_to_be_sent_again_in_time() -> None:
    subject = admission()
    subject.judge("p", "e", 1)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.committed({("p", "e"): 1}, subject.current_position())
    subject.judge("p", "e", 2)
    subject.advance("p", 20, sampling=True, now_seconds=0)
    subject.forget_unstored()
    assert subject.watermark_us == 10
    assert subject.judge("p", "e", 2) is Verdict.TAKE
    assert subject.advance("p", 20, sampling=True, now_seconds=0) == 20


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 100), st.booleans(), st.integers(0, 8)), max_size=40))
def test_watermark_never_goes_back(events: list[tuple[str, int, bool, int]]) -> None:
    subject, now, before = admission(), 0.0, None
    for proxy, watermark, sampling, pause in events:
        now += pause
        subject.time_passed(now)
        found = subject.advance(proxy, watermark, sampling=sampling, now_seconds=now)
        assert before is None or (found is not None and found >= before)
        before = found


def test_the_next_instant_is_after_all_that_is_taken_and_not_before_the_watermark() -> None:
    subject = admission()
    assert subject.next_us is None
    subject.stamped(40)
    subject.stamped(30)
    subject.stamped(None)
    assert subject.next_us == 41
    subject.advance("p", 60, sampling=True, now_seconds=0)
    assert subject.next_us == 60
    subject.forget_unstored()
    assert subject.next_us == 41
