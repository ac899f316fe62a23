"""Questions about sensors in SQL, nested or long in whatever way: none ends the process that answers them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from cluster.language.errors import FjordSqlError
from cluster.service.http.sensor_questions import SensorQuestions
from tests.fuzz.drawing import TEXTS, damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from protocols.errors import FjordError

SENSORS = pl.DataFrame({
    "sensor": ["a", "b", None], "x": [1, None, -3], "y": [1.5, float("inf"), None], "b": [True, False, None],
})  # fmt: skip
MOST_STEPS = 6
LENGTHS = (1, 2, 3, 16, 17, 100, 101, 500, 1_200)
LONGEST = 60_000
"""Characters, of which the head of a request has room for fewer."""
NUMBERS = ("x", "y", "1", "0.5", "-9223372036854775808", "1e308", "NULL")
BINARY = ("+", "-", "*", "/", "%")
LOGIC = ("AND", "OR")
COMPARED = ("=", "<>", "<", ">=", "IS DISTINCT FROM")
CALLED = ("ABS", "ROUND", "FLOOR", "CEIL", "-", "NOT ", "LOWER", "UPPER", "COALESCE")
AGGREGATES = ("COUNT(*)", "SUM({})", "AVG({})", "MIN({})", "MAX({})", "MEDIAN({})", "STDDEV({})", "COUNT(DISTINCT {})")


class QuestionTarget:
    """A few questions, one after the other, to one process."""

    name = "questions"
    errors: tuple[type[FjordError], ...] = (FjordSqlError,)
    limit_seconds = 2.0

    def __init__(self) -> None:
        self._questions = SensorQuestions()

    def steps(self, dice: Random) -> Iterator[Callable[[], object]]:
        """Yield each question; one that ends the process, or takes too long, raises an error that is no refusal."""
        for _ in range(dice.randint(1, MOST_STEPS)):
            yield partial(self._ask, question(dice))

    def _ask(self, asked: tuple[str | None, str | None]) -> bytes:
        condition, sql = asked
        return asyncio.run(self._questions.answer(SENSORS, condition=condition, sql=sql))


def question(dice: Random) -> tuple[str | None, str | None]:
    """Return a condition, or a query in SQL."""
    if dice.random() < 0.3:
        return _damaged(_condition(dice, 3), dice), None
    if dice.random() < 0.3:
        shown = dice.choice(AGGREGATES).format(_number(dice, 3))
        return None, _damaged(f"SELECT b, {shown} AS n FROM sensors GROUP BY b HAVING {shown} > 1", dice)
    parts = [f"{_number(dice, 3)} AS c{place}" for place in range(dice.choice((1, 1, 3, 300)))]
    where = f" WHERE {_condition(dice, 3)}" if dice.random() < 0.5 else ""
    order = f" ORDER BY {_number(dice, 2)} LIMIT {dice.choice((0, 1, 10**9))}" if dice.random() < 0.4 else ""
    return None, _damaged(f"SELECT {', '.join(parts)} FROM sensors{where}{order}", dice)


def _number(dice: Random, levels: int) -> str:
    return _any_number(dice, levels)[:LONGEST]


def _any_number(dice: Random, levels: int) -> str:
    if not levels:
        return dice.choice(NUMBERS)
    inner, count = partial(_number, dice, levels - 1), dice.choice(LENGTHS)
    match dice.randrange(6):
        case 0:
            return f" {dice.choice(BINARY)} ".join([inner()] * count)
        case 1:
            return f"{dice.choice(CALLED)}(" * min(count, 300) + inner() + ")" * min(count, 300)
        case 2:
            return f"CASE WHEN {_condition(dice, levels - 1)} THEN " * count + inner() + " END" * count
        case 3:
            return f"CAST({inner()} AS {dice.choice(('BIGINT', 'DOUBLE', 'TEXT', 'BOOLEAN', 'VARCHAR(3)'))})"
        case 4:
            return " || ".join(["sensor", f"'{dice.choice(('', 'é', 'x' * 200))}'"] * count)
        case _:
            return inner()


def _condition(dice: Random, levels: int) -> str:
    return _any_condition(dice, levels)[:LONGEST]


def _any_condition(dice: Random, levels: int) -> str:
    number = partial(_number, dice, max(0, levels - 1))
    count = dice.choice(LENGTHS)
    match dice.randrange(7):
        case 0 if levels:
            return f" {dice.choice(LOGIC)} ".join([_condition(dice, levels - 1)] * count)
        case 1:
            return f"{number()} IN ({', '.join([dice.choice(NUMBERS)] * count)})"
        case 2:
            return f"sensor LIKE '{'%a_' * count}'"
        case 3 if levels:
            return "NOT " * count + f"({_condition(dice, levels - 1)})"
        case 4:
            return f"{number()} BETWEEN {number()} AND {number()}"
        case 5:
            return "(" * count + "b" + ")" * count
        case _:
            return f"{number()} {dice.choice(COMPARED)} {number()}"


def _damaged(text: str, dice: Random) -> str:
    text = text[:LONGEST]
    if dice.random() < 0.8:
        return text
    if dice.random() < 0.3:
        return text.replace("sensors", dice.choice(TEXTS), 1)
    return damaged(text.encode(), dice).decode("utf-8", "replace")
