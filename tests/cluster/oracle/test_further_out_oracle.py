"""Subqueries that refer past the query around them, drawn at random, against DuckDB over every snapshot.

The texts are the same on both sides, but for a stream with a window, which is a table of the tuples valid then.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from cluster.testing import EOF, QueryRun, ScriptedSource
from tests.cluster.oracle.comparison import Snapshots, snapshots_of
from tests.cluster.oracle.text_running import planned, run_text, streams_of
from tests.cluster.oracle.text_world import World, random_world
from tests.examples import seeds, some_of

LAST = 24
"""No stamp is above this."""
SIZES = {"a": 5, "b": 6, "c": 9, "d": 1}
"""By stream: for how many microseconds a tuple is valid; those of `d` at their own instant only."""
COLUMNS = ("k", "x", "y")
SIGNS = ("=", "<>", "<", ">=")
AT_ONCE = 20

Rows = list[tuple[Any, ...]]


class Drawing:
    """Draws a query with subqueries in its condition."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def query(self) -> str:
        """Return a whole query."""
        return f"SELECT a.k, a.x, a.y FROM {{a}} WHERE {self.condition(['a'])}"

    def condition(self, around: list[str]) -> str:
        """Return a condition with a subquery in it, if streams are left."""
        dice = self.dice
        found = [self.test(around)] if len(around) < len(SIZES) else [self.comparison(around)]
        if len(around) > 1:
            found += [self.comparison(around) for _ in range(dice.choice((0, 1, 1, 2)))]
        elif dice.random() < 0.3:
            found.append(self.test(around))
        dice.shuffle(found)
        words = [dice.choice((" AND ", " AND ", " AND ", " OR ")) for _ in found[1:]]
        return "".join(f"{word}({each})" for word, each in zip(["", *words], found, strict=True))

    def comparison(self, around: list[str]) -> str:
        """Return a comparison of a column of the innermost stream, mostly with one further out."""
        dice, own = self.dice, around[-1]
        other = f"{dice.choice(around[:-1])}.{dice.choice(COLUMNS)}" if dice.random() < 0.85 else dice.choice("012")
        sides = [f"{own}.{dice.choice(COLUMNS)}", other]
        dice.shuffle(sides)
        return f"{sides[0]} {dice.choice(('=', '=', '=', 'IS NOT DISTINCT FROM', *SIGNS))} {sides[1]}"

    def test(self, around: list[str]) -> str:
        """Return a condition on the rows of a subquery over the next stream."""
        dice = self.dice
        stream = [*SIZES][len(around)]
        where = self.condition([*around, stream]) if dice.random() < 0.75 else self.comparison([*around, stream])
        rows = f"FROM {{{stream}}} WHERE {where}"
        value, column = f"{around[-1]}.{dice.choice(COLUMNS)}", f"{stream}.{dice.choice(COLUMNS)}"
        match dice.randrange(6):
            case 0 | 1:
                return f"{dice.choice(('', 'NOT '))}EXISTS (SELECT * {rows})"
            case 2:
                return f"{value} {dice.choice(('', 'NOT '))}IN (SELECT {column} {rows})"
            case 3:
                return f"{value} {dice.choice(SIGNS)} {dice.choice(('ANY', 'ALL'))} (SELECT {column} {rows})"
            case 4:
                return f"NOT ({value} {dice.choice(SIGNS)} {dice.choice(('ANY', 'ALL'))} (SELECT {column} {rows}))"
            case _:
                return self.aggregated(around, stream, value, column)

    def aggregated(self, around: list[str], stream: str, value: str, column: str) -> str:
        """Return a comparison with an aggregate, which refers to the query around it by equality."""
        dice = self.dice
        equal = f"{stream}.{dice.choice(COLUMNS)} = {around[-1]}.{dice.choice(COLUMNS)}"
        inner = [*around, stream]
        more = f" AND {self.test(inner)}" if len(inner) < len(SIZES) else ""
        call = f"{dice.choice(('MAX', 'SUM', 'SUM'))}({column})"
        return f"{value} {dice.choice(SIGNS)} (SELECT {call} FROM {{{stream}}} WHERE {equal}{more})"


