"""Windows by time, which slide, are moved by an offset, or are reset; and the bounds of such a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import UNSET
from msgspec.structs import replace

from cluster.fjord.operators.time_window import GridWindow
from cluster.fjord.operators.time_window import TimeWindow as TimeWindowOperator
from cluster.fjord.operators.time_window import WindowBounds as WindowBoundsOperator
from cluster.operators import Node, TimeWindow, WindowBounds
from cluster.operators.window_shapes import DAY_US, Grid, Span
from tests.cluster.calendar_definition import boundaries_of
from tests.cluster.fjord.operators.conformance import Case
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import SnapshotSql, names_of
from tests.cluster.specimens.specimen import Cases, Unary


class TimeWindowSpecimen(Unary[TimeWindow]):
    """Sum of S(x) for x in [max(k - w, 0), k - 1], where k = floor((t + 1) / a) * a; empty for t < a - 1."""

    node = TimeWindow
    weight = 3
    conformance: ClassVar[Cases] = {
        TimeWindowOperator: (
            Case(lambda: TimeWindowOperator(5)),
            Case(lambda: TimeWindowOperator(4, 6)),
            Case(lambda: TimeWindowOperator(None, 3)),
        ),
        GridWindow: (
            Case(lambda: GridWindow(Grid(Span("us", 4), 3, size=Span("us", 6)), 4)),
            Case(lambda: GridWindow(Grid(Span("us", 5), 2), 1)),
            Case(lambda: GridWindow(Grid(Span("us", 7)), 3)),
            Case(lambda: GridWindow(Grid(Span("day", 1), 9, size=Span("month", 1)), 1)),
        ),
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "window": "SELECT sensor, speed FROM traffic WINDOW(RANGE 7 US)",
        "tumbling": "SELECT sensor FROM traffic WINDOW(RANGE 10 US SLIDE 10 US)",
        "sliding": "SELECT lane FROM traffic WINDOW(RANGE 9 US SLIDE 4 US) WHERE open",
        "for ever": "SELECT sensor, lane FROM traffic WINDOW(RANGE UNBOUNDED) WHERE speed > 3",
        "moved": "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 12 US SLIDE 6 US OFFSET 2 US) GROUP BY sensor",
        "reset": "SELECT sensor, SUM(lane) AS n FROM traffic WINDOW(RESET EVERY 16 US OFFSET 5 US) GROUP BY sensor",
        "reset and shown in steps": "SELECT COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 16 US SLIDE 3 US)",
        "days of a place": (
            "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin' "
            "OFFSET 3600000020 US) GROUP BY sensor"
        ),
        "a month reset": "SELECT COUNT(*) AS n FROM traffic WINDOW(RESET EVERY 1 MONTH OFFSET 25 US) WHERE lane > 0",
    }
    golden = "sliding"

    def sql(self, node: TimeWindow, query: SnapshotSql) -> str:
        below, names = query.of(node.input), names_of(node.schema)
        if node.size_us == 1 and node.slide_us == 1:
            return f"SELECT * FROM {below}"  # by the same formula, but keeps the order of arrival
        first, last = _bounds_of(node)
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names} FROM instants i '
            f'JOIN {below} s ON i."#run" = s."#run" AND s."#t" >= {first} AND s."#t" <= {last} - 1 '
            f'WHERE {last} > 0 GROUP BY i."#run", i."#t"{names}'
        )

    def reach_us(self, node: TimeWindow) -> int:
        if node.grid is not UNSET and node.grid.step.calendar:
            return node.slide_us if node.grid.size is None else 0  # the next boundary is never reached
        return (node.size_us or 0) + node.slide_us

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.to_window(node)
        size, slide = drawing.whole(1, 7), drawing.one_of((1, 1, 1, 2, 3, 5))
        if not drawing.one_in(5):
            return TimeWindow(node, drawing.one_of((size, size, size, size, None)), slide)
        step = drawing.whole(2, 8)
        grid = Grid(Span("us", step), drawing.whole(0, step - 1))
        if drawing.coin():
            return TimeWindow(node, step, drawing.whole(1, step), grid)
        return TimeWindow(node, size, step, replace(grid, size=Span("us", size)))


class WindowBoundsSpecimen(Unary[WindowBounds]):
    node = WindowBounds
    conformance: ClassVar[Cases] = {
        WindowBoundsOperator: (
            Case(lambda: WindowBoundsOperator(Grid(Span("us", 4), 3, size=Span("us", 6)), "s", "e")),
            Case(lambda: WindowBoundsOperator(Grid(Span("day", 1), 9, size=Span("month", 1)), "s", "e")),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "ends of windows in panes": (
            "SELECT sensor, WINDOW_END() AS e, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 US SLIDE 10 US) GROUP BY "
            "sensor"
        ),
        "bounds of windows": (
            "SELECT WINDOW_START() AS s, WINDOW_END() AS e, lane, AVG(speed) AS x FROM traffic WINDOW(RANGE 20 US "
            "SLIDE 10 US) GROUP BY WINDOW_START(), lane HAVING WINDOW_END() > TIMESTAMP_MICROS(10) AND COUNT(*) > 1"
        ),
        "bounds of windows without panes": (
            "SELECT WINDOW_START() AS s, MAX(n) AS n FROM (SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(RANGE 20 "
            "US SLIDE 10 US) GROUP BY sensor) AS t WINDOW(RANGE 9 US SLIDE 3 US)"
        ),
        "bounds of moved windows": (
            "SELECT WINDOW_START() AS s, COUNT(*) AS n FROM traffic WINDOW(RANGE 7 US SLIDE 5 US OFFSET 2 US) GROUP BY "
            "1"
        ),
        "bounds of days": (
            "SELECT sensor, WINDOW_START() AS s, WINDOW_END() AS e, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 DAY "
            "SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin' OFFSET 3600000020 US) GROUP BY sensor"
        ),
    }
    golden = "bounds of moved windows"

    def sql(self, node: WindowBounds, query: SnapshotSql) -> str:
        first, last = _bounds_of(TimeWindow(node.input, node.grid.size_us, node.grid.step.usual_us, node.grid))
        bounds = f'{first} AS "{node.start}", {last} AS "{node.end}"'.replace('i."#t"', '"#t"')
        return f"SELECT *, {bounds} FROM {query.of(node.input)}"

    def over(self, drawing: Drawing, node: Node) -> Node:
        # What holds for ever has the bounds of too many windows.
        node = drawing.instantaneous(node) if node.longest_validity_us is None else node
        step = drawing.whole(2, 8)
        size = Span("us", drawing.whole(1, 12))
        grid = Grid(Span("us", step), drawing.whole(0, step - 1), size=size)
        return WindowBounds(node, grid, drawing.names.fresh(), drawing.names.fresh())


def _floor(instant: str, step: int, offset: int = 0) -> str:
    """Return the greatest multiple of a step, moved by an offset, that is not above an instant (of 0 or later)."""
    return f"((({instant}) - {offset} + {step}) // {step} - 1) * {step} + {offset}"


def _bounds_of(window: TimeWindow) -> tuple[str, str]:
    """Return the first instant whose tuples a window has at i, and the one behind the last."""
    if window.grid is UNSET:
        last = _floor('i."#t" + 1', window.slide_us)
        return "0" if window.size_us is None else f"{last} - {window.size_us}", last
    step, offset = window.grid.step.count, window.grid.offset_us
    if window.grid.step.calendar:
        return _bounds_by_calendar(window.grid, window.slide_us)
    if window.grid.size is not None:
        last = _floor('i."#t" + 1', step, offset)
        return f"{last} - {window.grid.size.count}", last
    # What it has changes at multiples of the slide, and at boundaries.
    last = f'greatest({_floor("""i."#t" + 1""", window.slide_us)}, {_floor("""i."#t" + 1""", step, offset)})'
    return _floor(f"{last} - 1", step, offset), last


def _bounds_by_calendar(grid: Grid, slide: int) -> tuple[str, str]:
    """Return the same for a calendar, of which one boundary is near the instants, and another before them."""
    near = boundaries_of(grid, -800 * DAY_US, DAY_US // 2)[::-1]

    def last_of(instant: str, *, begin: bool = False) -> str:
        cases = " ".join(f"WHEN {instant} >= {at} THEN {since if begin else at}" for at, since in near)
        return f"(CASE {cases} END)"

    if grid.size is not None:
        return last_of('i."#t" + 1', begin=True), last_of('i."#t" + 1')
    last = f'greatest({_floor("""i."#t" + 1""", slide)}, {last_of("""i."#t" + 1""")})'
    return last_of(f"{last} - 1"), last
