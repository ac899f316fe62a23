"""The Spark driver is killed while queries migrate: they answer what one of their plans answers that runs alone.

    epochs      1        2       3       4 ...      queries go on with their other plans, and back, again and again
    driver      |--------------X  |---X  |----X     killed in the middle of migrations, and started again

The driver goes on in one folder. It is killed until so many migrations have had a kill in their middle: two, or as
``make migrations SPARK=200`` asks for (FJORD_MIGRATIONS).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import msgspec
import polars as pl
import pytest
from msgspec.structs import replace

from cluster.fjord.batch import NEVER
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Distinct, Join, Node, Project, Source, TimeWindow
from cluster.operators.columns import Output
from cluster.operators.scalar_expressions import column_scalar
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration
from cluster.physical.nodes import Host
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.plan.extents import with_keeping
from cluster.plan.rewrite import rewrite
from tests.cluster.plan.plans import condition, where
from tests.system.stored_day import READINGS, ROWS, STEP_US, start, store_stream, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults]

WANTED = int(os.environ.get("FJORD_MIGRATIONS", "2"))
MARGIN = 1.5
"""So many times as many migrations are there: some begin and end between two kills."""
VERSION_US = ROWS * STEP_US
Row = tuple[int, int, str]


@dataclass(frozen=True)
class Migrating:
    """A query and two of its plans; those of `changes` answer differently.

    Of those that are `alone` there is one. Those that go on `beside` others migrate whenever these do, a version later:
    they meet in one fragment.
    """

    old: Node
    new: Node
    early: bool = False
    changes: bool = False
    alone: bool = False
    beside: str | None = None


def planned(text: str) -> Node:
    return rewrite(translate(text, Catalog.of([READINGS])).node).node


def filtered(text: str) -> Node:
    """The plan of a query, with another filter on top."""
    return where(planned(text), "k >= 0")


def readings(name: str, size_us: int) -> Node:
    """A window of the stream, with columns of other names."""
    source = Source(READINGS.name, planned("SELECT k, x FROM readings").schema)
    return Project(
        TimeWindow(source, size_us),
        tuple(Output(f"{name}{each.name}", column_scalar(each)) for each in source.columns),
    )


def pairs(left: Node, right: Node) -> Node:
    joined = Join(left, right, condition("ak = bk AND ax < 50 AND bx > 900"))
    columns = {each.name: each for each in joined.schema}
    return Project(joined, tuple(Output(name, column_scalar(columns[name])) for name in ("ak", "ax", "bx")))


def distinct(*, below: bool) -> Node:
    """Keys of large values that are there within the last 200 milliseconds, and pairs of them."""
    sides = []
    for name, most in (("a", 200_000), ("b", 300_000)):
        rows = where(readings(name, most), f"{name}x > 980")
        key = Project(rows, (Output(f"{name}k", column_scalar(rows.schema[0])),))
        sides.append(Distinct(key) if below else key)
    joined = Join(*sides, condition("ak = bk"))
    return joined if below else Distinct(joined)


def coalesced(how: str, window: str, *, beside: str | None = None) -> Migrating:
    """Rows of samples that are compared as they come, and then whenever the window changes."""
    plan = planned(f"SELECT k, x, VALID(r) AS held FROM readings WINDOW({window}) COALESCE({how}) AS r")
    return Migrating(with_keeping(plan, "eager"), with_keeping(plan, "lazy"), alone=True, beside=beside)


TOTALS = "SELECT k, SUM(x) AS total FROM readings WINDOW(RANGE {} MILLISECONDS SLIDE 200 MILLISECONDS) GROUP BY k"
LARGEST = "SELECT k, MAX(x) AS most FROM readings WINDOW(RANGE 300 MILLISECONDS) WHERE x > 950 GROUP BY k"
SOME = "SELECT k, x FROM readings WHERE x < 60"
NEAR, RISING = "x TOLERANCE 300 BY k", "x BY k WHILE x > PREV(x)"
ALONE, TOGETHER = "RANGE 300 MILLISECONDS", "RANGE 400 MILLISECONDS SLIDE 50 MILLISECONDS"
LONGEST_US = 1_000_000
"""No row lasts longer, and no answer is later."""
PLANS = {
    "some": Migrating(planned(SOME), filtered(SOME)),
    "pairs": Migrating(
        pairs(readings("a", 200_000), readings("b", 1)), pairs(readings("b", 1), readings("a", 200_000))
    ),
    "totals": Migrating(planned(TOTALS.format(600)), filtered(TOTALS.format(600))),
    "longer": Migrating(planned(TOTALS.format(200)), planned(TOTALS.format(600)), changes=True),
    "shorter": Migrating(planned(TOTALS.format(600)), planned(TOTALS.format(400)), changes=True),
    "distinct": Migrating(distinct(below=False), distinct(below=True)),
    "largest": Migrating(planned(LARGEST), filtered(LARGEST)),
    "early": Migrating(planned(LARGEST), filtered(LARGEST), early=True),
    "near": coalesced(NEAR, ALONE),
    "stepped": coalesced(RISING, "RANGE 200 MILLISECONDS SLIDE 100 MILLISECONDS"),
    "together": coalesced(NEAR, TOGETHER),
    "rising": coalesced(RISING, TOGETHER, beside="together"),
}
COPIES = min(1 + WANTED // 20, 3)
QUERIES = {f"{name}_{number}": each for name, each in PLANS.items() for number in range(1 if each.alone else COPIES)}
"""Several of each if many migrations are wanted: more are under way at a time, and hit by one kill."""
CUT = ("longer", "shorter", "distinct", "together", "rising")
"""Queries whose rows are cut and stay so: at the instants, or where samples end that only older queries see.

