"""A plan is changed while it runs: ours, on the local engine, against parallel track.

Four streams of whole numbers at equal rates, A and B of 0 to 500, C and D of 0 to 1,000, are joined within a window of
10 s of application time: ((A x B) x C) x D becomes A x (B x (C x D)) at 20 s (papers/pipes_migration.md section 6).

* `migration_duration_over_w`: application time until the plan before is gone, over the window; at most 1.1.
* `migration_memory_ratio`: the most tuples kept meanwhile, those of streams counted once, over the most that either
  plan keeps alone; at most 1.5.
* `longest_pause_micro_batches`: micro-batches in a row that answer nothing although the plan alone answers; at most 1.

The same for parallel track, which answers nothing for a window, and then at once. `parallel_track_duplicates` are its
wrong answers where DISTINCT moves below a join; `migration_duplicates` are ours.

    python benchmarks/migration.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import polars as pl
from msgspec.structs import replace
from reports import write_report

from cluster.fjord.batch import START
from cluster.fjord.saved_state import unpack_state
from cluster.fjord.stream_scan import RowsInMemory
from cluster.local.engine import Arrival, LocalEngine
from cluster.operators import Distinct, Join, Node, Project, Source, TimeWindow
from cluster.operators.columns import Column, Output
from cluster.operators.scalar_expressions import column_scalar
from cluster.physical.lowering import lower
from cluster.physical.migration import Migration
from cluster.physical.nodes import Fragment
from cluster.physical.operations import Exchange, Scan
from cluster.physical.operations import Join as JoinOperation
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.scalar_texts import read_scalar
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import FieldType
from tests.cluster.papers.parallel_track import (
    Duplicates,
    Element,
    FirstColumn,
    HashJoin,
    Input,
    ParallelTrack,
    multiplicities,
    run,
)

MOST = {"a": 500, "b": 500, "c": 1_000, "d": 1_000}
WINDOW_US = 10_000_000
BEGIN_US = 20_000_000
END_US = 45_000_000
BATCH_US = 250_000
DISTINCT_MOVES_AT = 40
"""Where duplicates are counted, in microseconds."""
SEED = 4


@dataclass
class Followed:
    """What a run gives out, and keeps, micro-batch by micro-batch."""

    answers: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    rows: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    ended_us: int | None = None


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="fewer tuples")
    arguments.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = arguments.parse_args()
    report, curves = measured(30 if options.quick else 100)
    write_report(report, "migration", lambda path: plot(curves, path), as_json=options.json)


def measured(rate: int) -> tuple[dict[str, Any], Mapping[str, Followed]]:
    """Return the figures, and what each run gave out and kept, given tuples per second of each stream."""
    streams = drawn(rate)
    began = time.process_time()
    alone = followed(streams, plans()[0])
    seconds_alone = time.process_time() - began
    other = followed(streams, plans()[1])
    began = time.process_time()
    ours = followed(streams, *plans())
    seconds = time.process_time() - began
    if ours.rows != alone.rows:
        raise SystemExit("the migration has changed answers")
    track = parallel_track(streams)
    if ours.ended_us is None or track.ended_us is None:
        raise SystemExit("a migration has not ended")
    report = {
        "tuples_per_second": rate,
        "migration_memory_ratio": round(max(ours.kept) / max(*alone.kept, *other.kept), 3),
        "migration_duration_over_w": round((ours.ended_us - BEGIN_US) / WINDOW_US, 3),
        "longest_pause_micro_batches": longest_pause(ours.answers, alone.answers),
        "migration_over_alone_seconds": round(seconds / seconds_alone, 2),
        "parallel_track_memory_ratio": round(max(track.kept) / max(track.kept[: BEGIN_US // BATCH_US]), 3),
        "parallel_track_duration_over_w": round((track.ended_us - BEGIN_US) / WINDOW_US, 3),
        "parallel_track_pause_micro_batches": longest_pause(track.answers, alone.answers),
        "parallel_track_burst_over_usual": round(burst(track.answers), 1),
        **duplicates(),
    }
    return report, {"one plan": alone, "migration": ours, "parallel track": track}


def drawn(rate: int) -> dict[str, list[tuple[int, int]]]:
    """Draw the streams: stamps and values."""
    dice = random.Random(SEED)  # noqa: S311 - not for secrets
    step_us = 1_000_000 // rate
    return {
        name: [(at, dice.randrange(most)) for at in range(place * 1_000, END_US, step_us)]
        for place, (name, most) in enumerate(MOST.items())
    }


def plans() -> tuple[Node, Node]:
    """Return the plan before and the plan after, with the same columns."""
    a, b, c, d = (TimeWindow(Source(name, (Column(f"{name}v", FieldType.INTEGER),)), WINDOW_US) for name in MOST)
    old = joined(joined(joined(a, b, "av = bv"), c, "bv = cv"), d, "cv = dv")
    new = joined(a, joined(b, joined(c, d, "cv = dv"), "bv = cv"), "av = bv")
    return old, Project(new, tuple(Output(each.name, column_scalar(each)) for each in old.schema))


def joined(left: Node, right: Node, on: str) -> Node:
    """Return a join."""
    return Join(left, right, read_scalar(on, FieldType.BOOLEAN))


def batches(streams: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[tuple[int, dict[str, Arrival]]]:
    """Yield where each micro-batch ends, and what it brings."""
    for begin in range(0, END_US, BATCH_US):
        yield begin + BATCH_US, arrivals_of(streams, begin, begin + BATCH_US)


def arrivals_of(streams: Mapping[str, Sequence[tuple[int, int]]], begin: int, end: int) -> dict[str, Arrival]:
    """Return the micro-batch of what comes from one instant to another."""
    arrivals = {}
    for name, rows in streams.items():
        own = [row for row in rows if begin <= row[0] < end]
        table = pl.DataFrame(own, schema={START: pl.Int64, f"{name}v": pl.Int64}, orient="row")
        pieces = RowsInMemory(table.with_columns(pl.lit(value=True).alias(DEFAULT_RATE_COLUMN)))
        arrivals[name] = Arrival((pieces,), end)
    return arrivals


def followed(streams: Mapping[str, Sequence[tuple[int, int]]], before: Node, after: Node | None = None) -> Followed:
    """Run the query, which goes on with another plan if there is one."""
    old = PlannedQuery("q", 1, before)
    engine, plan, found = LocalEngine(Plan(1, (old,))), None, Followed()
    migration = None if after is None else Migration(before, after)
    handover, new = None, old
    watermark_us = 0
    for end_us, arrivals in batches(streams):
        if migration is None or after is None or found.ended_us is not None:
            pass
        elif handover is None and end_us > BEGIN_US:
            handover = migration.handover(max(row[0] for rows in streams.values() for row in rows if row[0] < BEGIN_US))
            new = PlannedQuery("q", 2, after, since=handover)
            plan = Plan(2, (replace(old, until=handover), new))
        elif handover is not None and watermark_us >= handover.opens_us:
            plan, found.ended_us = Plan(3, (new,)), watermark_us
        rows = engine.run(arrivals, plan=plan).rows
        found.rows.update(rows.select("start_us", "end_us", "row").iter_rows())
        found.answers.append(rows.height)
        found.kept.append(kept(engine))
        watermark_us = end_us
    return found


def kept(engine: LocalEngine) -> int:
    """Return how many tuples are kept: those of a stream once, and what joins have made of them."""
    of_streams: dict[str, int] = {}
    made = 0
    (store,) = engine.stores
    for fragment in lower(engine.plan).fragments:
        for node in fragment.behind:
            saved = store.get(node.id)
            if saved is None or not isinstance(node.operation, JoinOperation):
                continue
            state = unpack_state(saved)
            for side, below in zip(("left", "right"), node.inputs, strict=True):
                rows = state[side]
                assert isinstance(rows, pl.DataFrame)  # noqa: S101 - the state of a join
                stream = stream_below(fragment, below)
                if stream is None:
                    made += rows.height
                else:
                    of_streams[stream] = max(of_streams.get(stream, 0), rows.height)
    return made + sum(of_streams.values())


def stream_below(fragment: Fragment, name: str) -> str | None:
    """Return the stream whose tuples a node passes on; None if they are made of those of several."""
    node = fragment.by_id[name]
    while not isinstance(node.operation, Exchange):
        if len(node.inputs) > 1:
            return None
        node = fragment.by_id[node.inputs[0]]
    scan = fragment.pipeline(node)[0].operation
    assert isinstance(scan, Scan)  # noqa: S101 - where pipelines begin
    return scan.stream


def parallel_track(streams: Mapping[str, Sequence[tuple[int, int]]]) -> Followed:
    """Run the baseline over the same tuples."""
    inputs = {name: Input(name) for name in MOST}
    a, b, c, d = inputs.values()
    old = HashJoin(HashJoin(HashJoin(a, b, 0, 0), c, 1, 0), d, 2, 0)
    new = HashJoin(a, HashJoin(b, HashJoin(c, d, 0, 0), 0, 0), 0, 0)
    track, found = ParallelTrack(old, new), Followed()
    arriving = sorted((at, name, value) for name, rows in streams.items() for at, value in rows)
    place = 0
    for begin in range(0, END_US, BATCH_US):
        answers = 0
        if begin == BEGIN_US:
            track.begin()
        while place < len(arriving) and arriving[place][0] < begin + BATCH_US:
            at, name, value = arriving[place]
            answers += len(track.feed(name, Element(at, at + WINDOW_US, (value,))))
            place += 1
        found.answers.append(answers)
        found.kept.append(track.kept())
    found.ended_us = track.ended_at
    return found


def longest_pause(answers: Sequence[int], usual: Sequence[int]) -> int:
    """Return how many micro-batches in a row answer nothing where the plan alone answers something."""
    longest = now = 0
    for mine, theirs in zip(answers, usual, strict=True):
        now = now + 1 if not mine and theirs else 0 if mine else now
        longest = max(longest, now)
    return longest


def burst(answers: Sequence[int]) -> float:
    """Return the most answers of a micro-batch after the change over the mean before it."""
    change = BEGIN_US // BATCH_US
    usual = answers[change // 2 : change]
    return max(answers[change:]) / max(1e-9, sum(usual) / len(usual))


def duplicates() -> dict[str, int]:
    """Return how many tuples are answered twice where DISTINCT moves below a join, by parallel track and by ours."""
    dice = random.Random(SEED)  # noqa: S311 - not for secrets
    rows = {name: [(at, dice.randrange(3)) for at in range(name == "b", 90, 2)] for name in ("a", "b")}
    window = 20
    arriving = sorted((at, name, value) for name, each in rows.items() for at, value in each)
    elements = [(name, Element(at, at + window, (value,))) for at, name, value in arriving]
    old = Duplicates(FirstColumn(HashJoin(Input("a"), Input("b"), 0, 0)))
    new = FirstColumn(HashJoin(Duplicates(Input("a")), Duplicates(Input("b")), 0, 0))
    published = run(ParallelTrack(old, new), elements, DISTINCT_MOVES_AT)
    by_value = {value: [each for each in published if each.values == (value,)] for value in range(3)}
    twice = sum(times > 1 for each in by_value.values() for times in multiplicities(each, range(90)).values())
    return {"parallel_track_duplicates": twice, "migration_duplicates": own_duplicates(rows, window)}


def own_duplicates(rows: Mapping[str, list[tuple[int, int]]], window: int) -> int:
    """Return how many tuples ours answers twice."""
    a, b = (TimeWindow(Source(name, (Column(f"{name}v", FieldType.INTEGER),)), window) for name in rows)
    first = (Output("av", column_scalar(a.schema[0])),)
    above = Distinct(Project(joined(a, b, "av = bv"), first))
    below = Project(joined(Distinct(a), Distinct(b), "av = bv"), first)
    old = PlannedQuery("q", 1, above)
    engine, plan, found = LocalEngine(Plan(1, (old,))), None, list[tuple[int, int, str]]()
    for begin in range(0, 120, 5):
        if begin == DISTINCT_MOVES_AT:
            handover = Migration(above, below).handover(DISTINCT_MOVES_AT - 1)
            new = PlannedQuery("q", 2, below, since=handover)
            plan = Plan(2, (replace(old, until=handover), new))
        arrivals = arrivals_of(rows, begin, begin + 5)
        found += engine.run(arrivals, plan=plan).rows.select("start_us", "end_us", "row").iter_rows()
    valid = (Counter(row for begin, end, row in found if begin <= at < end) for at in range(90))
    return sum(times > 1 for each in valid for times in each.values())


def plot(curves: Mapping[str, Followed], path: Path) -> None:
    """Draw answers, and tuples kept, over application time."""
    import matplotlib as mpl  # noqa: PLC0415 - only when there is something to draw

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(8, 6), sharex=True)
    for name, curve in curves.items():
        seconds = [(place + 1) * BATCH_US / 1e6 for place in range(len(curve.answers))]
        per_second = [
            1e6 / BATCH_US * sum(curve.answers[max(0, place - 3) : place + 1]) / 4 for place in range(len(seconds))
        ]
        upper.plot(seconds, per_second, label=name)
        lower.plot(seconds, curve.kept, label=name)
    upper.set(ylabel="answers per second", yscale="symlog", title="a join of four streams gets another order at 20 s")
    lower.set(xlabel="application time, s", ylabel="tuples kept")
    upper.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
