"""WINDOW_START() and WINDOW_END() of random sessions, closed and open, against a walk over the stamps of each key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.cluster.oracle.scripted_runs import answers_of, micros, valid_at
from tests.examples import seeds

RUNS = 80
FIELDS = {"k": str, "x": int}
LAST = 60
Tuple = tuple[int, str | None, int]
Session = list[Tuple]


def sessions_of(tuples: Iterable[Tuple], gap: int, longest: int) -> list[Session]:
    """The sessions of one key."""
    found: list[Session] = []
    for each in sorted(tuples, key=lambda one: one[0]):
        if not found or each[0] - found[-1][-1][0] > gap or each[0] - found[-1][0][0] >= longest:
            found.append([])
        found[-1].append(each)
    return found


def bounds_of(session: Session, gap: int, longest: int) -> tuple[int, int]:
    first, last = session[0][0], session[-1][0]
    return first, min(last + gap, first + longest)


@seeds(RUNS)
def test_bounds_are_the_first_stamp_and_a_gap_after_the_last(seed: int) -> None:
    dice = random.Random(f"bounds of sessions/{seed}")
    gap, early = dice.choice((1, 3, 6)), dice.random() < 0.5
    longest = dice.choice((10**9, 12, gap))
    keyed, chosen, counted, before = (dice.random() < share for share in (0.7, 0.3, 0.4, 0.3))
    keys = ["k"] if keyed else []
    tuples = [
        (dice.randrange(LAST), dice.choice(("a", "b", None)), dice.randrange(5)) for _ in range(dice.randrange(1, 25))
    ]
    where = " WHERE k = 'a'" if keyed and chosen else ""
    calls = "COUNT(*) FILTER (WHERE x > 2) AS n" if counted else "COUNT(*) AS n"
    group = [*keys, *(("WINDOW_START()", "WINDOW_END()") if dice.random() < 0.3 else ())]
    stream = "(SELECT k, x AS y, x FROM traffic WHERE x < 4) AS t" if before else "traffic"
    longest_text = f" MAX {longest} US" if longest < 10**9 else ""
    sql = (
        f"SELECT {', '.join((*keys, ''))}WINDOW_START() AS since, WINDOW_END() AS until, {calls} FROM {stream} "
        f"WINDOW(SESSION GAP {gap} US{longest_text}{' EARLY' if early else ''}{' PARTITION BY k' if keyed else ''})"
        f"{where}{' GROUP BY ' + ', '.join(group) if group else ''}"
        f"{' HAVING WINDOW_END() - WINDOW_START() > INTERVAL 0.000004 SECOND' if dice.random() < 0.3 else ''}"
    )
    answers = answers_of(dice, sql, FIELDS, tuples, dice.randrange(6))

    own: dict[str | None, list[Tuple]] = {}
    for each in tuples:
        if not before or each[2] < 4:
            own.setdefault(each[1] if keyed else None, []).append(each)
    for at in range(LAST + 20):
        expected: Counter[tuple[Any, ...]] = Counter()
        for key, those in own.items():
            for session in sessions_of(those, gap, longest):
                start, closes = bounds_of(session, gap, longest)
                if not (session[0][0] <= at < closes if early else at == closes):
                    continue
                start, end = bounds_of([each for each in session if each[0] <= at], gap, longest)
                if ("HAVING" in sql and end - start <= 4) or (where and key != "a"):
                    continue
                n = sum(x > 2 or not counted for stamp, _, x in session if stamp <= at)
                expected[(*((key,) if keyed else ()), start, end, n)] += 1
        found = Counter(
            (*(row[key] for key in keys), micros(row["since"]), micros(row["until"]), row["n"])
            for row in valid_at(answers, at)
        )
        assert found == expected, (sql, at)
