"""Admission: each batch once, in order; the watermark waits for proxies that sample, and for no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.admission import StreamAdmission, Verdict
from cluster.storage.stream_tables import ProxyPosition, StreamPosition


def admission(position: StreamPosition | None = None) -> StreamAdmission:
    found = StreamAdmission(position or StreamPosition(), silence_seconds=10)
    found.expect_known_proxies(0.0)
    found.open_lane("p", "e", 0)
    return found


def test_only_the_next_batch_is_accepted() -> None:
    subject = admission()
    verdicts = [subject.decide("p", "e", sequence) for sequence in (1, 1, 3, 2, 1, 3)]
    assert verdicts == [Verdict.ACCEPT, Verdict.REPEATED, Verdict.GAP, Verdict.ACCEPT, Verdict.REPEATED, Verdict.ACCEPT]
    assert subject.stored("p", "e") == 0
    subject.committed({("p", "e"): 3}, StreamPosition())
    assert subject.stored("p", "e") == 3


def test_each_epoch_of_a_proxy_has_its_own_numbers() -> None:
    subject = admission()
    subject.open_lane("p", "f", 7)
    assert subject.decide("p", "f", 8) is Verdict.ACCEPT
    assert subject.decide("p", "e", 1) is Verdict.ACCEPT


def test_a_batch_that_does_not_fit_is_held_with_its_successors_until_it_fits() -> None:
    subject = admission()
    verdicts = [
        subject.decide("p", "e", sequence, fits=fits)
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
    accept, gap, hold, repeated = Verdict.ACCEPT, Verdict.GAP, Verdict.HOLD, Verdict.REPEATED
    assert verdicts == [accept, gap, hold, hold, repeated, hold, accept, gap]
    assert (subject.counters.held, subject.counters.accepted, subject.counters.gaps) == (3, 2, 2)


def test_a_proxy_whose_batches_are_held_counts_as_silent() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    subject.decide("p", "e", 1, fits=False)
    assert (subject.holds("p"), subject.holds("q")) == (True, False)
    for proxy in ("p", "q"):
        subject.proxy_active(proxy, 11)
    assert subject.exclude_silent_proxies(11)
    assert subject.watermark_us == 50
    assert subject.decide("p", "e", 1) is Verdict.ACCEPT
    assert subject.advance("p", 60, sampling=True, now_seconds=11) == 50
    assert subject.advance("q", 70, sampling=True, now_seconds=11) == 60


def test_the_watermark_is_the_minimum_over_proxies_that_sample() -> None:
    subject = admission()
    assert subject.advance("p", 10, sampling=True, now_seconds=0) == 10
    assert subject.advance("q", 5, sampling=True, now_seconds=0) == 10  # it never goes back
    assert subject.advance("p", 20, sampling=True, now_seconds=0) == 10
    assert subject.advance("q", 12, sampling=True, now_seconds=0) == 12
    assert subject.advance("q", 13, sampling=False, now_seconds=0) == 20


def test_the_last_watermark_holds_when_all_proxies_stop_sampling() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    assert subject.advance("p", 99, sampling=False, now_seconds=0) == 99


def test_a_silent_proxy_stalls_no_other_and_may_come_back() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 10, sampling=True, now_seconds=0)
    subject.advance("p", 50, sampling=True, now_seconds=9)
    assert not subject.exclude_silent_proxies(10)
    assert subject.exclude_silent_proxies(11)
    assert subject.watermark_us == 50
    assert subject.counters.silent_proxies == 1
    subject.advance("q", 60, sampling=True, now_seconds=12)
    assert subject.watermark_us == 50
    assert subject.advance("p", 70, sampling=True, now_seconds=12) == 60


def test_a_proxy_that_is_alive_without_new_batches_holds_back_the_watermark() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 5, sampling=True, now_seconds=0)
    subject.proxy_active("q", 10)
    subject.proxy_active("p", 10)
    assert not subject.exclude_silent_proxies(15)
    assert subject.watermark_us == 10


def test_after_a_restart_the_watermark_waits_for_the_proxies_of_the_table() -> None:
    stored = StreamPosition(10, {"p": ProxyPosition(10, True), "q": ProxyPosition(30, True)})
    subject = admission(stored)
    assert subject.watermark_us == 10
    assert subject.advance("q", 40, sampling=True, now_seconds=1) == 10
    assert subject.exclude_silent_proxies(11)
    assert subject.watermark_us == 40


def test_after_a_failed_commit_the_same_rows_are_not_late() -> None:
    subject = admission()
    subject.decide("p", "e", 1)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.committed({("p", "e"): 1}, subject.current_position())
    subject.decide("p", "e", 2)
    subject.advance("p", 20, sampling=True, now_seconds=0)
    subject.roll_back()
    assert subject.watermark_us == 10
    assert subject.decide("p", "e", 2) is Verdict.ACCEPT
    assert subject.advance("p", 20, sampling=True, now_seconds=0) == 20


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 100), st.booleans(), st.integers(0, 8)), max_size=40))
def test_watermark_never_goes_back(events: list[tuple[str, int, bool, int]]) -> None:
    subject, now, before = admission(), 0.0, None
    for proxy, watermark, sampling, pause in events:
        now += pause
        subject.exclude_silent_proxies(now)
        found = subject.advance(proxy, watermark, sampling=sampling, now_seconds=now)
        assert before is None or (found is not None and found >= before)
        before = found


def test_the_next_instant_is_after_all_accepted_stamps_and_not_before_the_watermark() -> None:
    subject = admission()
    assert subject.next_us is None
    subject.note_stamp(40)
    subject.note_stamp(30)
    subject.note_stamp(None)
    assert subject.next_us == 41
    subject.advance("p", 60, sampling=True, now_seconds=0)
    assert subject.next_us == 60
    subject.roll_back()
    assert subject.next_us == 41
