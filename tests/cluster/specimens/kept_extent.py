"""KEEP n TUPLES: runs of which only so many samples are remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cluster.fjord.operators.kept_extent import KeptExtent as KeptExtentOperator
from cluster.operators import KeptExtent
from cluster.operators.kept_extent import KeptTuples
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.oracle.kept_definition import Sample, Window, rows_at
from tests.cluster.specimens.specimen import Cases, DefinedByRows, Stamped


def _case(most: int, *, lag_us: int | None = 1, keys: tuple[str, ...] = ("k",), **window: Any) -> Case:
    """What an extent keeps; runs are of equal numbers."""
    tuples = KeptTuples(most, keys, "n", "n", ("since", "until"), "quality", **window)
    return Case(lambda: KeptExtentOperator(LEFT, tuples, lag_us=lag_us), chronons=True)


class KeptExtentSpecimen(DefinedByRows[KeptExtent]):
    node = KeptExtent
    weight = 0
    conformance: ClassVar[Cases] = {
        KeptExtentOperator: (
            _case(2, size_us=7),
            _case(3, size_us=20, lag_us=2),
            _case(1, size_us=9, slide_us=4),
            _case(2, size_us=5, lag_us=None, keys=()),
            _case(3, rows=5, lag_us=0),
            _case(2, rows=4, slide_rows=3, apart=("k",)),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "coalesced and fewer kept": (
            "SELECT sensor, lane, quality, VALID(s) AS held FROM traffic WINDOW(RANGE 24 US SLIDE 3 US) COALESCE(lane "
            "BY sensor) KEEP 3 TUPLES AS s"
        ),
        "coalesced and fewer kept of a count": (
            "SELECT open, MIN(quality) AS q, COUNT(*) AS n FROM traffic WINDOW(ROWS 12) COALESCE(open) KEEP 4 TUPLES "
            "GROUP BY open"
        ),
    }
    golden = "coalesced and fewer kept"

    def rows(self, node: KeptExtent, inputs: Sequence[Sequence[Stamped]], instants: int) -> list[Stamped]:
        names, kept = [column.name for column in node.input.schema], node.kept
        by_time, by_count = Window(kept.size_us, kept.slide_us), Window(None, kept.slide_rows, kept.rows)
        window = by_time if kept.rows is None else by_count
        parts: dict[tuple[Any, ...], list[tuple[Any, Sample]]] = {}
        for stamp, row in inputs[0]:
            one = dict(zip(names, row, strict=True))
            apart = tuple(one[each] for each in kept.apart)
            key, run, number = tuple(one[each] for each in kept.keys), one.pop(kept.run), one.pop(kept.number)
            place = (stamp, [(each is None, each) for each in key], number)
            parts.setdefault(apart, []).append((place, Sample(stamp, key, run, tuple(one.values()))))
        found: list[Stamped] = []
        for numbered in parts.values():
            samples = [each for _, each in sorted(numbered, key=lambda one: one[0])]
            for at in range(instants):
                found += [(at, (*values, *rest)) for values, *rest in rows_at(samples, window, kept.most, at)]
        return found

    def reach_us(self, node: KeptExtent) -> int:
        return node.kept.size_us + node.kept.slide_us if node.kept.rows is None else 0
