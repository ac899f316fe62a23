"""Random queries about what held for how long, against a definition over lists of tuples with their intervals.

The definition is Python over all tuples at once: an interval ends with the next later stamp of its key, or after the
longest time; a join pairs tuples at the instants at which both count.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.fjord.batch import NEVER
from cluster.testing import Answer
from tests.cluster.oracle.scripted_runs import answers_of, micros, valid_at
from tests.examples import seeds

RUNS = 150
FIELDS = {"k": str, "x": int}
LAST = 40
Tuple = tuple[int, str | None, int]
Rows = Counter[tuple[Any, ...]]
Shown = Callable[[dict[str, Any]], tuple[Any, ...]]

ALLEN: dict[str, Callable[[int, int, int, int], bool]] = {
    "before": lambda a, b, c, d: b < c,
    "meets": lambda a, b, c, d: b == c,
    "overlaps": lambda a, b, c, d: a < c < b < d,
    "finished by": lambda a, b, c, d: a < c and b == d,
    "contains": lambda a, b, c, d: a < c and d < b,
    "starts": lambda a, b, c, d: a == c and b < d,
    "equals": lambda a, b, c, d: a == c and b == d,
    "started by": lambda a, b, c, d: a == c and d < b,
    "during": lambda a, b, c, d: c < a and b < d,
    "finishes": lambda a, b, c, d: c < a and b == d,
    "overlapped by": lambda a, b, c, d: c < a < d < b,
    "met by": lambda a, b, c, d: a == d,
    "after": lambda a, b, c, d: d < a,
}
"""J. F. Allen, Maintaining knowledge about temporal intervals, 1983, figure 2."""
OF_ALLEN: dict[str, tuple[str, ...]] = {
    "OVERLAPS": tuple(each for each in ALLEN if each not in ("before", "meets", "met by", "after")),
    "CONTAINS": ("contains", "equals", "started by", "finished by"),
    "DURING": ("during", "equals", "starts", "finishes"),
    "EQUALS": ("equals",),
    "BEFORE": ("before",),
    "AFTER": ("after",),
    "MEETS": ("meets",),
    "STARTS": ("starts",),
    "FINISHES": ("finishes",),
}
"""What the words between two intervals mean, by Allen's relations."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tuple, its interval `[begin, end)`, and the instants `[begin, counts)` at which it is valid."""

    k: str | None
    x: int
    begin: int
    end: int
    counts: int

    @property
    def interval(self) -> tuple[int, int]:
        return self.begin, self.end


@dataclass(frozen=True, slots=True)
class Item:
    """One item of FROM."""

    text: str
    keys: tuple[str, ...]
    longest: int
    window: int | None

    def of(self, tuples: list[Tuple]) -> list[Held]:
        found = []
        for at, k, x in tuples:
            own = [
                later
                for later, k2, x2 in tuples
                if later > at and ("k" not in self.keys or k2 == k) and ("x" not in self.keys or x2 == x)
            ]
            end = min([*own, at + self.longest])
            found.append(Held(k, x, at, end, end if self.window is None else at + self.window))
        return found


def length(text: str | None) -> int | None:
    return None if text is None else round(float(text.removeprefix("PT").removesuffix("S")) * 1_000_000)


def relation_of(one: tuple[int, int], other: tuple[int, int]) -> str:
    (found,) = (name for name, holds in ALLEN.items() if holds(*one, *other))
    return found


def an_item(dice: random.Random, name: str, *, read: bool, windows: bool) -> Item:
    keys = dice.choice(((), ("k",), ("k",), ("k", "x")))
    by = {0: "", 1: " BY k", 2: " BY (k, x)"}[len(keys)]
    longest = dice.choice((2, 5, 9, 60) if read else (2, 5, 60, NEVER))
    most = f" MAX {longest} US" if longest < NEVER else ""
    window = dice.choice((None, 4, 12)) if windows else None
    valid = f"VALID UNTIL NEXT{by}{most}"
    parts = [valid, f"AS {name}", *([] if window is None else [f"WINDOW(RANGE {window} US)"])]
    dice.shuffle(parts)
    return Item(f"traffic {' '.join(parts)}", keys, longest, window)


def late_answers_of(dice: random.Random, sql: str, tuples: list[Tuple]) -> list[Answer]:
    return answers_of(dice, sql, FIELDS, tuples, dice.randrange(6))


def random_tuples(dice: random.Random, most: int) -> list[Tuple]:
    return [
        (dice.randrange(LAST), dice.choice(("a", "b", None)), dice.randrange(3)) for _ in range(dice.randrange(1, most))
    ]


def check(sql: str, answers: list[Answer], expected: Callable[[int], Rows], shown: Shown) -> None:
    for at in range(LAST + 75):
        found = Counter(map(shown, valid_at(answers, at)))
        assert found == expected(at), (sql, at)


