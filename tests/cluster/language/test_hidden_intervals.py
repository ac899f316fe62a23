"""Intervals are no columns: insertions and deletions are of what a text can see, and VALID is of the nearest stream."""

from __future__ import annotations

import random

import pytest

from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import UntilNext
from cluster.operators.walks import nodes_of
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.oracle.scripted_runs import answers_of

EXTENT = "traffic WINDOW(RANGE 1 HOUR) COALESCE(speed BY sensor)"


@pytest.mark.parametrize("kind", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_a_star_shows_no_interval(kind: str) -> None:
    names = [column.name for column in translate(f"SELECT * FROM {kind}({EXTENT})", CATALOG).node.schema]
    assert names == ["sensor", "speed"]
    with pytest.raises(FjordSqlError, match="there is no column"):
        translate(f"SELECT fjord_valid_begin FROM {kind}({EXTENT})", CATALOG)


def test_a_run_that_grows_is_no_new_row() -> None:
    sql = "SELECT k, x FROM ISTREAM(traffic WINDOW(RANGE 20 US) COALESCE(x BY k))"
    tuples = [(1, "a", 5), (2, "a", 5), (4, "a", 6), (7, "a", 6)]
    answers = answers_of(random.Random(0), sql, {"k": str, "x": int}, tuples, 0)
    assert [(each.start, each.row["x"]) for each in answers] == [(1, 5), (4, 6)]


@pytest.mark.parametrize(
    ("subquery", "read"),
    [
        ("SELECT 1 FROM weather w WHERE w.wind > 3 AND DURATION(VALID(t)) > INTERVAL '1' MINUTE", True),
        ("SELECT 1 FROM weather w WHERE DURATION(VALID()) > INTERVAL '1' MINUTE", True),
        ("SELECT 1 FROM weather VALID UNTIL NEXT MAX 1 HOUR AS w WHERE DURATION(VALID()) > INTERVAL '1' MINUTE", False),
        (
            "SELECT 1 FROM weather VALID UNTIL NEXT MAX 1 HOUR AS t WHERE DURATION(VALID(t)) > INTERVAL '1' MINUTE",
            False,
        ),
        ("SELECT 1 FROM weather WINDOW(RANGE 1 HOUR) COALESCE(wind) T WHERE DURATION(VALID(t)) IS NULL", False),
        ("SELECT 1 FROM ISTREAM(weather AS t WINDOW(ROWS 1)) WHERE DURATION(VALID(t)) IS NULL", False),
        ("SELECT 1 FROM (SELECT DURATION(VALID(t)) AS d FROM weather VALID UNTIL NEXT MAX 1 HOUR AS t) AS w", False),
    ],
)
def test_valid_is_of_the_nearest_stream_that_is_called_so(subquery: str, read: bool) -> None:
    sql = f"SELECT t.sensor FROM traffic VALID UNTIL NEXT BY sensor MAX 1 HOUR AS t WHERE EXISTS ({subquery})"
    if "ISTREAM" in subquery:  # what comes with it has no interval, whatever the query around it has
        with pytest.raises(FjordSqlError, match="has no VALID UNTIL NEXT"):
            translate(sql, CATALOG)
        return
    nodes = [each for each in nodes_of(translate(sql, CATALOG).node) if isinstance(each, UntilNext)]
    (own,) = (each for each in nodes if each.keys == ("sensor",))
    assert (own.bounds is not None) == read
    for_ever = sql.replace("BY sensor MAX 1 HOUR", "BY sensor")
    if read:
        with pytest.raises(FjordSqlError, match="has no end while the next tuple does not come"):
            translate(for_ever, CATALOG)
    else:
        translate(for_ever, CATALOG)


def test_a_subquery_of_which_only_rows_count_may_select_an_interval() -> None:
    item = "weather WINDOW(RANGE 1 HOUR) COALESCE(wind BY sensor) AS w"
    asked = f"EXISTS (SELECT w.wind, VALID(w) AS held FROM {item} WHERE w.sensor = t.sensor)"
    translate(f"SELECT t.sensor FROM traffic AS t WHERE {asked}", CATALOG)
    with pytest.raises(FjordSqlError, match="must select one column, but selects 2"):
        translate(f"SELECT t.sensor FROM traffic AS t WHERE t.speed IN (SELECT VALID(w) FROM {item})", CATALOG)


@pytest.mark.parametrize("end", ["LIFETIME 60 DAYS", "SAMPLE EVERY 5 SECONDS", "ZIP JOIN weather AS w"])
def test_a_clause_behind_an_interval_with_its_unit_is_no_unit(end: str) -> None:
    if "JOIN" in end:
        end = f"JOIN weather AS v WITHIN 1 US ON INTERVAL '3 MINUTES' > INTERVAL '1' MINUTE {end}"
        translate(f"SELECT t.lane FROM traffic AS t {end}", CATALOG)
    else:
        translate(f"SELECT lane FROM traffic WHERE STAMP() - STAMP() < INTERVAL '3 MINUTES' {end}", CATALOG)
    translate("SELECT INTERVAL '1 hour 30 minutes' longest FROM traffic", CATALOG)
