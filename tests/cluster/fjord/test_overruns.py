"""Overruns: which fragment is to blame, what is left out of a micro-batch, and what is set aside."""

from __future__ import annotations

import msgspec
import pytest

from cluster.fjord.at_work import LOADING, RECORD_BYTES, Activity, AtWork, read_record
from cluster.fjord.overruns import (
    CRASHES,
    STRIKES,
    STRIKES_WITHIN_SECONDS,
    Overrun,
    OverrunKind,
    Strikes,
    WorkLimits,
    WorkMeter,
    stopped_by,
)

MIB = 1024**2
IDLE = Activity("m", None, None, ())


def at_work(owner: str, operator: str | None = "Join", micro_batch: str = "m", since: int = 0) -> Activity:
    return Activity(micro_batch, owner, operator, (owner,), since)


def overrun(kind: OverrunKind, owner: str = "a", micro_batch: str = "m") -> Overrun:
    return Overrun(kind, at_work(owner, micro_batch=micro_batch), "1 s")


def meter(memory_bytes: int = 0, seconds: float = 0.0) -> WorkMeter:
    found = WorkMeter(WorkLimits("folder", memory_bytes, seconds))
    found.begin()
    assert found.measured(IDLE, 0.0, 100 * MIB) is None
    return found


def test_the_fragment_at_work_is_to_blame_if_it_has_taken_much_in_this_part() -> None:
    found = meter(memory_bytes=800 * MIB)
    assert found.measured(at_work("large", since=9), 0.1, 600 * MIB) is None
    assert found.measured(at_work("bomb", since=1), 0.1, 700 * MIB) is None
    overrun = found.measured(at_work("bomb", since=1), 0.1, 801 * MIB)
    assert overrun is not None
    assert overrun.activity == at_work("bomb", since=1)


def test_a_small_one_that_passes_the_limit_is_not_to_blame_but_the_newest_that_has_taken_much() -> None:
    found = meter(memory_bytes=800 * MIB)
    assert found.measured(at_work("old and large", since=1), 0.1, 500 * MIB) is None
    assert found.measured(at_work("grows", since=3), 0.1, 650 * MIB) is None
    assert found.measured(at_work("little", since=7), 0.1, 740 * MIB) is None
    assert found.measured(IDLE, 0.1, 740 * MIB) is None
    found.begin()
    overrun = found.measured(at_work("old and large", "Filter", micro_batch="n", since=1), 0.1, 810 * MIB)
    assert overrun is not None
    assert overrun.kind is OverrunKind.MEMORY
    assert overrun.activity == at_work("grows", None, micro_batch="n", since=3), "for the micro-batch that goes on"
    assert overrun.words == "it took more memory than 800.0 MiB, the limit of a worker"


def test_a_state_that_is_read_is_no_work_that_explodes() -> None:
    found = meter(memory_bytes=800 * MIB)
    assert found.measured(at_work("newer", LOADING, since=3), 0.1, 350 * MIB) is None
    overrun = found.measured(at_work("older", LOADING, since=1), 0.1, 810 * MIB)
    assert overrun is not None
    assert overrun.activity == at_work("newer", None, since=3)


def test_if_none_has_taken_much_it_is_the_one_that_has_taken_most() -> None:
    found = meter(memory_bytes=800 * MIB)
    for number, size in enumerate((750, 780, 799)):
        assert found.measured(IDLE, 0.1, (size - 20 + number) * MIB) is None
        assert found.measured(at_work(str(number), since=number), 0.1, size * MIB) is None
    overrun = found.measured(IDLE, 0.1, 801 * MIB)
    assert overrun is not None
    assert overrun.activity.owner == "0"


def test_what_grows_at_once_is_named_with_its_operator() -> None:
    found = meter(memory_bytes=500 * MIB).measured(at_work("bomb"), 0.1, 600 * MIB)
    assert found is not None
    assert found.words == "it took more memory than 500.0 MiB in operator Join, the limit of a worker"


def test_memory_that_was_there_before_is_nobodys() -> None:
    assert WorkMeter(WorkLimits("folder", 10 * MIB)).measured(IDLE, 0.1, 100 * MIB) is None


def test_memory_given_back_does_not_count() -> None:
    found = meter(memory_bytes=500 * MIB)
    for size in (450, 110, 450, 110):
        assert found.measured(at_work("breathing"), 0.1, size * MIB) is None
    assert found.measured(at_work("grown"), 0.1, 460 * MIB) is None
    overrun = found.measured(at_work("breathing"), 0.1, 501 * MIB)
    assert overrun is not None
    assert overrun.activity.owner == "grown"


def test_time_counts_by_fragment_and_begins_anew_with_each_part() -> None:
    found = meter(seconds=1.0)
    for _ in range(9):
        assert found.measured(at_work("a"), 0.1, MIB) is None
        assert found.measured(at_work("b"), 0.1, MIB) is None
    found.begin()
    for _ in range(9):
        assert found.measured(at_work("a"), 0.1, MIB) is None
    found.measured(at_work("a"), 0.1, MIB)
    late = found.measured(at_work("a"), 0.1, MIB)
    assert late is not None
    assert (late.kind, late.activity.owner) == (OverrunKind.TIME, "a")
    assert late.words == "it took longer than 1 s in operator Join, the limit of a query in a micro-batch"


