"""Admission: each batch once, in order; the watermark waits for proxies that sample, and for no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.admission import HELD_SECONDS, StreamAdmission, Verdict, WaitedFor
from cluster.storage.stream_tables import ProxyPosition, StreamPosition


def admission(position: StreamPosition | None = None, gone_after: float | None = None) -> StreamAdmission:
    found = StreamAdmission(position or StreamPosition(), gone_after=lambda: gone_after)
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


def test_a_proxy_whose_batches_do_not_fit_is_waited_for_half_a_minute() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    subject.decide("p", "e", 1, fits=False)
    assert (subject.holds("p"), subject.holds("q")) == (True, False)
    assert not subject.time_passed("pq", HELD_SECONDS, counted_seconds=0)
    assert subject.time_passed("pq", HELD_SECONDS + 1, counted_seconds=0)
    assert (subject.watermark_us, subject.gone()) == (50, [])
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


def test_a_proxy_that_is_gone_holds_time_for_ever() -> None:
    subject = admission()
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 20, sampling=True, now_seconds=0)
    for now in range(0, 1_000_000, 10_000):
        assert not subject.time_passed("q", now, counted_seconds=10_000)
        assert subject.advance("q", 20 + now, sampling=True, now_seconds=now) == 10
    assert subject.waited_for(1_000_000) == WaitedFor("p", True, 1_000_000)
    assert subject.advance("p", 500, sampling=True, now_seconds=1_000_000) == 500


def test_an_author_may_go_on_without_a_proxy_that_is_gone_until_it_comes_back() -> None:
    subject = admission(gone_after=10)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    assert not subject.time_passed("q", 6, counted_seconds=6)
    assert not subject.time_passed("q", 1_000, counted_seconds=3)  # it is only certain that it was away for three
    assert subject.time_passed("q", 1_001, counted_seconds=1)
    assert (subject.watermark_us, subject.gone(), subject.counters.silent_proxies) == (50, ["p"], 1)
    assert subject.current_position().proxies["p"] == ProxyPosition(10, True, gone=True)
    subject.advance("q", 60, sampling=True, now_seconds=1_002)
    subject.time_passed("pq", 1_003, counted_seconds=1)  # it is back, and has sent nothing yet
    assert subject.advance("q", 70, sampling=True, now_seconds=1_004) == 60
    assert subject.advance("p", 65, sampling=True, now_seconds=1_005) == 65


def test_what_is_not_certain_gives_proxies_all_their_time_again() -> None:
    subject = admission(gone_after=10)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    for now in range(9, 900, 9):
        assert not subject.time_passed("q", now, counted_seconds=9, anew=True)
    assert subject.time_passed("q", 901, counted_seconds=9)


def test_a_batch_of_a_proxy_that_seems_to_be_away_gives_it_all_its_time_again() -> None:
    subject = admission(gone_after=10)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    subject.advance("q", 50, sampling=True, now_seconds=0)
    for now in range(9, 900, 9):
        subject.proxy_active("p", now)
        assert not subject.time_passed("q", now, counted_seconds=9)


def test_the_only_proxy_is_not_passed_either() -> None:
    subject = admission(gone_after=10)
    subject.advance("p", 10, sampling=True, now_seconds=0)
    assert not subject.time_passed("", 100, counted_seconds=100)
    assert (subject.watermark_us, subject.waited_for(100)) == (10, None)


def test_without_a_proxy_that_was_gone_the_stream_goes_on_after_a_restart_too() -> None:
    stored = StreamPosition(10, {"p": ProxyPosition(10, True, gone=True), "q": ProxyPosition(30, True)})
    subject = admission(stored)
    assert subject.advance("q", 40, sampling=True, now_seconds=1) == 40


def test_after_a_restart_the_watermark_waits_for_the_proxies_of_the_table() -> None:
    stored = StreamPosition(10, {"p": ProxyPosition(10, True), "q": ProxyPosition(30, True)})
    subject = admission(stored, gone_after=10)
    assert subject.watermark_us == 10
    assert subject.advance("q", 40, sampling=True, now_seconds=1) == 10
    assert subject.time_passed("q", 11, counted_seconds=10)
    assert subject.watermark_us == 40


# Proxies whose motes are all silent go on in their place: their batches have `sampling` false, and move the watermark.


def test_of_proxies_whose_motes_are_silent_the_one_furthest_behind_counts() -> None:
    """p's samples may be 30 old when they come, q's 5: what p's motes bring when they are back must not be late."""
    subject = admission()
    for name, us in (("p", 100), ("q", 110)):
        subject.advance(name, us, sampling=True, now_seconds=0)
        subject.advance(name, us + 1, sampling=False, now_seconds=0)
    for now in range(150, 300, 10):
        subject.advance("q", now - 5, sampling=False, now_seconds=now)
        found = subject.advance("p", now - 30, sampling=False, now_seconds=now)
        assert found == now - 30
    assert subject.waited_for(300) == WaitedFor("p", False, 10)
    # The motes of p are back, with a sample that is 30 old: it is not late.
    assert (subject.watermark_us or 0) <= 300 - 30


