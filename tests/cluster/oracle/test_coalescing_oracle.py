"""Random queries with COALESCE: at every instant, the runs of the samples in the window, found one after the other.

The definition is Python: the samples that are in the window at an instant, key by key in the order of their stamps (of
equal stamps in that of the values that are read, NULLs last); a run goes on while each is linked with the one before.
Where stamps of a key differ, the runs are also those of the scan that defines extents (tests/cluster/temporal/runs.py).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.fjord.batch import NEVER
from cluster.temporal.windows import Satisfying
from tests.cluster.oracle.scripted_runs import answers_of, micros, valid_at
from tests.cluster.temporal.runs import coalesced
from tests.examples import seeds

RUNS = 200
FIELDS = {"k": str, "x": int, "y": float}
LAST = 40
Sample = tuple[int, str | None, int | None, float | None]
Values = tuple[int | None, float | None]
Links = Callable[[Values, Values], bool]
Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Run:
    """A coalesced row: its key, its first values and its interval."""

    k: str | None
    x: int | None
    y: float | None
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    text: str
    until: Callable[[int, list[Sample]], tuple[int, int]]
    """From when until when a sample is in it, of the sample and all samples."""


def same(one: Any, other: Any) -> bool:
    return bool(one == other)


def near(most: float) -> Callable[[Any, Any], bool]:
    return lambda one, other: one == other or (None not in (one, other) and abs(one - other) <= most)


def no_less(one: Any, other: Any) -> bool:
    return None not in (one, other) and other >= one


LINKS: tuple[tuple[str, str, Links], ...] = (
    ("x, y", "", lambda a, b: a == b),
    ("y, x TOLERANCE 1", "", lambda a, b: near(1)(a[0], b[0]) and same(a[1], b[1])),
    ("x TOLERANCE 0, y TOLERANCE 0.5", "", lambda a, b: same(a[0], b[0]) and near(0.5)(a[1], b[1])),
    ("x, y", " WHILE x >= PREV(x)", lambda a, b: no_less(a[0], b[0])),
    ("y, x", " WHILE PREV(y) IS NULL OR x > 1", lambda a, b: a[1] is None or (b[0] or 0) > 1),
)
"""What is coalesced, the condition, and what links two samples (x, y)."""


def sliding(size: int, step: int) -> Window:
    def boundary(instant: int) -> int:
        return -(-instant // step) * step - 1

    return Window(f"RANGE {size} US SLIDE {step} US", lambda t, _: (boundary(t + 1), boundary(t + size + 1)))


def a_window(dice: random.Random) -> Window:
    kind = dice.choice(("range", "range", "slide", "rows", "partition"))
    size = dice.choice((1, 4, 9, 25))
    if kind == "range":
        return Window(f"RANGE {size} US", lambda t, _: (t, t + size))
    if kind == "slide":
        return sliding(size, dice.choice((2, 3, 7)))
    rows = dice.choice((1, 2, 4))
    own = kind == "partition"

    def until(t: int, samples: list[Sample]) -> tuple[int, int]:
        (key,) = (each[1] for each in samples if each[0] == t)
        later = sorted(each[0] for each in samples if each[0] > t and (not own or each[1] == key))
        return t, later[rows - 1] if len(later) >= rows else NEVER

    return Window(f"{'PARTITION BY k ' if own else ''}ROWS {rows}", until)


def in_order(sample: Sample) -> tuple[Any, ...]:
    t, _, *read = sample
    return t, *((each is None, each) for each in read)


def runs_at(at: int, samples: list[Sample], window: Window, links: Links, *, keyed: bool) -> list[Run]:
    live: dict[str | None, list[Sample]] = {}
    for each in samples:
        begin, end = window.until(each[0], samples)
        if begin <= at < end:
            live.setdefault(each[1] if keyed else None, []).append(each)
    found: list[Run] = []
    for key, those in live.items():
        those.sort(key=in_order)
        starts = [n for n in range(len(those)) if not n or not links(those[n - 1][2:], those[n][2:])]
        for start, following in zip(starts, [*starts[1:], None], strict=True):
            end = those[-1][0] if following is None else those[following][0]
            found.append(Run(key, *those[start][2:], those[start][0], end))
    return found


def random_samples(dice: random.Random, most: int, *, tied: bool) -> list[Sample]:
    count = dice.randrange(1, most)
    stamps = [dice.randrange(LAST) for _ in range(count)] if tied else dice.sample(range(LAST), count)
    return [
        (t, dice.choice(("a", "b", None)), dice.choice((0, 1, 2, 4, None)), dice.choice((0.0, 0.5, 2.0, None)))
        for t in stamps
    ]


@seeds(RUNS)
def test_runs_are_those_of_the_samples_in_the_window(seed: int) -> None:
    dice = random.Random(f"coalescing/{seed}")
    window = a_window(dice)
    tied = "ROWS" not in window.text and dice.random() < 0.3
    samples = random_samples(dice, 25, tied=tied)
    columns, condition, links = dice.choice(LINKS)
    keyed = dice.random() < 0.7 or "PARTITION" in window.text
    if tied:  # of equal stamps, the order is that of the values as they are written
        columns, condition, links = dice.choice((LINKS[0], LINKS[3]))
    clauses = [f"WINDOW({window.text})", f"COALESCE({columns}{' BY k' if keyed else ''}{condition})", "AS s"]
    dice.shuffle(clauses)
    sql = f"SELECT {'k, ' if keyed else ''}x, y, VALID(s) AS held FROM traffic {' '.join(clauses)}"
    answers = answers_of(dice, sql, FIELDS, samples, dice.choice((0, 4, 50)))
    for at in range(LAST + 35):
        expected = Counter(
            (run.k, run.x, run.y, run.begin, run.end) for run in runs_at(at, samples, window, links, keyed=keyed)
        )
        found = Counter(
            (row.get("k"), row["x"], row["y"], micros(row["held_start"]), micros(row["held_end"]))
            for row in valid_at(answers, at)
        )
        assert found == expected, (sql, at)


@seeds(40)
def test_the_definition_agrees_with_the_scan_of_an_extent(seed: int) -> None:
    dice = random.Random(f"scan/{seed}")
    samples = sorted(random_samples(dice, 25, tied=False))
    for _, _, links in LINKS:
        scanned = coalesced([(t, (k,), (x, y)) for t, k, x, y in samples], Satisfying("links", links))
        everything = Window("", lambda t, _: (t, NEVER))
        found = runs_at(LAST, samples, everything, links, keyed=True)
        assert Counter((run.k, run.x, run.y, run.begin, run.end) for run in found) == Counter(
            (*run.group, *run.values, run.start, run.end) for run in scanned
        )


@seeds(60)
def test_intervals_of_runs_are_joined_and_aggregated(seed: int) -> None:
    dice = random.Random(f"pairs of runs/{seed}")
    window = sliding(20, 4)
    samples = random_samples(dice, 16, tied=False)
    item = f"traffic WINDOW({window.text}) COALESCE(x, y BY k)"
    tolerance = dice.choice((0, 1, 2))
    written = f" TOLERANCE {tolerance}" if tolerance else ""
    least = dice.choice((0, 2, 5))
    pairs = dice.random() < 0.5
    if pairs:
        sql = (
            "SELECT a.k AS k, b.k AS l, INTERSECT(VALID(a), VALID(b)) AS both "
            f"FROM {item} AS a, {item} AS b WHERE a.k <> b.k AND a.x ~= b.x{written} AND VALID(a) OVERLAPS VALID(b) "
            f"AND DURATION(INTERSECT(VALID(a), VALID(b))) >= INTERVAL '{least / 1e6:.6f}' SECOND"
        )
    else:
        longest = "EXTRACT(EPOCH FROM MAX(DURATION(VALID(s))))"
        sql = f"SELECT k, {longest} AS d FROM {item} AS s WHERE x ~= 1{written} GROUP BY k"

    def expected(at: int) -> Rows:
        runs = runs_at(at, samples, window, LINKS[0][2], keyed=True)
        if not pairs:
            groups: dict[str | None, int] = {}
            for run in runs:
                if run.x is not None and abs(run.x - 1) <= tolerance:
                    groups[run.k] = max(groups.get(run.k, 0), run.end - run.begin)
            return Counter(groups.items())
        found: Rows = Counter()
        for a in runs:
            for b in runs:
                known = None not in (a.k, b.k, a.x, b.x) and a.k != b.k and abs((a.x or 0) - (b.x or 0)) <= tolerance
                begin, end = max(a.begin, b.begin), min(a.end, b.end)
                if known and a.begin < b.end and b.begin < a.end and end - begin >= least:
                    found[a.k, b.k, begin, end] += 1
        return found

    answers = answers_of(dice, sql, FIELDS, samples, dice.choice((0, 4)))
    for at in range(LAST + 30):
        rows = valid_at(answers, at)
        if pairs:
            found = Counter((row["k"], row["l"], micros(row["both_start"]), micros(row["both_end"])) for row in rows)
        else:
            found = Counter((row["k"], round(row["d"] * 1_000_000)) for row in rows)
        assert found == expected(at), (sql, at)
