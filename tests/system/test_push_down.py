"""Push-down changes the cost of a query, not its answers."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firmware_sim.mote.mote_events import MoteDescription
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.system.pushed_down import MINUTE, SECOND, answers, kinds, run

SCHEMA = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.INTEGER),
    ),
)


class Road:
    """Speeds in quarters, so that sums are exact in any order; some are slow, some NULL."""

    def __init__(self, motes: int = 3, minutes: int = 30, begins_us: int = 7 * 86_400 * SECOND) -> None:
        self.begins_us = begins_us
        self.ends_us = begins_us + minutes * MINUTE
        self.motes = [
            MoteDescription(
                f"m{number}",
                "loop",
                SCHEMA,
                {"sensor": f"m{number}", "segment": number % 2 + 3},
                10 * SECOND,
                SECOND // 2,
            )
            for number in range(motes)
        ]

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[float | int | None, ...]:
        values: dict[str, float | int | None] = {
            "speed": self.speed(mote, instant_us),
            "flow": instant_us // SECOND % 7,
        }
        return tuple(values[name] for name in fields)

    def speed(self, mote: int, instant_us: int) -> float | None:
        second = instant_us // SECOND
        dice = hashlib.blake2b(f"{mote} {second // 4}".encode(), digest_size=2).digest()
        if dice[0] == 0:
            return None
        slow = (second // 200 + mote) % 5 == 0
        return (dice[1] % 60 / 4) if slow else 40 + dice[1] % 160 / 4


QUERIES = {
    "means": """
        SELECT segment, AVG(speed) AS speed, COUNT(*) AS n
        FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) GROUP BY segment SAMPLE EVERY 2 SECONDS""",
    "extremes": """
        SELECT MIN(speed) AS low, MAX(speed) AS high, SUM(flow) AS flow
        FROM traffic WINDOW(RANGE 10 MINUTES SLIDE 5 MINUTES) SAMPLE EVERY 30 SECONDS""",
    "slow": "SELECT sensor, speed FROM traffic WHERE speed < 10 SAMPLE EVERY 2 SECONDS",
    "slow_share": """
        SELECT segment, COUNT(*) AS n FROM traffic WINDOW(RANGE 4 MINUTES SLIDE 2 MINUTES)
        WHERE speed BETWEEN 5 AND 45 AND segment = 3 GROUP BY segment SAMPLE EVERY 2 SECONDS""",
    "third": "SELECT sensor, speed, flow FROM traffic WHERE segment = 4 SAMPLE EVERY 20 SECONDS",
    "middle": """
        SELECT segment, MEDIAN(speed) AS speed
        FROM traffic WINDOW(RANGE 3 MINUTES SLIDE 1 MINUTE) GROUP BY segment SAMPLE EVERY 1 MINUTE""",
    "odd": """
        SELECT COUNT(speed) AS n, COUNT(*) AS samples
        FROM traffic WINDOW(RANGE 3 MINUTES SLIDE 1 MINUTE) WHERE speed > flow""",
}


def same_answers(folder: Path, names: list[str], **options: object) -> dict[str, list[str]]:
    queries = {name: QUERIES[name] for name in names}
    pushed = run(Road(), queries, folder / "pushed", **options)  # type: ignore[arg-type]
    raw = run(Road(), queries, folder / "raw", raw=True, **options)  # type: ignore[arg-type]
    assert not pushed.errors
    assert not pushed.refused
    for name in names:
        assert answers(pushed, name) == answers(raw, name), name
        assert answers(raw, name), "nothing to compare"
    assert pushed.joules <= raw.joules * 1.01
    return {mote: kinds(program) for mote, program in pushed.programs.items()}


@pytest.mark.parametrize("names", [
    ["means"], ["extremes"], ["slow"], ["means", "slow"], ["means", "extremes", "slow_share"],
    ["means", "third"], ["slow", "slow_share", "third", "middle"], ["odd", "means"], list(QUERIES),
])  # fmt: skip
def test_answers_are_those_of_raw_sampling(names: list[str], tmp_path: Path) -> None:
    found = same_answers(tmp_path, names)
    if names == ["means"]:
        assert found == {name: ["Panes"] for name in ("m0", "m1", "m2")}
    if names == ["means", "third"]:
        assert "Panes" in found["m0"], "segment 3 sends panes"
        assert found["m1"] != found["m0"], "segment 4 sends samples: raw and partial meet in one query"


periods = st.sampled_from(["", " SAMPLE EVERY 2 SECONDS", " SAMPLE EVERY 4 SECONDS", " SAMPLE EVERY 30 SECONDS"])
conditions = st.lists(
    st.sampled_from([
        "speed < 10", "speed >= 40.25", "speed BETWEEN 5 AND 60", "flow IN (1, 2, 5)", "flow > 2.5", "segment = 3",
        "segment <> 4", "speed > flow", "sensor LIKE 'm%'", "speed < 50 OR speed > 70", "NOT (flow = 3)",
    ]),
    max_size=2, unique=True,
).map(lambda parts: f" WHERE {' AND '.join(f'({part})' for part in parts)}" if parts else "")  # fmt: skip
windows = st.sampled_from([
    "RANGE 2 MINUTES SLIDE 1 MINUTE", "RANGE 3 MINUTES SLIDE 3 MINUTES", "RANGE 1 MINUTE SLIDE 30 SECONDS",
    "RANGE 5 MINUTES SLIDE 2 MINUTES",
])  # fmt: skip
measured = st.lists(
    st.sampled_from([
        "AVG(speed) AS a", "SUM(flow) AS b", "COUNT(*) AS c", "COUNT(speed) AS d", "MIN(speed) AS e", "MAX(flow) AS f",
        "SUM(speed) / COUNT(*) AS g", "MAX(speed) - MIN(speed) AS h", "STDDEV(flow) AS i",
    ]),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip


@st.composite
def random_query(draw: st.DrawFn) -> str:
    """A selection, or a windowed aggregate."""
    if draw(st.integers(0, 2)) == 0:
        return f"SELECT sensor, speed, flow FROM traffic{draw(conditions)}{draw(periods)}"
    keys = draw(st.sampled_from([[], ["segment"], ["sensor"], ["segment", "flow"]]))
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    shown = ", ".join([*keys, *draw(measured)])
    return f"SELECT {shown} FROM traffic WINDOW({draw(windows)}){draw(conditions)}{grouped}{draw(periods)}"


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(random_query(), min_size=1, max_size=4), st.sampled_from(["telosb", "micaz"]), st.integers(1, 4))
def test_answers_to_random_queries_are_those_of_raw_sampling(texts: list[str], device: str, steps: int) -> None:
    queries = {f"q{number}": sql for number, sql in enumerate(texts)}
    with tempfile.TemporaryDirectory() as folder:
        world = Road(motes=2, minutes=14)
        pushed = run(world, queries, Path(folder) / "pushed", device=device, steps=steps)
        raw = run(world, queries, Path(folder) / "raw", raw=True, device=device, steps=steps)
    assert not pushed.errors
    assert not pushed.refused
    for name, sql in queries.items():
        assert close(answers(pushed, name), answers(raw, name)), sql


def close(one: list[tuple[int, int, str]], other: list[tuple[int, int, str]]) -> bool:
    """Return whether instants and values are the same; a variance may differ in the last digits, as merging may."""
    if len(one) != len(other):
        return False
    for (start, end, row), (start_too, end_too, row_too) in zip(one, other, strict=True):
        values, values_too = json.loads(row), json.loads(row_too)
        if (start, end) != (start_too, end_too) or values.keys() != values_too.keys():
            return False
        if not all(_close(value, values_too[name]) for name, value in values.items()):
            return False
    return True


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


def test_later_queries_do_not_affect_running_ones(tmp_path: Path) -> None:
    """They change what the sensors run, in the middle of panes."""
    first = {name: QUERIES[name] for name in ("means", "extremes", "slow")}
    alone = run(Road(), first, tmp_path / "alone")
    everything = {**first, **{name: QUERIES[name] for name in ("slow_share", "third", "middle", "odd")}}
    everything["finer"] = QUERIES["means"].replace("SLIDE 1 MINUTE", "SLIDE 10 SECONDS")
    later = {
        "slow_share": 8 * MINUTE,
        "third": 13 * MINUTE,
        "middle": 13 * MINUTE,
        "odd": 20 * MINUTE,
        "finer": 9 * MINUTE,
    }
    together = run(Road(), everything, tmp_path / "together", added_after_us=later)
    assert together.programs != alone.programs
    assert not together.refused
    for name in first:
        assert answers(together, name) == answers(alone, name), name


def test_within_a_tolerance_values_differ_by_no_more(tmp_path: Path) -> None:
    sql = "SELECT sensor, speed WITHIN 30.0 FROM traffic SAMPLE EVERY 2 SECONDS"
    rough = run(Road(), {"q": sql}, tmp_path / "rough")
    exact = run(Road(), {"q": sql.replace(" WITHIN 30.0", "")}, tmp_path / "exact", raw=True)
    assert {kind for program in rough.programs.values() for kind in kinds(program)} == {"SendOnChange"}, (
        "once the proxy has observed how little values change"
    )
    found = {(start, row["sensor"]): row["speed"] for start, _, row in rough.rows["q"]}
    true = {(start, row["sensor"]): row["speed"] for start, _, row in exact.rows["q"]}
    assert found.keys() == true.keys()
    assert len(found) > 2000
    for key, value in found.items():
        assert (value is None) == (true[key] is None)
        assert value is None or abs(value - true[key]) <= 30.0
    assert found != true
    assert rough.joules < exact.joules


ROAD = StreamSchema(
    "road",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("lane", FieldType.INTEGER, fixed=True),
        Field("level", FieldType.REAL),
    ),
)
EVENTS = "road EVENTS(level ABOVE 0.6 BELOW 0.4)"
VEHICLES = {
    "passages": f"SELECT sensor, passing_us FROM {EVENTS} SAMPLE EVERY 100 MS",
    "counts": f"""
        SELECT lane, COUNT(*) AS n FROM {EVENTS} WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE)
        GROUP BY lane SAMPLE EVERY 100 MS""",
    "lengths": f"""
        SELECT AVG(passing_us) AS us, COUNT(*) AS n FROM {EVENTS} WINDOW(RANGE 2 MINUTES SLIDE 1 MINUTE)
        WHERE lane = 1 SAMPLE EVERY 100 MS""",
    "slower": f"SELECT COUNT(*) AS n FROM {EVENTS} WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) SAMPLE EVERY 200 MS",
    "levels": "SELECT sensor, level FROM road WHERE level > 0.9 SAMPLE EVERY 1 SECOND",
}


class Lanes(Road):
    """Vehicles of random lengths at random times; levels rise and fall over three samples."""

    def __init__(self, minutes: int = 8) -> None:
        super().__init__(minutes=minutes)
        self.motes = [
            MoteDescription(f"r{lane}", "magnetometer", ROAD, {"sensor": f"r{lane}", "lane": lane}, SECOND, 50_000)
            for lane in (1, 2)
        ]

    def sense(self, mote: int, instant_us: int, fields: tuple[str, ...]) -> tuple[float | int | None, ...]:
        slot, within = divmod(instant_us, 5 * SECOND)
        dice = hashlib.blake2b(f"{mote} {slot}".encode(), digest_size=3).digest()
        begins, lasts = SECOND + dice[0] * 10_000, 300_000 + dice[1] * 2_000
        if dice[2] < 100:
            return (0.0,)
        rising, falling = (within - begins) / 250_000, (begins + lasts - within) / 250_000
        return (min(max(min(rising, falling), 0.0), 1.0),)


@pytest.mark.parametrize("names", [
    ["passages"], ["counts"], ["lengths"], ["passages", "counts"], ["counts", "slower"], ["counts", "levels"],
    list(VEHICLES),
])  # fmt: skip
def test_events_are_the_same_wherever_they_are_detected(names: list[str], tmp_path: Path) -> None:
    queries = {name: VEHICLES[name] for name in names}
    on_motes = run(Lanes(), queries, tmp_path / "motes")
    at_the_proxy = run(Lanes(), queries, tmp_path / "proxy", raw=True)
    assert not on_motes.errors
    assert not on_motes.refused
    assert not at_the_proxy.refused
    for name in names:
        assert answers(on_motes, name) == answers(at_the_proxy, name), name
        assert answers(on_motes, name)
    seen = {kind for program in on_motes.programs.values() for kind in kinds(program)}
    assert seen & {"VehicleEvents", "VehicleCount"}
    assert on_motes.joules < at_the_proxy.joules
