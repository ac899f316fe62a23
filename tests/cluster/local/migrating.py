"""Random migrations on the local engine: a query goes on with another plan in the middle of random streams.

What it answers is compared with the answers of a plan that runs alone all the time; what that answers is a matter of
the oracle. Where a window changes, the old plan is the reference before the instant, and the new one from it on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from msgspec.structs import replace

from cluster.fjord.batch import ALWAYS, NEVER, START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Join, Node
from cluster.physical.migration import Migration
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from cluster.rounded_rows import rounded
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from tests.cluster.local.migrating_plans import Case
from tests.cluster.local.plans_cut_apart import tables
from tests.cluster.plan.plans import A, B, call, condition, grouped, window

STREAMS = {"a": ("x", "y"), "b": ("u", "v"), "c": ("p", "q"), "also_a": ("x", "y")}
INSTANTS = 90
"""Stamps are below this."""
Row = tuple[int, int, str]
Stamped = tuple[int, tuple[int, int]]


def random_streams(dice: random.Random) -> dict[str, list[Stamped]]:
    """Draw streams in order of arrival: disordered, with equal tuples, equal stamps, and stretches without any.

    Now and then a tuple is stamped long before its time, by a wrong clock.
    """
    found = {}
    for name in STREAMS:
        values = dice.choice((2, 3, 5))
        gap = dice.randint(0, INSTANTS)
        stamps = [dice.randrange(INSTANTS) for _ in range(dice.choice((10, 25, 40)))]
        rows = [(at, (dice.randrange(values), dice.randrange(4))) for at in stamps if not gap <= at < gap + 10]
        rows += [dice.choice(rows) for _ in range(dice.choice((0, 3)))]
        late = dice.choice((0, 2, 9))
        found[name] = sorted(rows, key=lambda row: row[0] + late * dice.random())
        if dice.random() < 0.2:
            ahead = INSTANTS + dice.randrange(60), (dice.randrange(values), dice.randrange(4))
            found[name].insert(dice.randrange(len(rows)), ahead)
    return found


Batches = list[dict[str, tuple[list[Stamped], int]]]


def random_batches(dice: random.Random, streams: Mapping[str, list[Stamped]]) -> Batches:
    """Cut streams into micro-batches, some ahead of others, with watermarks as far as what is to come allows."""
    count = dice.choice((8, 12, 18))
    cuts = {}
    for name, rows in streams.items():
        ahead = dice.choice((0, 0, 0.2))
        places = [round(len(rows) * min(1.0, number / count + ahead)) for number in range(count)]
        cuts[name] = [0, *places[1:], len(rows)]
    found: Batches = []
    for number in range(count):
        batch = {}
        for name, rows in streams.items():
            begin, end = cuts[name][number : number + 2]
            later = min((at for at, _ in rows[end:]), default=NEVER if number == count - 1 else INSTANTS)
            batch[name] = rows[begin:end], later if dice.random() < 0.9 else ALWAYS
        found.append(batch)
    found.append({name: ([], NEVER) for name in streams})
    return found


@dataclass
class Answered:
    """What a query answers, micro-batch by micro-batch."""

    rows: list[Row] = field(default_factory=list)
    open: list[tuple[int, str]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    """Of each micro-batch: its number, and how many rows began in it."""
    flowed: list[tuple[int, Row]] = field(default_factory=list)
    """The rows that were given out with their ends, each with the number of its micro-batch."""
    messages: int = 0
    """How many rows, open rows and ends of open rows were given out."""

    def read(self, number: int, answers: pl.DataFrame) -> None:
        """Read a micro-batch's answers; errors, and ends of rows that were not open before, raise."""
        before, opened = len(self.starts), list[tuple[int, str]]()
        self.messages += answers.height
        for start, end, kind, row in answers.select("start_us", "end_us", "kind", "row").iter_rows():
            if kind in ("closes", "closes_earlier"):
                began = self._closed(start, row, earlier=kind != "closes")
                self.rows.append((began[0], end, began[1]))
                continue
            assert kind in ("row", "open"), row
            self.starts.append(start)
            if kind == "row":
                self.rows.append((start, end, row))
                self.flowed.append((number, (start, end, row)))
            else:
                opened.append((start, row))
        self.open += opened
        self.times.append((number, len(self.starts) - before))

    def _closed(self, start: int, row: str, *, earlier: bool) -> tuple[int, str]:
        """Return the open row that an end closes, which is open no more."""
        before = [each for each in self.open if each[0] < start and rounded(each[1]) == rounded(row)]
        found = before[-1] if earlier and (start, row) not in self.open else (start, row)
        self.open.remove(found)
        return found

    @property
    def ordered(self) -> bool:
        """Whether rows began in order."""
        return self.starts == sorted(self.starts)

    def snapshots(self, below: int = NEVER, since: int = ALWAYS) -> list[Counter[str]]:
        """Return what is valid at each instant, of those from `since` on and below another one."""
        found: list[Counter[str]] = [Counter() for _ in range(3 * INSTANTS)]
        for start, end, row in self.rows:
            for instant in range(max(start, since, 0), min(end, below, len(found))):
                found[instant][row] += 1
        return found


