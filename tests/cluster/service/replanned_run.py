"""Queries on the local engine, with the service's choice of plans in the loop; the clock is simulated.

    each second       tuples of three streams, of rates that drift; queries come and go; a micro-batch
    each five         a look at what plans cost; what is decided is begun: both plans run until the old one has answered

What each query answers is compared with its definition, by brute force over the tuples since its beginning.
"""

from __future__ import annotations

import asyncio
import json
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import polars as pl

from cluster.costs.prices import Price, Prices
from cluster.fjord.batch import NEVER, START
from cluster.fjord.counters import owners_of
from cluster.fjord.operator_statistics import OperatorStatistics
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.nodes import PhysicalPlan
from cluster.plan.epoch import Plan
from cluster.plan.rewrite import rewrite
from cluster.service.catalog.planning import Planning, PlanningContext
from cluster.service.queries.migrations import planned_migration
from cluster.service.queries.replanning import LOOK_SECONDS, Replanning
from cluster.service.registry.running_queries import NextPlan, RegisteredQuery
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

SECOND_US = 1_000_000
STREAMS = "abc"
CATALOG = Catalog.of(
    [StreamSchema(name, (Field("k", FieldType.INTEGER), Field("v", FieldType.INTEGER))) for name in STREAMS]
)
CONTEXT = PlanningContext(CATALOG, {}, frozenset())
PRICES = Prices(
    {
        "Panes": Price(batch=150, row_in=1, row_out=1, kept=10, compared=10),
        **dict.fromkeys(("Source", "Filter", "Project", "TimeWindow"), Price(batch=1)),
        "Join": Price(batch=5, row_in=100, row_out=100, kept=20, compared=100),
    }
)
"""Of a machine so slow that plans of few tuples differ."""
Row = tuple[int, tuple[int, int]]
Answer = tuple[int, int, str]


