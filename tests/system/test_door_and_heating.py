"""What held for how long, end to end: simulated rooms, a lossy radio, proxies, broker, cluster, result topics.

    a1 ... a4   all queries need only changes: these are sent
    b1 ... b4   the same rooms; one more query needs all samples of these
    c1 ... c4   only changes, two days later, over a radio that loses packets

Answers about a and b are those of brute force over what the motes sensed; of c is claimed what has held, and the rest
is NULL.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from firmware_sim.phenomena.indoor_climate import IndoorClimate
from protocols.mqtt.link import Message, MqttLink, Subscription
from protocols.wire import topics
from tests.cluster.oracle.scripted_runs import micros
from tests.cluster.oracle.test_door_while_heating import BOUNDED, QUERY
from tests.system.waiting import wait_for

if TYPE_CHECKING:
    from cluster.demo.parts import Child
    from tests.system.conftest import RunningCluster

pytestmark = [pytest.mark.system, pytest.mark.spark]

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
MIDNIGHT = round(datetime(2012, 3, 1, tzinfo=UTC).timestamp()) * SECOND
BEGIN, END = MIDNIGHT + 570 * MINUTE, MIDNIGHT + 605 * MINUTE
"""From half past nine to five past ten."""
PERIOD = 10 * SECOND
ROOMS = 4
SPEED = "90"
LATER = 2 * DAY
QUERIES = {
    "door": QUERY,
    "bounded": BOUNDED,
    "doors": """
        SELECT s.room, s.door_open, VALID(s) AS held
        FROM climate WINDOW(RANGE 30 MINUTES SLIDE 5 MINUTES) COALESCE(door_open BY room) AS s""",
    # Example 1 of the paper on coalescing, and 2, about values above a limit.
    "alike": """
        SELECT s1.room, s2.room AS other, INTERSECT(VALID(s1), VALID(s2)) AS both
        FROM climate WINDOW(RANGE 60 MINUTES SLIDE 1 MINUTE) COALESCE(humidity BY room) AS s1,
             climate WINDOW(RANGE 60 MINUTES SLIDE 1 MINUTE) COALESCE(humidity BY room) AS s2
        WHERE s1.room <> s2.room AND s1.humidity ~= s2.humidity AND VALID(s1) OVERLAPS VALID(s2)
          AND DURATION(INTERSECT(VALID(s1), VALID(s2))) >= INTERVAL '4' MINUTE AND s1.room < 'b'""",
    "longest": """
        SELECT s.room, EXTRACT(EPOCH FROM MAX(DURATION(VALID(s)))) AS seconds
        FROM (SELECT room, humidity > 45 AS high FROM climate) WINDOW(RANGE 24 HOURS SLIDE 1 HOUR)
        COALESCE(high BY room) AS s WHERE s.high GROUP BY s.room""",
}
ALL_SAMPLES = {
    "climates": "SELECT room, door_open, humidity FROM climate WHERE room BETWEEN 'b' AND 'b9'",
    "heaters": "SELECT heater, running FROM heaters WHERE heater BETWEEN 'h-b' AND 'h-b9'",
}
Samples = dict[str, list[tuple[int, Any]]]
Run = tuple[Any, int, int]


@dataclass
class Sensed:
    """What motes sensed, by room: stamps and values."""

    door_open: Samples = field(default_factory=dict)
    humidity: Samples = field(default_factory=dict)
    running: Samples = field(default_factory=dict)

    @classmethod
    def of(cls, prefixes: str, begin: int, end: int) -> Sensed:
        """Sense rooms whose thermostats heat below 20.5 degC until 21 degC; humidity comes in steps of 4 %."""
        world, found = IndoorClimate(ROOMS, seed=9), cls()
        for prefix, mote in product(prefixes, range(ROOMS)):
            room, runs = f"{prefix}{mote + 1}", False
            columns: list[list[tuple[int, Any]]] = [[], [], []]
            for at in range(begin, end, PERIOD):
                warmth, humidity, is_open = world.sense(mote, at, ("temperature", "humidity", "door_open"))
                assert isinstance(warmth, float)
                assert isinstance(humidity, float)
                runs = warmth < 20.5 or (runs and warmth < 21.0)
                for column, value in zip(columns, (is_open, round(humidity / 4) * 4.0, runs), strict=True):
                    column.append((at, value))
            found.door_open[room], found.humidity[room], found.running[room] = columns
        return found

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write the traces of climate and heating."""
        climate, heating = folder / f"{name}-climate.parquet", folder / f"{name}-heating.parquet"
        rows = [
            (at, room, is_open, humidity)
            for room in self.door_open
            for (at, is_open), (_, humidity) in zip(self.door_open[room], self.humidity[room], strict=True)
        ]
        pl.DataFrame(rows, ["time", "room", "door_open", "humidity"], orient="row").write_parquet(climate)
        states = [(at, f"h-{room}", runs) for room, those in self.running.items() for at, runs in those]
        pl.DataFrame(states, ["time", "heater", "running"], orient="row").write_parquet(heating)
        return climate, heating


