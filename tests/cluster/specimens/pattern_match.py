"""MATCH_RECOGNIZE: rows of a key that follow each other as a pattern says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from cluster.fjord.operators.pattern_match import PatternMatch as PatternMatchOperator
from cluster.operators import PatternMatch
from cluster.operators.columns import AggregateCall, Output
from cluster.operators.pattern_match import Definition, Lag, PatternElement, Reach, RowPattern, Skip, SkipKind
from cluster.plan.scalar_texts import read_scalar
from tests.cluster.fjord.operators.conformance import LEFT, Case, condition
from tests.cluster.pattern_plans import pattern_rows
from tests.cluster.specimens.drawing import INTEGER
from tests.cluster.specimens.specimen import Cases, DefinedByRows, Stamped


def _case(
    elements: tuple[PatternElement, ...], skip: SkipKind, within_us: int | None = 7, *, instantaneous: bool = False
) -> Case:
    """A pattern of rows, with conditions that read the row, the one before it, and those of variables."""
    definitions = (
        Definition("A", condition('"n" > 0 OR "lag" > 0')),
        Definition("B", condition('"n" >= 0'), condition('"n" <= "last" OR "count" > 1 OR "last" IS NULL')),
    )
    last = Reach("last", "last", "A", read_scalar('"n"', INTEGER))
    count = Reach("count", "aggregate", "B", call=AggregateCall("count", "count", None, INTEGER))
    measures = tuple(Output(name, read_scalar(f'"{name}"', INTEGER)) for name in ("last", "count"))
    lags = (Lag("lag", read_scalar('"n"', INTEGER), 1),)
    pattern = RowPattern(elements, definitions, measures, lags, (last, count), ("k", "n"), within_us, Skip(skip, "A"))
    return Case(lambda: PatternMatchOperator(LEFT, ("k",), pattern), chronons=True, instantaneous=instantaneous)


class PatternMatchSpecimen(DefinedByRows[PatternMatch]):
    node = PatternMatch
    weight = 0
    conformance: ClassVar[Cases] = {
        PatternMatchOperator: (
            _case((PatternElement("A"), PatternElement("B", 1, None)), "past last row", instantaneous=True),
            _case((PatternElement("A", 0, 2), PatternElement("B", 1, 3, reluctant=True)), "to next row"),
            _case((PatternElement("B"), PatternElement("A"), PatternElement("B")), "to first", within_us=None),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "pattern": (
            "SELECT * FROM traffic MATCH_RECOGNIZE (PARTITION BY segment ORDER BY STAMP() MEASURES FIRST(A.speed) AS "
            "high, LAST(B.speed) AS low, COUNT(B.*) AS n PATTERN (A B+) WITHIN 15 US DEFINE A AS A.speed > 1, B AS "
            "B.speed < LAST(A.speed) / 1.5) AS m"
        ),
        "pattern of all rows": (
            "SELECT n, most FROM traffic MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES COUNT(*) AS n, MAX(up.lane) AS "
            "most ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (up{2,4}? down) WITHIN 9 US DEFINE up AS lane "
            ">= PREV(lane), down AS lane < up.lane)"
        ),
        "pattern of so many rows": (
            "SELECT sensor, a, b FROM (SELECT * FROM traffic WHERE lane > 1) MATCH_RECOGNIZE (PARTITION BY sensor "
            "ORDER BY STAMP() MEASURES A.speed AS a, B.speed AS b PATTERN (A B) DEFINE B AS NOT open OR B.speed > "
            "PREV(speed)) AS m"
        ),
    }
    golden = "pattern"

    def rows(self, node: PatternMatch, inputs: Sequence[Sequence[Stamped]], instants: int) -> list[Stamped]:
        return pattern_rows(node, inputs[0])
