"""Canonical expressions read back to themselves, and mean the same to another engine."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.dialect import parse_scalar
from cluster.language.translation import translate
from cluster.operators import Project
from tests.cluster.language.example_catalog import CATALOG
from tests.cluster.language.sqlglot_text import canonical

ATOMS = st.sampled_from(["lane", "speed", "flow", "1", "2.5", "-3", "NULL"])


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("{} {} NULLIF({}, 0)".format, inner, st.sampled_from(["/", "%"]), inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("-({})".format, inner),
        st.builds("COALESCE({}, {}, 0)".format, inner, inner),
        st.builds("CASE WHEN {} > {} THEN {} ELSE 1 END".format, inner, inner, inner),
        st.builds("IF(open, {}, {})".format, inner, inner),
        st.builds("CAST({} AS real)".format, inner),
        st.builds("ABS({})".format, inner),
    )


NUMBERS = st.recursive(ATOMS, _numbers, max_leaves=8)


@given(NUMBERS)
def test_canonical_text_reads_back_to_itself(expression):
    node = translate(f"SELECT COALESCE({expression}, 0) AS x FROM traffic", CATALOG).node
    assert isinstance(node, Project)
    sql = node.outputs[0].scalar.sql
    assert canonical(parse_scalar(sql)) == sql


@given(NUMBERS)
def test_canonical_text_means_what_was_written(expression):
    node = translate(f"SELECT COALESCE({expression}, 0) AS x FROM traffic", CATALOG).node
    assert isinstance(node, Project)
    rows = "(VALUES (1, 2.5::DOUBLE, NULL::DOUBLE, true), (NULL, 0.0, 4.0, NULL)) t(lane, speed, flow, open)"
    ours = parse_scalar(node.outputs[0].scalar.sql).sql(dialect="duckdb")
    theirs = f"COALESCE({expression}, 0)"
    found, wanted = duckdb.sql(f"SELECT CAST({ours} AS DOUBLE), CAST({theirs} AS DOUBLE) FROM {rows}").fetchall()
    for one, other in (found, wanted):
        assert one == pytest.approx(other, nan_ok=True)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("open", '"open"'),
        ("T.Speed > 3 and not open", '"speed" > 3 AND NOT "open"'),
        ("(speed > 3)", '"speed" > 3'),
        ("sensor <> 'it''s'", "\"sensor\" <> 'it''s'"),
        ("sensor != 'x'", "\"sensor\" <> 'x'"),
        ("cast(lane as double precision) > 1", 'CAST("lane" AS REAL) > 1'),
        ("lane not in (1, 2)", 'NOT "lane" IN (1, 2)'),
        ("speed is not null", 'NOT "speed" IS NULL'),
        ("lane between 1 and 2", '"lane" BETWEEN 1 AND 2'),
        ("speed = 1e3", '"speed" = 1e3'),
    ],
)
def test_canonical_text(written, text):
    node = translate(f"SELECT * FROM traffic T WHERE {written}", CATALOG).node
    assert node.predicate.sql == text
