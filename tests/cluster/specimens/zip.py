"""ZIP JOIN: each row with the next of the other side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

from cluster.fjord.operators.zipping import Zip as ZipOperator
from cluster.operators import Zip, ZipKind
from tests.cluster.fjord.operators.conformance import LEFT, RIGHT, Case
from tests.cluster.specimens.specimen import Cases, DefinedByRows, Stamped
from tests.cluster.zip_definition import zip_rows


def _case(low: int, high: int, kind: ZipKind, *keys: tuple[str, str], instantaneous: bool = False) -> Case:
    return Case(
        lambda: ZipOperator(LEFT, RIGHT, keys=keys, bounds_us=(low, high), kind=kind, apart="apart"),
        chronons=True,
        instantaneous=instantaneous,
    )


class ZipSpecimen(DefinedByRows[Zip]):
    node = Zip
    weight = 0
    conformance: ClassVar[Cases] = {
        ZipOperator: (
            _case(-3, 3, "inner"),
            _case(0, 4, "full", ("k", "k2"), instantaneous=True),
            _case(-5, -1, "left"),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "zip": (
            "SELECT t.sensor, t.speed, w.wind, apart_us FROM traffic AS t ZIP JOIN weather AS w WITHIN 2 US ON "
            "t.sensor = w.sensor"
        ),
        "zip at equal stamps": "SELECT t.lane, w.wind FROM traffic AS t ZIP JOIN weather AS w ON t.sensor = w.sensor",
        "left zip": (
            "SELECT t.sensor, t.lane, w.gust, apart_us FROM traffic AS t LEFT ZIP JOIN weather AS w WITHIN 0 SECONDS "
            "TO 4 US ON t.sensor = w.sensor"
        ),
        "full zip": (
            "SELECT t.sensor, t.lane, w.sensor AS other, w.wind FROM traffic AS t FULL ZIP JOIN weather AS w WITHIN 3 "
            "US ON t.sensor = w.sensor"
        ),
        "aggregate of a zip": (
            "SELECT sensor, COUNT(*) AS n FROM (SELECT t.sensor FROM traffic AS t ZIP JOIN weather AS w WITHIN 3 US ON "
            "t.sensor = w.sensor) AS z WINDOW(RANGE 12 US SLIDE 6 US) GROUP BY sensor"
        ),
    }
    golden = "zip"

    def rows(self, node: Zip, inputs: Sequence[Sequence[Stamped]], instants: int) -> list[Stamped]:
        names = [[column.name for column in side.schema] for side in (node.left, node.right)]

        def key_of(side: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(itemgetter(names[side].index(key[side]))(row) for key in node.keys)

        return zip_rows(
            *inputs,
            (lambda row: key_of(0, row), lambda row: key_of(1, row)),
            (node.low_us, node.high_us),
            node.kind,
            (len(names[0]), len(names[1])),
        )
