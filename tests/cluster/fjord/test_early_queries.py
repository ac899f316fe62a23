"""What queries with EMIT EARLY are given, micro-batch by micro-batch, in one process; stamps are microseconds.

ROWS 2 of a sensor     tuples 1 5 9          watermark 6: [1, 5) is over, [5, ... is open
                                            watermark 10: 5 ends at 9, [9, ... is open
"""

from __future__ import annotations

import polars as pl
import pytest

from cluster.fjord.batch import NEVER, START
from cluster.fjord.early_answers import LookAhead
from cluster.fjord.operators.count_window import CountWindow
from cluster.fjord.stream_scan import RowsInMemory
from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.batches import DEFAULT_RATE_COLUMN
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("s", (Field("k", FieldType.TEXT), Field("x", FieldType.INTEGER)))])
LAST = "SELECT x FROM s WINDOW(ROWS 1)"
SLIDING = "SELECT COUNT(*) AS n FROM s WINDOW(RANGE 10 US SLIDE 5 US)"

Given = list[tuple[str, int, int, str, str]]


def planned(name: str, text: str = LAST, *, since: int = 1, early: bool = True) -> PlannedQuery:
    return PlannedQuery(name, since, rewrite(translate(text, CATALOG).node).node, early)


def arrival(watermark_us: int, *rows: tuple[int, int]) -> dict[str, Arrival]:
    frame = pl.DataFrame(
        [(at, "a", x, True) for at, x in rows],
        schema={START: pl.Int64, "k": pl.String, "x": pl.Int64, DEFAULT_RATE_COLUMN: pl.Boolean},
        orient="row",
    )
    return {"s": Arrival((RowsInMemory(frame),) if rows else (), watermark_us)}


def run(
    engine: LocalEngine, watermark_us: int, *rows: tuple[int, int], plan: Plan | None = None, query: str = "q"
) -> list[tuple[str, int, int, str]]:
    answered = engine.run(arrival(watermark_us, *rows), plan=plan).rows.filter(query=query)
    return answered.select("kind", "start_us", "end_us", "row").rows()


def test_a_row_comes_when_it_has_begun_and_its_end_when_it_is_known() -> None:
    engine = LocalEngine(Plan(1, (planned("q"),)))
    assert run(engine, 6, (1, 10), (5, 11)) == [("row", 1, 5, '{"x":10}'), ("open", 5, 6, '{"x":11}')]
    assert run(engine, 8) == []
    assert run(engine, 9, (9, 12)) == [], "a tuple counts once the watermark has passed it"
    assert run(engine, 10) == [("closes", 5, 9, '{"x":11}'), ("open", 9, 10, '{"x":12}')]
    assert run(engine, NEVER) == [("closes", 9, NEVER, '{"x":12}')]


def test_a_final_query_beside_it_shares_its_operators_and_gets_whole_rows() -> None:
    plan = Plan(2, (planned("q"), planned("other", since=2, early=False)))
    engine = LocalEngine(plan)
    assert run(engine, 6, (1, 10), (5, 11), query="other") == [("row", 1, 5, '{"x":10}')]
    assert run(engine, 10, (9, 12), query="other") == [("row", 5, 9, '{"x":11}')]


def test_where_every_end_is_known_nothing_is_opened() -> None:
    engine = LocalEngine(Plan(1, (planned("q", SLIDING),)))
    assert {kind for kind, *_ in run(engine, 30, (1, 10), (12, 11))} == {"row"}
    assert not any(name.endswith(" Early") for name in engine.stores[0].names())


def test_open_rows_survive_other_queries_that_come_and_go() -> None:
    engine, q = LocalEngine(Plan(1, (planned("q"),))), planned("q")
    run(engine, 6, (5, 11))
    found = run(engine, 7, plan=Plan(2, (q, planned("other", since=2))))
    found += run(engine, 8, plan=Plan(3, (q,)))
    engine.forget()
    assert found + run(engine, 10, (9, 12)) == [("closes", 5, 9, '{"x":11}'), ("open", 9, 10, '{"x":12}')]


def test_a_query_that_is_dropped_leaves_nothing_and_a_later_one_of_its_name_has_rows_of_its_own() -> None:
    engine, other = LocalEngine(Plan(1, (planned("q"), planned("other")))), planned("other")
    run(engine, 6, (5, 11))
    assert run(engine, 7, plan=Plan(2, (other,))) == []
    assert run(engine, 8, plan=Plan(3, (other, planned("q", since=3)))) == []
    assert run(engine, 10, (9, 12)) == [("open", 9, 10, '{"x":12}')]
    run(engine, 11, plan=Plan(4, ()))
    assert not any(name.endswith(" Early") for name in engine.stores[0].names())


def test_state_from_before_there_were_early_queries_goes_on() -> None:
    old = planned("old", early=False)
    engine = LocalEngine(Plan(1, (old,)))
    run(engine, 6, (5, 11))
    engine.forget()
    assert run(engine, 10, (9, 12), plan=Plan(2, (old, planned("q", since=2)))) == [("open", 9, 10, '{"x":12}')]
    assert run(engine, 14, (13, 13), query="old") == [("row", 9, 13, '{"x":12}')]


def test_a_look_ahead_that_fails_is_made_up_for_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(Plan(1, (planned("q"),)))
    run(engine, 6, (5, 11))
    with monkeypatch.context() as broken:
        broken.setattr(CountWindow, "ahead", lambda *_: 1 / 0)
        assert run(engine, 10, (9, 12)) == [("closes", 5, 9, '{"x":11}')], "what flows is given all the same"
        assert run(engine, 11) == []
    assert run(engine, 12) == [("open", 9, 12, '{"x":12}')]


def test_an_idle_stream_costs_no_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, looked, known = LocalEngine(Plan(1, (planned("q"),))), [], LookAhead.known
    monkeypatch.setattr(LookAhead, "known", lambda self, until_us: looked.append(until_us) or known(self, until_us))
    for watermark_us in (6, 6, 6, 7):
        run(engine, watermark_us)
    assert looked == [6, 7]


def test_open_rows_are_written_when_they_change_and_not_when_only_the_frontier_moves() -> None:
    engine = LocalEngine(Plan(1, (planned("q"),)))
    run(engine, 6, (5, 11))
    (bucket,) = (store for store in engine.stores if any(name.endswith(" Early") for name in store))
    (name,) = (name for name in bucket if name.endswith(" Early"))
    written = bucket[name]
    assert run(engine, 8) == []
    assert bucket[name] is written
    engine.forget()
    assert run(engine, 9) == [], "the frontier is known: the row that is open is not opened again"
    assert bucket[name] is written
    assert run(engine, 10, (9, 12)) == [("closes", 5, 9, '{"x":11}'), ("open", 9, 10, '{"x":12}')]
    assert bucket[name] is not written
