"""Every way to write a join: those with a meaning have it, all others are refused with their place."""

from __future__ import annotations

import pytest

from cluster.language.catalog import StaticRelation
from cluster.language.errors import FjordSqlError
from cluster.language.translation import translate
from cluster.operators import AntiJoin, Join, Lookup
from cluster.operators.columns import Column
from cluster.operators.walks import nodes_of
from cluster.plan.rewrite import rewrite
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
    assert plan(f"{STREAM} JOIN {OTHER} USING (sensor)") == inner
    assert plan(f'{STREAM} INNER JOIN {OTHER} USING ("SENSOR")') == inner
    outer = plan(f"{STREAM} LEFT JOIN {RELATION} ON t.sensor = p.sensor")
    assert plan(f"{STREAM} LEFT JOIN {RELATION} USING (sensor)") == outer
    assert plan(f"{STREAM} LEFT OUTER JOIN {RELATION} ON t.sensor = p.sensor") == outer
    assert Lookup in {type(each) for each in _nodes(outer)}
    for side in ("LEFT", "RIGHT", "FULL"):
        outer = plan(f"{STREAM} {side} JOIN {OTHER} ON t.sensor = w.sensor")
        assert plan(f"{STREAM} {side} OUTER JOIN {OTHER} ON t.sensor = w.sensor") == outer
        assert AntiJoin in {type(each) for each in _nodes(outer)}
    assert plan(f"{STREAM} LEFT JOIN {OTHER} USING (sensor)") == plan(
        f"{STREAM} LEFT JOIN {OTHER} ON t.sensor = w.sensor"
    )
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


def test_a_relation_may_stand_on_the_left_where_the_tuples_of_the_stream_stay():
    right = "SELECT t.lane, p.km FROM places p RIGHT JOIN traffic t WINDOW(RANGE 1 HOUR) ON t.sensor = p.sensor"
    left = "SELECT t.lane, p.km FROM traffic t WINDOW(RANGE 1 HOUR) LEFT JOIN places p ON t.sensor = p.sensor"
    plans = [rewrite(translate(query, CATALOG).node).node for query in (right, left)]
    assert plans[0] == plans[1]
    two = f"places q LEFT JOIN {RELATION} ON q.km = p.km RIGHT JOIN {STREAM} ON t.sensor = q.sensor"
    assert columns("*", two)[:6] == ["sensor", "km", "sensor_2", "km_2", "sensor_3", "lane"]


def test_a_plan_of_outer_joins_in_a_row_grows_with_their_number():
    def many(count: int) -> object:
        joins = (f"FULL JOIN traffic t{number} USING (sensor)" for number in range(count))
        return translate(f"SELECT sensor FROM traffic t {' '.join(joins)}", CATALOG).node

    sizes = [len(list(nodes_of(many(count)))) for count in (2, 4, 6, 8)]
    assert sizes[3] - sizes[2] == sizes[2] - sizes[1] == sizes[1] - sizes[0]


BEYOND = "is beyond a comma"