@seeds(RUNS)
def test_a_tuple_holds_until_the_next_one(seed: int) -> None:
    dice = random.Random(f"until next/{seed}")
    tuples = random_tuples(dice, 20)
    item = an_item(dice, "t", read=False, windows=False)
    chosen = dice.choice(("", " WHERE x > 0", " WHERE k = 'a'"))
    grouped = dice.random() < 0.4
    select = "k, COUNT(*) AS x" if grouped else "k, x"
    sql = f"SELECT {select} FROM {item.text}{chosen}{' GROUP BY k' if grouped else ''}"
    held = [each for each in item.of(tuples) if (each.x > 0 if "x >" in chosen else each.k == "a" or not chosen)]

    def expected(at: int) -> Rows:
        rows = [(each.k, each.x) for each in held if each.begin <= at < each.counts]
        return Counter(Counter(k for k, _ in rows).items()) if grouped else Counter(rows)

    check(sql, late_answers_of(dice, sql, tuples), expected, lambda row: (row["k"], row["x"]))


@seeds(RUNS)
def test_pairs_of_intervals_are_related(seed: int) -> None:
    dice = random.Random(f"intervals/{seed}")
    tuples = random_tuples(dice, 10)
    left, right = (an_item(dice, name, read=True, windows=True) for name in "ab")
    word = dice.choice(tuple(OF_ALLEN))
    intervals = ["VALID(a)", "VALID(b)"]
    dice.shuffle(intervals)
    where = dice.choice(
        ("a.x <= b.x", f"{intervals[0]} {word} {intervals[1]}", f"NOT ({intervals[0]} {word} {intervals[1]})")
    )
    outer = dice.random() < 0.3
    on = f" LEFT JOIN {right.text} ON {where}" if outer else f", {right.text} WHERE {where}"
    sql = (
        "SELECT a.x AS x, VALID(a) AS one, VALID(b) AS other, INTERSECT(VALID(a), VALID(b)) AS shared, "
        f"DURATION(INTERSECT(VALID(b), VALID(a))) AS d, ALLEN({', '.join(intervals)}) AS r FROM {left.text}{on}"
    )
    swapped = intervals[0] == "VALID(b)"

    def holds(a: Held, b: Held) -> bool:
        one, other = (b.interval, a.interval) if swapped else (a.interval, b.interval)
        if word not in where:
            return a.x <= b.x
        return (relation_of(one, other) in OF_ALLEN[word]) != where.startswith("NOT")

    def row(a: Held, b: Held | None) -> tuple[Any, ...]:
        if b is None:
            return (a.x, *a.interval, *[None] * 6)
        begin, end = max(a.begin, b.begin), min(a.end, b.end)
        shared = (begin, end, end - begin) if begin < end else (None, None, None)
        relation = relation_of(b.interval, a.interval) if swapped else relation_of(a.interval, b.interval)
        return (a.x, *a.interval, *b.interval, *shared, relation)

    lefts, rights = left.of(tuples), right.of(tuples)

    def expected(at: int) -> Rows:
        found: Rows = Counter()
        for a in (each for each in lefts if each.begin <= at < each.counts):
            partners = [b for b in rights if b.begin <= at < b.counts and holds(a, b)]
            found.update(row(a, b) for b in partners or ([None] if outer else []))
        return found

    def shown(answer: dict[str, Any]) -> tuple[Any, ...]:
        names = ("one_start", "one_end", "other_start", "other_end", "shared_start", "shared_end")
        instants = (None if answer[each] is None else micros(answer[each]) for each in names)
        return (answer["x"], *instants, length(answer["d"]), answer["r"])

    check(sql, late_answers_of(dice, sql, tuples), expected, shown)


@seeds(RUNS // 2)
def test_durations_are_aggregated(seed: int) -> None:
    dice = random.Random(f"durations/{seed}")
    tuples = random_tuples(dice, 20)
    item = an_item(dice, "t", read=True, windows=True)
    sql = (
        "SELECT k, MAX(DURATION(VALID(t))) AS most, SUM(EXTRACT(EPOCH FROM DURATION(VALID(t)))) AS whole "
        f"FROM {item.text} GROUP BY k HAVING MAX(DURATION(VALID(t))) > INTERVAL '0.000002' SECOND"
    )
    held = item.of(tuples)

    def expected(at: int) -> Rows:
        groups: dict[str | None, list[int]] = {}
        for each in (one for one in held if one.begin <= at < one.counts):
            groups.setdefault(each.k, []).append(each.end - each.begin)
        return Counter((k, max(those), sum(those)) for k, those in groups.items() if max(those) > 2)

    def shown(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["k"], length(row["most"]), round(row["whole"] * 1_000_000)

    check(sql, late_answers_of(dice, sql, tuples), expected, shown)


def test_allens_relations_are_exhaustive_and_exclude_each_other() -> None:
    """Of any two intervals exactly one relation holds, by the definition and by ALLEN."""
    bounds = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    for one in bounds:
        for other in bounds:
            assert relation_of(one, other) in ALLEN
    tuples: list[Tuple] = [(at, None, 0) for at in (0, 1, 2, 4, 7, 8)]
    items = (f"traffic VALID UNTIL NEXT MAX {n} US WINDOW(RANGE 30 US) AS {name}" for n, name in ((2, "a"), (5, "b")))
    sql = f"SELECT VALID(a) AS one, VALID(b) AS other, ALLEN(VALID(a), VALID(b)) AS r FROM {', '.join(items)}"
    seen = set()
    for each in late_answers_of(random.Random("allen"), sql, tuples):
        one, other = ((micros(each.row[f"{name}_start"]), micros(each.row[f"{name}_end"])) for name in ("one", "other"))
        assert each.row["r"] == relation_of(one, other)
        seen.add(each.row["r"])
    assert len(seen) > 5
