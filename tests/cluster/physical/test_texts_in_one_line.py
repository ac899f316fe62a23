"""An operator is one line wherever a plan is printed or drawn, whatever texts the query contains."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.lowering import with_query
from cluster.physical.nodes import NOTHING, PhysicalPlan
from cluster.physical.placement import placement_of
from cluster.physical.text import dot, mermaid, plan_graph, plan_text
from cluster.plan.epoch import PlannedQuery
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

CATALOG = Catalog.of([StreamSchema("traffic", (Field("sensor", FieldType.TEXT), Field("speed", FieldType.REAL)))])
TEXTS = (
    "SELECT sensor FROM traffic WHERE sensor < '{}'",
    "SELECT sensor || '{}' AS here, TRIM('{}') FROM traffic",
    "SELECT sensor FROM traffic WHERE sensor LIKE '{}%'",
    (
        "SELECT sensor || '{}' AS here, COUNT(DISTINCT sensor || '{}') AS n, MAX(sensor || '{}') AS most FROM traffic "
        "WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY sensor || '{}'"
    ),
    (
        "SELECT sensor || '{}' AS here, MAX(sensor || '{}') AS most FROM traffic WINDOW(ROWS 3) GROUP BY "
        "sensor || '{}' HAVING MIN(sensor || '{}') > '{}'"
    ),
)


def lines_of(text: str) -> tuple[int, ...]:
    node = rewrite(translate(text, CATALOG).node).node
    plan: PhysicalPlan = with_query(NOTHING, PlannedQuery("q", 1, node))
    graph = plan_graph(plan)
    shown = (plan_text(plan), mermaid(graph), dot(graph), placement_of(node))
    return tuple(len(each.splitlines()) for each in shown)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("within", ["\n", "\r", "\t\n", "\x1e", "\x85", "\u2028"])
def test_a_text_ends_no_line(text: str, within: str) -> None:
    assert lines_of(text.replace("{}", f"a{within}b")) == lines_of(text.replace("{}", "ab"))
