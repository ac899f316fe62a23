"""A query that only asks what held for how long needs changes only; its answers are those of all samples.

Where packets are lost, what is not known any more is NULL from the mote's low watermark on.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from firmware_sim.mote.mote_events import MoteDescription
from protocols.acquisition.program_reports import ProgramStyle
from protocols.wire.packets import Packet, SampleValue
from protocols.wire.programs import ListenSchedule
from protocols.wire.streams import Field, FieldType, StreamSchema
from proxy.motes.mote_events import Rejection
from proxy.motes.mote_presence import TrackingLimits
from tests.cluster.oracle.scripted_runs import micros
from tests.system.pushed_down import MINUTE, SECOND, Loses, Outcome, answers, kinds, run

ROOMS = StreamSchema(
    "rooms",
    (
        Field("room", FieldType.TEXT, fixed=True),
        Field("floor", FieldType.INTEGER, fixed=True),
        Field("open", FieldType.BOOLEAN),
        Field("mode", FieldType.TEXT),
        Field("level", FieldType.REAL),
        Field("warmth", FieldType.REAL),
    ),
)
PERIOD_US = 5 * SECOND
LISTEN = ListenSchedule(20 * SECOND, 20_000)
ONE = ProgramStyle(1, LISTEN)


class Rooms:
    """Doors, modes and levels stay as they are for a while; warmth never does. Values are a function of the instant."""

    def __init__(self, motes: int = 2, minutes: int = 40, seed: int = 1) -> None:
        self.begins_us = 7 * 86_400 * SECOND
        self.ends_us = self.begins_us + minutes * MINUTE
        self._seed = seed
        self.motes = [
            MoteDescription(f"m{place}", "room", ROOMS, {"room": f"r{place}", "floor": place // 2}, PERIOD_US, SECOND)
            for place in range(motes)
        ]

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[SampleValue, ...]:
        return tuple(self.value(mote, instant_us, name) for name in fields)

    def value(self, mote: int, instant_us: int, name: str) -> SampleValue:
        second = instant_us // SECOND
        if name == "warmth":
            return second % 997 / 8
        lasts = {"open": 70, "mode": 400, "level": 130}[name]
        dice = hashlib.blake2b(f"{self._seed} {mote} {name} {second // lasts}".encode(), digest_size=1).digest()[0]
        match name:
            case "open":
                return dice < 90
            case "mode":
                return ("heat", "cool", "off")[dice % 3]
            case _:
                return None if dice < 20 else dice % 4 / 2


CHANGES = {
    "doors": """
        SELECT s.room, s.open, VALID(s) AS held FROM rooms WINDOW(RANGE 10 MINUTES SLIDE 1 MINUTE)
        COALESCE(open BY room) AS s""",
    "modes": """
        SELECT room, mode, DURATION(VALID(s)) AS d FROM rooms WINDOW(RANGE 20 MINUTES) COALESCE(mode BY room) AS s""",
    "both": """
        SELECT s.room, MAX(DURATION(VALID(s))) AS longest
        FROM rooms SAMPLE EVERY 10 SECONDS WINDOW(RANGE 15 MINUTES SLIDE 5 MINUTES) COALESCE(open, level BY room) AS s
        WHERE s.open GROUP BY s.room""",
    "near": """
        SELECT room, level FROM rooms WINDOW(RANGE 10 MINUTES SLIDE 2 MINUTES)
        COALESCE(level TOLERANCE 0.5 BY room) AS s""",
    "held": "SELECT room, open FROM rooms VALID UNTIL NEXT BY room MAX 1 MINUTE WHERE open",
    "open_rooms": "SELECT COUNT(*) AS n FROM rooms VALID UNTIL NEXT BY room MAX 2 MINUTES WHERE open",
    "warm": """
        SELECT room, MAX(DURATION(VALID(s))) AS longest
        FROM (SELECT room, warmth > 60 AS warm FROM rooms) WINDOW(RANGE 15 MINUTES SLIDE 5 MINUTES)
        COALESCE(warm BY room) AS s WHERE warm GROUP BY room""",
    "together": """
        SELECT a.room, SUM(EXTRACT(EPOCH FROM DURATION(INTERSECT(VALID(a), VALID(b))))) AS seconds
        FROM rooms WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES) COALESCE(open BY room) AS a,
             rooms WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES) COALESCE(mode BY room) AS b
        WHERE a.room = b.room AND a.open AND b.mode = 'heat' AND VALID(a) OVERLAPS VALID(b) GROUP BY a.room""",
}
OTHERS = {
    "samples": "SELECT room, open FROM rooms WHERE floor = 0",
    "closed": "SELECT room, level FROM rooms WHERE level < 0.5",
    "means": "SELECT room, AVG(warmth) AS w FROM rooms WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE) GROUP BY room",
    "levels": "SELECT COUNT(level) AS n, SUM(level) AS s FROM rooms WINDOW(RANGE 5 MINUTES SLIDE 5 MINUTES)",
}
QUERIES = CHANGES | OTHERS


def outcome(
    names: list[str], *, raw: bool = False, style: ProgramStyle = ONE, minutes: int = 40, loses: Loses | None = None,
    seed: int = 1, later: dict[str, int] | None = None, steps: int = 4, late: bool = False, waits: bool = True,
) -> Outcome:  # fmt: skip
    queries = {name: QUERIES[name] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        found = run(
            Rooms(minutes=minutes, seed=seed), queries, Path(folder), raw=raw, style=style, loses=loses, steps=steps,
            added_after_us=later,
            tracking=TrackingLimits(60 * MINUTE if waits else None),
        )  # fmt: skip
    assert not found.errors
    assert not found.refused or (late and {each.reason for each in found.refused} == {Rejection.LATE})
    return found


def snapshots(found: Outcome, name: str) -> dict[tuple[str, int], int]:
    """Return how many rows of each kind begin at each instant, less those that end: rows may be cut anywhere."""
    counts: Counter[tuple[str, int]] = Counter()
    for start, end, row in answers(found, name):
        counts[row, start] += 1
        counts[row, end] -= 1
    return {place: count for place, count in counts.items() if count}


def seen(found: Outcome) -> set[str]:
    return {kind for program in found.programs.values() for kind in kinds(program)}


@pytest.mark.parametrize("name", list(CHANGES))
def test_answers_are_those_of_all_samples(name: str) -> None:
    pushed, raw = outcome([name]), outcome([name], raw=True)
    assert snapshots(pushed, name) == snapshots(raw, name) != {}
    assert seen(pushed) == ({"all"} if name == "warm" else {"SendOnChange"}), "only what seldom changes is worth it"
    assert seen(raw) == {"all"}
    if name != "warm":
        assert pushed.joules < raw.joules


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(st.sampled_from(list(QUERIES)), min_size=1, max_size=4, unique=True),
    st.sampled_from([ONE, ProgramStyle(7, LISTEN), ProgramStyle(1, ListenSchedule(5 * SECOND, 20_000), 15 * SECOND)]),
    st.integers(1, 1_000),
    st.integers(1, 4),
)
@example(["doors", "samples"], ONE, 1, 3)
@example(["doors", "means"], ONE, 1, 3)
@example(["doors", "levels", "open_rooms"], ProgramStyle(7, LISTEN), 1, 3)
def test_mixed_demands_get_what_they_need(names: list[str], style: ProgramStyle, seed: int, steps: int) -> None:
    """One query that needs all samples of a mote has all, and the others the same answers as ever."""
    pushed = outcome(names, style=style, minutes=25, seed=seed, steps=steps)
    raw = outcome(names, raw=True, style=style, minutes=25, seed=seed, steps=steps)
    for name in names:
        assert snapshots(pushed, name) == snapshots(raw, name), name
    if "samples" in names:
        assert "SendOnChange" not in kinds(pushed.programs["m0"])


def test_queries_that_come_later_change_what_is_sent_and_no_answer() -> None:
    alone = outcome(["doors", "open_rooms"])
    later = {"samples": 12 * MINUTE, "means": 20 * MINUTE}
    together = outcome(["doors", "open_rooms", *later], later=later)
    assert together.programs != alone.programs
    for name in ("doors", "open_rooms"):
        assert snapshots(together, name) == snapshots(alone, name) != {}


def losing(share: float, seed: int) -> Loses:
    """Lose packets at random, and all of a mote in some half minutes, as soon as changes only are sent."""

    def lost(at_us: int, packet: Packet) -> bool:
        def chance(*what: object) -> float:
            text = " ".join(map(str, (seed, packet.mote, *what)))
            return hashlib.blake2b(text.encode(), digest_size=1).digest()[0] / 256

        minute = (at_us - Rooms().begins_us) // MINUTE
        if not 13 <= minute < 37:
            return False
        return chance(packet.sequence) < share or chance("outage", at_us // (30 * SECOND)) < share / 3

    return lost


@dataclass
class Known:
    """What of a mote's samples can be known at its proxy, by the packets that came through."""

    unknown: list[tuple[int, int]]
    """From the low watermark before a loss up to the next sample that came."""
    sampled_us: list[int]

    @classmethod
    def of(cls, found: Outcome, mote: str, begins_us: int, ends_us: int) -> Known:
        unknown: list[tuple[int, int]] = []
        low_us, since_us, gap = begins_us, None, False
        first_us: int | None = None
        for packet, came in sorted(
            (each for each in found.sent if each[0].mote == mote), key=lambda each: each[0].sequence
        ):
            if not came:
                gap = True
                continue
            if gap and since_us is None:
                since_us = -(-low_us // PERIOD_US) * PERIOD_US
            gap = False
            for sample in packet.samples:
                stamp_us = packet.clock_us - sample.age_us
                first_us = stamp_us if first_us is None else first_us
                if since_us is not None:
                    unknown += [(since_us, stamp_us)] if since_us < stamp_us else []
                    since_us = None
            low_us = packet.promise_us
        assert first_us is not None
        return cls(unknown, list(range(first_us, ends_us, PERIOD_US)))

    def is_known(self, instant_us: int) -> bool:
        return not any(begin <= instant_us < end for begin, end in self.unknown)


LOST = {"doors": "open", "modes_held": "mode"}
QUERIES["modes_held"] = CHANGES["modes"].replace("DURATION(VALID(s)) AS d", "VALID(s) AS held")


@pytest.mark.parametrize("name", list(LOST))
@pytest.mark.parametrize(
    ("share", "seed", "waits"), [(0.1, 1, True), (0.3, 2, True), (0.6, 3, True), (0.4, 5, False), (0.6, 4, False)]
)
def test_what_is_lost_ends_validity_at_the_low_watermark(name: str, share: float, seed: int, *, waits: bool) -> None:
    """Also if the stream does not wait for a silent mote; then samples may be late, and less is known."""
    world, column = Rooms(), LOST[name]
    found = outcome([name], loses=losing(share, seed), late=not waits, waits=waits)
    assert any(not came for _, came in found.sent)
    assert seen(found) == {"SendOnChange"}
    rows = [
        (int(row["room"][1:]), micros(row["held_start"]), micros(row["held_end"]), row[column])
        for _, _, row in found.rows[name]
    ]
    assert any(value is None for *_, value in rows), "rows say what is not known"
    for mote, description in enumerate(world.motes):
        known = Known.of(found, description.name, world.begins_us, world.ends_us)
        assert known.unknown
        claimed: set[int] = set()
        for begin_us, end_us, value in (row[1:] for row in rows if row[0] == mote):
            instants = range(begin_us, end_us, PERIOD_US)
            if value is None:
                assert not (waits and any(map(known.is_known, instants))), "what is known is not taken for unknown"
                continue
            claimed.update(instants)
            assert all(map(known.is_known, instants)), "validity ends where nothing is known any more"
            assert {world.value(mote, each, column) for each in instants} <= {value}, "what is claimed has held"
        if waits:
            assert {each for each in known.sampled_us[:-12] if known.is_known(each)} <= claimed, "all known counts"
