"""In which order tuples are looked up."""

from __future__ import annotations

import math

import pytest

from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators import Node, Source
from cluster.operators.columns import Column
from cluster.plan.lookups import partners_of
from cluster.plan.names_read import RelationSize
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("segment", FieldType.INTEGER)))


def relation(name: str, *columns: str) -> StaticRelation:
    return StaticRelation(name, f"{name}@1", tuple(Column(each, FieldType.INTEGER) for each in columns))


CATALOG = Catalog.of([
    TRAFFIC, relation("roads", "segment", "road"), relation("incidents", "segment", "severity"),
    relation("owners", "road", "owner"), relation("closed", "segment"),
])  # fmt: skip
SIZES = {
    "roads@1": RelationSize(10_000, 0, {"segment": 10_000, "road": 300}),
    "incidents@1": RelationSize(40, 0, {"segment": 35, "severity": 3}),
    "owners@1": RelationSize(300, 0, {"road": 300, "owner": 20}),
    "closed@1": RelationSize(5, 0, {"segment": 5}),
}
ROADS = "JOIN roads r ON r.segment = t.segment"
INCIDENTS = "JOIN incidents i ON i.segment = t.segment"
OWNERS = "JOIN owners o ON o.road = r.road"
CLOSED = "WHERE t.segment IN (SELECT segment FROM closed)"


def source_of(node: Node) -> Source:
    while not isinstance(node, Source):
        (node,) = node.inputs
    return node


def order(text: str, sizes: dict[str, RelationSize]) -> list[str]:
    node = rewrite(translate(f"SELECT t.sensor FROM traffic t {text}", CATALOG).node, sizes=sizes).node
    return [each.name for lookup in source_of(node).lookups for each in lookup.table.relations]


@pytest.mark.parametrize(("text", "names"), [
    (f"{ROADS} {INCIDENTS}", ["incidents", "roads"]),
    (f"{INCIDENTS} {ROADS}", ["incidents", "roads"]),
    (f"{ROADS} {OWNERS} {INCIDENTS} {CLOSED}", ["closed", "incidents", "roads", "owners"]),
    (f"LEFT {INCIDENTS} {ROADS}", ["roads", "incidents"]),
    (f"LEFT {ROADS} LEFT {INCIDENTS}", ["incidents", "roads"]),
    (f"LEFT {ROADS} {OWNERS} {INCIDENTS}", ["incidents", "roads", "owners"]),
])  # fmt: skip
def test_what_leaves_fewest_comes_first(text: str, names: list[str]) -> None:
    assert order(text, SIZES) == names


def test_many_partners_come_late_however_small_the_relation() -> None:
    crowded = {**SIZES, "incidents@1": RelationSize(40, 0, {"segment": 2})}
    assert order(f"{INCIDENTS} {ROADS}", crowded) == ["roads", "incidents"]


def test_one_partner_is_fewer_than_two() -> None:
    twice = {
        "roads@1": RelationSize(10_000, 0, {"segment": 10_000}),
        "incidents@1": RelationSize(40, 0, {"segment": 20}),
    }
    assert order(f"{INCIDENTS} {ROADS}", twice) == ["roads", "incidents"]


def test_of_what_nothing_is_known_comes_as_written_and_after_what_is_known() -> None:
    assert order(f"{ROADS} {INCIDENTS}", {}) == ["roads", "incidents"]
    assert order(f"{ROADS} {INCIDENTS}", {"incidents@1": SIZES["incidents@1"]}) == ["incidents", "roads"]


def test_a_relation_that_has_grown_a_little_parts_no_queries() -> None:
    one, other = ({**SIZES, "roads@1": RelationSize(rows, 0, {"segment": rows})} for rows in (33, 60))
    assert order(f"{ROADS} {INCIDENTS}", one) == order(f"{ROADS} {INCIDENTS}", other)


@pytest.mark.parametrize(("condition", "partners"), [
    ("r.segment = t.segment", 1.0),
    ("r.road = t.segment", 10_000 / 300),
    ("r.road = t.segment AND r.segment = t.segment", 1.0),
    ("r.road > t.segment", 10_000.0),
    ("r.road + r.segment = t.segment", math.inf),
])  # fmt: skip
def test_about_how_many_partners_a_tuple_finds(condition: str, partners: float) -> None:
    text = f"SELECT t.sensor, r.road FROM traffic t JOIN roads r ON {condition}"
    (lookup,) = source_of(rewrite(translate(text, CATALOG).node).node).lookups
    assert partners_of(lookup, SIZES) == partners
