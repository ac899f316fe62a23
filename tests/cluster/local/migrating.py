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
from cluster.fjord.stored_rows import RowsInMemory
from cluster.language.algebra import (
    Distinct,
    Filter,
    Granularity,
    Join,
    Node,
    Project,
    SemiJoin,
    Union,
    UntilNext,
    schema_of,
)
from cluster.language.plans import passed_on
from cluster.language.walks import streams_of
from cluster.local.engine import Arrival, LocalEngine
from cluster.physical.migration import Migration
from cluster.plan.epoch import Handover, Plan, PlannedQuery
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from tests.cluster.local.plans_cut_apart import PAIRS, renamed, tables
from tests.cluster.local.random_plans import plan_and_rewritten, two_alternatives
from tests.cluster.plan.plans import ALSO_A, A, B, C, call, condition, grouped, window

STREAMS = {"a": ("x", "y"), "b": ("u", "v"), "c": ("p", "q"), "also_a": ("x", "y")}
INSTANTS = 90
"""Stamps are below this."""
Row = tuple[int, int, str]
Stamped = tuple[int, tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """A query and two of its plans.

    Parameters
    ----------
    old, new
        The plans.
    changes
        True if they answer differently: the window changes.
    """

    old: Node
    new: Node
    changes: bool = False


def _windows(dice: random.Random, slide: int) -> list[Node]:
    return [window(each, dice.randint(1, 12), slide) for each in (A, B, C)]


def _join(left: Node, right: Node, on: str | None) -> Join:
    return Join(left, right, None if on is None else condition(on))


def join_orders(dice: random.Random) -> Case:
    """((A x B) x C) and A x (B x C), or C first."""
    a, b, c = _windows(dice, dice.choice((1, 1, 3)))
    old = _join(_join(a, b, "x = u"), c, "u = p")
    other = _join(a, _join(b, c, "u = p"), "x = u") if dice.random() < 0.5 else _join(c, _join(b, a, "x = u"), "u = p")
    return _either(dice, old, renamed(other, old))


def filters(dice: random.Random) -> Case:
    """A filter above and below a join."""
    a, b, _ = _windows(dice, dice.choice((1, 1, 4)))
    old: Node = Filter(_join(a, b, "x = u"), condition("y < 3 AND v > 0"))
    new: Node = _join(Filter(a, condition("y < 3")), Filter(b, condition("v > 0")), "x = u")
    return _either(dice, old, new)


def stateless(dice: random.Random) -> Case:
    """Filters and projections of a plan that keeps no state."""
    a = A if dice.random() < 0.5 else window(A, dice.randint(1, 9), dice.choice((1, 5)))
    old: Node = Project(Filter(Filter(a, condition("x < 3")), condition("y > 0")), passed_on(schema_of(a)[:1]))
    new: Node = Project(Filter(a, condition("y > 0 AND x < 3")), passed_on(schema_of(a)[:1]))
    return _either(dice, old, new)


def window_places(dice: random.Random) -> Case:
    """A window above and below a filter and a union."""
    size, slide = dice.randint(1, 10), dice.choice((1, 1, 3))
    old = window(Filter(Union(A, ALSO_A), condition("x < 3")), size, slide)
    new = Union(*(window(Filter(each, condition("x < 3")), size, slide) for each in (A, ALSO_A)))
    top = dice.choice((lambda node: node, lambda node: grouped(node, "x", call("sum", "y"), call("count"))))
    return _either(dice, top(old), top(new))


def distincts(dice: random.Random) -> Case:
    """Duplicates eliminated above and below a join."""
    a, b, _ = _windows(dice, 1)
    a, b = (Project(each, passed_on(schema_of(each)[:1])) for each in (a, b))
    return _either(dice, Distinct(_join(a, b, "x = u")), _join(Distinct(a), Distinct(b), "x = u"))


def distinct_unions(dice: random.Random) -> Case:
    """Duplicates eliminated above a union, and above and below it."""
    a, also = (Project(window(each, dice.randint(1, 9)), passed_on(schema_of(each)[:1])) for each in (A, ALSO_A))
    return _either(dice, Distinct(Union(a, also)), Distinct(Union(Distinct(a), Distinct(also))))


def distributed(dice: random.Random) -> Case:
    """A join of a union, and a union of joins."""
    size, (_, b, _) = dice.randint(1, 8), _windows(dice, 1)
    a, also = window(A, size), window(ALSO_A, dice.randint(1, 8))
    old = Filter(_join(Union(a, also), b, "x = u"), condition("y < 4"))
    new = Union(*(_join(Filter(each, condition("y < 4")), b, "x = u") for each in (a, also)))
    return _either(dice, old, new)


def aggregates(dice: random.Random) -> Case:
    """Groups over joins in another order."""
    a, b, _ = _windows(dice, dice.choice((1, 1, 3)))
    keys = dice.choice(("x", "", "xv"))
    calls = call("count"), call("sum", "y"), call("max", "v")
    old = grouped(_join(a, b, "x = u"), keys, *calls)
    return _either(dice, old, renamed(grouped(_join(b, a, "x = u"), keys, *calls), old))


def having(dice: random.Random) -> Case:
    """A condition on groups above them, and on their keys below."""
    a = window(A, dice.randint(2, 12), dice.choice((1, 2, 4)))
    old = Filter(grouped(a, "x", call("sum", "y"), call("count")), condition("x > 0"))
    new = grouped(Filter(a, condition("x > 0")), "x", call("sum", "y"), call("count"))
    return _either(dice, old, new)


def until_next(dice: random.Random) -> Case:
    """A condition on the keys of tuples that hold until the next one, above and below."""
    longest = dice.randint(1, 12)
    bounds = ("since", "until") if dice.random() < 0.5 else None
    old = Filter(UntilNext(A, ("x",), longest, bounds), condition("x < 3"))
    new = UntilNext(Filter(A, condition("x < 3")), ("x",), longest, bounds)
    return _either(dice, old, new)


def early_groups(dice: random.Random) -> Case:
    """Groups of a join, and a join of groups with what it is joined with, of which each key has one row."""
    a = window(A, dice.randint(1, 9))
    b = Distinct(Project(window(B, dice.randint(1, 9)), passed_on(schema_of(B)[:1])))
    old = grouped(_join(a, b, "x = u"), "x", call("sum", "y"))
    new = Project(_join(grouped(a, "x", call("sum", "y")), b, "x = u"), passed_on(schema_of(old)))
    return _either(dice, old, new)


def semi_joins(dice: random.Random) -> Case:
    """A semi-join, and a join with distinct tuples."""
    a, b, _ = _windows(dice, 1)
    old = SemiJoin(a, b, condition("x = u"))
    pairs = _join(a, Distinct(Project(b, passed_on(schema_of(b)[:1]))), "x = u")
    return _either(dice, old, Project(pairs, passed_on(schema_of(old))))


def window_sizes(dice: random.Random) -> Case:
    """A window that gets another size."""
    slide = dice.choice((1, 1, 3, 4))
    sizes = dice.sample(range(1, 13), 2)
    top: Callable[[Node], Node] = dice.choice(
        (
            lambda node: Granularity(node, 2),
            lambda node: grouped(node, "x", call("sum", "y"), call("count")),
            lambda node: grouped(node, "", call("count")),
            lambda node: _join(node, window(B, 5), "x = u"),
            Distinct,
        )
    )
    old, new = (top(window(A, size, slide)) for size in sizes)
    return Case(old, new, changes=True)


def granules(dice: random.Random) -> Case:
    """A granularity that gets finer, or coarser."""
    old, new = (Granularity(window(A, 9), each) for each in dice.sample((1, 2, 4, 8), 2))
    return Case(old, new, changes=True)


def rewritten(dice: random.Random) -> Case:
    """A random plan, and what it is rewritten to."""
    return _either(dice, *plan_and_rewritten(dice))


def cut_apart(dice: random.Random) -> Case:
    """Plans that answer the same by rows that are cut elsewhere."""
    return _either(dice, *dice.choice(PAIRS)(dice))


def reached(dice: random.Random) -> Case:
    """Two plans of a random query that rules reach (cluster/plan/alternatives.py)."""
    return Case(*two_alternatives(dice))


def _either(dice: random.Random, one: Node, other: Node) -> Case:
    return Case(one, other) if dice.random() < 0.5 else Case(other, one)


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    join_orders,
    filters,
    stateless,
    window_places,
    distincts,
    distinct_unions,
    distributed,
    aggregates,
    having,
    until_next,
    early_groups,
    semi_joins,
    window_sizes,
    granules,
    *[cut_apart] * 6,
    rewritten,
    rewritten,
    rewritten,
    reached,
    reached,
    reached,
    reached,
)


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

    def read(self, number: int, answers: pl.DataFrame) -> None:
        """Read a micro-batch's answers; errors and rows out of order raise."""
        before = len(self.starts)
        for start, end, kind, row in answers.select("start_us", "end_us", "kind", "row").iter_rows():
            if kind == "closes":
                self.open.remove((start, row))
                self.rows.append((start, end, row))
                continue
            assert kind in ("row", "open"), row
            self.starts.append(start)
            if kind == "row":
                self.rows.append((start, end, row))
            else:
                self.open.append((start, row))
        self.times.append((number, len(self.starts) - before))

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
    plan = setting.planned(1, PlannedQuery("q", 1, node, setting.early))
    engine = LocalEngine(plan, buckets=setting.buckets, tables=tables)
    found = Answered()
    for number, batch in enumerate(setting.batches):
        answers = engine.run(arrivals(batch), parts=setting.parts).rows
        found.read(number, answers.filter(pl.col("query") == "q"))
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
        elif min(watermarks[name] for name in streams_of(case.new)) >= handover.opens_us:
            plan, ended = setting.planned(3, new), number
        before = engine.checkpoint()
        if number in setting.replays:
            engine.run(arrivals(batch), plan=plan, parts=setting.parts)
            engine.restore(before)
            engine.forget()
        answers = engine.run(arrivals(batch), plan=plan, parts=setting.parts).rows
        found.read(number, answers.filter(pl.col("query") == "q"))
        if number in setting.restarts:
            engine.forget()
        for name, (rows, watermark) in batch.items():
            stamps = [stamp for stamp, _ in rows] if name in streams_of(case.old) else []
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
        _join(window(A, 4), window(B, 3), "x = u"),
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


