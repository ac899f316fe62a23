"""Rows that wait for later ones, looked up in relations that change meanwhile: at every size of micro-batches alike.

    tuples of a   a                       .                  it lasts, and is cut at watermarks
    relation      |-- (a, 10) --------)[-- (a, 20) --
    answer        a10                                        throughout: the row began when 10 held

Where all comes in one batch, nothing is cut: what is answered then is what is meant.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from cluster.fjord.batch import NEVER
from cluster.physical.rules import folded_queries
from cluster.testing import ABORT, EOF, Answer, QueryRun, ScriptedRelation, ScriptedSource
from tests.examples import some_of

TENTH = 100_000
"""All stamps and changes are multiples of this, in microseconds."""
FIELDS = {"k": str, "v": int}
LAST = 80
ALL_AT_ONCE = 10_000
Tuples = list[tuple[int, str, int]]

WAITING = "s VALID UNTIL NEXT BY k"
COUNTED = f"(SELECT k, COUNT(*) AS n FROM {WAITING} GROUP BY k)"
COUNTED_ROWS = "(SELECT k, COUNT(*) AS n FROM s WINDOW(PARTITION BY k ROWS 2) GROUP BY k)"
OF_R = "JOIN r ON r.k = z.k"
ROWS_OF_KEY = "WINDOW(PARTITION BY k ROWS"
SECOND = "t WINDOW(RANGE 1 SECOND)"


def running(
    sql: str, tuples: Iterable[tuple[int, str, int]], changes: dict[int, list[tuple[str, int]]], size: int,
    others: Iterable[tuple[int, str, int]] = (), buckets: int = 1, aborts: int = 0,
) -> QueryRun:  # fmt: skip
    """Return a query over two streams and a relation that changes, before its first micro-batch."""

    def source(rows: Iterable[tuple[int, str, int]]) -> ScriptedSource:
        items: list[Any] = [(at * TENTH, {"k": k, "v": v}) for at, k, v in sorted(rows)]
        if aborts and items:
            items.insert(aborts % len(items), ABORT())
        return ScriptedSource(FIELDS, [*items, EOF()], batch_size=size)

    def rows(found: list[tuple[str, int]]) -> list[dict[str, Any]]:
        return [{"k": k, "c": c} for k, c in found]

    first, *later = sorted(changes)
    changed = {at * TENTH: rows(changes[at]) for at in later}
    relation = ScriptedRelation({"k": str, "c": int}, rows(changes[first]), changed)
    return QueryRun(sql, {"s": source(tuples), "t": source(others)}, {"r": relation}, buckets=buckets)


def held(answers: Iterable[Answer]) -> list[Counter[tuple[Any, ...]]]:
    """Return what holds at each tenth of a second."""
    found = [Counter[tuple[Any, ...]]() for _ in range(LAST + 20)]
    for each in answers:
        for place, counter in enumerate(found):
            if each.start <= place * TENTH < (each.end or NEVER):
                counter[tuple(each.row.values())] += 1
    return found


SEEN: Tuples = [(10, "a", 0), *((at, "b", 0) for at in range(12, LAST, 3))]
CHANGED = {0: [("a", 10), ("b", 1)], 25: [("a", 20), ("b", 2)]}


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_row_that_waits_keeps_what_it_has_found(size: int) -> None:
    sql = f"SELECT z.n, r.c FROM {COUNTED} AS z {OF_R} WHERE z.k = 'a'"
    found = held(running(sql, SEEN, CHANGED, size).run())
    assert [+each for each in found[:10]] == [Counter()] * 10
    assert found[10:LAST] == [Counter({(1, 10): 1})] * (LAST - 10)


Z = f"AS z {OF_R}"
QUERIES = {
    "until the next": f"SELECT z.k, z.n, r.c FROM {COUNTED} {Z}",
    "rows": f"SELECT z.k, z.n, r.c FROM {COUNTED_ROWS} {Z}",
    "rows that slide": "SELECT z.k, z.n, r.c FROM (SELECT k, COUNT(*) AS n FROM s "
    f"{ROWS_OF_KEY} 4 SLIDE 2) GROUP BY k) {Z}",
    "all rows": "SELECT z.n, r.c FROM (SELECT COUNT(*) AS n FROM s WINDOW(ROWS 3)) AS z JOIN r ON r.c > z.n",
    "sessions": "SELECT z.k, z.n, r.c FROM (SELECT k, COUNT(*) AS n FROM s "
    f"WINDOW(SESSION GAP 500 MS PARTITION BY k EARLY) GROUP BY k) {Z}",
    "distinct": f"SELECT z.k, r.c FROM (SELECT DISTINCT k FROM s {ROWS_OF_KEY} 3)) {Z}",
    "distinct of a union": f"SELECT z.k, r.c FROM (SELECT k FROM {WAITING} UNION SELECT k FROM {SECOND}) {Z}",
    "distinct of windows": "SELECT z.k, r.c FROM (SELECT k FROM s WINDOW(RANGE 1 SECOND) UNION "
    f"SELECT k FROM t WINDOW(RANGE 3 SECONDS)) {Z}",
    "distinct of groups": "SELECT z.n, r.c FROM (SELECT DISTINCT n FROM (SELECT k, COUNT(*) AS n "
    "FROM s WINDOW(RANGE 2 SECONDS) GROUP BY k) AS y) AS z JOIN r ON r.c > z.n",
    "except": f"SELECT z.k, r.c FROM (SELECT k FROM s WINDOW(ROWS 4) EXCEPT ALL SELECT k FROM t {ROWS_OF_KEY} 1)) {Z}",
    "except distinct": "SELECT z.k, r.c FROM (SELECT k FROM s WINDOW(ROWS 4) EXCEPT SELECT k FROM t WINDOW(ROWS 1)) "
    f"{Z}",
    "intersect": f"SELECT z.k, r.c FROM (SELECT k FROM {WAITING} INTERSECT ALL SELECT k FROM t WINDOW(ROWS 3)) {Z}",
    "union all": f"SELECT z.k, z.n, r.c FROM (SELECT k, n FROM {COUNTED} AS x "
    f"UNION ALL SELECT k, v AS n FROM {SECOND}) {Z}",
    "joined, looked up by one": f"SELECT a.k, b.v, r.c FROM {WAITING} AS a JOIN {SECOND} AS b ON a.k = b.k "
    "JOIN r ON r.k = a.k",
    "joined, looked up as pairs": f"SELECT a.k, a.v, b.v AS w, r.c FROM s {ROWS_OF_KEY} 1) AS a "
    f"JOIN {SECOND} AS b ON a.k = b.k JOIN r ON r.c > a.v + b.v",
    "both wait": f"SELECT a.k, a.v, b.v AS w, r.c FROM s {ROWS_OF_KEY} 1) AS a "
    "JOIN t VALID UNTIL NEXT BY k AS b ON a.k = b.k JOIN r ON r.c > a.v + b.v",
    "having": f"SELECT k, COUNT(*) AS n FROM {WAITING} GROUP BY k HAVING k IN (SELECT k FROM r WHERE c < 15)",
    "having none": "SELECT k, COUNT(*) AS n FROM s WINDOW(ROWS 4) GROUP BY k HAVING COUNT(*) NOT IN (SELECT c FROM r)",
    "aggregate of looked up": f"SELECT SUM(r.c) AS c FROM {COUNTED} {Z}",
    "looked up twice": f"SELECT z.k, z.c, r.c AS d FROM (SELECT z.k, r.c FROM {COUNTED} {Z}) {Z}",
    "aggregate of aggregate": f"SELECT z.n, z.m, r.c FROM (SELECT n, COUNT(*) AS m FROM {COUNTED} AS x GROUP BY n) "
    "AS z JOIN r ON r.c > z.m",
    "in another": f"SELECT z.k, r.c FROM (SELECT a.k, a.n FROM {COUNTED} AS a "
    f"WHERE a.k IN (SELECT k FROM {SECOND})) {Z}",
    "not in another": f"SELECT z.k, z.n, r.c FROM (SELECT k, n FROM {COUNTED_ROWS} AS a WHERE NOT EXISTS "
    f"(SELECT * FROM t WINDOW(ROWS 2) WHERE t.k = a.k)) {Z}",
    "left join": f"SELECT z.k, z.w, r.c FROM (SELECT a.k, b.v AS w FROM {COUNTED} AS a "
    f"LEFT JOIN {SECOND} AS b ON a.k = b.k) {Z}",
    "in a window": f"SELECT z.k, r.c FROM (SELECT DISTINCT k FROM {COUNTED} AS x WINDOW(RANGE 1 SECOND)) {Z}",
    "maximum in a window": f"SELECT z.k, z.m, r.c FROM (SELECT k, MAX(n) AS m FROM {COUNTED_ROWS} AS x "
    f"WINDOW(RANGE 1 SECOND SLIDE 300 MS) GROUP BY k) {Z}",
    "relation held against what waits": "SELECT z.k, z.c, r.c AS d FROM (SELECT p.k, p.c FROM r AS p WHERE p.k IN "
    f"(SELECT k FROM {WAITING})) {Z}",
    "kept tuples": "SELECT z.k, z.n, r.c FROM (SELECT k, COUNT(*) AS n FROM "
    f"(SELECT k, v FROM s WINDOW(ROWS 4) COALESCE(v BY k) KEEP 3 TUPLES) AS x GROUP BY k) {Z}",
    "ranks": "SELECT z.k, z.n, z.p, r.c FROM "
    f"(SELECT k, n, RANK() OVER (ORDER BY n DESC) AS p FROM {COUNTED} AS x) {Z}",
    "full join": f"SELECT z.k, r.c FROM (SELECT a.k AS k, b.v AS w FROM {COUNTED} AS a "
    f"FULL JOIN t VALID UNTIL NEXT BY k AS b ON a.k = b.k) {Z}",
    "relation that need not match": f"SELECT z.k, z.n, r.c FROM r RIGHT JOIN {COUNTED} AS z ON r.k = z.k",
    "first": f"SELECT z.k, z.n, r.c FROM (SELECT k, n FROM {COUNTED} AS x ORDER BY n DESC, k LIMIT 2) {Z}",
    "coalesced": "SELECT z.k, z.n, r.c FROM (SELECT k, COUNT(*) AS n FROM "
    f"(SELECT k, v FROM s WINDOW(RANGE 3 SECONDS) COALESCE(v BY k)) AS x GROUP BY k) {Z}",
}


def random_world(dice: random.Random) -> tuple[Tuples, Tuples, dict[int, list[tuple[str, int]]]]:
    def tuples(count: int) -> Tuples:
        return [(dice.randrange(LAST), dice.choice("aabc"), dice.randrange(3)) for _ in range(count)]

    changes = {
        at: [(k, c) for k in "abc" for c in [dice.randrange(5)] if dice.random() < 0.8]
        for at in (0, *dice.sample(range(1, LAST), 5))
    }
    return tuples(dice.choice((4, 12, 25))), tuples(dice.choice((4, 12))), changes


@pytest.mark.examples
@pytest.mark.parametrize("name", QUERIES)
def test_answers_do_not_depend_on_micro_batches(name: str) -> None:
    dice = random.Random(name)
    answers = 0
    for number in range(4):
        if number >= some_of(4, fewest=1) and answers > 4:
            break
        tuples, others, changes = random_world(dice)
        meant = held(running(QUERIES[name], tuples, changes, ALL_AT_ONCE, others).run())
        answers += sum(map(bool, meant))
        for size in (1, 2, 7):
            buckets, aborts = dice.choice((1, 2)), dice.choice((0, 0, 9))
            found = held(running(QUERIES[name], tuples, changes, size, others, buckets, aborts).run())
            assert found[:LAST] == meant[:LAST], (size, tuples, others, changes)
    assert answers > 4


FOUND_LAST = (
    "until the next", "rows", "rows that slide", "sessions", "distinct", "distinct of a union", "except", "intersect",
    "union all", "in another", "not in another", "left join", "in a window", "maximum in a window", "first",
    "coalesced",
)  # fmt: skip
"""Queries with one row of the relation for each of theirs, and what is found there as the last column."""


@pytest.mark.parametrize("name", FOUND_LAST)
def test_a_query_of_an_earlier_version_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan had no origins, and so its state has none."""
    dice = random.Random(name)
    for _ in range(3):
        tuples, others, changes = random_world(dice)
        changes = {at: [(k, dice.randrange(5)) for k in "abc"] for at in changes}
        meant = held(running(QUERIES[name], tuples, changes, ALL_AT_ONCE, others).run())
        with monkeypatch.context() as earlier:
            earlier.setattr(folded_queries, "with_origins", tuple)
            folded_queries._nodes.cache_clear()
            run = running(QUERIES[name], tuples, changes, 2, others)
            answers = [each for _ in range(dice.randrange(1, 12)) if run.pending for each in run.step()]
        folded_queries._nodes.cache_clear()
        run._engine.forget()
        answers += run.run()
        assert [without_last(each) for each in held(answers)[:LAST]] == [without_last(each) for each in meant[:LAST]]


def without_last(found: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    left = Counter[tuple[Any, ...]]()
    for (*others, _), count in found.items():
        left[tuple(others)] += count
    return left
