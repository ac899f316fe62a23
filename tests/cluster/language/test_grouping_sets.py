"""GROUPING SETS, ROLLUP, CUBE and GROUPING mean what they mean in PostgreSQL, and are bounded."""

from __future__ import annotations

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.grouping_keys import MOST_SETS
from cluster.language.grouping_sets import MOST_ARGUMENTS
from cluster.language.parameters import bind
from cluster.language.translation import translate, translate_derived
from cluster.operators import AntiJoin, Node, Project, Union
from cluster.operators.walks import nodes_of
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from cluster.planning_budget import Budget, limited
from tests.cluster.language.example_catalog import CATALOG

WINDOW = "FROM traffic AS t WINDOW(RANGE 1 HOUR)"


def plan(keys: str, selected: str = "COUNT(*) AS n") -> Node:
    """Return the plan of a query grouped by some keys."""
    return translate(f"SELECT {selected} {WINDOW} GROUP BY {keys}", CATALOG).node


@pytest.mark.parametrize(
    ("written", "sets"),
    [
        ("ROLLUP(lane, open)", "GROUPING SETS ((lane, open), (lane), ())"),
        ("ROLLUP((lane, open), sensor)", "GROUPING SETS ((lane, open, sensor), (lane, open), ())"),
        ("CUBE(lane, open)", "GROUPING SETS ((lane, open), (lane), (open), ())"),
        ("CUBE((lane, open))", "GROUPING SETS ((lane, open), ())"),
        ("lane, ROLLUP(open, sensor)", "GROUPING SETS ((lane, open, sensor), (lane, open), (lane))"),
        ("ROLLUP(lane), CUBE(open)", "GROUPING SETS ((lane, open), (lane), (open), ())"),
        ("lane, GROUPING SETS ((open), (sensor)), GROUPING SETS (lane, ())",
         "GROUPING SETS ((lane, open), (lane, open), (lane, sensor), (lane, sensor))"),
        ("GROUPING SETS (lane, ROLLUP(open), CUBE(sensor))", "GROUPING SETS ((lane), (open), (), (sensor), ())"),
        ("GROUPING SETS (GROUPING SETS ((lane, open), ()), GROUPING SETS (sensor))",
         "GROUPING SETS ((lane, open), (), (sensor))"),
        ("lane, ROLLUP(lane)", "GROUPING SETS (lane, lane)"),
        ("((lane, open))", "lane, open"), ("(lane), (open)", "lane, open"), ("lane, ()", "lane"),
        ("GROUPING SETS ((t.lane, LANE))", "lane"), ("ROLLUP(((lane)))", "GROUPING SETS (lane, ())"),
        ("ROLLUP(lane = 1 AND open)", "GROUPING SETS ((lane = 1 AND open), ())"),
    ],
)  # fmt: skip
def test_lists_stand_for_sets(written: str, sets: str) -> None:
    assert plan(written) == plan(sets)


def test_the_set_without_keys_alone_is_an_aggregate_without_groups() -> None:
    alone = translate(f"SELECT COUNT(*) AS n {WINDOW}", CATALOG).node
    assert plan("()") == plan("GROUPING SETS (())") == alone
    assert plan("()").single_row
    assert not plan("GROUPING SETS ((), ())").single_row
    translate(f"SELECT lane FROM traffic WHERE lane = (SELECT MAX(lane) AS m {WINDOW} GROUP BY ())", CATALOG)
    with pytest.raises(FjordSqlError, match="can have several rows"):
        translate(
            f"SELECT lane FROM traffic WHERE lane = (SELECT MAX(lane) AS m {WINDOW} GROUP BY ROLLUP(open))", CATALOG
        )


def test_keys_are_places_and_names_of_select_in_sets_too() -> None:
    selected = "lane % 2 AS odd, sensor, COUNT(*) AS n"
    assert plan("ROLLUP(odd, 2)", selected) == plan("ROLLUP(lane % 2, sensor)", selected)
    assert plan("GROUPING SETS ((1, 2), 1)", selected) == plan("GROUPING SETS ((odd, sensor), odd)", selected)


def masks(selected: str, keys: str) -> list[str]:
    """Return the value of GROUPING in each set, in order."""
    node = plan(keys, f"{selected} AS g")
    sides: list[Node] = []
    waiting = [node.inputs[0]]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Union):
            waiting += (part.right, part.left)
        else:
            sides.append(part)
    return [side.outputs[-1].scalar.sql for side in sides if isinstance(side, Project)]


@pytest.mark.parametrize(
    ("selected", "values"),
    [
        ("GROUPING(lane)", ["0", "0", "1", "1"]),
        ("GROUPING(open)", ["0", "1", "0", "1"]),
        ("GROUPING(lane, open)", ["0", "1", "2", "3"]),
        ("GROUPING(open, t.lane)", ["0", "2", "1", "3"]),
        ("GROUPING(open, lane, open)", ["0", "5", "2", "7"]),
    ],
)
def test_grouping_has_a_bit_for_each_key_that_a_set_lacks(selected: str, values: list[str]) -> None:
    assert masks(selected, "CUBE(lane, open)") == values


def test_grouping_knows_keys_by_their_meaning() -> None:
    assert masks("GROUPING(t.lane % 2)", "ROLLUP(lane % 2)") == ["0", "1"]
    with pytest.raises(FjordSqlError, match="lane is no key of this GROUP BY"):
        plan("ROLLUP(lane % 2)", "GROUPING(lane) AS g")


