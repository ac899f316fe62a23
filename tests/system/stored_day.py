"""A stored stream with the plans of several epochs, and the process that answers them (see fjord_driver.py)."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.nodes import ANSWERS_RETURNED
from cluster.physical.plan_files import PlanFiles
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import with_history_starts
from cluster.plan.rewrite import rewrite
from cluster.storage.stream_tables import StreamPosition, StreamTable, arrow_schema
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.system.fjord_driver import MAX_ROWS

READINGS = StreamSchema("readings", (Field("k", FieldType.INTEGER), Field("x", FieldType.INTEGER)))
VERSIONS, ROWS = 90, 100
STEP_US = 1_000
QUERIES = (
    ("SELECT k, x FROM readings WHERE x < 100", 0, VERSIONS),
    ("SELECT k, x FROM readings WHERE k = 3", 0, VERSIONS),
    ("SELECT k, SUM(x) AS total FROM readings WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY k", 0, VERSIONS),
    ("SELECT DISTINCT k FROM readings WINDOW(RANGE 50 MILLISECONDS) WHERE x > 900", 0, 60),
    (("SELECT a.k, a.x, b.x AS y FROM readings a WINDOW(RANGE 20 MILLISECONDS), readings b "
     "WHERE a.k = b.k AND a.x < 100 AND b.x > 800"), 0, VERSIONS),
    ("SELECT k, x FROM readings WHERE x BETWEEN 200 AND 250", 25, VERSIONS),
    ("SELECT MAX(x) AS most FROM readings WINDOW(RANGE 1 SECOND SLIDE 1 SECOND)", 45, VERSIONS),
    ("SELECT k, x FROM readings SINCE 3 SECONDS AGO WHERE x < 50", 45, VERSIONS),
    (("SELECT k, SUM(x) AS total FROM readings SINCE BEGINNING WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY k"), 60,
     VERSIONS),
    ("SELECT k, x FROM readings WINDOW(PARTITION BY k ROWS 3) WHERE x < 100 EMIT EARLY", 10, VERSIONS),
    ("SELECT k, x FROM readings WINDOW(PARTITION BY k ROWS 3) WHERE x < 100 EMIT FINAL", 10, VERSIONS),
)  # fmt: skip
"""Queries, with the version of the stream after which each begins, and after which it ends."""
EARLY, FINAL = "q10", "q11"
"""Two that differ in EMIT alone."""


def store_stream(folder: Path, versions: int = VERSIONS) -> list[pl.DataFrame]:
    """Store the stream, disordered within its watermarks; return the rows of each version."""
    dice = random.Random(5)
    stored = []
    table = StreamTable(str(folder / "streams" / READINGS.name), READINGS)
    for version in range(versions):
        stamps = [(version * ROWS + number) * STEP_US for number in range(ROWS)]
        dice.shuffle(stamps)
        rows = pl.DataFrame(
            {
                "fjord_start_us": stamps,
                "fjord_mote": ["m"] * ROWS,
                "fjord_default_rate": [True] * ROWS,
                "k": [dice.randrange(8) for _ in stamps],
                "x": [dice.randrange(1000) for _ in stamps],
            }
        )
        watermark = (version + 1) * ROWS * STEP_US
        table.append([rows.to_arrow().cast(arrow_schema(READINGS))], StreamPosition(watermark, {}), {})
        stored.append(rows)
    return stored


def prepare(folder: Path) -> None:
    """Store the stream, and the plans of all epochs."""
    store_stream(folder)
    catalog = Catalog.of([READINGS])
    plans, alive = PlanFiles(folder / "plans"), dict[int, PlannedQuery]()
    turns = sorted((at, number) for number, (_, *turns) in enumerate(QUERIES, 1) for at in turns if at < VERSIONS)
    for epoch, (turn, number) in enumerate(turns, 1):
        if alive.pop(number, None) is None:
            stands = turn * ROWS * STEP_US if turn else None
            query = translate(QUERIES[number - 1][0], catalog)
            node = with_history_starts(rewrite(query.node).node, epoch, {READINGS.name: stands})
            alive[number] = PlannedQuery(f"q{number}", epoch, node, early=bool(query.early))
        plans.write(lower(Plan(epoch, tuple(alive.values()), {READINGS.name: turn})))


@dataclass(frozen=True)
class Undisturbed:
    """An undisturbed run: the stored input, the folder it left, and the time it took."""

    stored: Path
    left: Path
    seconds: float


def run_undisturbed(folder: Path) -> Undisturbed:
    """Answer everything in one process without interruption."""
    stored, left = folder / "stored", folder / "left"
    prepare(stored)
    shutil.copytree(stored, left)
    with start(left) as driver:
        wait_for(driver, "running")
        began = time.monotonic()
        wait_for(driver, "done")
        return Undisturbed(stored, left, time.monotonic() - began)


def start(
    folder: Path, master: str = "local[2]", *, returned: int = ANSWERS_RETURNED, rows: int = MAX_ROWS
) -> subprocess.Popen[str]:
    """Start the process that answers everything stored, by micro-batches of so many rows.

    Its tasks write answers if they have more than `returned`.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "tests.system.fjord_driver", str(folder), master, str(returned), str(rows)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for(driver: subprocess.Popen[str], word: str) -> None:
    """Wait until the process prints a word."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the driver ended without printing {word!r}")


def results(folder: Path) -> pl.DataFrame:
    """Return all answers, in order; not those that come early, which depend on how streams are cut."""
    return pl.read_delta(str(folder / "results")).filter(pl.col("query") != EARLY).sort("query", "sequence")


def written_by_tasks(folder: Path) -> int:
    """Return how many files of the results table tasks have written."""
    return len(list((folder / "results").glob("part-????????????????-*.parquet")))


def early_rows(folder: Path) -> pl.DataFrame:
    """Return the rows of the early query that have their end, after a check of their numbers."""
    rows = pl.read_delta(str(folder / "results")).filter(query=EARLY).sort("sequence")
    assert rows["sequence"].to_list() == list(range(1, rows.height + 1)), "no number twice, none left out"
    ends = rows.filter(kind="closes").select("sequence", "start_us", "end_us", "row", "closes")
    assert ends["closes"].is_unique().all(), "no row is closed twice"
    joined = ends.join(rows.filter(kind="open"), left_on="closes", right_on="sequence", how="left")
    assert (joined["start_us"] == joined["start_us_right"]).all(ignore_nulls=False)
    assert (joined["row"] == joined["row_right"]).all(ignore_nulls=False)
    assert (joined["end_us"] >= joined["end_us_right"]).all(), "no row ends before it was known to last"
    whole = rows.filter(kind="row")
    assert set(rows["kind"].unique()) <= {"row", "open", "closes"}
    columns = ["start_us", "end_us", "row"]
    return pl.concat([ends.select(columns), whole.select(columns)]).sort(columns)


def final_rows(folder: Path) -> pl.DataFrame:
    """Return the rows of the query that differs from the early one in EMIT alone."""
    return results(folder).filter(query=FINAL).select("start_us", "end_us", "row").sort(pl.all())
