"""The kit for testing queries: scripts, crashes, pauses, late tuples, queries that come and go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.language.errors import FjordSqlError
from cluster.testing import (
    ABORT,
    EOF,
    PAUSE,
    WATERMARK,
    Answer,
    FakeClock,
    QueryFailedError,
    QueryRun,
    ScriptedRelation,
    ScriptedSource,
    ScriptError,
    answers,
)

FIELDS = {"sensor": str, "speed": int}
TOTAL = "SELECT SUM(speed) AS total FROM traffic WINDOW(RANGE 10 US SLIDE 10 US)"


def traffic(*script: Any, **more: Any) -> dict[str, ScriptedSource]:
    return {"traffic": ScriptedSource(FIELDS, script, **more)}


def at(instant: Any, speed: int | None, sensor: str = "a") -> Any:
    return (instant, {"sensor": sensor, "speed": speed})


def spans(found: Any) -> list[tuple[int, int | None, Any]]:
    return [(each.start, each.end, *each.row.values()) for each in found]


def test_windows_answer_at_the_end() -> None:
    assert spans(answers(TOTAL, traffic(at(1, 1), at(4, 2), at(12, 3), EOF()))) == [(9, 19, 3), (19, 29, 3)]


def test_without_an_end_the_stream_goes_on() -> None:
    assert spans(answers(TOTAL, traffic(at(1, 1), at(4, 2), at(12, 3)))) == [(9, 19, 3)]
    assert spans(answers(TOTAL, traffic(at(1, 1), at(4, 2)))) == []
    assert spans(answers(TOTAL, traffic(at(1, 1), at(4, 2), WATERMARK(30)))) == [(9, 19, 3)]


@pytest.mark.parametrize("instant", ["2012-03-01T07:00", "2012-03-01T08:00+01:00", datetime(2012, 3, 1, 7, tzinfo=UTC)])
def test_instants_may_be_written_as_people_do(instant: Any) -> None:
    (answer,) = answers("SELECT speed FROM traffic", traffic(at(instant, None), EOF()))
    assert answer == Answer("query", 1_330_585_200_000_000, 1_330_585_200_000_001, {"speed": None})


def test_a_pause_ends_when_the_clock_has_moved_on() -> None:
    run = QueryRun("SELECT speed FROM traffic", traffic(at(1, 1), at(2, 2), PAUSE("10s"), at(3, 3), EOF()))
    assert spans(run.run()) == [(1, 2, 1)], "what is stamped 2 may get company yet"
    assert not run.pending
    assert run.run() == []
    run.clock.advance("9s")
    assert run.run() == []
    run.clock.advance("1s")
    assert spans(run.run()) == [(2, 3, 2), (3, 4, 3)]
    assert len(run.answers) == 3


@pytest.mark.parametrize("batch_size", [1, 2, 10])
@pytest.mark.parametrize("buckets", [1, 3])
def test_a_crash_changes_no_answer(batch_size: int, buckets: int) -> None:
    sql = {
        "total": TOTAL,
        "plain": "SELECT sensor, speed FROM traffic",
        "last": "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(PARTITION BY sensor ROWS 2) GROUP BY sensor",
    }
    script = [at(number, number % 5, "ab"[number % 2]) for number in range(30)]
    whole = QueryRun(sql, traffic(*script, EOF(), batch_size=batch_size), buckets=buckets)
    crashing = [each for number, tuple_ in enumerate(script) for each in (tuple_, *([ABORT()] if number % 4 else []))]
    crashed = QueryRun(sql, traffic(*crashing, EOF(), batch_size=batch_size), buckets=buckets)
    key: Callable[[Answer], str] = repr
    assert sorted(crashed.run(), key=key) == sorted(whole.run(), key=key)
    assert crashed.answers


def test_a_crash_of_one_stream_is_one_of_all() -> None:
    streams = {
        **traffic(at(1, 1), ABORT(), at(2, 2), EOF()),
        "weather": ScriptedSource({"wind": int}, [(1, {"wind": 5}), (2, {"wind": 6}), EOF()]),
    }
    sql = "SELECT t.speed, w.wind FROM traffic WINDOW(RANGE 1 US) AS t, weather WINDOW(RANGE 1 US) AS w"
    assert spans(answers(sql, streams)) == [(1, 2, 1, 5), (2, 3, 2, 6)]


def test_late_tuples_are_not_answered() -> None:
    run = QueryRun("SELECT speed FROM traffic", traffic(at(5, 1), at(3, 2), at(6, 3), EOF()))
    assert spans(run.run()) == [(5, 6, 1), (6, 7, 3)]
    assert run.late == [("traffic", 3, {"sensor": "a", "speed": 2})]
    patient = QueryRun("SELECT speed FROM traffic", traffic(at(5, 1), at(3, 2), at(6, 3), EOF(), lateness="2us"))
    assert spans(patient.run()) == [(3, 4, 2), (5, 6, 1), (6, 7, 3)]
    assert patient.late == []


def test_tuples_are_joined_with_a_relation_as_it_is_at_their_instants() -> None:
    places = ScriptedRelation({"sensor": str, "km": int}, [{"sensor": "a", "km": 1}], {3: [{"sensor": "a"}], 5: []})
    sql = "SELECT t.speed, p.km FROM traffic AS t, places AS p WHERE t.sensor = p.sensor"
    found = answers(sql, traffic(*(at(number, number) for number in range(7)), EOF()), {"places": places})
    assert [each[2:] for each in spans(found)] == [(0, 1), (1, 1), (2, 1), (3, None), (4, None)]


@pytest.mark.parametrize(
    "value", ["COALESCE(MAX(p.km), 7)", "NULLIF(7, MAX(p.km))", "CASE WHEN MAX(p.km) IS NULL THEN 7 END"]
)
def test_a_subquery_without_a_row_is_null_whatever_it_computes(value: str) -> None:
    """As of a stream: nothing is computed of rows that are not there."""
    places = ScriptedRelation({"sensor": str, "km": int}, [{"sensor": "b", "km": 1}], {})
    sql = f"SELECT (SELECT {value} FROM places AS p WHERE p.sensor = t.sensor) AS v FROM traffic AS t"
    found = answers(sql, traffic(*(at(number, number) for number in range(3)), EOF()), {"places": places})
    assert [each[2:] for each in spans(found)] == [(None,)] * 3


def test_queries_come_and_go() -> None:
    run = QueryRun({"first": "SELECT speed FROM traffic"}, traffic(*(at(number, number) for number in range(6)), EOF()))
    run.step()
    run.step()
    run.add("second", TOTAL)
    run.step()
    run.drop("first")
    run.run()
    assert [each.row["speed"] for each in run.answers if each.query == "first"] == [0, 1]
    assert [each.row["total"] for each in run.answers if each.query == "second"] == [2 + 3 + 4 + 5]
    with pytest.raises(ClusterError, match="no query 'first' to drop"):
        run.drop("first")
    with pytest.raises(ClusterError, match="has history"):
        run.add("third", "SELECT speed FROM traffic SINCE BEGINNING")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 5 US) WHERE speed > {}",
        "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 5 US) WHERE speed > {} GROUP BY ROLLUP(sensor)",
        "SELECT a.speed, b.speed FROM traffic WINDOW(RANGE 5 US) AS a LEFT JOIN traffic AS b ON b.speed > {}",
    ],
)
def test_queries_that_differ_in_a_condition_answer_as_each_does_alone(sql: str) -> None:
    script = (at(1, 1), at(2, 3, "b"), at(3, 5), at(4, 2, "b"), EOF())
    queries = {f"above {speed}": sql.format(speed) for speed in (0, 2, 4)}
    run = QueryRun(queries, traffic(*script))
    run.run()
    for name, each in queries.items():
        assert spans(given for given in run.answers if given.query == name) == spans(answers(each, traffic(*script)))


def test_a_query_that_cannot_be_read_is_underlined() -> None:
    with pytest.raises(FjordSqlError, match="no column 'spede'") as error:
        QueryRun("SELECT spede FROM traffic", traffic(EOF()))
    assert error.value.__notes__ == ["1 | SELECT spede FROM traffic\n  |        ^^^^^"]


def test_a_query_that_fails_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.fjord.operators.set_operations import Distinct

    def fail(*_: object) -> object:
        raise ValueError("no such thing")

    monkeypatch.setattr(Distinct, "transition", fail)
    with pytest.raises(QueryFailedError, match=r"query query failed: .*no such thing") as error:
        answers("SELECT DISTINCT speed FROM traffic", traffic(at(1, 1), EOF()))
    assert error.value.query == "query"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScriptedSource(FIELDS, [at(1, 1), EOF(), at(2, 2)]), "something follows the end"),
        (lambda: ScriptedSource(FIELDS, [(1, {"spede": 3})]), "item 1 of the script has a value for 'spede'"),
        (lambda: ScriptedSource(FIELDS, [(1, {"speed": 3.5})]), "item 1 of the script: field 'speed' holds integer"),
        (lambda: ScriptedSource({"x": list}, []), "column 'x' has no type that FjordSQL knows"),
        (lambda: answers(TOTAL, traffic(at("soon", 1))), "'soon' is no instant"),
        (lambda: ScriptedRelation({"km": int}, [{"km": 1}, {"km": "far"}]), "row 2: field 'km' holds integer"),
    ],
)
def test_a_script_that_cannot_be_followed_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        make()


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    assert clock() == clock() == 0.0
    clock.advance("1m")
    clock.advance("500ms")
    assert clock() == 60.5


@pytest.mark.parametrize("buckets", [1, 2, 3])
def test_a_group_of_which_the_beginning_has_been_answered_stays_one_group(buckets: int) -> None:
    items = [(5, {"sensor": "a"}), (9, {"sensor": "a"}), (11, {"sensor": "b"}), EOF()]
    source = ScriptedSource({"sensor": str}, items, batch_size=1)
    sql = "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 10 US) GROUP BY sensor"
    answers = QueryRun(sql, {"traffic": source}, buckets=buckets).run()
    found = [(each.start, each.end, each.row["n"]) for each in answers]
    assert found == [(5, 9, 1), (9, 10, 2), (11, 20, 1)]