@dataclass
class Setting:
    """How a plan is run.

    Parameters
    ----------
    batches
        What comes.
    buckets, parts
        Into how many buckets state is divided, in how many parts a micro-batch is read.
    restarts
        After which micro-batches operators are made anew.
    replays
        Which micro-batches are run twice, as after a crash.
    early
        Whether rows are published before their end is known.
    beside
        The plans of other queries.
    """

    batches: Batches
    buckets: int = 1
    parts: int = 1
    restarts: frozenset[int] = frozenset()
    replays: frozenset[int] = frozenset()
    early: bool = False
    beside: tuple[Node, ...] = ()

    def planned(self, epoch: int, *queries: PlannedQuery) -> Plan:
        """Return the plan of an epoch."""
        others = (PlannedQuery(f"other{number}", 1, node) for number, node in enumerate(self.beside))
        return Plan(epoch, tuple(sorted((*others, *queries), key=lambda query: query.since_epoch)))


def arrivals(batch: Mapping[str, tuple[Sequence[Stamped], int]]) -> dict[str, Arrival]:
    """Return a micro-batch as the engine reads it."""
    found = {}
    for name, (rows, watermark) in batch.items():
        half = len(rows) // 2
        pieces = tuple(RowsInMemory(frame(name, each)) for each in (rows[:half], rows[half:]) if each)
        found[name] = Arrival(pieces, None if watermark <= ALWAYS else watermark)
    return found


def frame(name: str, rows: Sequence[Stamped]) -> pl.DataFrame:
    """Return rows of a stream as they are stored."""
    columns = dict.fromkeys((START, *STREAMS[name]), pl.Int64)
    table = pl.DataFrame([(at, *values) for at, values in rows], schema=columns, orient="row")
    return table.with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN))


def alone(node: Node, setting: Setting) -> Answered:
    """Run a query with one plan from the beginning."""
    (found,) = all_alone((node,), setting)
    return found


def all_alone(nodes: Sequence[Node], setting: Setting) -> list[Answered]:
    """Run queries, each with one plan from the beginning."""
    queries = [PlannedQuery(f"q{number}", 1, node, setting.early) for number, node in enumerate(nodes)]
    plan = setting.planned(1, *queries)
    engine = LocalEngine(plan, buckets=setting.buckets, tables=tables, keeps_state=False)
    found = [Answered() for _ in queries]
    for number, batch in enumerate(setting.batches):
        answers = engine.run(arrivals(batch), parts=setting.parts).rows
        for query, each in zip(queries, found, strict=True):
            each.read(number, answers.filter(pl.col("query") == query.name))
    return found


@dataclass
class Migrated:
    """A migration that was run."""

    answered: Answered
    handover: Handover
    cut: bool
    ended: int
    """The micro-batch in which the old plan was gone."""


def migrated(case: Case, setting: Setting, at: int, *, spoil: Callable[[Handover], Handover] | None = None) -> Migrated:
    """Run a query that goes on with another plan from a micro-batch on; `spoil` is for tests of the tests."""
    old = PlannedQuery("q", 1, case.old, setting.early)
    migration = Migration(case.old, case.new)
    engine = LocalEngine(setting.planned(1, old), buckets=setting.buckets, tables=tables)
    found, greatest, watermarks = Answered(), None, dict.fromkeys(STREAMS, ALWAYS)
    handover, plan, ended, new = Handover(0, 0), None, -1, old
    for number, batch in enumerate(setting.batches):
        if number == at:
            handover = migration.handover(greatest)
            handover = handover if spoil is None else spoil(handover)
            new = PlannedQuery("q", 2, case.new, setting.early, since=handover)
            plan = setting.planned(2, replace(old, until=handover), new)
        elif plan is None or ended >= 0:
            pass
        elif min(watermarks[name] for name in case.new.streams) >= handover.opens_us:
            plan, ended = setting.planned(3, new), number
        if number in setting.replays:
            before = engine.checkpoint()
            engine.run(arrivals(batch), plan=plan, parts=setting.parts)
            engine.restore(before)
            engine.forget()
        answers = engine.run(arrivals(batch), plan=plan, parts=setting.parts).rows
        found.read(number, answers.filter(pl.col("query") == "q"))
        if number in setting.restarts:
            engine.forget()
        for name, (rows, watermark) in batch.items():
            stamps = [stamp for stamp, _ in rows] if name in case.old.streams else []
            greatest = max([*stamps, *([] if greatest is None else [greatest])], default=None)
            watermarks[name] = max(watermarks[name], watermark)
    return Migrated(found, handover, migration.cut, ended)


def random_setting(dice: random.Random) -> Setting:
    """Draw how a plan is run."""
    batches = random_batches(dice, random_streams(dice))
    some = range(len(batches))
    besides = (
        grouped(window(A, 6, 3), "x", call("count")),
        grouped(window(A, 8, 2), "x", call("sum", "y")),
        Join(window(A, 4), window(B, 3), condition("x = u")),
    )
    return Setting(
        batches,
        buckets=dice.choice((1, 3)),
        parts=dice.choice((1, 2)),
        restarts=frozenset(number for number in some if dice.random() < 0.2),
        replays=frozenset(number for number in some if dice.random() < 0.1),
        early=dice.random() < 0.3,
        beside=tuple(dice.sample(besides, dice.randint(0, 2))),
    )
