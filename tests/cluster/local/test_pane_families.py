"""Whatever families windows are in, their answers are those of their definition, computed here by brute force."""

from __future__ import annotations

import json
import random
from collections import Counter

from cluster.local.engine import LocalEngine
from cluster.physical.lowering import lower
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.pane_query import families_of, with_family
from tests.cluster.local.migrating import arrivals, random_batches, random_streams
from tests.cluster.plan.plans import A, call, grouped, where, window
from tests.examples import seeds

Answer = tuple[int, int, str]


def _defined(rows: list[tuple[int, tuple[int, int]]], size: int, slide: int, most: int | None) -> Counter[Answer]:
    """Return the answers (papers/pipes_algebra.md section 3): a tuple stamped t is valid on [k0 - 1, k1 - 1)."""
    groups: dict[tuple[int, int], list[int]] = {}
    for at, (x, y) in rows:
        if most is not None and y >= most:
            continue
        first, end = -(-(at + 1) // slide) * slide - 1, -(-(at + size + 1) // slide) * slide - 1
        for start in range(first, end, slide):
            groups.setdefault((start, x), []).append(y)
    return Counter(
        (start, start + slide, json.dumps({"x": x, "count": len(ys), "sum(y)": sum(ys)}, separators=(",", ":")))
        for (start, x), ys in groups.items()
    )


@seeds(25)
def test_answers_do_not_depend_on_families(seed: int) -> None:
    dice = random.Random(seed)
    streams = random_streams(dice)
    queries, windows = [], {}
    for number in range(dice.randint(2, 7)):
        size, slide = dice.choice((2, 3, 4, 6, 9, 12)), dice.choice((2, 3, 4, 6))
        most = dice.choice((None, None, 2))
        tuples = A if most is None else where(A, f"y < {most}")
        plan = grouped(window(tuples, size, slide), "x", call("count"), call("sum", "y"))
        name = f"q{number}"
        windows[name] = size, slide, most
        queries.append(PlannedQuery(name, 1, with_family(plan, dice.choice((None, *families_of(plan))))))
    engine = LocalEngine(Plan(1, tuple(queries)), buckets=dice.choice((1, 3)))
    found: dict[str, Counter[Answer]] = {name: Counter() for name in windows}
    for batch in random_batches(dice, streams):
        own = {"a": batch["a"]}
        for query, start, end, row in (
            engine.run(arrivals(own), parts=dice.choice((1, 2)))
            .rows.select("query", "start_us", "end_us", "row")
            .iter_rows()
        ):
            found[query][start, end, row] += 1
        if dice.random() < 0.2:
            engine.forget()
    for name, (size, slide, most) in windows.items():
        assert found[name] == _defined(streams["a"], size, slide, most), (name, windows[name])
    assert len(lower(Plan(1, tuple(queries))).fragments) <= len(queries)
