"""Random queries about time, run by the local engine, against what they mean in DuckDB and zoneinfo.

The stamps are leap days, changes of clocks, years before 1970, and the first and last instant that there are. Tuples
come in batches of random sizes. ``TIME_TEXTS=500 pytest tests/cluster/oracle/test_time_oracle.py`` asks more.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from cluster.expressions.timestamps import EARLIEST_US, LATEST_US, timestamp_us
from cluster.language.accepted_syntax import TIME_SYNTAX, occurrences
from cluster.language.dialect import FjordSQL
from cluster.language.functions import TIME
from cluster.language.parsing import FjordSqlParser
from cluster.testing import EOF, QueryRun, ScriptedSource
from tests.cluster.oracle.time_meaning import connected
from tests.cluster.oracle.time_texts import FORMS, KINDS, LOCAL, SHOWN, Drawing, Time, shown

TEXTS = int(os.environ.get("TIME_TEXTS", "60"))
SEED = 20_261_126
AT_ONCE = 10
NAMED = [
    "2026-03-29T00:59:59.999999Z", "2026-03-29T01:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z",
    "2026-03-08T06:59:59Z", "2026-03-08T07:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z",
    "2026-04-04T14:45:00Z", "2026-10-03T15:30:00Z", "2024-02-29T23:59:59.999999Z", "2023-02-28T23:00:00Z",
    "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "1900-02-28T12:00:00Z", "1893-04-01T00:00:00Z",
    "2011-12-29T20:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T12:00:00Z",
    "1600-02-29T00:00:00Z", "2040-07-01T12:34:56.789Z", "2025-12-29T00:00:00Z", "2021-01-03T23:59:59Z",
]  # fmt: skip
STAMPS = sorted({EARLIEST_US, EARLIEST_US + 1, LATEST_US, 1, *(timestamp_us(each) or 0 for each in NAMED)})
TEXT_VALUES = [
    "2026-03-29T02:30:00+01:00", "2026-02-29", " 2024-02-29 23:59:59.5Z", "garbage", "", "1969-12-31 23:59:59.999999",
    "9999-12-31T23:59:59.999999Z", "0001-01-01", "2026-03-29 02:30", "2026-06-30 23:15:00-05:30",
    "2011-12-30 12:00",
    " 2026-03-29", "29.03.2026 01:30", "31.02.2026 01:30", "29.03.2026 24:00", "20260329T013000000001",
    "00010101T000000000000", "29.03.2026 o'clock 01:30", "29.03.2026 o''clock 01:30",
]  # fmt: skip
INTEGERS = [0, 1, -1, 5, 1_774_747_800, 1_774_747_800_000_000, 2**62, 3, -(2**63), 253_402_300_800, -62_135_596_801]
REALS = [0.0, 1.5, -0.5, 1e-7, 1e9, 2.5, 1e300, -3.25, 1.0, 0.1, 0.3, 1 + 2.0**-52]
OF_LAST = "EXTRACT(HOUR FROM MAX(STAMP())) AS h, YEAR(MIN(STAMP())) AS y, MAX(STAMP()) AT TIME ZONE 'Asia/Kolkata' AS k"
LAST_SQL = "f_part('hour', max(us)), f_part('year', min(us)), " + SHOWN[LOCAL].format(
    "f_local(max(us), 'Asia/Kolkata')"
)
COLUMN = re.compile(r"\b(us|[irsb])\b")
"""Without one, an expression is a constant, which may be no key to group by."""
Row = tuple[Any, ...]


def drawn_rows(dice: random.Random) -> list[Row]:
    found = []
    for stamp in STAMPS:
        for _ in range(dice.choice((1, 1, 2))):
            values = [dice.choice((None, *each)) for each in (INTEGERS, REALS, TEXT_VALUES, (True, False))]
            found.append((stamp, *values))
    return found


def drawn_query(dice: random.Random, number: int) -> tuple[str, str, list[Time]]:
    """Return a query, what DuckDB answers it with (the stamp, then the columns), and the expressions in it."""
    drawing = Drawing(dice)
    kind = KINDS[number % len(KINDS)]
    first, condition = drawing.expression(kind, 3), drawing.expression(KINDS[-1], 2)
    if number % 3 == 0 and COLUMN.search(first.sql):
        counted = drawing.expression(dice.choice(tuple(SHOWN)), 2)
        text = f"SELECT {first.text} AS x, COUNT(*) AS n, MIN({counted.text}) AS l, MAX({counted.text}) AS m, "
        text += f"COUNT(DISTINCT {counted.text}) AS d, {OF_LAST} FROM events AS e GROUP BY {first.text}"
        least, most = (SHOWN[counted.kind].format(f"{each}({counted.sql})") for each in ("min", "max"))
        sql = f"SELECT us, {_of_group(first)} AS x, count(*) AS n, {least}, {most}, count(DISTINCT {counted.sql})"
        return text, f"{sql}, {LAST_SQL} FROM events GROUP BY us, {first.sql}", [first, counted]
    others = [drawing.expression(dice.choice(KINDS), 3) for _ in range(2)]
    columns = [first, *others]
    named = ", ".join(f"{each.text} AS x{place}" for place, each in enumerate(columns))
    sql = ", ".join(["us", *map(shown, columns)])
    if number % 3 == 1:
        return f"SELECT DISTINCT {named} FROM events AS e", f"SELECT DISTINCT {sql} FROM events", columns
    text = f"SELECT {named} FROM events AS e WHERE {condition.text}"
    return text, f"SELECT {sql} FROM events WHERE {condition.sql}", [*columns, condition]


def _of_group(time: Time) -> str:
    return SHOWN.get(time.kind, "{0}").format(f"any_value({time.sql})")


def answered(queries: dict[str, str], rows: list[Row], batch_size: int) -> dict[str, Counter[Row]]:
    script = [(row[0], dict(zip("irsb", row[1:], strict=True))) for row in rows]
    source = ScriptedSource({"i": int, "r": float, "s": str, "b": bool}, [*script, EOF()], batch_size=batch_size)
    found: dict[str, Counter[Row]] = {name: Counter() for name in queries}
    for answer in QueryRun(queries, {"events": source}, buckets=3).run():
        assert answer.end == answer.start + 1
        found[answer.query][(answer.start, *answer.row.values())] += 1
    return found


def meant(sqls: dict[str, str], rows: list[Row]) -> dict[str, Counter[Row]]:
    with connected() as connection:
        types = [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.bool_()]
        columns = [pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), types, strict=True)]
        connection.register("events", pa.table(columns, names=["us", "i", "r", "s", "b"]))
        return {name: Counter(connection.execute(sql).fetchall()) for name, sql in sqls.items()}


@pytest.mark.parametrize("begin", range(0, TEXTS, AT_ONCE))
def test_queries_about_time_answer_what_they_mean(begin: int) -> None:
    numbers = range(begin, min(begin + AT_ONCE, TEXTS))
    dice = random.Random(f"{SEED}/{begin}")
    drawn = {f"q{number}": drawn_query(random.Random(f"{SEED}/{number}"), number) for number in numbers}
    rows = drawn_rows(dice)
    found = answered({name: text for name, (text, _, _) in drawn.items()}, rows, dice.choice((1, 3, 7, 100)))
    wanted = meant({name: sql for name, (_, sql, _) in drawn.items()}, rows)
    for name, (text, sql, _) in drawn.items():
        missing, surplus = wanted[name] - found[name], found[name] - wanted[name]
        assert (missing, surplus) == (Counter(), Counter()), f"{text}\n{sql}"


def test_all_syntax_about_time_is_drawn() -> None:
    texts = [drawn_query(random.Random(f"{SEED}/{number}"), number)[0] for number in range(1000)]
    triples = set()
    for text in texts:
        tree = FjordSqlParser(dialect=FjordSQL()).parse_one(FjordSQL().tokenize(text), text)
        triples |= {each.triple for each in occurrences(tree)}
    own = {
        (node.__name__, argument, kind)
        for node, arguments in TIME_SYNTAX.items()
        for argument, kinds in arguments.items()
        for kind in kinds
    }
    assert own - triples == set()
    assert {name for name in TIME if not any(f"{name}(" in text for text in texts)} == set()


def test_each_form_is_drawn() -> None:
    assert set(FORMS) == set(KINDS)