def fjord_words(text: str) -> str:
    """Return a query as FjordSQL."""
    windows = {name: "" if size == 1 else f" WINDOW(RANGE {size} US)" for name, size in SIZES.items()}
    return text.format(**{name: f"{name}{window}" for name, window in windows.items()})


def _answers(texts: list[str], streams: dict[str, Rows]) -> list[list[Counter[tuple[Any, ...]]]]:
    """Return by text and instant the rows of Fjord's answer."""
    scripts = {
        name: ScriptedSource(
            dict.fromkeys(COLUMNS, int),
            [*((at, dict(zip(COLUMNS, row, strict=True))) for at, *row in rows), EOF()],
            lateness="100us",
            batch_size=5,
        )
        for name, rows in streams.items()
    }
    run = QueryRun({f"q{place}": fjord_words(text) for place, text in enumerate(texts)}, scripts)
    found = [[Counter[tuple[Any, ...]]() for _ in range(LAST + 20)] for _ in texts]
    for answer in run.run():
        for at in range(answer.start, min(answer.end or LAST + 20, LAST + 20)):
            found[int(answer.query[1:])][at][*answer.row.values()] += 1
    return found


def _meaning(text: str, database: duckdb.DuckDBPyConnection) -> list[Counter[tuple[Any, ...]]]:
    """Return by instant the rows of DuckDB's answer over the snapshots."""
    found = []
    for at in range(LAST + 20):
        valid = {
            name: f"(SELECT k, x, y FROM {name}_ WHERE stamp <= {at} AND {at} < stamp + {size}) AS {name}"
            for name, size in SIZES.items()
        }
        found.append(Counter(database.execute(text.format(**valid)).fetchall()))
    return found


def _streams(dice: random.Random) -> dict[str, Rows]:
    values = (0, 1, 2, None)
    return {
        name: [(dice.randrange(LAST), *(dice.choice(values) for _ in COLUMNS)) for _ in range(14 if name == "d" else 8)]
        for name in SIZES
    }


@seeds(5, fewest=2)
def test_what_is_asked_two_and_three_levels_further_in_is_exact(seed: int) -> None:
    dice = random.Random(seed)
    streams = _streams(dice)
    texts = [Drawing(dice).query() for _ in range(AT_ONCE)]
    database = duckdb.connect()
    for name, rows in streams.items():
        database.execute(f"CREATE TABLE {name}_ (stamp BIGINT, k BIGINT, x BIGINT, y BIGINT)")
        database.executemany(f"INSERT INTO {name}_ VALUES (?, ?, ?, ?)", rows)
    answered = 0
    for text, found in zip(texts, _answers(texts, streams), strict=True):
        meant = _meaning(text, database)
        assert found == meant, fjord_words(text)
        answered += any(meant)
    assert answered >= AT_ONCE // 3


def answers(query: str, world: World, seed: int) -> Snapshots:
    plan = planned([], query).better
    return snapshots_of(run_text(plan, world, streams_of(world, planned([], query).streams), seed), 60)


@pytest.mark.examples
def test_intervals_of_a_query_further_out_are_read_beside_columns_of_it() -> None:
    """What depends on the outermost query alone may as well stand there."""
    shape = "SELECT note FROM alpha AS t VALID UNTIL NEXT BY note MAX 40 US WHERE t.ok IN ({}){}"
    inner = "SELECT b FROM wild AS w VALID UNTIL NEXT BY n MAX 50 US WHERE {}VALID(t) OVERLAPS VALID(w)"
    alone = "EXISTS (SELECT p.place FROM places AS p WHERE t.k <> p.segment)"
    between, outermost = (
        shape.format(inner.format(f"{alone} AND "), ""),
        shape.format(inner.format(""), f" AND {alone}"),
    )
    some, count = 0, some_of(30)
    for number in range(count):
        dice = random.Random(f"intervals further out/{number}")
        world, seed = random_world(dice), dice.getrandbits(32)
        expected = answers(outermost, world, seed)
        assert answers(between, world, seed) == expected
        some += any(expected)
    assert some > count // 10