@pytest.mark.parametrize(
    ("from_clause", "reason", "hint"),
    [
        (f"places q RIGHT JOIN »places p« ON p.km = q.km, {STREAM}", "RIGHT JOIN of relations alone", "LEFT JOIN"),
        (f"places q FULL JOIN »places p« ON p.km = q.km, {STREAM}", "FULL JOIN of relations alone", "LEFT JOIN"),
        (f"{STREAM} OUTER JOIN »weather w« ON t.sensor = w.sensor", "OUTER JOIN is not part", "FULL JOIN"),
        (f"{STREAM} OUTER JOIN »places p« ON t.sensor = p.sensor", "OUTER JOIN is not part", "FULL JOIN"),
        (f"{STREAM} LEFT JOIN »weather w«", "LEFT JOIN needs a condition", "LEFT JOIN ... ON"),
        (f"{STREAM} RIGHT OUTER JOIN »weather w«", "RIGHT JOIN needs a condition", "RIGHT JOIN ... ON"),
        (f"{STREAM} FULL JOIN »weather w«, places p", "FULL JOIN needs a condition", "FULL JOIN ... ON"),
        (f"{STREAM} RIGHT INNER JOIN »weather w« ON t.sensor = w.sensor", "RIGHT INNER JOIN is not part", "RIGHT JOIN"),
        (f"{STREAM} FULL JOIN weather w ON t.sensor = »w.lane«", "no column 'lane' in 'w'", None),
        (f"{STREAM} FULL JOIN weather w USING (»lane«)", "no column 'lane' on the right of JOIN", "sensor"),
        (
            f"{STREAM} LEFT JOIN weather w ON »t.lane IN (SELECT lane FROM traffic u)«",
            "a subquery cannot stand",
            "FROM",
        ),
        (f"{STREAM} FULL JOIN weather w ON »t.lane + 1«", "boolean", None),
        (f"weather v, {STREAM} LEFT JOIN weather w ON t.sensor = w.sensor AND »v.sensor« = w.sensor", BEYOND, "CROSS"),
        (f"weather v, {STREAM} FULL JOIN weather w ON »v.wind« > 1", BEYOND, "CROSS JOIN"),
        (
            f"weather v, {STREAM} JOIN weather w ON »v.sensor« = w.sensor RIGHT JOIN traffic u ON u.lane = t.lane",
            BEYOND,
            "CROSS JOIN",
        ),
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
        (
            f"{STREAM} LEFT JOIN weather w ON t.lane = 1 »ZIP JOIN traffic u«",
            "a zipper join pairs two streams",
            "write it first",
        ),
        (f"{STREAM} NATURAL JOIN »weather w«", "NATURAL JOIN is not part", "USING"),
        ("traffic t ASOF JOIN weather w »USING« (sensor)", "a join by stamps has no USING", "ASOF"),
        ("traffic t ASOF »RIGHT« JOIN weather w ON t.sensor = w.sensor", "ASOF RIGHT JOIN is not part", "exchange"),
        ("traffic t »LEFT« ASOF JOIN weather w ON t.sensor = w.sensor", "LEFT stands behind ASOF", "ASOF [LEFT]"),
        (f"{STREAM} SEMI JOIN »weather w« ON t.sensor = w.sensor", "SEMI JOIN is not part", "EXISTS"),
        (f"{STREAM} LEFT ANTI JOIN »weather w« ON t.sensor = w.sensor", "ANTI JOIN is not part", "EXISTS"),
        (f"{STREAM} »STRAIGHT_JOIN« weather w ON t.sensor = w.sensor", "not expected", None),
        (f"{STREAM} CROSS JOIN weather w USING (»sensor«)", "takes no condition", "JOIN ... ON"),
        (f"{STREAM} JOIN weather w »USING« sensor", "in parentheses", "USING (x)"),
        (f"{STREAM} JOIN weather w USING »(«)", "names no column", "USING (x)"),
        (f"{STREAM} JOIN weather w USING (»t.sensor«)", "nothing before the name", "USING (x)"),
        (f"{STREAM} JOIN weather w USING (»sensor || 'a'«)", "nothing before the name", "USING (x)"),
        (f"{STREAM} JOIN weather w USING (sensor, »Sensor«)", "names 'Sensor' twice", None),
        (f"{STREAM} JOIN weather w USING (»lane«)", "no column 'lane' on the right of JOIN", "sensor"),
        (f"{STREAM} JOIN weather w USING (»wind«)", "no column 'wind' on the left of JOIN", "lane"),
        (f"{STREAM} JOIN weather w USING (sensor) »ON« t.sensor = w.sensor", "not expected", None),
        (f"{STREAM} CROSS JOIN weather w JOIN places p USING (»sensor«)", "'sensor' is ambiguous", "ON a.x = b.x"),
        (f"{STREAM}, weather w JOIN places p USING (»lane«)", "no column 'lane' on the left of JOIN", "temperature"),
        (f"{STREAM} JOIN (SELECT 1 AS sensor FROM weather) w USING (»sensor«)", "compare", None),
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


def columns(select: str, from_clause: str) -> list[str]:
    return [column.name for column in translate(f"SELECT {select} FROM {from_clause}", CATALOG).node.schema]


def test_columns_of_using_are_one_in_a_star_and_come_first():
    assert columns("*", f"{STREAM} JOIN {OTHER} USING (sensor)") == columns(
        "t.sensor, t.* EXCEPT (sensor), w.* EXCEPT (sensor)", f"{STREAM} JOIN {OTHER} ON t.sensor = w.sensor"
    )
    twice = "traffic t WINDOW(RANGE 1 HOUR) JOIN traffic u USING (speed, lane)"
    same = "traffic t WINDOW(RANGE 1 HOUR) JOIN traffic u ON t.speed = u.speed AND t.lane = u.lane"
    assert columns("*", twice) == columns("t.speed, t.lane, t.* EXCEPT (speed, lane), u.* EXCEPT (speed, lane)", same)
    assert columns("u.*", twice) == columns("u.*", same)


def test_a_name_behind_a_comma_is_not_among_the_shared_ones():
    shown = columns("*", f"places q, {STREAM} JOIN {OTHER} USING (sensor)")
    assert shown[:3] == ["sensor", "km", "sensor_2"]


def test_the_name_alone_means_the_left_column():
    for join, on in (("JOIN", f"{OTHER}"), ("LEFT JOIN", RELATION)):
        alias = on.split()[1]
        using = translate(f"SELECT sensor, {alias}.sensor AS other FROM {STREAM} {join} {on} USING (sensor)", CATALOG)
        written = translate(
            f"SELECT t.sensor, {alias}.sensor AS other FROM {STREAM} {join} {on} ON t.sensor = {alias}.sensor", CATALOG
        )
        assert using.node == written.node


def test_an_error_is_allowed_on_the_left_column() -> None:
    text = "SELECT t.lane FROM traffic t JOIN traffic u WINDOW(RANGE 1 HOUR) USING (speed) WHERE {}speed WITHIN 0.5 > 1"
    assert translate(text.format(""), CATALOG).node == translate(text.format("t."), CATALOG).node


def test_three_items_share_a_column():
    using = f"SELECT sensor, COUNT(*) FROM {STREAM} JOIN {OTHER} USING (sensor) JOIN {RELATION} USING (sensor)"
    written = f"SELECT t.sensor, COUNT(*) FROM {STREAM} JOIN {OTHER} ON t.sensor = w.sensor JOIN {RELATION} ON"
    assert (
        translate(f"{using} WHERE sensor <> 'a' GROUP BY sensor HAVING MAX(sensor) = sensor", CATALOG).node
        == translate(
            f"{written} t.sensor = p.sensor WHERE t.sensor <> 'a' GROUP BY t.sensor HAVING MAX(t.sensor) = t.sensor",
            CATALOG,
        ).node
    )


def test_both_columns_of_using_can_be_grouped_by():
    query = f"SELECT sensor, w.sensor AS other FROM {STREAM} JOIN {OTHER} USING (sensor) GROUP BY sensor, w.sensor"
    assert columns(*query.removeprefix("SELECT ").split(" FROM ", 1)) == ["sensor", "other"]


def test_a_zipper_join_may_stand_on_the_left_of_using():
    zipped = "traffic t ZIP JOIN traffic u ON t.lane = u.lane"
    query = f"SELECT km FROM {zipped} JOIN {RELATION} USING (»sensor«)".replace("«", "»").split("»")
    with pytest.raises(FjordSqlError, match="'sensor' is ambiguous"):
        translate("".join(query), CATALOG)
    zipped = "traffic t ZIP JOIN weather w ON t.lane = w.wind"
    one = "(SELECT lane, speed FROM traffic)"
    assert (
        translate(f"SELECT km, sensor FROM {one} t ZIP JOIN weather w JOIN {RELATION} USING (sensor)", CATALOG).node
        == translate(
            f"SELECT km, w.sensor FROM {one} t ZIP JOIN weather w JOIN {RELATION} ON w.sensor = p.sensor", CATALOG
        ).node
    )