def test_without_limits_nothing_overruns() -> None:
    assert meter().measured(at_work("a"), 1e9, 1 << 60) is None


@pytest.mark.parametrize("kind", [OverrunKind.MEMORY, OverrunKind.TIME])
def test_an_overrun_is_left_out_at_once(kind: OverrunKind) -> None:
    (reason,) = stopped_by([overrun(kind)]).values()
    assert reason.endswith("and was stopped: what came in this micro-batch is missing in its answers")


def test_workers_that_end_leave_out_a_fragment_only_if_they_do_so_again_and_again() -> None:
    crash = overrun(OverrunKind.CRASH)
    assert stopped_by([crash] * (CRASHES - 1) + [overrun(OverrunKind.CRASH, "b")] * (CRASHES - 1)) == {}
    assert list(stopped_by([crash] * CRASHES)) == ["a"]


def test_the_third_micro_batch_within_an_hour_counts() -> None:
    strikes, known, now = Strikes(), dict[str, list[Overrun]](), 0.0
    for number in range(STRIKES - 1):
        known[str(number)] = [overrun(OverrunKind.TIME, micro_batch=str(number))] * 2
        assert strikes.noted(known, now) == {}, "two buckets of one micro-batch are one"
        assert strikes.noted(known, now) == {}, "what is known does not count again"
        now += 1.0
    known["last"] = [overrun(OverrunKind.MEMORY, micro_batch="last")]
    assert list(strikes.noted(known, now)) == ["a"]
    assert strikes.noted(known, now) == {}, "it begins anew"


def test_strikes_of_more_than_an_hour_ago_do_not_count() -> None:
    strikes, known = Strikes(), dict[str, list[Overrun]]()
    for number in range(3 * STRIKES):
        known[str(number)] = [overrun(OverrunKind.TIME, micro_batch=str(number))]
        assert strikes.noted(known, number * STRIKES_WITHIN_SECONDS / 1.9) == {}


def test_a_fragment_begins_anew_when_its_newest_query_has_gone() -> None:
    strikes, known = Strikes(), dict[str, list[Overrun]]()
    for number in range(STRIKES - 1):
        known[str(number)] = [overrun(OverrunKind.TIME, micro_batch=str(number))]
        assert strikes.noted(known, 0.0, lambda _: "attacker@9") == {}
    known["last"] = [overrun(OverrunKind.TIME, micro_batch="last")]
    assert strikes.noted(known, 0.0, lambda _: "innocent@3") == {}
    assert strikes.noted(known, 0.0, lambda _: "innocent@3") == {}


def test_what_is_freed_at_rest_is_no_more_that_of_the_part() -> None:
    found = meter(memory_bytes=800 * MIB)
    for _ in range(5):
        assert found.measured(at_work("grows", since=1), 0.1, 0) is None
        assert found.measured(at_work("breathes", since=9), 0.1, 300 * MIB) is None
        assert found.measured(IDLE, 0.1, 0) is None
        found.begin()
    assert found.measured(at_work("grows", since=1), 0.1, 700 * MIB) is None
    overrun = found.measured(IDLE, 0.1, 801 * MIB)
    assert overrun is not None
    assert overrun.activity.owner == "grows"


def test_crashes_that_left_nothing_out_are_no_strikes() -> None:
    strikes = Strikes()
    known = {str(number): [overrun(OverrunKind.CRASH, micro_batch=str(number))] for number in range(9)}
    assert strikes.noted(known, 0.0) == {}


def test_a_record_says_what_was_at_work() -> None:
    memory = FakeMap()
    now = AtWork()
    now.record_in(memory)
    now.micro_batch = "m"
    now.shared = {"lookup 1": ("a", "b")}
    now.begin("lookup 1", "Lookup")
    assert read_record(bytes(memory)) == Activity("m", "lookup 1", "Lookup", ("a", "b"))
    now.begin("c")
    assert read_record(bytes(memory)) == Activity("m", "c", None, ("c",))
    now.rest()
    assert read_record(bytes(memory)) == Activity("m", None, None, ())
    now.begin("n" * RECORD_BYTES)
    assert read_record(bytes(memory)) == Activity("m", None, None, ()), "too long to be named"


@pytest.mark.parametrize("content", [b"", bytes(RECORD_BYTES), b"\x00\x09[1,", b"\xff\xff" + b"[" * 64])
def test_a_broken_record_says_nothing(content: bytes) -> None:
    assert read_record(content) is None


def test_overruns_are_stored_as_text() -> None:
    found = overrun(OverrunKind.MEMORY)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Overrun) == found


class FakeMap(bytearray):
    """Memory with the size of a record."""

    def __init__(self) -> None:
        super().__init__(RECORD_BYTES)
