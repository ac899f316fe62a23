"""COMPLETENESS() is the share of the samples that motes took, or should have taken, which reached a query.

The oracle knows more than the proxy: every packet that a mote sent, lost or not. It derives the samples taken from
these, and those that reached the proxy from its batches.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.plan.epoch import Plan
from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.batches import (
    EXPECTED_COLUMN,
    FINGERPRINT_COLUMN,
    MISSING_COLUMN,
    MOTE_COLUMN,
    PANE_COLUMN,
    START_COLUMN,
    Batch,
)
from protocols.wire.packets import Packet, Partial, Sample
from protocols.wire.programs import ListenSchedule
from proxy.fleet.batching import BatchLimits
from proxy.motes.mote_presence import TrackingLimits
from tests.cluster.spark.hosted_run import Run
from tests.system.pushed_down import MINUTE, SECOND, Loses, Outcome, answers, feed, kinds, planned, run, take_in
from tests.system.test_push_down import VEHICLES, Lanes, Road

SILENT = TrackingLimits(silence_after_us=2 * MINUTE)
BEGUN = 2 * MINUTE
"""By then all motes have their programs."""


@dataclass
class Truth:
    """Samples taken and arrived: instants by mote."""

    taken: dict[str, set[int]] = field(default_factory=dict)
    arrived: dict[str, set[int]] = field(default_factory=dict)

    def share(self, motes: Iterable[str], begin_us: int, end_us: int, period_us: int) -> tuple[int, int]:
        """Return how many samples of a window arrived, and how many were taken."""
        grid = range(-(-begin_us // period_us) * period_us, end_us, period_us)
        arrived = sum(at in self.arrived.get(mote, ()) for mote in motes for at in grid)
        return arrived, sum(at in self.taken.get(mote, ()) for mote in motes for at in grid)


def truth_of(outcome: Outcome, period_us: int, world: Road) -> Truth:
    """Return the samples taken and arrived; a mote takes all on its grid from the beginning of its first program."""
    truth = Truth()
    for packet, _ in outcome.sent:
        if packet.program and packet.mote not in truth.taken:
            assert not packet.samples, "it acknowledges the program"
            first_us = -(-packet.promise_us // period_us) * period_us
            truth.taken[packet.mote] = set(range(first_us, world.ends_us, period_us))
    for batch in outcome.batches:
        for row in rows_of(batch):
            truth.arrived.setdefault(row[MOTE_COLUMN], set()).update(covered(row, period_us))
    return truth


def rows_of(batch: Batch) -> Iterable[dict[str, Any]]:
    columns = {column.name: column.values(batch.rows) for column in batch.columns}
    for place in range(batch.rows):
        row = {name: values[place] for name, values in columns.items()}
        if row.get(EXPECTED_COLUMN) is None:
            yield row


def covered(row: dict[str, Any], period_us: int) -> Iterable[int]:
    """Return the instants of the samples that a row represents."""
    at = row[START_COLUMN]
    if row.get(FINGERPRINT_COLUMN) is None:
        return [at]
    begin_us = at - row[PANE_COLUMN] + 1
    return range(-(-begin_us // period_us) * period_us, at + 1, period_us)


SQL = """SELECT segment, COUNT(*) AS n, COMPLETENESS() AS complete{more}
         FROM traffic WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE) {where} GROUP BY segment SAMPLE EVERY {period}"""
SAMPLES = SQL.format(more=", MEDIAN(speed) AS middle", where="", period="2 SECONDS")
PANES = SQL.format(more=", AVG(speed) AS mean", where="", period="2 SECONDS")
WAYS = {
    # The reports of motes, the query, other queries, and samples per packet.
    "all": (SAMPLES, {"others": "SELECT sensor, speed FROM traffic SAMPLE EVERY 2 SECONDS"}, 1),
    "SendOnChange": (SAMPLES, {}, 3),
    "Panes": (PANES, {}, 3),
}
ways = pytest.mark.parametrize("way", list(WAYS))


def run_way(
    way: str, world: Road, folder: Path, *, beyond_reach: frozenset[str] = frozenset(), **options: Any
) -> Outcome:
    """Run a query whose samples motes report in one way, and drop some packets."""
    sql, others, packet = WAYS[way]
    style = ProgramStyle(packet, ListenSchedule(MINUTE, 20_000))
    outcome = run(world, {"q": sql, **others}, folder, style=style, **options)
    reached = [program for mote, program in outcome.programs.items() if mote not in beyond_reach]
    assert {each for program in reached for each in kinds(program)} == {way}
    return outcome


def segments(world: Road) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for mote in world.motes:
        found.setdefault(int(str(mote.properties["segment"])), []).append(mote.name)
    return found


def check(outcome: Outcome, world: Road, name: str = "q", *, period_us: int = 2 * SECOND, every: bool = False) -> int:
    """Compare each row with the truth; return the number of rows with missing samples."""
    assert not outcome.errors
    truth = truth_of(outcome, period_us, world)
    groups, incomplete = segments(world), 0
    assert outcome.rows[name]
    for start, _, row in outcome.rows[name]:
        if start + 1 > world.ends_us and not every:
            continue  # the proxy cannot know that a mote out of reach has nothing to sense any more
        seen, taken = truth.share(groups[row["segment"]], start + 1 - 2 * MINUTE, start + 1, period_us)
        assert seen == row["n"]
        assert row["complete"] == seen / taken, (start - world.begins_us, row, seen, taken)
        incomplete += seen < taken
    return incomplete


def losing(share: float, seed: int, world: Road, after_us: int = BEGUN) -> Loses:
    """Drop packets at random, once all motes have begun."""

    def loses(at_us: int, packet: Packet) -> bool:
        dice = hashlib.blake2b(f"{seed} {packet.mote} {packet.boot} {packet.sequence}".encode(), digest_size=4).digest()
        return at_us >= world.begins_us + after_us and int.from_bytes(dice, "big") < share * 2**32

    return loses


@ways
def test_nothing_is_missing_where_nothing_is_lost(way: str, tmp_path: Path) -> None:
    world = Road(minutes=8)
    assert check(run_way(way, world, tmp_path), world, every=True) == 0


@ways
def test_lost_packets_are_missing(way: str, tmp_path: Path) -> None:
    world = Road(minutes=12)
    assert check(run_way(way, world, tmp_path, loses=losing(0.3, 1, world)), world) > 5


@ways
def test_motes_out_of_reach_are_missing_as_long_as_the_stream_goes_on_without_them(way: str, tmp_path: Path) -> None:
    """One mote is out of reach for good; one for a while, and its packets then come too late."""
    world = Road(minutes=16)

    def loses(at_us: int, packet: Packet) -> bool:
        since_us = at_us - world.begins_us
        return (packet.mote == "m0" and since_us >= 4 * MINUTE) or (
            packet.mote == "m1" and 5 * MINUTE <= since_us < 11 * MINUTE
        )

    outcome = run_way(way, world, tmp_path, beyond_reach=frozenset({"m0"}), loses=loses, tracking=SILENT)
    assert check(outcome, world) > 8
    last = next(row for start, _, row in outcome.rows["q"] if (start + 1, row["segment"]) == (world.ends_us, 3))
    assert last["complete"] == 0.5, "one of two motes of segment 3"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(list(WAYS)),
    st.floats(0, 0.7),
    st.integers(0, 99),
    st.lists(st.tuples(st.integers(0, 2), st.integers(2, 12), st.integers(1, 8)), max_size=3),
)
def test_whatever_is_lost_is_missing(way: str, share: float, seed: int, away: list[tuple[int, int, int]]) -> None:
    """Packets are lost at random, and motes are out of reach for some minutes."""
    world = Road(minutes=14)
    at_random = losing(share, seed, world)

    def loses(at_us: int, packet: Packet) -> bool:
        minute = (at_us - world.begins_us) // MINUTE
        gone = any(packet.mote == f"m{mote}" and begin <= minute < begin + lasts for mote, begin, lasts in away)
        return gone or at_random(at_us, packet)

    with tempfile.TemporaryDirectory() as folder:
        check(run_way(way, world, Path(folder), loses=loses, tracking=SILENT), world)


BANDED = SQL.format(more=", AVG(speed) AS mean", where="WHERE speed < 20", period="2 SECONDS")
JAMS = "SELECT sensor, speed FROM traffic WHERE speed < 20 SAMPLE EVERY 2 SECONDS"


def test_samples_outside_the_condition_count_as_complete(tmp_path: Path) -> None:
    world = Road(minutes=14)
    outcome = run(world, {"q": BANDED, "jams": JAMS}, tmp_path)
    assert {each for program in outcome.programs.values() for each in kinds(program)} == {"bands"}
    assert {row["complete"] for _, _, row in outcome.rows["q"]} == {1.0}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.floats(0.05, 0.7), st.integers(0, 99))
def test_unchanged_samples_near_a_lost_packet_may_count_as_missing(
    one_by_one: bool,
    share: float,
    seed: int,
) -> None:
    """A lost packet may have covered samples without changes. But lost samples never count as complete."""
    world = Road(minutes=14)
    queries = {"q": BANDED, "jams": JAMS} if one_by_one else {"q": BANDED}
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(world, queries, Path(folder), loses=losing(share, seed, world))
    period_us = 2 * SECOND
    truth = truth_of(outcome, period_us, world)
    for mote, panes in counts_of(outcome).items():
        lost = {
            at
            for packet, arrived in outcome.sent
            if packet.mote == mote and not arrived
            for at in instants_of(packet, period_us)
        }
        for end_us, (expected, missing) in panes.items():
            if end_us <= world.ends_us:
                assert expected == truth.share([mote], end_us - MINUTE, end_us, period_us)[1]
                assert sum(end_us - MINUTE <= at < end_us for at in lost) <= missing <= expected


def instants_of(packet: Packet, period_us: int) -> Iterable[int]:
    """Return instants of samples that were surely lost with a packet."""
    for record in packet.records:
        if isinstance(record, Sample):
            yield packet.clock_us - record.age_us
        elif isinstance(record, Partial):
            begin_us = packet.clock_us - record.age_us - record.pane_us + 1
            yield from range(-(-begin_us // period_us) * period_us, begin_us + record.pane_us, period_us)


def counts_of(outcome: Outcome) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the proxy's counts of expected and missing samples, by mote and end of the pane."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for batch in outcome.batches:
        columns = {column.name: column.values(batch.rows) for column in batch.columns}
        if EXPECTED_COLUMN not in columns:
            continue
        for place, expected in enumerate(columns[EXPECTED_COLUMN]):
            if expected is not None:
                mote, end_us = str(columns[MOTE_COLUMN][place]), int(str(columns[START_COLUMN][place])) + 1
                assert end_us not in found.setdefault(mote, {}), "reported once"
                found[mote][end_us] = int(str(expected)), int(str(columns[MISSING_COLUMN][place]))
    return found


FOLDED = {
    "q": PANES,
    "samples": SAMPLES,
    "jams": BANDED,
    "hour": PANES.replace("RANGE 2 MINUTES SLIDE 1 MINUTE", "RANGE 4 MINUTES SLIDE 2 MINUTES"),
    "one": SQL.format(more="", where="WHERE segment = 3 AND speed > flow", period="10 SECONDS"),
    "default": "SELECT segment, MAX(flow) AS flow, COMPLETENESS() AS complete "
    "FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY segment HAVING COMPLETENESS() < 0.95",
    "plain": """SELECT segment, AVG(speed) AS speed, COUNT(*) AS n
        FROM traffic WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE) GROUP BY segment SAMPLE EVERY 2 SECONDS""",
    "all": """SELECT COMPLETENESS() AS complete, COUNT(*) AS n
        FROM traffic WINDOW(RANGE 3 MINUTES SLIDE 1 MINUTE) SAMPLE EVERY 2 SECONDS""",
}


@pytest.mark.parametrize("steps", [1, 7])
def test_folded_with_others_a_query_answers_as_alone(steps: int, tmp_path: Path) -> None:
    world = Road(minutes=14)
    schema = world.motes[0].stream
    everything = run(world, FOLDED, tmp_path / "together", loses=losing(0.2, 5, world), steps=steps)
    assert not everything.errors
    for name, sql in FOLDED.items():
        alone = Run(tmp_path / name, Plan(1, planned({name: sql}, schema)), schema)
        feed(alone, everything.batches, steps, world.ends_us)
        assert not alone.errors
        found = replace(everything, rows=alone.rows)
        assert answers(found, name) == answers(everything, name), name
        assert answers(everything, name), name
    assert any(row["complete"] < 1 for _, _, row in everything.rows["all"])


def test_a_query_for_completeness_does_not_affect_others(tmp_path: Path) -> None:
    world = Road(minutes=10)
    without = {"plain": FOLDED["plain"]}
    alone = run(world, without, tmp_path / "alone", loses=losing(0.2, 5, world))
    beside = run(world, without | {"q": PANES}, tmp_path / "beside", loses=losing(0.2, 5, world))
    assert answers(alone, "plain") == answers(beside, "plain")
    assert alone.programs == beside.programs, "motes do not count"


def test_samples_dropped_for_want_of_room_are_missing(tmp_path: Path) -> None:
    """Each packet makes a batch here, so a queue is too short only for one with many samples."""
    world = Road(minutes=10)
    sql, others, _ = WAYS["all"]
    style = ProgramStyle(20, ListenSchedule(MINUTE, 20_000))
    outcome = run(world, {"q": sql, **others}, tmp_path, style=style, batches=BatchLimits(waiting=16))
    assert check(outcome, world) > 3


def test_queries_for_completeness_may_come_and_go_without_affecting_others(tmp_path: Path) -> None:
    """Others keep their answers; a later one gets those from its beginning on."""
    world = Road(minutes=14)
    schema = world.motes[0].stream
    queries = {name: FOLDED[name] for name in ("plain", "q", "all")}
    whole = run(world, queries, tmp_path / "run", loses=losing(0.2, 5, world))
    batches = whole.batches
    plain, q, everything = planned(queries, schema)
    alone = Run(tmp_path / "alone", Plan(1, (plain,)), schema)
    feed(alone, batches, 5, world.ends_us)
    changing = Run(tmp_path / "changing", Plan(1, (plain,)), schema)
    plans = [Plan(2, (plain, q)), Plan(3, (plain, everything)), Plan(4, (plain,))]
    quarter = len(batches) // 4
    for number, more in enumerate(plans):
        take_in(changing, batches[number * quarter : (number + 1) * quarter], 2)
        changing.plans.write(more)
        changing.step(epoch=more.epoch)
    feed(changing, batches[3 * quarter :], 2, world.ends_us)
    assert not changing.errors
    found, expected = (replace(whole, rows=each.rows) for each in (changing, alone))
    assert answers(found, "plain") == answers(expected, "plain")
    assert answers(found, "q")
    assert answers(found, "all")


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_samples_without_an_event_count_as_complete(share: float, tmp_path: Path) -> None:
    world = Lanes()
    sql = VEHICLES["counts"].replace("COUNT(*) AS n", "COUNT(*) AS n, COMPLETENESS() AS complete")
    outcome = run(world, {"q": sql}, tmp_path, loses=losing(share, 3, world))
    assert not outcome.errors
    found = [row["complete"] for start, _, row in outcome.rows["q"] if start < world.ends_us]
    assert found
    assert (min(found) == 1.0) is (share == 0.0)
    assert all(0 <= each <= 1 for each in found)
