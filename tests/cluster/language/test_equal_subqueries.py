"""Subqueries that mean the same are one, however they are written."""

from __future__ import annotations

import pytest

from cluster.language.translation import translate
from cluster.operators import AntiJoin
from cluster.operators.walks import nodes_of
from tests.cluster.language.example_catalog import CATALOG

FASTEST = "(SELECT MAX(t.speed) FROM traffic AS t WINDOW(RANGE 1 HOUR) WHERE t.sensor = w.sensor AND t.speed < 1e3{})"
PAIRS = (
    (FASTEST.format(""), FASTEST.format("")),
    (FASTEST.format(""), FASTEST.format("").replace("t.speed", "T.Speed")),
    (FASTEST.format(""), FASTEST.format("").replace("1e3", "1E3")),
    (FASTEST.format(" LIFETIME 90 DAYS"), FASTEST.format(" LIFETIME 90 DAYS")),
    (FASTEST.format(" LIFETIME 90 DAYS"), FASTEST.format(" lifetime 90 DAYS").replace("MAX", "max")),
)


def joins_in(text: str) -> int:
    return sum(isinstance(node, AntiJoin) for node in nodes_of(translate(text, CATALOG).node))


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_equal_subqueries_are_joined_once(one: str, other: str) -> None:
    assert joins_in(f"SELECT {one} + {other} AS x FROM weather AS w") == 1


def test_other_subqueries_are_joined_each() -> None:
    other = FASTEST.format("").replace("MAX", "MIN")
    assert joins_in(f"SELECT {FASTEST.format('')} + {other} AS x FROM weather AS w") == 2
