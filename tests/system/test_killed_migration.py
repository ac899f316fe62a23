"""The Spark driver is killed while queries migrate: they answer what one of their plans answers that runs alone.

    epochs      1        2       3       4 ...      a query begins to migrate, or its plan before ends, with each
    driver      |--------------X  |-----------|     killed at a random instant, and started again

One run by default; ``make migrations SPARK=200`` asks for more (FJORD_MIGRATIONS).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from cluster.fjord.batch import NEVER
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import Distinct, Join, Node, Project, Source, TimeWindow, schema_of
from cluster.language.catalog import Catalog
from cluster.language.columns import Output
from cluster.language.plans import column_scalar
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from tests.cluster.plan.plans import condition, where
from tests.system.stored_day import READINGS, ROWS, STEP_US, VERSIONS, start, store_stream, wait_for

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.faults]

RUNS = int(os.environ.get("FJORD_MIGRATIONS", "1"))
VERSION_US = ROWS * STEP_US
Row = tuple[int, int, str]


@dataclass(frozen=True)
class Migrating:
    """A query and two of its plans; those of `changes` answer differently."""

    old: Node
    new: Node
    early: bool = False
    changes: bool = False


def planned(text: str) -> Node:
    return rewrite(translate(text, Catalog.of([READINGS])).node).node


def filtered(text: str) -> Node:
    """The plan of a query, with another filter on top."""
    return where(planned(text), "k >= 0")


def readings(name: str, size_us: int) -> Node:
    """A window of the stream, with columns of other names."""
    source = Source(READINGS.name, schema_of(planned("SELECT k, x FROM readings")))
    return Project(
        TimeWindow(source, size_us),
        tuple(Output(f"{name}{each.name}", column_scalar(each)) for each in source.columns),
    )


def pairs(left: Node, right: Node) -> Node:
    joined = Join(left, right, condition("ak = bk AND ax < 100 AND bx > 800"))
    columns = {each.name: each for each in schema_of(joined)}
    return Project(joined, tuple(Output(name, column_scalar(columns[name])) for name in ("ak", "ax", "bx")))


def distinct(*, below: bool) -> Node:
    """Keys of large values that are there within the last 20 milliseconds, and pairs of them."""
    sides = []
    for name, most in (("a", 20_000), ("b", 30_000)):
        rows = where(readings(name, most), f"{name}x > 900")
        key = Project(rows, (Output(f"{name}k", column_scalar(schema_of(rows)[0])),))
        sides.append(Distinct(key) if below else key)
    joined = Join(*sides, condition("ak = bk"))
    return joined if below else Distinct(joined)


TOTALS = "SELECT k, SUM(x) AS total FROM readings WINDOW(RANGE {} SECONDS SLIDE 1 SECOND) GROUP BY k"
LARGEST = "SELECT k, MAX(x) AS most FROM readings WINDOW(RANGE 30 MILLISECONDS) WHERE x > 800 GROUP BY k"
SOME = "SELECT k, x FROM readings WHERE x < 60"
QUERIES = {
    "some": Migrating(planned(SOME), filtered(SOME)),
    "pairs": Migrating(pairs(readings("a", 20_000), readings("b", 1)), pairs(readings("b", 1), readings("a", 20_000))),
    "totals": Migrating(planned(TOTALS.format(2)), filtered(TOTALS.format(2))),
    "longer": Migrating(planned(TOTALS.format(1)), planned(TOTALS.format(3)), changes=True),
    "shorter": Migrating(planned(TOTALS.format(3)), planned(TOTALS.format(2)), changes=True),
    "distinct": Migrating(distinct(below=False), distinct(below=True)),
    "largest": Migrating(planned(LARGEST), filtered(LARGEST)),
    "early": Migrating(planned(LARGEST), filtered(LARGEST), early=True),
}


WHOLE = ("totals", "largest", "early")
"""Queries whose rows are cut at the instant, and put together again."""


@dataclass(frozen=True)
class Ran:
    """When a query goes on with its other plan, and whether rows are cut there."""

    at_us: int
    cut: bool


def write_plans(folder: Path, dice: random.Random) -> dict[str, Ran]:
    """Write the plans of all epochs, in which each query migrates at a version of its own."""
    found: dict[str, Ran] = {}
    events: list[tuple[int, int, str]] = []
    queries: dict[str, tuple[PlannedQuery, ...]] = {}
    decided = {}
    for name, each in QUERIES.items():
        migration, ends = Migration(each.old, each.new), VERSIONS
        while ends > VERSIONS - 12:
            begins = dice.randrange(5, VERSIONS)
            handover = migration.handover((begins * ROWS - 1) * STEP_US)
            ends = -(-handover.opens_us // VERSION_US) + dice.choice((0, 0, 3))
        queries[name] = (PlannedQuery(name, 1, each.old, each.early),)
        events += [(begins, 0, name), (ends, 1, name)]
        decided[name] = handover
        found[name] = Ran(handover.at_us, migration.cut)
    files = PlanFiles(folder / "plans")

    def write(epoch: int, version: int) -> None:
        running = sorted((one for each in queries.values() for one in each), key=lambda one: one.since_epoch)
        files.write(lower(Plan(epoch, tuple(running), {READINGS.name: version})))

    write(1, 0)
    for epoch, (version, ends, name) in enumerate(sorted(events), 2):
        each, handover = QUERIES[name], decided[name]
        if ends:
            queries[name] = queries[name][1:]
        else:
            new = PlannedQuery(name, epoch, each.new, each.early, since=handover)
            queries[name] = replace(queries[name][0], until=handover), new
        write(epoch, version)
    return found


def alone(stored: Sequence[pl.DataFrame]) -> Mapping[str, list[Row]]:
    """Run each plan from the beginning, in one process; return its rows, those of new plans as `name new`."""
    running = [PlannedQuery(name, 1, each.old) for name, each in QUERIES.items()]
    running += [PlannedQuery(f"{name} new", 1, each.new) for name, each in QUERIES.items() if each.changes]
    engine = LocalEngine(Plan(1, tuple(running)), buckets=2)
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


def valid_at(rows: Sequence[Row], instant: int) -> Counter[str]:
    return Counter(row for begin, end, row in rows if begin <= instant < end)


def compare(name: str, ran: Ran, found: list[Row], expected: Mapping[str, list[Row]]) -> None:
    """Compare the answers of a query with those of its plans alone, as far as the stream has come."""
    last_us = (VERSIONS * ROWS - 1) * STEP_US - 1_100_000  # later rows are open, or have not come
    before, after = expected[name], expected.get(f"{name} new", expected[name])
    edges = {edge for row in (*found, *before, *after) for edge in row[:2] if edge < last_us}
    assert any(edge > ran.at_us for edge in edges)
    for instant in sorted(edges):
        reference = before if instant < ran.at_us else after
        assert valid_at(found, instant) == valid_at(reference, instant), (name, instant, ran)
    if name in WHOLE or not ran.cut:
        assert sorted(row for row in found if row[1] < last_us) == sorted(row for row in before if row[1] < last_us)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, list[Row]]]:
    """The stored stream, and what each plan answers alone."""
    folder = tmp_path_factory.mktemp("stored")
    return folder, alone(store_stream(folder))


@pytest.mark.parametrize("number", range(RUNS))
def test_killed_while_queries_migrate_it_answers_as_one_plan_alone(
    tmp_path: Path, stored: tuple[Path, Mapping[str, list[Row]]], number: int
) -> None:
    del number
    seed = random.randrange(10**9)
    dice = random.Random(seed)
    folder = tmp_path / "run"
    shutil.copytree(stored[0], folder)
    handovers = write_plans(folder, dice)
    with start(folder, returned=dice.choice((0, 100_000))) as driver:
        wait_for(driver, "running")
        time.sleep(dice.uniform(0.5, 6.0))
        killed = driver.poll() is None
        os.killpg(driver.pid, signal.SIGKILL)
    with start(folder) as driver:
        wait_for(driver, "done")
    assert killed, "it had ended before it was killed"
    answers = pl.read_delta(str(folder / "results")).sort("query", "sequence")
    for name, ran in handovers.items():
        rows = answers.filter(query=name)
        assert rows["sequence"].to_list() == list(range(1, rows.height + 1)), "no number twice, none left out"
        begun = rows.filter(pl.col("kind") != "closes")["start_us"].to_list()
        behind = [begin >= ran.at_us for begin in begun]
        assert behind == sorted(behind), f"seed {seed}: {name} is out of order"
        compare(name, ran, closed(rows), stored[1])
    assert any(one != other for one, other in pairwise(handovers.values()))
