"""The shared plan as text and as a graph."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import lower
from cluster.physical.text import dot, mermaid, plan_graph, plan_text
from cluster.plan.epoch import Plan, PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("speed", FieldType.REAL)))])
TEXTS = [
    *(f"SELECT sensor FROM traffic WHERE speed < {limit}" for limit in range(6)),
    "SELECT sensor FROM traffic",
    "SELECT AVG(speed) AS mean FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)",
    "SELECT MAX(speed) AS m, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 30 SECONDS) WHERE sensor = 'a'",
    "SELECT a.sensor FROM traffic a WINDOW(RANGE 1 SECOND), traffic b WHERE a.speed < b.speed",
]
PLAN = lower(
    Plan(
        9,
        tuple(PlannedQuery(f"q{n}", n, rewrite(translate(text, CATALOG).node).node) for n, text in enumerate(TEXTS, 1)),
    )
)


def test_the_text_shows_shared_operators_once_with_their_queries() -> None:
    lines = plan_text(PLAN).splitlines()
    assert lines[:3] == ["epoch 9: 10 queries in 3 fragments", "", "7 queries: q1, q2, q3, q4, q5 and 2 more"]
    assert lines[4:8] == [
        "  answers",
        "  └─ project sensor",
        "     └─ grouped filter: 6 conditions, and queries without a condition",
        "        └─ stream traffic: sensor, speed",
    ]
    assert "1 query: q10" in lines
    begin = lines.index("2 queries: q8, q9")
    assert lines[begin + 2 : begin + 4] == [
        "  window of 1m, moving every 30s: q9",
        "  window of 1m, moving every 1m: q8",
    ]
    assert any(line.endswith("└─ panes of 30s") for line in lines[begin:])
    assert plan_text(lower(Plan(1))) == "epoch 1: 0 queries in 0 fragments"


def test_the_graph_has_every_stream_once_and_counts_queries() -> None:
    graph = plan_graph(PLAN)
    assert [box.label for box in graph.boxes if box.kind == "stream"] == ["stream traffic"]
    answers = {box.number: box.label for box in graph.boxes if box.kind == "answers"}
    assert sorted(answers.values()) == ["q1, q2, q3, q4, q5 and 2 more", "q10", "q8", "q9"]
    assert sum(arrow.queries for arrow in graph.arrows if arrow.target in answers) == len(TEXTS)


@pytest.mark.parametrize(("write", "begins"), [(mermaid, "flowchart BT"), (dot, "digraph plan {")])
def test_both_languages_have_every_box_and_arrow(write: object, begins: str) -> None:
    graph = plan_graph(PLAN)
    text = write(graph)  # type: ignore[operator]
    assert text.startswith(begins)
    assert all(f"n{box.number}" in text for box in graph.boxes)
    assert text.count("->") + text.count("-->") >= len(graph.arrows)
