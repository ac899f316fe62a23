"""WINDOW_START() and WINDOW_END() of random windows: each row is of the tuples between its bounds, and of no others."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

from cluster.language.accepted_syntax import WINDOW_BOUND_SYNTAX
from cluster.language.syntax import WindowBound
from cluster.testing import EOF, QueryRun, ScriptedSource
from tests.examples import seeds

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
TURN_US = int(datetime(2026, 3, 29, tzinfo=UTC).timestamp()) * SECOND_US
"""The day on which clocks in Berlin leap."""
SKIP_US = int(datetime(2011, 12, 30, 10, tzinfo=UTC).timestamp()) * SECOND_US
"""When clocks in Apia skip a day."""
RUNS = 120


def window_drawn(dice: random.Random) -> tuple[str, int, int]:
    """Return a window that slides, around which instant tuples are to be, and how far apart, in microseconds."""
    if dice.random() < 0.5:
        slide = dice.choice((1, 2, 5, 12))
        size = slide * dice.choice((1, 1, 2, 3)) + dice.choice((0, 0, 1))
        offset = f" OFFSET {dice.randrange(slide)} HOURS" if slide > 1 and dice.random() < 0.5 else ""
        return f"RANGE {size} HOURS SLIDE {slide} HOURS{offset}", TURN_US, HOUR_US // 2
    unit, gap_us = dice.choice((("DAY", 5 * HOUR_US), ("WEEK", 40 * HOUR_US), ("MONTH", 150 * HOUR_US)))
    offset = dice.choice(("", " OFFSET 6 HOURS"))
    zone = dice.choice(("Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia"))
    turn_us = SKIP_US if zone == "Pacific/Apia" else TURN_US
    return f"RANGE {dice.choice((1, 1, 2))} {unit} SLIDE 1 {unit}{offset} AT TIME ZONE '{zone}'", turn_us, gap_us


def instant_us(text: str) -> int:
    whole, _, micros = text.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}+00:00").timestamp()) * SECOND_US + int(micros or 0)


@seeds(RUNS)
def test_a_row_is_of_the_tuples_between_its_bounds(seed: int) -> None:
    dice = random.Random(f"bounds/{seed}")
    window, turn_us, gap_us = window_drawn(dice)
    drawn = [turn_us - 6 * gap_us + dice.randrange(14 * gap_us) for _ in range(dice.randrange(1, 25))]
    # Some at the very bounds of hours.
    stamps = sorted({stamp // HOUR_US * HOUR_US if dice.random() < 0.3 else stamp for stamp in drawn})
    tuples = [(stamp, dice.choice("ab"), dice.randrange(9)) for stamp in stamps]
    grouped = dice.random() < 0.5
    having = dice.choice(("", " HAVING WINDOW_END() - WINDOW_START() > INTERVAL '2' HOUR"))
    keys = ["sensor"] if grouped else []
    by_bounds = dice.random() < 0.3
    group = [*keys, *(["WINDOW_START()", "WINDOW_END()"] if by_bounds else [])]
    sql = (
        f"SELECT {', '.join([*keys, ''])}WINDOW_START() AS since, WINDOW_END() AS until, COUNT(*) AS n, SUM(x) AS x "
        f"FROM traffic WINDOW({window}){' GROUP BY ' + ', '.join(group) if group else ''}{having}"
    )
    items = [(stamp, {"sensor": sensor, "x": x}) for stamp, sensor, x in dice.sample(tuples, len(tuples))]
    source = ScriptedSource({"sensor": str, "x": int}, [*items, EOF()], batch_size=100)
    answers = QueryRun(sql, {"traffic": source}, buckets=dice.choice((1, 2))).run()
    seen: Counter[tuple[object, ...]] = Counter()
    for answer in answers:
        since, until = instant_us(answer.row["since"]), instant_us(answer.row["until"])
        own = [(stamp, x) for stamp, sensor, x in tuples if answer.row.get("sensor", sensor) == sensor]
        inside = [x for stamp, x in own if since <= stamp < until]
        assert (answer.row["n"], answer.row["x"]) == (len(inside), sum(inside)), (sql, answer)
        assert answer.start == until - 1, (sql, answer)
        seen[answer.row.get("sensor"), since, until] += 1
    assert all(count == 1 for count in seen.values()), (sql, seen)
    if not having:
        for stamp, sensor, _ in tuples:
            key = sensor if grouped else None
            assert any(own == key and since <= stamp < until for own, since, until in seen), (sql, stamp)


def test_both_bounds_are_all_there_are() -> None:
    assert {WindowBound: {"this": frozenset({"WINDOW_START", "WINDOW_END"})}} == WINDOW_BOUND_SYNTAX
