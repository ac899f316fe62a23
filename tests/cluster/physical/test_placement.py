"""EXPLAIN shows where the parts of a query run, and why."""

from __future__ import annotations

import pytest

from cluster.language.catalog import Catalog
from cluster.language.translation import translate
from cluster.physical.placement import placement_of
from cluster.plan.rewrite import rewrite
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("segment", FieldType.INTEGER, fixed=True),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.REAL),
    ),
)
WINDOW = "WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE)"


@pytest.mark.parametrize(("sql", "expected"), [
    (
        f"SELECT segment, AVG(speed) FROM traffic {WINDOW} WHERE speed < 60 AND segment IN (3, 4) GROUP BY segment",
        [
            "on the motes of traffic: count, sum of speed, in panes of 1m, sampled at the default period",
            "only of motes with segment = 3, segment = 4",
            "because it groups by fixed fields only",
            "windows are merged from panes, those of motes and those made here alike",
        ],
    ),
    (
        f"SELECT MEDIAN(speed) FROM traffic {WINDOW}",
        ["samples of speed", "they do not support MEDIAN", "\n  answers: written by the driver"],
    ),
    (f"SELECT AVG(speed * 2) FROM traffic {WINDOW}", ["they do not support AVG of an expression"]),
    (f"SELECT COUNT(DISTINCT speed) FROM traffic {WINDOW}", ["they do not support distinct values"]),
    (f"SELECT speed, COUNT(*) FROM traffic {WINDOW} GROUP BY speed", ["it groups by speed, which is sampled"]),
    (f"SELECT COUNT(*) FROM traffic {WINDOW} WHERE speed > flow", ["speed > flow is not an interval"]),
    (
        "SELECT sensor FROM traffic WHERE speed BETWEEN 2 AND 10 SAMPLE EVERY 500 MS",
        [
            "samples of sensor, speed, sampled every 500ms, only speed 2 to 10",
            "in Spark, next to the scan: stream traffic, sampled every 500ms; filter",
            "no state is kept: tuples are read in the order of their stamps",
            "answers: written by the driver; by a task itself when it has more than 50,000 of them",
        ],
    ),
    ("SELECT sensor FROM traffic SAMPLE EVERY 1 SECOND AT LEAST EVERY 1 MINUTE LIFETIME 90 DAYS", [
        "down to every 1m if batteries are to last", "batteries should last 90d",
    ]),
    (f"SELECT segment, AVG(speed), COMPLETENESS() FROM traffic {WINDOW} GROUP BY segment", [
        "count, sum of speed, in panes of 1m",
        "at the proxy: how many samples were due, and how many of them are missing, of each mote in panes of 1m",
    ]),
    (f"SELECT speed, COMPLETENESS() FROM traffic {WINDOW} GROUP BY speed", ["it would be refused", "speed cannot be"]),
    (f"SELECT COUNT(*) FROM traffic EVENTS(speed ABOVE 60) {WINDOW}", [
        "the number of events of speed rising to 60 and falling to 60, in panes of 1m",
    ]),
])  # fmt: skip
def test_explain_places_each_part_of_a_query_and_gives_the_reason(sql: str, expected: list[str]) -> None:
    node = rewrite(translate(sql, Catalog.of([TRAFFIC])).node).node
    words = placement_of(node)
    for each in expected:
        assert each in words, words