def test_grouping_of_one_set_is_0() -> None:
    assert plan("lane", "lane, GROUPING(lane) AS g") == plan("lane", "lane, 0 AS g")


def test_grouping_takes_as_many_keys_as_it_has_bits() -> None:
    most = ", ".join(["lane"] * MOST_ARGUMENTS)
    assert masks(f"GROUPING({most})", "ROLLUP(lane)") == ["0", str(2**MOST_ARGUMENTS - 1)]
    with pytest.raises(FjordSqlError, match="GROUPING takes one to 31 arguments"):
        plan("lane", f"GROUPING({most}, lane) AS g")


def test_a_key_that_a_set_lacks_may_be_null() -> None:
    load = "CREATE STREAM load AS SELECT sensor, COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 MINUTE) GROUP BY sensor"
    catalog = CATALOG.with_stream(translate_derived(load, CATALOG))
    query = "SELECT cars, sensor, COUNT(*) AS n FROM load GROUP BY {}"
    certain = {
        keys: translate(query.format(keys), catalog).node.never_null
        for keys in ("cars, ROLLUP(sensor)", "ROLLUP(cars, sensor)")
    }
    assert certain == {"cars, ROLLUP(sensor)": {"cars", "n"}, "ROLLUP(cars, sensor)": {"n"}}
    # NOT IN has to ask for NULL where there may be one.
    having = "SELECT COUNT(*) AS n FROM load GROUP BY {} HAVING cars NOT IN (SELECT cars FROM load)"
    conditions = {}
    for keys in ("cars, ROLLUP(sensor)", "ROLLUP(cars, sensor)"):
        (joined,) = (
            each for each in nodes_of(translate(having.format(keys), catalog).node) if isinstance(each, AntiJoin)
        )
        assert joined.predicate is not None
        conditions[keys] = "NULL" in joined.predicate.sql
    assert conditions == {"cars, ROLLUP(sensor)": False, "ROLLUP(cars, sensor)": True}


def test_sixty_four_sets_are_possible_and_are_counted_before_they_are_made() -> None:
    keys = ", ".join(f"lane + {n}" for n in range(6))
    assert translate(f"SELECT COUNT(*) AS n {WINDOW} GROUP BY CUBE({keys})", CATALOG).readings == MOST_SETS
    with pytest.raises(FjordSqlError, match="more than 64 grouping sets"):
        plan(f"CUBE({keys}), ROLLUP(speed)")
    endless = ", ".join(f"CUBE({', '.join(f'lane + {n}' for n in range(200))})" for _ in range(40))
    with limited(Budget(1e9)) as budget, pytest.raises(FjordSqlError, match="more than 64 grouping sets"):
        plan(endless)
    assert budget.steps < 200_000


def test_sets_of_sets_count_as_readings() -> None:
    cube = "SELECT a, b, c, d, e, COUNT(*) AS n FROM {} GROUP BY CUBE(a, b, c, d, e)"
    first = "SELECT lane AS a, open AS b, sensor AS c, speed AS d, flow AS e FROM traffic"
    text = f"WITH x AS ({first}), y AS ({cube.format('x')}) "
    assert translate(text + "SELECT n FROM y", CATALOG).readings == 32
    with pytest.raises(FjordSqlError, match="1,024 times") as caught:
        translate(text + cube.format("y"), CATALOG)
    assert "CUBE" in caught.value.offending


@pytest.mark.parametrize("keys", ["ROLLUP(:n)", "GROUPING SETS ((lane, :n))", "(lane, :n)", "CUBE(lane, (:n, 1))"])
def test_no_parameter_is_a_key(keys: str) -> None:
    with pytest.raises(FjordSqlError, match="a parameter cannot stand here"):
        bind(f"SELECT lane, COUNT(*) AS n {WINDOW} GROUP BY {keys}", {"n": 1})


def test_names_that_are_words_of_grouping_stay_names() -> None:
    text = "SELECT lane AS cube, COUNT(*) AS rollup, MAX(speed) AS grouping FROM traffic GROUP BY cube"
    assert translate(text, CATALOG).node == translate(text.replace("BY cube", "BY lane"), CATALOG).node


def test_sensors_are_asked_for_what_all_sets_need() -> None:
    window = "FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) WHERE speed > 10"
    rolled = f"SELECT lane, open, COUNT(*) AS n {window} GROUP BY ROLLUP(lane, open)"
    sides = [
        f"SELECT lane, open, COUNT(*) AS n {window} GROUP BY lane, open",
        f"SELECT lane, CAST(NULL AS BOOLEAN) AS open, COUNT(*) AS n {window} GROUP BY lane",
        f"SELECT CAST(NULL AS INTEGER) AS lane, CAST(NULL AS BOOLEAN) AS open, COUNT(*) AS n {window}",
    ]
    demands = [
        demands_of("q", rewrite(translate(text, CATALOG).node).node) for text in (rolled, " UNION ALL ".join(sides))
    ]
    assert demands[0] == demands[1]
    assert demands[0]


def test_what_is_counted_for_the_set_without_keys_has_a_name_of_its_own() -> None:
    counted = 'FROM (SELECT lane AS "count" FROM traffic) WINDOW(RANGE 1 HOUR)'
    found = translate(f'SELECT "count" {counted} GROUP BY ROLLUP("count")', CATALOG).node
    for each in nodes_of(found):
        names = [column.name for column in each.schema]
        assert len(names) == len(set(names)), names
