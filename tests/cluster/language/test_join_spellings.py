"""Every way to write a join: those with a meaning have it, all others are refused with their place."""

from __future__ import annotations

import pytest

from cluster.language.algebra import Join, Lookup
from cluster.language.catalog import StaticRelation
from cluster.language.columns import Column
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from protocols.wire.streams import FieldType
from tests.cluster.language.example_catalog import CATALOG as STREAMS

PLACES = StaticRelation("places", "places@1", (Column("sensor", FieldType.TEXT), Column("km", FieldType.REAL)))
CATALOG = STREAMS.with_stream(PLACES)
STREAM, OTHER, RELATION = "traffic t WINDOW(RANGE 1 HOUR)", "weather w", "places p"


def plan(from_clause: str) -> object:
    return translate(f"SELECT t.lane FROM {from_clause}", CATALOG).node


def test_spellings_of_one_join_are_one_plan():
    inner = plan(f"{STREAM} JOIN {OTHER} ON t.sensor = w.sensor")
    assert plan(f"{STREAM} INNER JOIN {OTHER} ON t.sensor = w.sensor") == inner
    assert plan(f"{STREAM}, {OTHER} WHERE t.sensor = w.sensor") == inner
    assert plan(f"{STREAM} CROSS JOIN {OTHER} WHERE t.sensor = w.sensor") == inner
    assert Join in {type(each) for each in _nodes(inner)}
    subquery = "(SELECT sensor, temperature, wind FROM weather) w"
    assert plan(f"{STREAM} INNER JOIN {subquery} ON t.sensor = w.sensor") == inner
    assert plan(f"{STREAM} INNER JOIN ISTREAM(weather WINDOW(ROWS 1)) w ON t.sensor = w.sensor") != inner
    outer = plan(f"{STREAM} LEFT JOIN {RELATION} ON t.sensor = p.sensor")
    assert plan(f"{STREAM} LEFT OUTER JOIN {RELATION} ON t.sensor = p.sensor") == outer
    assert Lookup in {type(each) for each in _nodes(outer)}
    zipped = plan("traffic t ZIP JOIN weather w ON t.sensor = w.sensor")
    assert plan("traffic t INNER ZIP JOIN weather w ON t.sensor = w.sensor") == zipped


def _nodes(node):
    yield node
    for part in ("input", "left", "right"):
        if hasattr(node, part):
            yield from _nodes(getattr(node, part))


def test_a_relation_may_stand_before_or_behind_what_it_has_nothing_to_do_with():
    first = plan(f"{RELATION} LEFT JOIN places q ON p.sensor = q.sensor, {STREAM}")
    assert sum(isinstance(each, Lookup) for each in _nodes(first)) == 1


@pytest.mark.parametrize(
    ("from_clause", "reason", "hint"),
    [
        (f"{RELATION} LEFT JOIN »traffic t« ON t.sensor = p.sensor", "needs a relation on its right", "NOT EXISTS"),
        (f"{RELATION} LEFT OUTER JOIN »traffic t« ON t.sensor = p.sensor", "needs a relation on its right", "comma"),
        (f"places q, {RELATION} LEFT JOIN »traffic t« ON t.sensor = p.sensor", "needs a relation", "comma"),
        (f"{STREAM} LEFT JOIN »weather w« ON t.sensor = w.sensor", "needs a relation on its right", "comma"),
        (f"{STREAM} OUTER JOIN »weather w« ON t.sensor = w.sensor", "OUTER JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} OUTER JOIN »places p« ON t.sensor = p.sensor", "OUTER JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} RIGHT JOIN »places p« ON t.sensor = p.sensor", "RIGHT JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} FULL OUTER JOIN »places p« ON t.sensor = p.sensor", "FULL JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} LEFT INNER JOIN »places p« ON t.sensor = p.sensor", "LEFT INNER JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} LEFT CROSS JOIN »places p« ON t.sensor = p.sensor", "LEFT CROSS JOIN is not part", "LEFT JOIN"),
        (f"{STREAM} »INNER« CROSS JOIN weather w", "not expected", None),
        (f"{STREAM} CROSS JOIN weather w ON »t.sensor = w.sensor«", "takes no condition", "JOIN ... ON"),
        (f"{STREAM} JOIN »weather w«", "JOIN needs a condition", "CROSS JOIN"),
        (f"{STREAM} INNER JOIN »weather w«", "JOIN needs a condition", "CROSS JOIN"),
        (f"{STREAM} JOIN »weather w« ON", "JOIN needs a condition", "CROSS JOIN"),
        (
            f"{STREAM} JOIN »weather w« LEFT JOIN places p ON p.sensor = t.sensor",
            "JOIN needs a condition",
            "CROSS JOIN",
        ),
        (f"{STREAM} LEFT JOIN »places p«", "LEFT JOIN needs a condition", "ON"),
        (f"{STREAM} NATURAL JOIN »weather w«", "NATURAL JOIN is not part", "WHERE"),
        (f"{STREAM} ASOF JOIN »weather w« ON t.sensor = w.sensor", "ASOF JOIN is not part", "WHERE"),
        (f"{STREAM} SEMI JOIN »weather w« ON t.sensor = w.sensor", "SEMI JOIN is not part", "EXISTS"),
        (f"{STREAM} LEFT ANTI JOIN »weather w« ON t.sensor = w.sensor", "ANTI JOIN is not part", "EXISTS"),
        (f"{STREAM} »STRAIGHT_JOIN« weather w ON t.sensor = w.sensor", "not expected", None),
        (f"{STREAM} JOIN »weather w« USING (sensor)", "USING is not part", "ON a.x = b.x"),
        (f"{STREAM}, weather w »ON« t.sensor = w.sensor", "not expected", None),
        (f"{STREAM}, »LATERAL« (SELECT * FROM weather) w", "a stream was expected", None),
        (f"{STREAM} JOIN (»weather« w JOIN places p ON p.sensor = w.sensor) ON t.sensor = w.sensor", "a query", None),
        ("traffic t ZIP JOIN weather w »ON«", "not expected", None),
        ("traffic t »CROSS« ZIP JOIN weather w ON t.sensor = w.sensor", "CROSS ZIP JOIN is not part", "ZIP JOIN"),
        ("traffic t »OUTER« ZIP JOIN weather w ON t.sensor = w.sensor", "OUTER ZIP JOIN is not part", "ZIP JOIN"),
        ("traffic t ZIP JOIN weather w »USING« (sensor)", "USING is not part", "ZIP JOIN"),
        ("traffic t ZIP JOIN weather w ON »t.sensor > w.sensor«", "which column of the left", "WHERE"),
    ],
)
def test_other_spellings_of_joins_are_refused_with_their_place(from_clause, reason, hint):
    before, offending, after = f"SELECT t.lane FROM {from_clause}".replace("«", "»").split("»")
    with pytest.raises(FjordSqlError) as caught:
        translate(f"{before}{offending}{after}", CATALOG)
    assert reason in caught.value.reason
    assert (caught.value.start, caught.value.offending) == (len(before), offending)
    assert hint is None or hint in str(caught.value.hint)
