"""A function that fails costs the queries that call it with those tuples, and no other query of the micro-batch."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec
import polars as pl
import pytest
from msgspec.structs import replace

from cluster.expressions.nodes import UserCall
from cluster.expressions.user_functions import UserFunction
from cluster.expressions.walks import functions_called
from cluster.fjord.batch import NEVER, START
from cluster.fjord.stream_scan import RowsInMemory
from cluster.functions.allowed import FunctionRules
from cluster.functions.calling import CALLS
from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.local.engine import Arrival, LocalEngine, MemoryTables, RelationRows
from cluster.operators.columns import Column
from cluster.physical.lowering import lower
from cluster.plan.demand import demands_of
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.names_read import functions_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

MODULE = "tests.cluster.functions.misbehaving"
REAL = FieldType.REAL
TRAFFIC = StreamSchema(
    "traffic", (Field("sensor", FieldType.TEXT, fixed=True), Field("lane", FieldType.INTEGER), Field("speed", REAL))
)
PLACES = StaticRelation("places", "places@1", (Column("sensor", FieldType.TEXT), Column("km", REAL)))
NAMES = ("same", "raises_above_two", "shorter", "changes_its_argument", "loops_above_two", "crashes", "no_numbers")
FUNCTIONS = [UserFunction(name, f"{name}@{at}", MODULE, name, (REAL,), REAL) for at, name in enumerate(NAMES, 1)]
CATALOG = Catalog.of([TRAFFIC, PLACES]).with_functions(FUNCTIONS)
ROWS = [(at, "ab"[at % 2], at % 3, speed) for at, speed in enumerate((1.0, 2.0, 3.0, 4.0, 1.5, 0.5, None, 2.5))]
W = "WINDOW(RANGE 4 US SLIDE 4 US)"
OTHERS = {
    "all": "SELECT sensor, speed FROM traffic",
    "slow": "SELECT sensor, speed FROM traffic WHERE speed < 2",
    "same": "SELECT same(speed) AS x FROM traffic",
    "lanes": f"SELECT lane, COUNT(*) AS n, AVG(speed) AS speed FROM traffic {W} GROUP BY lane",
    "slow lanes": f"SELECT lane, MAX(speed) AS speed FROM traffic {W} WHERE speed < 2 GROUP BY lane",
    "places": "SELECT t.speed, p.km FROM traffic AS t, places AS p WHERE t.sensor = p.sensor",
    "pairs": f"SELECT a.speed, b.lane FROM traffic AS a {W}, traffic AS b {W} WHERE a.sensor = b.sensor",
}
FAILING = {
    "in select": "SELECT sensor, {}(speed) AS speed FROM traffic",
    "in where": "SELECT sensor, speed FROM traffic WHERE {}(speed) < 9",
    "in an aggregate": f"SELECT lane, AVG({{}}(speed)) AS speed FROM traffic {W} GROUP BY lane",
    "in a key": f"SELECT {{}}(speed) AS k, COUNT(*) AS n FROM traffic {W} GROUP BY k",
    "above an aggregate": f"SELECT lane, {{}}(MAX(speed)) AS speed FROM traffic {W} GROUP BY lane",
    "in having": f"SELECT lane, COUNT(*) AS n FROM traffic {W} GROUP BY lane HAVING {{}}(MAX(speed)) > 0",
    "in a lookup": "SELECT t.speed, p.km FROM traffic AS t, places AS p WHERE t.sensor = p.sensor "
    "AND {}(t.speed) < p.km",
    "in a relation": "SELECT t.speed, p.x FROM traffic AS t, (SELECT sensor, {}(km) AS x FROM places) AS p "
    "WHERE t.sensor = p.sensor",
    "in a join": f"SELECT a.speed FROM traffic AS a {W}, traffic AS b {W} WHERE a.lane = b.lane "
    "AND {}(a.speed) >= b.speed",
    "of a constant": "SELECT {}(3) AS x FROM traffic",
    "in a case": "SELECT CASE WHEN speed < 2 THEN 0 ELSE {}(speed) END AS x FROM traffic",
}


@contextlib.contextmanager
def allowed(seconds: float = 60.0) -> Iterator[None]:
    before = CALLS.rules
    CALLS.use(FunctionRules((MODULE,), seconds=seconds))
    try:
        yield
    finally:
        CALLS.use(before)


@pytest.fixture(autouse=True)
def rules():
    with allowed():
        yield


def planned(queries: Mapping[str, str], catalog: Catalog = CATALOG) -> Plan:
    found = [
        PlannedQuery(name, epoch, rewrite(translate(sql, catalog).node).node)
        for epoch, (name, sql) in enumerate(queries.items(), 1)
    ]
    return Plan(len(found), tuple(found))


def run(queries: Mapping[str, str], rows=ROWS) -> tuple[dict[str, list], dict[str, list[str]]]:
    """Return by query its rows, and its errors."""
    tables = MemoryTables({"places@1": [RelationRows(pl.DataFrame({"sensor": ["a", "b"], "km": [3.5, 1.0]}))]})
    engine = LocalEngine(planned(queries), buckets=2, tables=lambda: tables)
    schema = {START: pl.Int64, "sensor": pl.String, "lane": pl.Int64, "speed": pl.Float64}
    answers, errors = defaultdict(list), defaultdict(list)
    for low, high in ((0, 4), (4, NEVER)):
        came = pl.DataFrame([row for row in rows if low <= row[0] < high], schema=schema, orient="row")
        for query, start, end, kind, row in engine.run(
            {"traffic": Arrival((RowsInMemory(came),), high)}
        ).rows.iter_rows():
            if kind == "error":
                errors[query].append(msgspec.json.decode(row))
            else:
                answers[query].append((start, end, row))
    return {name: sorted(found) for name, found in answers.items()}, dict(errors)


@pytest.fixture(scope="module")
def alone():
    with allowed():
        return {name: run({name: sql})[0][name] for name, sql in OTHERS.items()}


@pytest.mark.parametrize("place", FAILING)
@pytest.mark.parametrize("function", ["raises_above_two", "shorter", "changes_its_argument"])
def test_others_are_answered_as_if_they_were_alone(place, function, alone):
    answers, errors = run(
        {**OTHERS, "failing": FAILING[place].format(function), **{f"{name} too": sql for name, sql in OTHERS.items()}}
    )
    for name in OTHERS:
        assert answers[name] == answers[f"{name} too"] == alone[name], name
    one_row = function == "shorter" and place in ("in a relation", "of a constant")
    assert set(errors) == (set() if one_row or function == "changes_its_argument" else {"failing"})
    for reason in errors.get("failing", ()):
        assert reason.startswith(f"function {function} ({MODULE}:{function}) failed: ValueError: ")


@pytest.mark.parametrize("function", ["loops_above_two", "crashes"])
def test_others_are_answered_beside_a_function_that_hangs_or_crashes(function, alone):
    with allowed(seconds=2.0):
        answers, errors = run({**OTHERS, "failing": FAILING["in select"].format(function)})
    assert {name: answers[name] for name in OTHERS} == alone
    (reason,) = errors["failing"]
    assert "it did not return within 2 s, and was ended" in reason or "its process ended by SIGSEGV" in reason


def test_only_the_micro_batch_in_which_it_failed_is_missing():
    answers, errors = run({"failing": FAILING["in select"].format("raises_above_two")})
    assert len(errors["failing"]) == 1  # of both micro-batches: the same error is given once a minute
    assert "failing" not in answers
    answers, errors = run({"failing": FAILING["in select"].format("raises_above_two")}, ROWS[2:7])
    assert [start for start, *_ in answers["failing"]] == [4, 5, 6]
    assert len(errors["failing"]) == 1


@pytest.mark.parametrize(
    "place", ["in select", "in an aggregate", "in a key", "above an aggregate", "in having", "in a join"]
)
def test_a_query_does_not_fail_for_tuples_of_another_that_calls_the_same_function(place):
    failing = FAILING[place].format("raises_above_two")
    condition = " AND a.speed <= 2 AND b.speed <= 2" if place == "in a join" else " WHERE speed <= 2"
    picky = failing.replace(" GROUP BY", f"{condition} GROUP BY") if "GROUP BY" in failing else failing + condition
    alone, none = run({"picky": picky})
    assert alone["picky"]
    assert not none
    answers, errors = run({"failing": failing, "picky": picky, "failing too": failing})
    assert answers["picky"] == alone["picky"]
    assert set(errors) == {"failing", "failing too"}


def test_a_condition_that_two_queries_share_fails_for_the_tuples_of_each():
    answers, errors = run(
        {
            "fast": "SELECT speed FROM traffic WHERE speed > 2 AND raises_above_two(speed) > 0",
            "slow": "SELECT speed FROM traffic WHERE speed <= 2 AND raises_above_two(speed) > 0",
        }
    )
    assert set(errors) == {"fast"}
    assert [start for start, *_ in answers["slow"]] == [0, 1, 4, 5]


def test_windows_over_equal_conditions_fail_each_by_their_own_rows():
    text = "SELECT raises_above_two(MIN(speed)) AS x FROM traffic WINDOW(RANGE {0} US SLIDE {0} US)"
    _, errors = run({"short": text.format(2), "long": text.format(8)})
    assert set(errors) == {"short"}


def test_what_is_infinite_or_no_number_is_null():
    answers, errors = run(
        {"odd": "SELECT no_numbers(speed) AS x, no_numbers(speed) IS NULL AS n FROM traffic WHERE sensor = 'a'"}
    )
    assert not errors
    assert all(row == '{"x":null,"n":true}' for *_, row in answers["odd"])


def plan_of(*texts: str, catalog: Catalog = CATALOG):
    return lower(planned({str(number): text for number, text in enumerate(texts)}, catalog))


def test_equal_queries_with_a_function_are_one_fragment():
    text = "SELECT lane, AVG(same(speed)) AS x FROM traffic {} WHERE same(speed) > {} GROUP BY lane"
    plan = plan_of(*[text.format(W, 1)] * 3, text.format("WINDOW(RANGE 8 US SLIDE 4 US)", 1))
    assert [len(each.subscribers) for each in plan.fragments] == [4]
    assert len(plan_of(text.format(W, 1), text.format(W, 2)).fragments) == 2
    condition = "SELECT sensor FROM traffic WHERE same(speed) > {}"
    assert len(plan_of(condition.format(1), condition.format(2), "SELECT sensor FROM traffic").fragments) == 1
    counted = f"SELECT lane, COUNT(*) AS n FROM traffic {W} GROUP BY lane"
    assert len(plan_of(f"{counted} HAVING same(COUNT(*)) > 1", counted).fragments) == 1


def test_a_function_that_was_made_anew_is_another_one():
    anew = CATALOG.with_functions([replace(each, identity=f"{each.name}@99") for each in FUNCTIONS])
    text = "SELECT same(speed) AS x FROM traffic"
    (before,), (after,) = plan_of(text).fragments, plan_of(text, catalog=anew).fragments
    assert before.identity != after.identity
    old, new = (next(iter(functions_of(planned({"q": text}, each).queries[0].node))) for each in (CATALOG, anew))
    assert (old.identity, new.identity) == ("same@1", "same@99")
    assert old.path == new.path


def test_nothing_of_a_function_is_asked_of_sensors():
    plain, own = (
        demands_of("q", rewrite(translate(f"SELECT speed FROM traffic WHERE speed < 2 {more}", CATALOG).node).node)
        for more in ("", "AND same(lane) < 3 AND (same(speed) < 3 OR speed < 1 AND same(speed) = 1)")
    )
    assert [each.bands for each in plain["traffic"]] == [each.bands for each in own["traffic"]]
    assert {field for each in own["traffic"] for field in each.fields} >= {"lane", "speed"}
    assert "same" not in repr(own)
    for condition in ("same(speed) > 1", "same(LENGTH(sensor)) > 1", "same(2) > 1"):
        sql = f"SELECT sensor, AVG(speed) AS speed FROM traffic {W} WHERE {condition} GROUP BY sensor"
        assert "same" not in repr(demands_of("q", rewrite(translate(sql, CATALOG).node).node))


def test_an_expression_has_the_functions_that_it_calls():
    query = planned(
        {"q": "SELECT same(raises_above_two(speed)) + 1 AS x FROM traffic WHERE shorter(lane) > 1"}
    ).queries[0]
    assert {each.name for each in functions_of(query.node)} == {"same", "raises_above_two", "shorter"}
    lookup = planned({"q": FAILING["in a relation"].format("same")}).queries[0]
    assert {each.name for each in functions_of(lookup.node)} == {"same"}
    node = UserCall(FUNCTIONS[0], ())
    assert functions_called(node) == {FUNCTIONS[0]}