def wrong_with(seed: int, *, spoil: Callable[[Handover], Handover] | None = None) -> str | None:
    """Run a random migration; return what is wrong with it, or None."""
    dice = random.Random(seed)
    kind = dice.choice(KINDS)
    case, setting = kind(dice), random_setting(dice)
    at = dice.randrange(1, len(setting.batches) // 2)
    reference = alone(case.old, setting)
    ran = migrated(case, setting, at, spoil=spoil)
    named = f"seed {seed}: {kind.__name__}, from micro-batch {at} on, at {ran.handover}"
    instant = ran.handover.at_us
    if not ran.answered.ordered and reference.ordered and alone(case.new, setting).ordered:
        return f"{named}: rows are out of order"
    behind = [start >= instant for start in ran.answered.starts]
    if behind != sorted(behind):
        return f"{named}: rows of the plan before come after those of the next one"
    if ran.answered.open:
        return f"{named}: rows were never closed: {ran.answered.open}"
    if case.changes:
        parts = [reference.snapshots(below=instant), alone(case.new, setting).snapshots(since=instant)]
        expected = [one + other for one, other in zip(*parts, strict=True)]
    else:
        expected = reference.snapshots()
    if not ran.cut and sorted(ran.answered.rows) != sorted(reference.rows):
        return f"{named}: other rows: {Counter(ran.answered.rows)} in place of {Counter(reference.rows)}"
    for place, (should, is_) in enumerate(zip(expected, ran.answered.snapshots(), strict=True)):
        if should != is_:
            return f"{named}: at {place} there is {is_} in place of {should}"
    return None


def first_wrong(first: int, count: int) -> str | None:
    """Run some migrations; return what is wrong with the first that is."""
    return next((found for seed in range(first, first + count) if (found := wrong_with(seed)) is not None), None)
