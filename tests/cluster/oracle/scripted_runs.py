"""One query over tuples that come late, with a crash somewhere, and what it answers at an instant."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cluster.fjord.batch import NEVER
from cluster.testing import ABORT, EOF, Answer, QueryRun, ScriptedSource


def answers_of(
    dice: random.Random, sql: str, fields: Mapping[str, type], tuples: Sequence[tuple[Any, ...]], lateness: int
) -> list[Answer]:
    """Run a query over a stream `traffic` of such fields.

    Tuples are a stamp and the values of the fields; they come up to so many microseconds late.
    """
    comes = sorted(tuples, key=lambda one: one[0] + dice.random() * lateness)
    items: list[Any] = [(at, dict(zip(fields, values, strict=True))) for at, *values in comes]
    items.insert(dice.randrange(len(items) + 1), ABORT())
    source = ScriptedSource(fields, [*items, EOF()], batch_size=dice.choice((1, 3, 100)), lateness=f"{lateness}us")
    return QueryRun(sql, {"traffic": source}, buckets=dice.choice((1, 2))).run()


def valid_at(answers: Sequence[Answer], at: int) -> list[dict[str, Any]]:
    """Return the rows that are valid at an instant."""
    return [each.row for each in answers if each.start <= at < (each.end or NEVER)]


def micros(text: str) -> int:
    """Return the microseconds since 1970 of an instant in a row."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
