"""A mote with a wrong clock affects its own data only: the answers from other motes are in time, and the same.

right   2026 -------------------------------->
m3      1970                   set right ---->
m4      2100
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.catalog import ClockFault
from protocols.wire.programs import ListenSchedule
from proxy.motes.mote_presence import TrackingLimits
from proxy.running.service import fleet_limits
from proxy.running.settings import ProxySettings
from tests.system.pushed_down import MINUTE, SECOND, Outcome, answers, run
from tests.system.test_push_down import Road

DAY = 86_400 * SECOND
BEGINS = 20_454 * DAY
"""2026-01-01."""
QUERIES = {
    "each": "SELECT sensor, speed, flow FROM traffic SAMPLE EVERY 2 SECONDS",
    "means": """
        SELECT segment, AVG(speed) AS speed, COUNT(*) AS n
        FROM traffic WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE) GROUP BY segment SAMPLE EVERY 2 SECONDS""",
}
DEFAULT = fleet_limits(ProxySettings()).tracking


def answered(
    folder: Path, motes: int, names: list[str], tracking: TrackingLimits = DEFAULT, **wrong_by_us: int
) -> Outcome:
    world = Road(motes=motes, minutes=12, begins_us=BEGINS)
    style = ProgramStyle(1, ListenSchedule(2 * SECOND, 20_000))
    queries = {name: QUERIES[name] for name in names}
    return run(world, queries, folder, style=style, tracking=tracking, wrong_by_us=wrong_by_us)


def delays(outcome: Outcome) -> list[int]:
    """Return how long after each instant the stream's watermark had passed it, at worst: where it goes on, and last."""
    marks = [(at, batch.watermark_us) for at, batch in zip(outcome.cut_us, outcome.batches, strict=True)]
    marks = [(at, mark) for at, mark in marks if mark > BEGINS]
    return [later - mark for (_, mark), (later, _) in pairwise(marks)]


@pytest.mark.parametrize("names", [["each"], ["means"], ["each", "means"]])
@pytest.mark.parametrize(
    "wrong",
    [{"m3": -BEGINS}, {"m3": 27_029 * DAY}, {"m3": -BEGINS, "m4": 27_029 * DAY}],
    ids=["1970", "2100", "1970 and 2100"],
)
def test_right_motes_are_answered_in_time_and_exactly(tmp_path: Path, names: list[str], wrong: dict[str, int]) -> None:
    alone = answered(tmp_path / "alone", 3, names)
    beside = answered(tmp_path / "beside", 3 + len(wrong), names, **wrong)
    assert not beside.errors
    for name in names:
        assert answers(beside, name) == answers(alone, name)
        assert answers(alone, name), "nothing to compare"
    assert max(delays(beside)) <= max(delays(alone)) + 2 * SECOND
    for mote, by_us in wrong.items():
        entry = beside.fleet.entry(mote)
        assert entry is not None
        ahead = by_us > 0
        assert entry.clock_fault is (ClockFault.AHEAD if ahead else ClockFault.BEHIND)
        assert entry.packets_rejected > 0
        # The program of one that is behind begins in 2026, and it takes no samples before its clock shows that.
        assert (entry.samples_ahead > 0, entry.samples_behind) == (ahead, 0)
    assert {each.reason.value for each in beside.refused} <= {"clock_ahead", "clock_behind"}


@pytest.mark.parametrize("behind", [2 * 3_600 * SECOND, BEGINS], ids=["two hours", "1970"])
def test_a_mote_is_included_again_once_its_clock_is_right(tmp_path: Path, behind: int) -> None:
    correcting = replace(DEFAULT, clock_tolerance_us=SECOND // 5)
    alone = answered(tmp_path / "alone", 3, ["each"])
    found = answered(tmp_path / "corrected", 4, ["each"], correcting, m3=-behind)
    entry = found.fleet.entry("m3")
    assert entry is not None
    assert (entry.clock_fault, entry.samples_late) == (None, 0)
    rows = answers(found, "each")
    back = [row for row in rows if '"m3"' in row[2]]
    assert [row for row in rows if row not in back] == answers(alone, "each")
    assert len(back) > len(answers(alone, "each")) / 3 / 2, "it was right for most of the time"
    assert max(delays(found)) <= max(delays(alone)) + 2 * SECOND


def test_without_bounds_one_mote_stops_the_stream(tmp_path: Path) -> None:
    """Without bounds the stream's watermark stops."""
    world = Road(motes=4, minutes=12, begins_us=BEGINS)
    unbounded = fleet_limits(ProxySettings(max_clock_ahead=0, max_clock_behind=0)).tracking
    style = ProgramStyle(1, ListenSchedule(2 * SECOND, 20_000))
    queries = {"each": QUERIES["each"]}
    found = run(world, queries, tmp_path, style=style, tracking=unbounded, wrong_by_us={"m3": -BEGINS})
    assert max(batch.watermark_us for batch in found.batches) < BEGINS + MINUTE, "it stands still"


def test_a_clock_within_the_bounds_is_accepted(tmp_path: Path) -> None:
    found = answered(tmp_path, 4, ["each"], m3=-20 * SECOND)
    entry = found.fleet.entry("m3")
    assert entry is not None
    assert (entry.clock_fault, entry.packets_rejected, entry.samples_ahead, entry.samples_behind) == (None, 0, 0, 0)
    assert 15 * SECOND <= max(delays(found)) < MINUTE
