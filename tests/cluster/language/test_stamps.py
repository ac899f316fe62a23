"""Stamps in queries: what means one, and that nothing else has come to mean one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.language.catalog import Catalog
from cluster.language.translation import translate, translate_derived
from cluster.operators import Node, Project, Source
from cluster.operators.columns import STAMP
from cluster.plan import stored_plans
from cluster.plan.demand import demands_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema
from tests.cluster.language.example_catalog import CATALOG

NAMED = "SELECT ts FROM (SELECT itemID AS ts FROM ClosedAuction) AS c"
W = "WINDOW(RANGE 2 HOURS SLIDE 1 HOUR)"


def test_a_stamp_is_read_where_a_query_asks_for_it() -> None:
    source = translate("SELECT start_price AS p FROM OpenAuction", CATALOG).node
    assert "fjord_stamp" not in str(source)
    for stamp in ("STAMP() AS ts", "ts", "o.ts", "STAMP(o) AS ts"):
        text = f"SELECT {stamp}, start_price AS p FROM OpenAuction AS o"
        node = rewrite(translate(text, CATALOG).node).node
        assert isinstance(node, Project)
        outputs = [output.scalar.sql for output in node.outputs]
        assert outputs == ['TIMESTAMP_TEXT(TIMESTAMP_MICROS("fjord_stamp"))', '"start_price"']


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("SELECT itemID AS ts FROM OpenAuction GROUP BY ts", "SELECT itemID AS ts FROM OpenAuction GROUP BY itemID"),
        (
            "SELECT MAX(start_price) AS ts FROM OpenAuction WINDOW(RANGE 1 HOUR) HAVING ts > 3",
            "SELECT MAX(start_price) AS ts FROM OpenAuction WINDOW(RANGE 1 HOUR) HAVING MAX(start_price) > 3",
        ),
        (
            "SELECT ts FROM (SELECT itemID AS ts FROM ClosedAuction) AS c, OpenAuction AS o",
            "SELECT c.ts FROM (SELECT itemID AS ts FROM ClosedAuction) AS c, OpenAuction AS o",
        ),
        (
            f"{NAMED} WHERE EXISTS (SELECT * FROM OpenAuction AS o WHERE o.itemID = ts)",
            f"{NAMED} WHERE EXISTS (SELECT * FROM OpenAuction AS o WHERE o.itemID = c.ts)",
        ),
    ],
)
def test_what_was_a_name_before_does_not_become_a_stamp(query: str, same: str) -> None:
    one, other = (rewrite(translate(text, CATALOG).node).node for text in (query, same))
    assert without_stamps(one) == without_stamps(other)


def without_stamps(node: Node) -> Node:
    """Return a plan whose source may have been asked for stamps, without them."""
    if isinstance(node, Source):
        return replace(node, columns=tuple(each for each in node.columns if each != STAMP))
    return node.with_inputs(tuple(map(without_stamps, node.inputs)))


def test_a_derived_stream_has_timestamps_and_a_query_shows_texts() -> None:
    derived = translate_derived("CREATE STREAM seen AS SELECT STAMP() AS at FROM OpenAuction", CATALOG)
    assert [column.type for column in derived.columns] == [FieldType.TIMESTAMP]
    node = translate("SELECT at FROM seen", CATALOG.with_stream(derived)).node
    assert isinstance(node, Project)
    assert [(each.scalar.sql, each.scalar.type) for each in node.outputs] == [('TIMESTAMP_TEXT("at")', FieldType.TEXT)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT itemID, ts FROM OpenAuction WHERE ts > TIMESTAMP_MICROS(5)",
        "SELECT itemID FROM OpenAuction WHERE STAMP() = TIMESTAMP_MICROS(itemID)",
        f"SELECT itemID FROM OpenAuction {W} WHERE ts > TIMESTAMP_MICROS(0) GROUP BY itemID",
        f"SELECT itemID, COUNT(*) AS n FROM OpenAuction {W} WHERE ts > TIMESTAMP_MICROS(0) GROUP BY itemID",
        f"SELECT itemID, ts, COUNT(*) AS n FROM OpenAuction {W} GROUP BY itemID, ts",
    ],
)
def test_no_condition_on_a_stamp_reaches_a_sensor(query: str) -> None:
    ((demand,),) = demands_of("q", rewrite(translate(query, CATALOG).node).node).values()
    assert (demand.fields, demand.bands, demand.sensors, demand.panes) == (("itemID",), (), (), None)


ABOUT_TIME = [
    "SELECT STAMP() AS at FROM traffic WHERE STAMP() > TIMESTAMP '2026-03-29 02:30:00+01:00' - INTERVAL '5' MINUTE",
    "SELECT DATE_TRUNC('day', STAMP() AT TIME ZONE 'Europe/Berlin') AS d, EXTRACT(DOW FROM STAMP()) AS e FROM traffic",
    "SELECT lane, COUNT(*) AS n FROM traffic WHERE STAMP() > NOW() - INTERVAL '1' HOUR GROUP BY lane",
    "SELECT CAST(sensor AS TIMESTAMP) AS t, sensor::timestamp AS u, -INTERVAL 5 MINUTES * 2 AS i FROM traffic",
]


@pytest.mark.parametrize("text", ABOUT_TIME)
def test_a_text_that_is_kept_means_what_it_meant(text: str) -> None:
    assert translate(text, CATALOG, registered=True).node == translate(text, CATALOG).node


@pytest.mark.parametrize("text", ABOUT_TIME)
def test_a_plan_about_time_is_read_as_it_was_stored(text: str) -> None:
    node = rewrite(translate(text, CATALOG).node).node
    assert stored_plans.read(stored_plans.written(node)) == node


WORDS = ("stamp", "now", "interval", "timestamp", "year", "hour", "extract", "epoch", "at", "zone", "dow")


@pytest.mark.parametrize("word", WORDS)
def test_words_about_time_are_still_names(word: str) -> None:
    catalog = Catalog.of([StreamSchema("s", (Field(word, FieldType.INTEGER), Field("x", FieldType.INTEGER)))])
    node = translate(f"SELECT {word}, {word} + 1 AS more, s.{word} AS again FROM s WHERE {word} > 5", catalog).node
    assert isinstance(node, Project)
    assert [each.scalar.sql for each in node.outputs] == [f'"{word}"', f'"{word}" + 1', f'"{word}"']
