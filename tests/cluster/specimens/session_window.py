"""Sessions: tuples of a key that follow each other closely, shown when the session closes, or from each tuple on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from cluster.fjord.operators.session_window import SessionWindow as SessionWindowOperator
from cluster.operators import Node, SessionWindow
from cluster.operators.window_shapes import Session
from tests.cluster.fjord.operators.conformance import LEFT, Case
from tests.cluster.oracle.session_windows import session_closings
from tests.cluster.specimens.drawing import Drawing
from tests.cluster.specimens.snapshot_sql import SnapshotSql, within
from tests.cluster.specimens.specimen import Cases, Unary


def _case(keys: tuple[str, ...], session: Session, **others: int | None) -> Case:
    return Case(
        lambda: SessionWindowOperator(LEFT, keys, session, **others),
        chronons=True,
        instantaneous=not session.early,
    )


class SessionWindowSpecimen(Unary[SessionWindow]):
    """S(x) where the session of its tuples closes at t, or, if it is shown early, is open at t."""

    node = SessionWindow
    conformance: ClassVar[Cases] = {
        SessionWindowOperator: (
            _case((), Session(3, 30)),
            _case(("k",), Session(2, 7)),
            _case(("k", "n"), Session(4, 4, early=True)),
            _case(("k",), Session(3, 9, early=True), lag_us=0),
            _case((), Session(3, 60, early=True), lag_us=2),
            _case(("k",), Session(5, 60, early=True), lag_us=None),
        )
    }
    host_queries: ClassVar[Mapping[str, str]] = {
        "sessions": "SELECT sensor, lane FROM traffic WINDOW(SESSION GAP 3 US PARTITION BY sensor)",
        "sessions counted": (
            "SELECT sensor, COUNT(*) AS n, AVG(speed) AS x FROM traffic WINDOW(PARTITION BY sensor SESSION GAP 4 US "
            "MAX 12 US) GROUP BY sensor"
        ),
        "sessions of all": "SELECT COUNT(*) AS n, MAX(lane) AS m FROM traffic WINDOW(SESSION GAP 1 US MAX 9 US)",
        "sessions counted together": "SELECT COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 2 US PARTITION BY sensor)",
        "sessions counted by others": (
            "SELECT segment AS s, lane AS k, COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 5 US PARTITION BY lane, "
            "sensor) GROUP BY lane, segment"
        ),
        "sessions counted by more": (
            "SELECT s, l + 1 AS l, COUNT(*) AS n FROM (SELECT lane AS l, sensor AS s, open FROM traffic WINDOW(SESSION "
            "GAP 6 US PARTITION BY sensor)) AS t GROUP BY l, s"
        ),
        "sessions while they are open": (
            "SELECT sensor, COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 5 US MAX 20 US EARLY PARTITION BY sensor) "
            "GROUP BY sensor HAVING COUNT(*) > 1"
        ),
        "sessions with bounds": (
            "SELECT sensor, WINDOW_START() AS since, WINDOW_END() AS until, COUNT(*) AS n FROM traffic WINDOW(SESSION "
            "GAP 4 US MAX 12 US PARTITION BY sensor) GROUP BY sensor"
        ),
        "sessions with bounds while they are open": (
            "SELECT sensor, WINDOW_END() AS until, COUNT(*) FILTER (WHERE open) AS n FROM traffic WINDOW(SESSION GAP 5 "
            "US EARLY PARTITION BY sensor) GROUP BY sensor"
        ),
        "sessions of open lanes": (
            "SELECT lane, COUNT(*) AS n FROM (SELECT lane FROM traffic WHERE open) AS t WINDOW(SESSION GAP 6 US "
            "PARTITION BY lane) GROUP BY lane"
        ),
    }
    golden = "sessions"

    def sql(self, node: SessionWindow, query: SnapshotSql) -> str:
        below, keys = query.of(node.input), [f'"{key}"' for key in dict.fromkeys(node.keys)]
        names = within(node.schema, "s")
        closings = query.part("sessions", session_closings(below, '"#run"', '"#t"', keys, node.session))
        same = " AND ".join(f"s.{each} IS NOT DISTINCT FROM c.{each}" for each in ('"#run"', '"#t"', *keys))
        valid = 's."#t" <= i."#t" AND i."#t" < c.closes' if node.session.early else 'i."#t" = c.closes'
        return (
            f'SELECT i."#run", i."#t", sum(s."#n") AS "#n", NULL::BIGINT AS "#o"{names} FROM instants i '
            f'JOIN {below} s ON i."#run" = s."#run" JOIN {closings} c ON {same} AND {valid} '
            f'GROUP BY i."#run", i."#t"{names}'
        )

    def reach_us(self, node: SessionWindow) -> int:
        return node.session.gap_us

    def over(self, drawing: Drawing, node: Node) -> Node:
        node = drawing.to_window(node)
        size = drawing.whole(1, 7)
        keys = drawing.subset([column.name for column in node.schema], 2)
        longest = size + drawing.one_of((0, 2, 5, 30))
        return SessionWindow(node, tuple(keys), Session(size, longest, drawing.coin()))