def runs(samples: list[tuple[int, Any]], since: int, until: int) -> list[Run]:
    """Return the coalesced rows of the samples in a window: value, begin and end."""
    there = [each for each in samples if since <= each[0] < until]
    found: list[Run] = []
    for (at, value), (after, _) in pairwise([*there, (there[-1][0], None)] if there else []):
        if found and found[-1][0] == value and found[-1][2] == at:
            found[-1] = (value, found[-1][1], after)
        else:
            found.append((value, at, after))
    return found


def lasting(samples: list[tuple[int, Any]], until: int, most: int) -> list[Run]:
    """Return each sample before an instant until the next one of all samples, or for as long as it holds at most."""
    after = [at for at, _ in samples][1:]
    ends = [*after, samples[-1][0] + most]
    return [(value, at, min(end, at + most)) for (at, value), end in zip(samples, ends, strict=True) if at < until]


def in_common(one: list[Run], other: list[Run]) -> float | None:
    """Return for how many seconds both are on; None if no two rows overlap."""
    both = [
        min(end, last) - max(begin, first)
        for on, begin, end in one
        for too, first, last in other
        if on and too and begin < last and first < end
    ]
    return sum(both) / SECOND if both else None


def expected(name: str, sensed: Sensed, at: int) -> dict[tuple[str, ...], Any]:
    """Return the answer at the last microsecond before an instant, a multiple of the slide, by its keys."""
    match name:
        case "door":
            sums = {
                room: in_common(runs(doors, at // DAY * DAY, at), runs(sensed.running[room], at // DAY * DAY, at))
                for room, doors in sensed.door_open.items()
            }
            return {(room,): seconds for room, seconds in sums.items() if seconds is not None}
        case "bounded":
            sums = {
                room: in_common(lasting(doors, at, 2 * MINUTE), lasting(sensed.running[room], at, 2 * MINUTE))
                for room, doors in sensed.door_open.items()
            }
            return {(room,): seconds for room, seconds in sums.items() if seconds is not None}
        case "doors":
            found = {room: runs(doors, at - 30 * MINUTE, at) for room, doors in sensed.door_open.items()}
            return {(room, begin, end): value for room, those in found.items() for value, begin, end in those}
        case "alike":
            those = {room: runs(samples, at - 60 * MINUTE, at) for room, samples in sensed.humidity.items()}
            return {
                (room, other, max(begin, first), min(end, last)): True
                for room in those for other in those if room != other and room < "b"
                for value, begin, end in those[room]
                for too, first, last in those[other]
                if value == too and begin < last and first < end and min(end, last) - max(begin, first) >= 4 * MINUTE
            }  # fmt: skip
        case _:
            high = {room: [(at, value > 45) for at, value in samples] for room, samples in sensed.humidity.items()}
            spans = {
                room: [end - begin for on, begin, end in runs(samples, at - DAY, at) if on]
                for room, samples in high.items()
            }
            return {(room,): max(those) / SECOND for room, those in spans.items() if those}


def found_at(name: str, messages: list[dict[str, Any]], at: int) -> dict[tuple[str, ...], Any]:
    """Return the rows of a query's messages that are valid just before an instant, by their keys."""
    answers: dict[tuple[str, ...], Any] = {}
    for message in messages:
        row = message["row"]
        ends = message.get("end")
        if not micros(message["start"]) < at or (ends is not None and micros(ends) < at):
            continue
        match name:
            case "doors":
                answers[row["room"], micros(row["held_start"]), micros(row["held_end"])] = row["door_open"]
            case "alike":
                answers[row["room"], row["other"], micros(row["both_start"]), micros(row["both_end"])] = True
            case _:
                answers[(row["room"],)] = row["seconds"]
    return answers


@contextmanager
def subscribed(cluster: RunningCluster) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Collect what is published on the result topics of all queries."""
    received: dict[str, list[dict[str, Any]]] = {name: [] for name in QUERIES}
    seen: set[tuple[str, int]] = set()

    async def receive(message: Message) -> None:
        name, body = message.topic.rpartition("/")[2], json.loads(message.payload)
        if name in received and (name, body["sequence"]) not in seen:
            seen.add((name, body["sequence"]))
            received[name].append(body)

    loop, subscriptions = asyncio.new_event_loop(), [Subscription(topics.results(name)) for name in QUERIES]
    link = MqttLink(cluster.parts.broker, client_id="door-test", subscriptions=subscriptions)
    task = loop.create_task(link.run(receive))
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.wait([task]),))
    thread.start()
    try:
        yield received
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def start(cluster: RunningCluster, traces: tuple[Path, Path], *more: str) -> list[Child]:
    """Start the motes of a trace of each stream."""
    columns = (("climates", "room", "climate"), ("heatings", "heater", "heaters"))
    options = ("--resample", "--speed", SPEED, "--hold", "60s", "--exit-at-end", *more)
    return [
        cluster.parts.start_motes(
            proxy, "--trace", str(path), "--sensor-column", column, "--stream", stream, *options,
            *(("--counters", f"{path}.json") if proxy == "climates" else ()),
        )
        for path, (proxy, column, stream) in zip(traces, columns, strict=True)
    ]  # fmt: skip


def joules(traces: tuple[Path, Path]) -> dict[str, float]:
    """Return what each mote of a climate has drawn."""
    motes = json.loads(Path(f"{traces[0]}.json").read_text())["motes"]
    return {name: sum(mote["joules"].values()) for name, mote in motes.items()}


def doing(cluster: RunningCluster) -> dict[str, str]:
    """Return what each room's mote does, in words."""
    rows = cluster.api.sensors(sql="SELECT sensor, doing FROM sensors WHERE stream = 'climate'")["rows"]
    return {row["sensor"]: row["doing"] or "" for row in rows}


def run_motes(cluster: RunningCluster, traces: tuple[Path, Path], *more: str) -> dict[str, str]:
    """Let motes sense a trace of each stream to its end; return what those of the rooms did, in words."""
    children = start(cluster, traces, *more)
    found: dict[str, str] = {}

    def have_ended() -> bool:
        found.update(doing(cluster))
        return all(child.process.poll() is not None for child in children)

    wait_for(have_ended, "the motes end", seconds=300)
    return found


@pytest.mark.proof
def test_what_held_for_how_long_reaches_topics_whatever_is_sent(cluster: RunningCluster, tmp_path: Path) -> None:
    api, parts = cluster.api, cluster.parts
    api.declare("CREATE STREAM climate (room TEXT FIXED, door_open BOOLEAN, humidity REAL) SOURCE mqtt()")
    api.declare("CREATE STREAM heaters (heater TEXT FIXED, running BOOLEAN) SOURCE mqtt()")
    api.declare("CREATE STREAM heating AS SELECT SUBSTRING(heater, 3) AS room, running FROM heaters")
    assert api.explain(QUERY).count("only changes: one that equals the one before may stay away") == 2
    for proxy in ("climates", "heatings"):
        parts.start_proxy(proxy, "--silence-after", "60s")
    api.add(QUERIES["alike"], "before")
    api.add(QUERIES["door"], "before_too")
    earlier = Sensed.of("w", BEGIN - 2 * DAY, BEGIN - 2 * DAY + 8 * MINUTE)
    run_motes(cluster, earlier.write(tmp_path, "before"))  # proxies observe that little changes
    clean, lossy = Sensed.of("ab", BEGIN, END), Sensed.of("c", BEGIN + LATER, END + LATER)
    traces = clean.write(tmp_path, "clean")
    radio = tmp_path / "radio.toml"
    radio.write_text('maximum_attempts = 1\n[loss]\nkind = "bernoulli"\nshare = 0.25\n')
    with subscribed(cluster) as received:
        for name, sql in QUERIES.items() | ALL_SAMPLES.items():
            api.add(sql, name)
        for name in ("before", "before_too"):
            api.drop(name)
        did = run_motes(cluster, traces)
        for name in QUERIES:
            instants = ends_of_slides(name)
            assert expected(name, clean, instants[-1]), "there is something to compare"
            wait_for(
                lambda name=name, at=instants[-1]: found_at(name, received[name], at) == expected(name, clean, at),
                f"answers of {name}",
                seconds=150,
            )
            for at in instants:
                assert found_at(name, received[name], at) == expected(name, clean, at), (name, at)
        for room, words in did.items():
            assert ("when changed by more than 0" in words) == (room[0] != "b"), room
        drawn = joules(traces)
        assert sum(drawn[f"a{number + 1}"] for number in range(ROOMS)) < 0.9 * sum(
            drawn[f"b{number + 1}"] for number in range(ROOMS)
        )
        run_motes(cluster, lossy.write(tmp_path, "lossy"), "--radio", str(radio))
        last = ends_of_slides("doors")[-1] + LATER
        wait_for(lambda: found_at("doors", received["doors"], last), "answers after the loss", seconds=150)
        check_claims(received["doors"], lossy)
        for at in ends_of_slides("door"):
            most = expected("door", lossy, at + LATER)
            for key, seconds in found_at("door", received["door"], at + LATER).items():
                assert seconds <= most.get(key, 0.0), "no more than has been"
    for name in (*QUERIES, *ALL_SAMPLES):
        api.drop(name)


def ends_of_slides(name: str) -> list[int]:
    """Return the instants at which the window of a query moves, while motes sense."""
    slide = {"alike": MINUTE, "longest": 60 * MINUTE}.get(name, 5 * MINUTE)
    return list(range(BEGIN // slide * slide + slide, END + 1, slide))


def check_claims(messages: list[dict[str, Any]], sensed: Sensed) -> None:
    """Check that the rows of rooms with a bad radio claim what has held, and have NULL where that is not known."""
    unknown = 0
    for row in (message["row"] for message in messages if message["row"]["room"] in sensed.door_open):
        begin, end = micros(row["held_start"]), micros(row["held_end"])
        truth = {value for at, value in sensed.door_open[row["room"]] if begin <= at < end}
        unknown += row["door_open"] is None
        assert row["door_open"] is None or truth <= {row["door_open"]}
    assert unknown, "packets were lost"
