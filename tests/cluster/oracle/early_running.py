"""Runs a plan for two queries that share a fragment, one with EMIT EARLY and one with EMIT FINAL, and compares them.

Operators and buckets are real; so are micro-batches, disorder and restarts. What a subscriber of the early query knows
is put together message by message, as it would be from the results table.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from cluster.fjord.answers import collected
from cluster.fjord.batch import ALWAYS, NEVER, START
from cluster.fjord.bucket_host import BucketHost
from cluster.fjord.exchange import MicroBatchControl, partitioned
from cluster.local.engine import MemoryStore, MemoryTables
from cluster.operators import Node
from cluster.physical.lowering import lower
from cluster.physical.nodes import Fragment, Host
from cluster.physical.operations import Changes, Exchange, Operation, UntilNext
from cluster.physical.operations import Sequence as InOrder
from cluster.plan.epoch import Plan, PlannedQuery
from tests.cluster.oracle.comparison import first_difference, snapshots_of
from tests.cluster.oracle.definition import Row
from tests.cluster.oracle.running import MicroBatch, crossing_of

EARLY, FINAL = "early", "final"
INSTANTS = 60
"""Stamps and windows of random texts are short."""


@dataclass
class Subscriber:
    """What a subscriber of an early query knows."""

    closed: list[Row] = field(default_factory=list)
    open: list[tuple[int, int, str]] = field(default_factory=list)
    """Start, last instant known when it was opened, text."""

    def read(self, kind: str, start: int, end: int, text: str, frontier: int) -> str | None:
        """Read one message; return what is wrong with it, or None."""
        if kind == "row":
            self.closed.append((start, end, *_values(text)))
        elif kind == "open":
            if not start < frontier:
                return f"a row that begins at {start} was opened at the frontier {frontier}"
            self.open.append((start, end, text))
        elif kind == "closes":
            found = next((each for each in self.open if (each[0], each[2]) == (start, text)), None)
            if found is None:
                return f"the end of a row that is not open: {start} {text}"
            self.open.remove(found)
            if end < found[1]:
                return f"a row that was to last until {found[1]} at least ends at {end}"
            self.closed.append((start, end, *_values(text)))
        else:
            return f"{kind}: {text}"
        return None

    @property
    def known(self) -> list[Row]:
        """All rows, those that are open without end."""
        return [*self.closed, *((start, NEVER, *_values(text)) for start, _, text in self.open)]


@dataclass
class Compared:
    """What came of it."""

    wrong: str | None = None
    opened: int = 0
    rows: int = 0


def compare_early(
    node: Node,
    batches: Sequence[MicroBatch],
    *,
    restart_after: frozenset[int],
    tables: Callable[[], MemoryTables],
    buckets: int,
    instants: int = INSTANTS,
) -> Compared:
    """Run a plan for both queries; say what is wrong with the early one's answers."""
    plan = Plan(2, (PlannedQuery(FINAL, 1, node), PlannedQuery(EARLY, 2, node, early=True)))
    (fragment,) = lower(plan).fragments
    if fragment.host is Host.STATELESS:
        return Compared()
    stores = [MemoryStore() for _ in range(buckets)]
    host = BucketHost(lambda _: [fragment], buckets, tables, OrderedDict())
    subscriber, final, compared = Subscriber(), [], Compared()
    late_by = sum(_late_by(each.operation) for each in fragment.behind)
    seen: list[tuple[int, list[Row]]] = []
    for number, batch in enumerate(batches):
        answers, watermarks = _answers(fragment, host, stores, batch, tables)
        frontier = min(watermarks.values())
        for query, start, end, kind, text in answers.select("query", "start_us", "end_us", "kind", "row").iter_rows():
            if query == FINAL:
                if kind != "row":
                    return Compared(f"{kind}: {text}")
                final.append((start, end, *_values(text)))
                continue
            compared.opened += kind == "open"
            if (wrong := subscriber.read(kind, start, end, text, frontier)) is not None:
                return Compared(wrong)
        if ALWAYS < frontier < NEVER:
            seen.append((frontier - late_by, subscriber.known))
        if number in restart_after:
            host = BucketHost(lambda _: [fragment], buckets, tables, OrderedDict())
    compared.rows = len(final)
    if subscriber.open:
        return Compared(f"rows that were never closed: {subscriber.open}")
    expected = snapshots_of(final, instants)
    compared.wrong = _differ("in the end", expected, snapshots_of(subscriber.closed, instants))
    for frontier, known in seen:
        if compared.wrong is None and frontier > 0:
            until = min(frontier, instants)
            found = snapshots_of(known, instants)
            compared.wrong = _differ(f"when {frontier} was passed", expected[:until], found[:until])
    return compared


def _late_by(operation: Operation) -> int:
    """Return by how much the rows of an operator are certain later than those before them have come."""
    match operation:
        case Changes():
            return 0 if operation.insertions else 1
        case UntilNext(bounds=(_, _), longest_us=int(longest)):
            return longest  # a row with its interval comes once the end is known
        case InOrder():
            return max((call.within_us or 0 for call in operation.calls if call.function == "lead"), default=0)
        case _:
            return 0


def _answers(
    fragment: Fragment,
    host: BucketHost,
    stores: Sequence[MemoryStore],
    batch: MicroBatch,
    tables: Callable[[], MemoryTables],
) -> tuple[pl.DataFrame, dict[str, int]]:
    arrived: list[dict[str, list[pl.DataFrame]]] = [{} for _ in stores]
    watermarks: dict[str, int] = {}
    for exchange in fragment.exchanges:
        assert isinstance(exchange.operation, Exchange)
        crossing = crossing_of(fragment, exchange, batch, tables())
        watermarks[exchange.id] = crossing.watermark_us
        if crossing.rows.height:
            for bucket, rows in partitioned(exchange.operation, crossing.rows, len(stores)).items():
                arrived[bucket].setdefault(exchange.id, []).append(rows.sort(START, maintain_order=True))
    control = MicroBatchControl(2, 2, watermarks)
    found = [host.process(bucket, control, arrived[bucket], store) for bucket, store in enumerate(stores)]
    return collected(found).rows, watermarks


def _differ(when: str, expected: list, found: list) -> str | None:
    at = first_difference(expected, found)
    return None if at is None else f"{when}, at {at}: expected {expected[at]}, found {found[at]}"


def _values(text: str) -> Row:
    return tuple(value for _, value in sorted(msgspec.json.decode(text).items()))


def random_buckets(dice: random.Random) -> int:
    """Return into how many buckets state is divided."""
    return dice.choice((1, 1, 3))