Of the others all rows are those of one plan.
"""


@dataclass(frozen=True)
class Step:
    """A migration of a query: between which versions of the stream both plans are there, and where they change."""

    begins: int
    ends: int
    handover: Handover


def steps_of(query: Migrating, dice: random.Random) -> Iterator[Step]:
    """Yield the migrations of a query to its other plan, and back, and so on."""
    plans, before, at = (query.old, query.new), None, dice.randrange(4, 10) + (query.beside is not None)
    for number in count():
        migration = Migration(plans[number % 2], plans[1 - number % 2])
        before = migration.handover((at * ROWS - 1) * STEP_US, before)
        ends = max(-(-before.opens_us // VERSION_US), at + 2) + dice.choice((0, 0, 3))
        yield Step(at, ends, before)
        at = ends + dice.randrange(1, 4)


def schedule(dice: random.Random, wanted: int) -> tuple[int, dict[str, list[Step]]]:
    """Return how many versions of the stream are needed for so many migrations, and these by query."""
    seeds = {name: dice.random() for name, each in QUERIES.items() if each.beside is None}
    for name, each in QUERIES.items():
        if each.beside is not None:
            seeds[name] = seeds[f"{each.beside}_{name.partition('_')[2]}"]
    coming = {name: steps_of(each, random.Random(seeds[name])) for name, each in QUERIES.items()}
    following = {name: next(each) for name, each in coming.items()}
    found: dict[str, list[Step]] = {name: [] for name in QUERIES}
    while sum(map(len, found.values())) < wanted or not all(found.values()):
        name = min(following, key=lambda each: following[each].ends)
        found[name].append(following[name])
        following[name] = next(coming[name])
    last = max(step.ends for steps in found.values() for step in steps)
    return last + 2 * LONGEST_US // VERSION_US, found


def write_plans(files: PlanFiles, steps: Mapping[str, Sequence[Step]]) -> None:
    """Write the plans of all epochs."""
    queries = {name: (PlannedQuery(name, 1, each.old, each.early),) for name, each in QUERIES.items()}
    files.write(lower(Plan(1, tuple(one for each in queries.values() for one in each), {READINGS.name: 0})))
    events = [
        (version, ends, name, number)
        for name, each in steps.items()
        for number, step in enumerate(each)
        for ends, version in enumerate((step.begins, step.ends))
    ]
    for epoch, (version, ends, name, number) in enumerate(sorted(events), 2):
        if ends:
            queries[name] = queries[name][1:]
        else:
            handover, (running,) = steps[name][number].handover, queries[name]
            node = QUERIES[name].old if number % 2 else QUERIES[name].new
            following = PlannedQuery(name, epoch, node, running.early, since=handover)
            queries[name] = replace(running, until=handover), following
        of_all = sorted((one for each in queries.values() for one in each), key=lambda one: one.since_epoch)
        files.write(lower(Plan(epoch, tuple(of_all), {READINGS.name: version})))


def alone(stored: Sequence[pl.DataFrame]) -> Mapping[str, list[Row]]:
    """Run each plan from the beginning, in one process; return its rows, those of new plans as `name new`."""
    running = [PlannedQuery(name, 1, each.old) for name, each in PLANS.items()]
    running += [PlannedQuery(f"{name} new", 1, each.new) for name, each in PLANS.items() if each.changes]
    engine = LocalEngine(Plan(1, tuple(running)), buckets=2, keeps_state=False)
    found: dict[str, list[Row]] = {each.name: [] for each in running}
    ends = [*((number + 1) * VERSION_US for number in range(len(stored))), NEVER]
    for rows, watermark in zip([*stored, None], ends, strict=True):
        pieces = () if rows is None else (RowsInMemory(rows.drop("fjord_mote")),)
        for query, begin, end, _, row in engine.run({READINGS.name: Arrival(pieces, watermark)}).rows.iter_rows():
            found[query].append((begin, end, row))
    return found


def closed(rows: pl.DataFrame) -> list[Row]:
    """Return the rows of a query whose end is known; those that were opened get it of what closes them."""
    opened: dict[int, str] = dict(rows.filter(kind="open").select("sequence", "row").iter_rows())
    found = []
    for start_us, end_us, kind, row, closes in rows.select("start_us", "end_us", "kind", "row", "closes").iter_rows():
        assert kind in ("row", "open", "closes"), row
        if kind == "closes":
            assert opened.pop(closes) == row
        if kind != "open":
            found.append((start_us, end_us, row))
    return found


def changes(rows: Sequence[Row], since_us: int, below_us: int) -> Counter[tuple[int, str]]:
    """Return, by instant and row, by how many more or fewer there are than just before: equal for equal snapshots."""
    found = Counter[tuple[int, str]]()
    for begin, end, row in rows:
        first, last = max(begin, since_us), min(end, below_us)
        if first < last:
            found[first, row] += 1
            found[last, row] -= 1
    return Counter({change: by for change, by in found.items() if by and change[0] < below_us})


def share_whole_samples(files: PlanFiles) -> bool:
    """Return whether there is an epoch in which different extents are coalesced from the same samples, lazily."""
    fragments = (each for epoch in range(1, files.newest() + 1) for each in files.read(epoch).fragments)
    extents = (({each.extent for each in fragment.subscribers if each.extent is not None}) for fragment in fragments)
    return any(len(each) > 1 for each in extents)


def compare(
    name: str, steps: Sequence[Step], found: Sequence[Row], expected: Mapping[str, list[Row]], last_us: int
) -> None:
    """Compare the answers of a query with those of its plans alone, given their name, each between two migrations."""
    plans = expected[name], expected.get(f"{name} new", expected[name])
    instants = [0, *(step.handover.at_us for step in steps), last_us]
    for number, (since_us, below_us) in enumerate(pairwise(instants)):
        assert changes(found, since_us, below_us) == changes(plans[number % 2], since_us, below_us), (name, since_us)
        assert changes(found, since_us, below_us), "it answers between two migrations"
    if name not in CUT:
        assert sorted(row for row in found if row[1] < last_us) == sorted(row for row in plans[0] if row[1] < last_us)


class KilledDriver:
    """A driver that is killed and started again, in one folder.

    Parameters
    ----------
    folder
        The folder, with stream and plans.
    dice
        Decides when.
    """

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._folder, self._dice = folder, dice
        self._plans = PlanFiles(folder / "plans")
        self.hit: set[tuple[str, int]] = set()
        """The migrations that have had a kill in their middle: query, and the epoch of its new plan."""
        self.kills = 0

    def kill_once(self) -> bool:
        """Kill it in the middle of a migration; False if it had come to the end before."""
        goal = self._begun + self._dice.randint(1, 6 * COPIES)
        with self._started() as driver:
            while driver.poll() is None and (self._begun < goal or not self._under_way):
                time.sleep(0.01)
            time.sleep(self._dice.uniform(0.0, 0.4))
            killed = driver.poll() is None
            os.killpg(driver.pid, signal.SIGKILL)
        self.hit |= self._under_way if killed else set()
        self.kills += killed
        return killed

    def finish(self) -> None:
        """Let it come to the end."""
        with self._started() as driver:
            wait_for(driver, "done")

    def _started(self) -> subprocess.Popen[str]:
        driver = start(self._folder, returned=self._dice.choice((0, 100_000)), rows=ROWS)
        wait_for(driver, "running")
        return driver

    @property
    def _begun(self) -> int:
        """The micro-batch that was begun last; 0 before the first."""
        log = self._folder / "checkpoint" / Host.STATEFUL.value / "offsets"
        return max((int(path.name) for path in log.glob("[0-9]*")), default=0)

    @property
    def _under_way(self) -> set[tuple[str, int]]:
        """The migrations that are under way in that micro-batch."""
        path = self._folder / "checkpoint" / Host.STATEFUL.value / "offsets" / str(self._begun)
        try:
            offset = msgspec.json.decode(path.read_text().splitlines()[-1])
        except (OSError, IndexError, msgspec.DecodeError):
            return set()  # it is being written
        if not isinstance(offset, dict) or not self._plans.exists(epoch := int(offset.get("epoch", 0))):
            return set()
        subscribers = self._plans.read(epoch).subscribers.values()
        handing = {each.query for each in subscribers if each.until is not None}
        return {(each.query, each.visible_from) for each in subscribers if each.since and each.query in handing}


@pytest.mark.proof
def test_killed_while_queries_migrate_it_answers_as_one_plan_alone(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    dice = random.Random(seed)
    versions, steps = schedule(dice, round(WANTED * MARGIN))
    expected = alone(store_stream(tmp_path, versions))
    write_plans(PlanFiles(tmp_path / "plans"), steps)
    assert share_whole_samples(PlanFiles(tmp_path / "plans"))
    driver = KilledDriver(tmp_path, dice)
    while len(driver.hit) < WANTED and driver.kill_once():
        sys.stderr.write(f"seed {seed}: {driver.kills} kills, {len(driver.hit)} of {WANTED} migrations hit\n")
    driver.finish()
    assert len(driver.hit) >= WANTED, "it had ended before it was killed often enough"
    answers = pl.read_delta(str(tmp_path / "results")).sort("query", "sequence")
    last_us = versions * VERSION_US - LONGEST_US
    for name, each in steps.items():
        rows = answers.filter(query=name)
        assert rows["sequence"].to_list() == list(range(1, rows.height + 1)), "no number twice, none left out"
        begun = rows.filter(pl.col("kind") != "closes")["start_us"].to_list()
        for step in each:
            behind = [begin >= step.handover.at_us for begin in begun]
            assert behind == sorted(behind), f"seed {seed}: {name} is out of order"
        compare(name.partition("_")[0], each, closed(rows), expected, last_us)
