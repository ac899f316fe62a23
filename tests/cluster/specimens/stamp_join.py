"""ASOF and interval joins: pairs of rows whose stamps are near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from cluster.fjord.operators.stamp_joining import AsofJoin
from cluster.fjord.operators.stamp_joining import StampJoin as StampJoinOperator
from cluster.language.dialect import parse_scalar
from cluster.operators import StampJoin
from tests.cluster.fjord.operators.conformance import LEFT, RIGHT, Case, condition
from tests.cluster.fjord.scalar_definition import value_of
from tests.cluster.specimens.specimen import Cases, DefinedByRows, Stamped
from tests.cluster.stamp_join_definition import Meets, stamp_join_rows


def _asof(low: int | None, high: int, kind: str, *keys: tuple[str, str]) -> Case:
    return Case(lambda: AsofJoin(LEFT, RIGHT, keys=keys, low_us=low, high_us=high, kind=kind))


def _near(low: int, high: int, kind: str, predicate: str | None, *keys: tuple[str, str]) -> Case:
    also = None if predicate is None else condition(predicate)
    return Case(lambda: StampJoinOperator(LEFT, RIGHT, keys=keys, predicate=also, bounds_us=(low, high), kind=kind))


def met_by(node: StampJoin) -> Meets:
    """Return whether two rows have equal keys and meet the condition."""
    names = [column.name for column in node.schema]
    equal = [f'"{one}" = "{other}"' for one, other in node.keys]
    tree = parse_scalar(" AND ".join([*equal, f"({node.predicate.sql})" if node.predicate else "TRUE"]))
    return lambda one, other: value_of(tree, dict(zip(names, one + other, strict=True))) is True


class StampJoinSpecimen(DefinedByRows[StampJoin]):
    node = StampJoin
    weight = 0
    conformance: ClassVar[Cases] = {
        AsofJoin: (_asof(None, 0, "inner"), _asof(-4, -1, "left", ("k", "k2"))),
        StampJoinOperator: (
            _near(-3, 3, "inner", None),
            _near(0, 4, "full", None, ("k", "k2")),
            _near(-5, -1, "left", '"n" < "n2"'),
        ),
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "asof": "SELECT t.sensor, t.speed, w.wind FROM traffic AS t ASOF JOIN weather AS w ON t.sensor = w.sensor",
        "asof within": (
            "SELECT t.sensor, t.lane, w.wind, w.gust FROM traffic AS t ASOF LEFT JOIN weather AS w WITHIN 4 US ON "
            "t.sensor = w.sensor"
        ),
        "asof before": (
            "SELECT t.sensor, t.lane, w.wind FROM traffic AS t ASOF LEFT JOIN weather AS w MATCH_CONDITION (STAMP(t) > "
            "STAMP(w)) ON t.sensor = w.sensor WHERE t.lane > 1"
        ),
        "asof without keys": (
            "SELECT t.sensor, w.wind FROM traffic AS t ASOF JOIN (SELECT wind FROM weather WHERE wind > 1) AS w"
        ),
        "near": (
            "SELECT t.sensor, t.lane, w.wind FROM traffic AS t JOIN weather AS w WITHIN 2 US ON t.sensor = w.sensor"
        ),
        "near of some": (
            "SELECT t.lane, w.wind FROM traffic AS t JOIN weather AS w WITHIN -2 US TO 5 US ON t.sensor = w.sensor AND "
            "t.speed <= w.gust WHERE t.lane > 0"
        ),
        "left near": (
            "SELECT t.sensor, t.lane, w.wind FROM traffic AS t LEFT JOIN weather AS w WITHIN 0 US TO 3 US ON t.sensor "
            "= w.sensor"
        ),
        "right near": "SELECT t.lane, w.* FROM traffic AS t RIGHT JOIN weather AS w WITHIN 1 US ON t.sensor = w.sensor",
        "full near": (
            "SELECT t.sensor, t.lane, w.sensor AS other, w.wind FROM traffic AS t FULL JOIN weather AS w WITHIN -2 US "
            "TO 1 US ON t.sensor = w.sensor"
        ),
        "aggregate of near pairs": (
            "SELECT sensor, COUNT(*) AS n FROM (SELECT t.sensor FROM traffic AS t JOIN weather AS w WITHIN 2 US ON "
            "t.sensor = w.sensor) AS z WINDOW(RANGE 12 US SLIDE 6 US) GROUP BY sensor"
        ),
    }
    golden = "asof without keys"

    def rows(self, node: StampJoin, inputs: Sequence[Sequence[Stamped]], instants: int) -> list[Stamped]:
        widths = (len(node.left.schema), len(node.right.schema))
        bounds = (node.low_us, node.high_us)
        return stamp_join_rows(*inputs, met_by(node), bounds, node.kind, widths, latest=node.latest)