def test_a_proxy_that_samples_is_not_passed_by_one_whose_motes_are_silent_nor_held_by_it() -> None:
    subject = admission()
    subject.advance("p", 100, sampling=True, now_seconds=0)
    subject.advance("q", 90, sampling=True, now_seconds=0)
    assert subject.advance("q", 200, sampling=False, now_seconds=0) == 100
    assert subject.advance("q", 300, sampling=False, now_seconds=0) == 100
    assert subject.advance("p", 310, sampling=True, now_seconds=0) == 310


def test_the_spool_of_a_proxy_whose_motes_were_silent_when_it_went_is_not_late() -> None:
    subject = admission()
    for name in "pq":
        subject.advance(name, 100, sampling=True, now_seconds=0)
        subject.advance(name, 110, sampling=False, now_seconds=0)
    subject.time_passed("p", 1, counted_seconds=1)
    for us in range(120, 1_000, 10):
        assert subject.advance("p", us, sampling=us % 20 == 0, now_seconds=us) == 110
    assert subject.waited_for(1_000) == WaitedFor("q", True, 1_000)
    # Its motes have been back meanwhile: what it spooled since 110 is in time.
    assert subject.advance("q", 400, sampling=True, now_seconds=1_000) == 400


def test_a_proxy_whose_motes_sleep_holds_nothing_back_whether_it_is_there_or_not() -> None:
    subject = admission()
    for name in "pq":
        subject.advance(name, 100, sampling=True, now_seconds=0)
    subject.advance("q", 100, sampling=False, now_seconds=0)
    subject.time_passed("p", 1, counted_seconds=1)
    assert subject.advance("p", 120, sampling=True, now_seconds=1) == 120
    assert subject.advance("p", 130, sampling=False, now_seconds=1) == 130


def test_rows_that_came_too_late_are_counted_by_proxy() -> None:
    subject = admission()
    subject.note_late("p", 3)
    subject.note_late("q", 1)
    subject.note_late("p", 2)
    assert (subject.counters.late_rows, subject.late_of) == (6, {"p": 5, "q": 1})


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
    subject, now, before = admission(gone_after=10), 0.0, None
    for proxy, watermark, sampling, pause in events:
        now += pause
        subject.time_passed("", now, counted_seconds=pause)
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


def test_a_batch_of_another_writer_is_contested_whether_it_is_next_or_repeated() -> None:
    subject = admission()
    ours, other = b"1" * 8, b"2" * 8
    unknown = bytes(8)
    decisions = [
        (1, ours, unknown, Verdict.ACCEPT),
        (2, ours, ours, Verdict.ACCEPT),
        (2, other, ours, Verdict.CONTESTED),
        (1, other, unknown, Verdict.CONTESTED),
        (3, other, other, Verdict.CONTESTED),
        (3, b"", b"", Verdict.GAP),  # of a proxy that does not know yet that writers are read
        (2, ours, ours, Verdict.REPEATED),
        (3, other, ours, Verdict.ACCEPT),  # the folder was used by another process
        (2, ours, ours, Verdict.REPEATED),
        (5, ours, ours, Verdict.GAP),
        (4, other, other, Verdict.ACCEPT),
    ]
    for sequence, writer, follows, expected in decisions:
        assert subject.decide("p", "e", sequence, writer=writer, follows=follows) is expected
    assert (subject.counters.contested, subject.contested_of) == (3, {"p": 3})
    subject.roll_back()
    assert subject.decide("p", "e", 1, writer=other, follows=unknown) is Verdict.ACCEPT
