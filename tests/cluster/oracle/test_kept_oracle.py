"""Random queries with KEEP n TUPLES: at every instant, the rows of the definition with their quality.

Runs are found in Python, as in the oracle of COALESCE; what is kept of them is defined in kept_definition.py.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from cluster.fjord.batch import NEVER
from tests.cluster.oracle import kept_definition
from tests.cluster.oracle.kept_definition import Window, rows_at
from tests.cluster.oracle.scripted_runs import answers_of, micros, valid_at
from tests.cluster.oracle.test_coalescing_oracle import FIELDS, LAST, LINKS, Links, Sample, in_order, random_samples
from tests.examples import seeds

RUNS = 150
Key = tuple[Any, ...]


def a_window(dice: random.Random) -> tuple[str, Window]:
    size = dice.choice((1, 4, 9, 25, 100))
    match dice.choice(("range", "slide", "rows")):
        case "range":
            return f"RANGE {size} US", Window(size)
        case "slide":
            slide = dice.choice((2, 3, 7))
            return f"RANGE {size} US SLIDE {slide} US", Window(size, slide)
        case _:
            rows, slide = dice.choice((2, 4, 20)), dice.choice((1, 1, 3))
            return f"ROWS {rows} SLIDE {slide}" if slide > 1 else f"ROWS {rows}", Window(None, slide, rows)


def in_runs(samples: list[Sample], links: Links, *, keyed: bool) -> list[kept_definition.Sample]:
    """The samples in the order in which they are taken, with the numbers of their runs."""
    of_key: dict[str | None, list[Sample]] = {}
    for each in samples:
        of_key.setdefault(each[1] if keyed else None, []).append(each)
    numbered: list[tuple[Any, kept_definition.Sample]] = []
    for key, those in of_key.items():
        those.sort(key=in_order)
        run = 0
        for number, each in enumerate(those):
            run += number == 0 or not links(those[number - 1][2:], each[2:])
            place = (each[0], key is None, key or "", number)
            numbered.append((place, kept_definition.Sample(each[0], (key,), run, (key, *each[2:]))))
    return [each for _, each in sorted(numbered, key=lambda one: one[0])]


@seeds(RUNS)
def test_rows_and_their_quality_are_those_of_the_definition(seed: int) -> None:
    dice = random.Random(f"kept/{seed}")
    text, window = a_window(dice)
    tied = dice.random() < 0.3
    samples = random_samples(dice, 30, tied=tied)
    columns, condition, links = dice.choice((LINKS[0], LINKS[3]) if tied else LINKS)
    keyed, most = dice.random() < 0.7, dice.choice((1, 2, 3, 5, 9, 50))
    keep, at_the_end = f"KEEP {most} TUPLES", dice.random() < 0.3
    clauses = [f"WINDOW({text})", f"COALESCE({columns}{' BY k' if keyed else ''}{condition})", "AS s"]
    clauses = clauses if at_the_end else [*clauses, keep]
    dice.shuffle(clauses)
    aged = " WHERE quality > -1 " if at_the_end else ""
    sql = (
        f"SELECT {'k, ' if keyed else ''}x, y, VALID(s) AS held, s.quality AS q FROM traffic "
        f"{' '.join(clauses)}{aged}{keep if at_the_end else ''}"
    )
    answers = answers_of(dice, sql, FIELDS, samples, dice.choice((0, 4, 50)))
    taken = in_runs(samples, links, keyed=keyed)
    for at in range(LAST + 110):
        found = Counter(
            (row.get("k"), row["x"], row["y"], micros(row["held_start"]), micros(row["held_end"]), row["q"])
            for row in valid_at(answers, at)
        )
        expected = Counter((*values, *rest) for values, *rest in rows_at(taken, window, most, at))
        assert found == expected, (sql, at)


@seeds(60)
def test_rows_with_room_for_all_are_those_without_keep(seed: int) -> None:
    dice = random.Random(f"room for all/{seed}")
    text, _ = a_window(dice)
    samples = random_samples(dice, 25, tied=False)
    columns, condition, _ = dice.choice(LINKS)
    item = f"traffic WINDOW({text}) COALESCE({columns} BY k{condition})"
    every = [
        answers_of(
            random.Random(seed), f"SELECT k, x, y, VALID(s) AS held{q} FROM {item}{keep} AS s", FIELDS, samples, 4
        )
        for keep, q in (("", ""), (" KEEP 30 TUPLES", ", quality AS q"))
    ]
    for at in range(LAST + 110):
        exact, kept = ([*valid_at(each, at)] for each in every)
        assert Counter(map(str, exact)) == Counter(str({n: v for n, v in row.items() if n != "q"}) for row in kept)
        assert {row["q"] for row in kept} <= {1.0}
    assert all((each.end or NEVER) > each.start for each in every[1])


@seeds(40)
def test_a_group_has_the_quality_of_its_worst_row(seed: int) -> None:
    dice = random.Random(f"worst/{seed}")
    text, window = a_window(dice)
    samples, most = random_samples(dice, 30, tied=False), dice.choice((2, 4, 8))
    pairs = dice.random() < 0.5
    item = f"traffic WINDOW({text}) COALESCE(x BY k) KEEP {most} TUPLES"
    sql = f"SELECT k, COUNT(*) AS n FROM {item} GROUP BY k"
    if pairs:
        sql = f"SELECT a.x AS x, b.x AS z FROM {item} AS a, {item} AS b WHERE a.x < b.x"
    answers = answers_of(dice, sql, FIELDS, samples, dice.choice((0, 4)))
    taken = in_runs([(t, k, x, None) for t, k, x, _ in samples], LINKS[0][2], keyed=True)
    for at in range(LAST + 110):
        rows = rows_at(taken, window, most, at)
        expected: Counter[Any] = Counter()
        if pairs:
            known = [(values[1], quality) for values, _, _, quality in rows if values[1] is not None]
            expected.update((x, z, min(q, r)) for x, q in known for z, r in known if x < z)
        else:
            for key in {values[0] for values, *_ in rows}:
                own = [quality for values, _, _, quality in rows if values[0] == key]
                expected[key, len(own), min(own)] += 1
        names = ("x", "z", "quality") if pairs else ("k", "n", "quality")
        found = Counter(tuple(row[name] for name in names) for row in valid_at(answers, at))
        assert found == expected, (sql, at)
