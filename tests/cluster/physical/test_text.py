"""Golden texts: what runs where of some plans. One file each: queries, a line of dashes, and the plan as text.

After a change that is meant, write them anew with ``python -m tests.cluster.physical.test_text`` and read what differs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.language.catalog import Catalog, StaticRelation
from cluster.language.translation import translate
from cluster.operators.columns import Column
from cluster.physical import plan_json
from cluster.physical.lowering import lower
from cluster.physical.nodes import PhysicalPlan
from cluster.physical.text import plan_text
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.history import with_history_starts
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

GOLDEN = sorted(Path(__file__).with_name("golden").glob("*.txt"))
LINE = "-" * 20
TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("lane", FieldType.INTEGER),
        Field("speed", FieldType.REAL, "mph"),
    ),
)
WEATHER = StreamSchema("weather", (Field("station", FieldType.TEXT, fixed=True), Field("rain", FieldType.REAL)))
PLACES = StaticRelation("places", "places@1", (Column("sensor", FieldType.TEXT), Column("segment", FieldType.INTEGER)))
OWNERS = StaticRelation("owners", "owners@1", (Column("sensor", FieldType.TEXT), Column("owner", FieldType.TEXT)))
CATALOG = Catalog.of([TRAFFIC, WEATHER, PLACES, OWNERS])
LARGE = frozenset({OWNERS.identity})


def planned(text: str, number: int) -> PlannedQuery:
    node = rewrite(translate(text, CATALOG).node, large=LARGE).node
    return PlannedQuery(f"q{number}", number, with_history_starts(node, number, {"traffic": 7_200_000_000}))


def plan_of(queries: str) -> PhysicalPlan:
    texts = [each.strip() for each in queries.split(";") if each.strip()]
    return lower(Plan(len(texts), tuple(planned(text, number) for number, text in enumerate(texts, 1))))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_text_of_a_plan_shows_what_runs_where(path: Path) -> None:
    queries, _, expected = path.read_text().partition(f"{LINE}\n")
    assert plan_text(plan_of(queries)) == expected.rstrip("\n")


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_plan_is_read_as_it_was_written(path: Path) -> None:
    plan = plan_of(path.read_text().partition(LINE)[0])
    assert plan_json.decode(plan_json.encode(plan)) == plan


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_ids_are_of_one_node_each(path: Path) -> None:
    for fragment in plan_of(path.read_text().partition(LINE)[0]).fragments:
        assert len({node.id for node in fragment.nodes}) == len(fragment.nodes)
        before: set[str] = set()
        for node in fragment.nodes:
            assert before.issuperset(node.inputs), "inputs come before their readers"
            before.add(node.id)
        assert {*fragment.next_to_scan, *fragment.behind, fragment.sink} == set(fragment.nodes)


def test_there_are_ten_of_them() -> None:
    assert len(GOLDEN) >= 10


if __name__ == "__main__":
    for each in GOLDEN:
        written = each.read_text().partition(f"{LINE}\n")[0]
        each.write_text(f"{written}{LINE}\n{plan_text(plan_of(written))}\n")
