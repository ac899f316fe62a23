"""ORDER BY with LIMIT, and ranks: warnings, parameters, words that stay names, and bounds that are found further up."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.errors import FjordSqlError
from cluster.language.parameters import bind
from cluster.language.translation import CreateStream, parse_statement, translate, translate_derived
from cluster.operators import Node, Ranked
from cluster.operators.columns import QUERY_GROUP
from cluster.operators.walks import nodes_of
from cluster.physical import operations
from cluster.physical.lowering import lower_alone
from cluster.plan.rewrite import rewrite
from tests.cluster.language.example_catalog import CATALOG

HOUR = "WINDOW(RANGE 1 HOUR)"
PLACED = (
    "SELECT sensor, lane, ROW_NUMBER() OVER (PARTITION BY lane ORDER BY speed) AS n FROM traffic "
    "WINDOW(RANGE UNBOUNDED)"
)
WORDS = (
    *("rank", "row_number", "dense_rank", "offset", "first", "last", "next", "only", "nulls", "row", "rows", "ties"),
    *("over", "top", "places", "partition"),
)


def ranked(node: Node) -> list[Ranked]:
    return [each for each in nodes_of(node) if isinstance(each, Ranked)]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT sensor, MAX(speed) AS top FROM traffic {HOUR} GROUP BY sensor ORDER BY top DESC, sensor LIMIT 3",
        f"SELECT lane FROM traffic {HOUR} GROUP BY sensor, lane ORDER BY lane, sensor LIMIT 3",
        f"SELECT sensor, speed FROM traffic {HOUR} ORDER BY speed, sensor LIMIT 3",
        f"SELECT DISTINCT sensor, lane FROM traffic {HOUR} ORDER BY 2, 1 LIMIT 3",
        f"SELECT MAX(speed) AS top FROM traffic {HOUR} ORDER BY COUNT(*) LIMIT 1",
        f"SELECT lane, RANK() OVER (ORDER BY open) AS n FROM traffic {HOUR} GROUP BY lane, open",
        f"SELECT sensor, RANK() OVER (ORDER BY speed) AS p FROM traffic {HOUR}",
    ],
)
def test_an_order_in_which_no_rows_are_equal_gives_no_warning(query: str) -> None:
    assert not translate(query, CATALOG).warnings


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (f"SELECT sensor, MAX(speed) AS top FROM traffic {HOUR} GROUP BY sensor ORDER BY top DESC LIMIT 3", "top DESC"),
        (f"SELECT sensor FROM traffic {HOUR} ORDER BY speed LIMIT 3", "speed"),
        (f"SELECT sensor, ROW_NUMBER() OVER (ORDER BY speed, lane) AS n FROM traffic {HOUR}", "speed, lane"),
    ],
)
def test_an_order_in_which_rows_may_be_equal_gives_a_warning(query: str, key: str) -> None:
    (warning,) = translate(query, CATALOG).warnings
    assert f"equal in ORDER BY {key} are ordered by the columns of SELECT" in warning


def test_limit_zero_gives_a_warning() -> None:
    assert translate("SELECT lane FROM traffic ORDER BY lane LIMIT 0", CATALOG).warnings == (
        "LIMIT 0 keeps no row: this query has no answers",
    )


@pytest.mark.parametrize(("value", "most"), [(3, 4), (0, 1), (2**70, 2**60)])
def test_a_parameter_may_be_the_number_of_rows(value: int, most: int) -> None:
    bound = bind("SELECT lane FROM traffic ORDER BY lane LIMIT :k OFFSET :skipped", {"k": value, "skipped": 1})
    (node,) = ranked(translate(bound.text, CATALOG).node)
    assert (node.above, node.most) == (1, most)


@pytest.mark.parametrize("value", [-1, 1.5, "3", None, True])
def test_other_values_are_no_number_of_rows(value: object) -> None:
    def add() -> None:
        bound = bind("SELECT lane FROM traffic ORDER BY lane LIMIT :k", {"k": value})  # type: ignore[dict-item]
        with bound.placed():
            translate(bound.text, CATALOG)

    with pytest.raises(FjordSqlError, match="whole number") as caught:
        add()
    assert caught.value.start == 45


@pytest.mark.parametrize("clause", ["ORDER BY :k LIMIT 1", "QUALIFY RANK() OVER (PARTITION BY :k ORDER BY lane) = 1"])
def test_a_parameter_is_no_key(clause: str) -> None:
    with pytest.raises(FjordSqlError, match="a parameter cannot stand here"):
        bind(f"SELECT lane FROM traffic {clause}", {"k": 1})


@pytest.mark.parametrize("word", WORDS)
def test_words_of_orders_stay_names(word: str) -> None:
    statement = parse_statement(f"CREATE STREAM s ({word} INTEGER, b REAL) SOURCE mqtt()")
    assert isinstance(statement, CreateStream)
    catalog = Catalog().with_stream(statement.stream)
    for query in (
        f"SELECT {word}, b FROM s WHERE {word} > 1",
        f"SELECT b AS {word} FROM s",
        f"SELECT {word} FROM s ORDER BY {word} DESC LIMIT 1",
    ):
        translate(query, catalog)


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("SELECT sensor FROM ({}) AS r WHERE n <= 3", 3),
        ("SELECT sensor FROM ({}) AS r WHERE 3 > n AND lane = 1", 2),
        ("SELECT sensor FROM ({}) AS r WHERE n BETWEEN 2 AND 4", 4),
        ("SELECT sensor FROM ({}) AS r WHERE n = 1 OR n IN (2, 5)", 5),
        ("SELECT s FROM (SELECT sensor AS s, n AS m FROM ({}) AS r) AS q WHERE m < 2.5", 2),
        ("SELECT sensor FROM ({}) AS r WHERE n <= 3 AND EXISTS (SELECT * FROM weather)", 3),
        ("SELECT lane FROM traffic WHERE sensor NOT IN (SELECT sensor FROM ({}) AS r WHERE n = 1)", 1),
        ("SELECT lane FROM traffic AS t WHERE EXISTS (SELECT * FROM ({}) AS r WHERE r.sensor = t.sensor AND n < 5)", 4),
        ("SELECT t.lane FROM traffic AS t LEFT JOIN ({}) AS r ON r.sensor = t.sensor AND r.n <= 2", 2),
        ("SELECT t.lane FROM traffic AS t, ({}) AS r WHERE r.sensor = t.sensor AND r.n <= 2", 2),
        ("SELECT n FROM ({} EXCEPT SELECT sensor, lane, lane FROM traffic) AS r WHERE n <= 3", 3),
        ("SELECT n FROM (SELECT sensor, lane, lane AS n FROM traffic INTERSECT {}) AS r WHERE n <= 3", 3),
        ("SELECT n FROM ({} UNION ALL {}) AS r WHERE n <= 3", 3),
        ("SELECT n FROM (SELECT DISTINCT n FROM ({}) AS r) AS q WHERE n <= 3", 3),
        ("SELECT n, COUNT(*) AS m FROM ({}) AS r GROUP BY n HAVING n <= 3", 3),
    ],
)
def test_a_bound_is_found_behind_what_a_condition_may_sink_through(query: str, most: int) -> None:
    found = ranked(translate(query.replace("{}", PLACED), CATALOG).node)
    assert found
    assert {each.most for each in found} == {most}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sensor FROM ({}) AS r WHERE n >= 3",
        "SELECT sensor FROM ({}) AS r WHERE n <= 3 OR lane = 1",
        "SELECT sensor FROM ({}) AS r WHERE n <= lane",
        "SELECT t.lane FROM ({}) AS r LEFT JOIN traffic AS t ON r.sensor = t.sensor AND r.n <= 2",
        "SELECT MAX(n) AS m FROM ({}) AS r GROUP BY sensor HAVING MAX(n) <= 3",
    ],
)
def test_what_is_no_bound_is_refused_over_an_unbounded_window(query: str) -> None:
    with pytest.raises(FjordSqlError, match="over an unbounded window"):
        translate(query.replace("{}", PLACED), CATALOG)
    with pytest.raises(FjordSqlError, match="over an unbounded window"):
        translate(PLACED.replace("ROW_NUMBER", "RANK"), CATALOG)


def test_a_rank_of_a_derived_stream_gets_the_bound_of_its_query() -> None:
    placed = PLACED.replace("RANGE UNBOUNDED", "RANGE 1 HOUR")
    catalog = CATALOG.with_stream(translate_derived(f"CREATE STREAM placed AS {placed}", CATALOG))
    first, second = (translate(f"SELECT sensor FROM placed WHERE n <= {most}", catalog).node for most in (1, 2))
    assert [each.most for node in (first, second) for each in ranked(node)] == [1, 2]
    assert [each.most for each in ranked(translate("SELECT sensor FROM placed", catalog).node)] == [None]


@pytest.mark.parametrize("clause", ["ORDER BY 2 LIMIT 2", "QUALIFY RANK() OVER (PARTITION BY lane ORDER BY speed) = 1"])
def test_queries_that_share_a_fragment_have_places_of_their_own(clause: str) -> None:
    fragment = lower_alone(rewrite(translate(f"SELECT lane, speed FROM traffic {HOUR} {clause}", CATALOG).node).node)
    (operation,) = (each.operation for each in fragment.behind if isinstance(each.operation, operations.Ranked))
    assert operation.keys[-1] == QUERY_GROUP.name