@dataclass(frozen=True)
class Text:
    """A query and its definition.

    Parameters
    ----------
    sql
        The query.
    sizes
        By stream: the size of its window, in seconds.
    slide_s
        How far its window moves at a time, of an aggregate; None for a join.
    """

    sql: str
    sizes: Mapping[str, int]
    slide_s: int | None = None

    def answers(self, rows: Mapping[str, Sequence[Row]]) -> Counter[Answer]:
        """Return what it answers, given all tuples since its beginning."""
        return self._joined(rows) if self.slide_s is None else self._grouped(rows["a"], self.slide_s * SECOND_US)

    def _grouped(self, rows: Sequence[Row], slide: int) -> Counter[Answer]:
        size = self.sizes["a"] * SECOND_US
        groups: dict[tuple[int, int], list[int]] = {}
        for at, (k, v) in rows:
            first, end = -(-(at + 1) // slide) * slide - 1, -(-(at + size + 1) // slide) * slide - 1
            for start in range(first, end, slide):
                groups.setdefault((start, k), []).append(v)
        return Counter(
            (start, start + slide, _json({"k": k, "n": len(vs), "s": sum(vs)})) for (start, k), vs in groups.items()
        )

    def _joined(self, rows: Mapping[str, Sequence[Row]]) -> Counter[Answer]:
        by_key: dict[str, dict[int, list[tuple[int, int]]]] = {name: {} for name in STREAMS}
        for name in STREAMS:
            for at, (k, v) in rows[name]:
                by_key[name].setdefault(k, []).append((at, v))
        found: Counter[Answer] = Counter()
        sizes = {name: size * SECOND_US for name, size in self.sizes.items()}
        for key, of_a in by_key["a"].items():
            of_b, of_c = (sorted(by_key[name].get(key, ())) for name in "bc")
            for at, x in of_a:
                for b_at, y in _between(of_b, at - sizes["b"], at + sizes["a"]):
                    for c_at, z in _between(of_c, max(at, b_at) - sizes["c"], min(at + sizes["a"], b_at + sizes["b"])):
                        end = min(at + sizes["a"], b_at + sizes["b"], c_at + sizes["c"])
                        found[max(at, b_at, c_at), end, _json({"x": x, "y": y, "z": z})] += 1
        return found


def _between(rows: Sequence[tuple[int, int]], above: int, below: int) -> Sequence[tuple[int, int]]:
    """Return the rows with a stamp above one instant and below another, of rows in their order."""
    return rows[bisect_left(rows, (above + 1,)) : bisect_left(rows, (below,))]


def _json(row: Mapping[str, int]) -> str:
    return json.dumps(row, separators=(",", ":"))


def random_text(dice: random.Random) -> Text:
    """Draw a query: an aggregate over a window, some of which make panes narrow, or a join."""
    if dice.random() < 0.3:
        sizes = {name: dice.choice((2, 3)) for name in STREAMS}
        windows = ", ".join(f"{name} WINDOW(RANGE {size} SECONDS)" for name, size in sizes.items())
        equal = dice.choice(("a.k = b.k AND b.k = c.k", "b.k = c.k AND a.k = b.k"))
        return Text(f"SELECT a.v AS x, b.v AS y, c.v AS z FROM {windows} WHERE {equal}", sizes)
    size, slide = dice.choice(((6, 3), (12, 3), (9, 6), (12, 6), (12, 3), (7, 2), (5, 4), (8, 4)))
    window = f"WINDOW(RANGE {size} SECONDS SLIDE {slide} SECONDS)"
    return Text(f"SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a {window} GROUP BY k", {"a": size}, slide)


@dataclass
class Ran:
    """What came of a run.

    Parameters
    ----------
    changes
        When a query went on with another plan, in seconds: by its name.
    answers
        By query: what it answered.
    expected
        By query: what it should have answered.
    """

    changes: dict[str, list[int]] = field(default_factory=dict)
    answers: dict[str, Counter[Answer]] = field(default_factory=dict)
    expected: dict[str, Counter[Answer]] = field(default_factory=dict)


class ReplannedRun:
    """Queries that run, second by second.

    Parameters
    ----------
    seed
        Of all that is drawn.
    replan
        False to leave plans as they are.
    """

    def __init__(self, seed: int, *, replan: bool = True) -> None:
        self.dice = random.Random(seed)
        self.second, self.epoch = 0, 0
        self.by_name: dict[str, RegisteredQuery] = {}
        self.texts: dict[str, tuple[Text, int]] = {}
        """With the second at which each began."""
        self.physical = PhysicalPlan(0)
        self.rows: dict[str, list[Row]] = {name: [] for name in STREAMS}
        self.ran = Ran()
        self.per_second = dict.fromkeys(STREAMS, 6.0)
        self._engine: LocalEngine | None = None
        self._changed = False
        self.operators = OperatorStatistics(lambda: float(self.second))
        self._replan = replan
        self._numbers = count()
        self.replanning = Replanning(
            self,  # type: ignore[arg-type] # it has the queries that run, as a registry has
            limits=self,
            operators=self.operators,
            prices=self,  # type: ignore[arg-type] # as above
            planning=Planning(),
            context=lambda: CONTEXT,
            migrate=self._migrate,
            clock=lambda: float(self.second),
            wall=lambda: float(self.second),
        )

    def current(self) -> Prices:
        """Return what steps of operators cost."""
        return PRICES

    def rates(self, streams: frozenset[str]) -> Mapping[str, float]:
        """Return the tuples per second of streams."""
        return {name: self.per_second[name] for name in sorted(streams)}

    def queries(self) -> list[RegisteredQuery]:
        """Return the queries that run."""
        return list(self.by_name.values())

    def query(self, name: str) -> RegisteredQuery:
        """Return one of them."""
        return self.by_name[name]

    def add(self, text: Text) -> str:
        """Add a query; it begins with the next second."""
        name = f"q{next(self._numbers)}"
        node = rewrite(translate(text.sql, CATALOG).node).node
        self._next_epoch()
        self.by_name[name] = RegisteredQuery(name, text.sql, node, self.epoch, self.second * SECOND_US)
        self.texts[name] = text, self.second
        self.ran.answers[name] = Counter()
        return name

    def drop(self, name: str) -> None:
        """Drop a query; what it should have answered by now is not looked at."""
        del self.by_name[name], self.ran.answers[name], self.texts[name]
        self._next_epoch()

    def _next_epoch(self) -> None:
        self.epoch += 1
        self._changed = True

    async def _migrate(self, name: str, node: Node, why: str) -> None:
        query = self.by_name[name]
        new, migration = planned_migration(query, node, None)
        handover = migration.handover(self.second * SECOND_US - 1, query.since)
        self._next_epoch()
        following = NextPlan(self.epoch, handover, self.second * SECOND_US, why)
        self.by_name[name] = query.migrating(new, following)
        self.ran.changes.setdefault(name, []).append(self.second)

    def _finish(self) -> None:
        """End the plans that have answered everything."""
        for name, query in self.by_name.items():
            if query.next is not None and self.second * SECOND_US >= query.next.handover.opens_us:
                self._next_epoch()
                self.by_name[name] = query.migrated

    def step(self, rates: Mapping[str, float] | None = None) -> None:
        """Let a second pass."""
        self.per_second.update(rates or {})
        if self.second % int(LOOK_SECONDS) == 0 and self._replan:
            self.operators.observe(owners_of(self.physical))
            asyncio.run(self.replanning.step())
        self._finish()
        begin_us = self.second * SECOND_US
        self.second += 1
        arrivals = {name: Arrival(tuple(self._tuples(name, begin_us)), begin_us + SECOND_US) for name in STREAMS}
        self._run(arrivals)

    def _run(self, arrivals: Mapping[str, Arrival]) -> None:
        plan = None
        if self._changed:
            planned = (each for query in self.by_name.values() for each in query.all_planned)
            plan = Plan(self.epoch, tuple(sorted(planned, key=lambda each: each.since_epoch)))
            self.physical = lower(plan)
            self._changed = False
        if self._engine is None:
            assert plan is not None, "a query is added first"
            ticks = count(0, 10)
            self._engine, plan = LocalEngine(plan, buckets=2, clock=lambda: float(next(ticks))), None
        ran = self._engine.run(arrivals, plan=plan)
        self.operators.add(ran.counters)
        for query, start, end, kind, row in ran.rows.select("query", "start_us", "end_us", "kind", "row").iter_rows():
            assert kind == "row", row
            if query in self.ran.answers:
                self.ran.answers[query][start, end, row] += 1

    def _tuples(self, name: str, begin_us: int) -> Iterator[RowsInMemory]:
        wanted = self.per_second[name]
        number = int(wanted) + (self.dice.random() < wanted % 1)
        found = [
            (self.dice.randrange(begin_us, begin_us + SECOND_US), (self.dice.randrange(4), self.dice.randrange(10)))
            for _ in range(number)
        ]
        self.rows[name] += found
        if found:
            columns = dict.fromkeys((START, "k", "v"), pl.Int64)
            table = pl.DataFrame([(at, *values) for at, values in found], schema=columns, orient="row")
            yield RowsInMemory(table.with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN)))

    def end(self) -> Ran:
        """Let all streams end, and return what came of it, with what each query that is left should have answered."""
        self._run({name: Arrival((), NEVER) for name in STREAMS})
        for name, (text, began) in self.texts.items():
            since = {stream: [row for row in rows if row[0] >= began * SECOND_US] for stream, rows in self.rows.items()}
            self.ran.expected[name] = text.answers(since)
        return replace(self.ran)
